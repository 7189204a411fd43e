/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked.c - parses requests of three dialects into one question. Pure: bytes in, question
 * out. */
#include "api/http_routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "reconciler/command/answers.h"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* The members of each dialect's body; NULL: there is none of that kind. */
static const struct members {
    const char *path, *device, *sandbox;
    const char *size, *limit;
} all_members[HTTP_DIALECTS] = {
    [HTTP_VOLUME_RESIZE] = {.size = "required_bytes", .limit = "limit_bytes"},
    [HTTP_SHIM_RESIZE] = {.path = "volumePath", .size = "size"},
    [HTTP_FS_RESIZE] = {.device = "block-device", .sandbox = "pod-id", .size = "volume-size"},
    [HTTP_FS_STATS] = {.device = "block-device", .sandbox = "pod-id"},
};

/* ---- the target ---- */

static enum status_code take_target(const char *text, struct http_asked *asked, struct error *error)
{
    struct reconciler_target *target = &asked->expand.target;
    const size_t length = strlen(text);

    if (length == 0 || length >= sizeof(asked->path) || !json_is_text(text, length))
        return REFUSE(error, "the volume's path is missing, too long, or no UTF-8");
    memcpy(asked->path, text, length + 1);
    /* A path below /dev is a device, because no volume is published there. */
    if (strncmp(asked->path, "/dev/", 5) == 0)
        target->device = asked->path;
    else
        target->target_path = asked->path;
    return STATUS_OK;
}

/* "/v1/volumes/ID/…" */
static enum status_code take_id(const char *path, struct http_asked *asked, struct error *error)
{
    const char *digits = path + strlen("/v1/volumes/");
    const size_t length = strcspn(digits, "/");
    char *end = NULL;
    unsigned long long id;

    errno = 0;
    id = strtoull(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || end != digits + length || errno || id == 0 ||
        id > INT64_MAX)
        return REFUSE(error, "a volume is named by its volume_id here");
    asked->expand.target.volume_id = (int64_t)id;
    return STATUS_OK;
}

/* "/direct-volume/stats?path=P", "/direct-volume/stats/URLSAFE" */
static enum status_code take_url(const struct http_request *request, struct http_asked *asked,
                                 struct error *error)
{
    const char *encoded = request->path + strlen("/direct-volume/stats");
    char decoded[BASE64URL_PATH_BYTES + 1] = "";
    size_t length = 0;

    if (request->arguments && *encoded == '\0')
        return take_target(request->argument[0].value, asked, error);
    if (*encoded != '/' || request->arguments)
        return REFUSE(error, "the volume's path is missing: ?path=, or its base64url in the URL");
    if (base64url_decode(encoded + 1, strlen(encoded + 1), decoded, BASE64URL_PATH_BYTES, &length) <
        0)
        return REFUSE(error, "the volume's path in the URL is no padded base64url, or too long");
    return take_target(strlen(decoded) == length ? decoded : "", asked, error);
}

/* A device is a path or, in the first proposal's form, a name below /dev. */
static enum status_code take_device(const cJSON *body, const struct members *members,
                                    struct http_asked *asked, struct error *error)
{
    const char *device = json_text(body, members->device);
    const char *sandbox = json_string(body, members->sandbox);
    int length =
        snprintf(asked->path, sizeof(asked->path), "%s%s", *device == '/' ? "" : "/dev/", device);

    if (!*device || (size_t)length >= sizeof(asked->path))
        return REFUSE(error, "%s is missing or too long", members->device);
    if (sandbox && (!*sandbox || strlen(sandbox) >= sizeof(asked->sandbox_id)))
        return REFUSE(error, "%s is empty or too long", members->sandbox);
    asked->expand.target.device = asked->path;
    if (!sandbox)
        return STATUS_OK;
    memcpy(asked->sandbox_id, sandbox, strlen(sandbox) + 1);
    asked->expand.target.sandbox_id = asked->sandbox_id;
    return STATUS_OK;
}

/* ---- the body ---- */

/* A number, or a Kubernetes quantity as text. */
static enum status_code take_size(const cJSON *body, const char *name, bool required,
                                  uint64_t *ret_size, struct error *error)
{
    const char *text = json_string(body, name);
    enum json_number size = text ? JSON_NUMBER_WRONG : json_number(body, name, ret_size);

    if (text && quantity_parse(text, ret_size) == 0)
        size = JSON_NUMBER;
    if (size == JSON_NUMBER || (size == JSON_NUMBER_ABSENT && !required))
        return STATUS_OK;
    return REFUSE(error, "%s is %s", name,
                  size == JSON_NUMBER_ABSENT ? "missing" : "no size in bytes");
}

enum status_code http_asked_read(enum http_dialect dialect, const struct http_request *request,
                                 struct http_asked *ret_asked, struct error *error)
{
    static const char names[] =
        "required_bytes limit_bytes volumePath size pod-id block-device volume-size";
    const struct members *members = &all_members[dialect];
    const bool is_by_id = dialect == HTTP_VOLUME_RESIZE || dialect == HTTP_VOLUME_STATS;
    struct reconciler_expand *expand = &ret_asked->expand;
    cleanup(json_deletep) cJSON *body = NULL;
    enum status_code code = STATUS_OK;
    struct error why = {0};

    ret_asked->resizes = members->size;
    if (dialect == HTTP_SHIM_STATS)
        return take_url(request, ret_asked, error);
    if (is_by_id)
        code = take_id(request->path, ret_asked, error);
    if (code != STATUS_OK || (is_by_id && (!members->size || request->body_length == 0)))
        return code;
    if (json_read(request->body, request->body_length, JSON_LIMITS_HTTP, names, &body, &why) !=
        FILE_READ)
        return REFUSE(error, "the body: %s", why.text);
    if (!cJSON_IsObject(body))
        return REFUSE(error, "the body is no JSON object");
    if (members->path)
        code = take_target(json_text(body, members->path), ret_asked, error);
    if (members->device)
        code = take_device(body, members, ret_asked, error);
    if (code == STATUS_OK && members->size)
        code = take_size(body, members->size, !members->limit, &expand->required_bytes, error);
    if (code == STATUS_OK && members->limit)
        code = take_size(body, members->limit, false, &expand->limit_bytes, error);
    return code;
}
