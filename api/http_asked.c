/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked.c - parses requests of three dialects into one question. Pure: bytes in, question
 * out. */
#include "api/http_asked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "reconciler/command/answers.h"

static enum status_code refuse(const char *what, struct error *error)
{
    return answer_refuse(error, ANSWER_BAD_REQUEST, "%s", what);
}

void http_asked_done(struct http_asked *asked)
{
    free(asked->drive);
    asked->drive = NULL;
}

/* ---- parts ---- */

static int read_digits(const char *text, uint64_t *ret_number)
{
    char *end = NULL;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number > INT64_MAX)
        return -EINVAL;
    *ret_number = number;
    return 0;
}

/* A number, or a Kubernetes quantity as text. */
static enum json_number read_size(const cJSON *object, const char *name, uint64_t *ret_size)
{
    const char *text = json_string(object, name);

    if (!text)
        return json_number(object, name, ret_size);
    return quantity_parse(text, ret_size) < 0 ? JSON_NUMBER_WRONG : JSON_NUMBER;
}

static enum status_code take_size(const cJSON *object, const char *name, bool required,
                                  uint64_t *ret_size, struct error *error)
{
    enum json_number size = read_size(object, name, ret_size);

    if (size == JSON_NUMBER || (size == JSON_NUMBER_ABSENT && !required))
        return STATUS_OK;
    return answer_refuse(error, ANSWER_BAD_REQUEST, "%s is %s", name,
                         size == JSON_NUMBER_ABSENT ? "missing" : "no size in bytes");
}

static enum status_code read_object(const struct http_question *question, cJSON **ret_object,
                                    struct error *error)
{
    static const char names[] =
        "required_bytes limit_bytes volumePath size pod-id block-device volume-size";
    struct error why = {0};
    cJSON *value = NULL;

    if (json_read(question->body, question->body_length, JSON_LIMITS_HTTP, names, &value, &why) !=
        FILE_READ)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "the body: %s", why.text);
    if (!cJSON_IsObject(value)) {
        cJSON_Delete(value);
        return refuse("the body is no JSON object", error);
    }
    *ret_object = value;
    return STATUS_OK;
}

/* A path below /dev is a device, because no volume is published there. */
static enum status_code take_path(const char *text, size_t length, struct http_asked *asked,
                                  struct error *error)
{
    struct reconciler_target *target = &asked->expand.target;

    if (length == 0 || length >= sizeof(asked->path) || !json_is_text(text, length))
        return refuse("the volume's path is missing, too long, or no UTF-8", error);
    memcpy(asked->path, text, length);
    asked->path[length] = '\0';
    if (strncmp(asked->path, "/dev/", 5) == 0)
        target->device = asked->path;
    else
        target->target_path = asked->path;
    return STATUS_OK;
}

/* "/v1/volumes/ID/…" */
static enum status_code take_id(const char *path, struct http_asked *asked, struct error *error)
{
    const char *text = path + strlen("/v1/volumes/");
    char digits[24] = "";
    uint64_t id = 0;

    if (strcspn(text, "/") < sizeof(digits))
        memcpy(digits, text, strcspn(text, "/"));
    if (read_digits(digits, &id) < 0 || id == 0)
        return refuse("a volume is named by its volume_id here", error);
    asked->expand.target.volume_id = (int64_t)id;
    return STATUS_OK;
}

/* ---- by volume id ---- */

enum status_code http_asked_volume_resize(const struct http_question *question,
                                          struct http_asked *ret_asked, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct reconciler_expand *expand = &ret_asked->expand;
    enum status_code code;

    ret_asked->method = "POST /v1/volumes/ID/resize";
    ret_asked->resizes = true;
    code = take_id(question->path, ret_asked, error);
    if (code != STATUS_OK || question->body_length == 0)
        return code;
    code = read_object(question, &object, error);
    if (code == STATUS_OK)
        code = take_size(object, "required_bytes", false, &expand->required_bytes, error);
    if (code == STATUS_OK)
        code = take_size(object, "limit_bytes", false, &expand->limit_bytes, error);
    return code;
}

enum status_code http_asked_volume_stats(const struct http_question *question,
                                         struct http_asked *ret_asked, struct error *error)
{
    ret_asked->method = "GET /v1/volumes/ID/stats";
    return take_id(question->path, ret_asked, error);
}

/* ---- in the form of Kata's shim ---- */

enum status_code http_asked_shim_stats(const struct http_question *question,
                                       struct http_asked *ret_asked, struct error *error)
{
    const char *encoded = question->path + strlen("/direct-volume/stats");
    char decoded[BASE64URL_PATH_BYTES];
    size_t length = 0;

    ret_asked->method = "GET /direct-volume/stats";
    if (question->argument && *encoded == '\0')
        return take_path(question->argument, strlen(question->argument), ret_asked, error);
    if (*encoded != '/' || question->argument)
        return refuse("the volume's path is missing: ?path=, or its base64url in the URL", error);
    if (base64url_decode(encoded + 1, strlen(encoded + 1), decoded, sizeof(decoded), &length) < 0)
        return refuse("the volume's path in the URL is no padded base64url, or too long", error);
    return take_path(decoded, length, ret_asked, error);
}

enum status_code http_asked_shim_resize(const struct http_question *question,
                                        struct http_asked *ret_asked, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    const char *path;
    enum status_code code;

    ret_asked->method = "POST /direct-volume/resize";
    ret_asked->resizes = true;
    code = read_object(question, &object, error);
    if (code != STATUS_OK)
        return code;
    path = json_string(object, "volumePath");
    code = take_path(path ? path : "", path ? strlen(path) : 0, ret_asked, error);
    return code == STATUS_OK
               ? take_size(object, "size", true, &ret_asked->expand.required_bytes, error)
               : code;
}

/* ---- the first proposal ---- */

/* A device is a path or, in the proposal's form, a name below /dev. */
static enum status_code take_device(const cJSON *object, struct http_asked *asked,
                                    struct error *error)
{
    const char *device = json_string(object, "block-device");
    const char *sandbox = json_string(object, "pod-id");
    int length = snprintf(asked->path, sizeof(asked->path), "%s%s",
                          device && *device != '/' ? "/dev/" : "", device ? device : "");

    if (!device || !*device || (size_t)length >= sizeof(asked->path))
        return refuse("block-device is missing or too long", error);
    if (sandbox && (!*sandbox || strlen(sandbox) >= sizeof(asked->sandbox_id)))
        return refuse("pod-id is empty or too long", error);
    asked->expand.target.device = asked->path;
    if (!sandbox)
        return STATUS_OK;
    memcpy(asked->sandbox_id, sandbox, strlen(sandbox) + 1);
    asked->expand.target.sandbox_id = asked->sandbox_id;
    return STATUS_OK;
}

enum status_code http_asked_fs_stats(const struct http_question *question,
                                     struct http_asked *ret_asked, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    enum status_code code = read_object(question, &object, error);

    ret_asked->method = "PUT /fs-stats";
    return code == STATUS_OK ? take_device(object, ret_asked, error) : code;
}

enum status_code http_asked_fs_resize(const struct http_question *question,
                                      struct http_asked *ret_asked, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    enum status_code code = read_object(question, &object, error);

    ret_asked->method = "PUT /fs-resize";
    ret_asked->resizes = true;
    if (code == STATUS_OK)
        code = take_device(object, ret_asked, error);
    return code == STATUS_OK
               ? take_size(object, "volume-size", true, &ret_asked->expand.required_bytes, error)
               : code;
}
