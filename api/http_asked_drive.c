/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked_drive.c - JSON about drives, read and written. */
#include "api/http_asked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/drive_asked.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* ---- members ---- */

/* The name of a member in messages: "containers[0].path". */
static const char *name_member(char ret_name[static DRIVE_ASKED_NAME_BYTES], const char *prefix,
                               const char *key)
{
    (void)snprintf(ret_name, DRIVE_ASKED_NAME_BYTES, "%s%s%s", prefix, *prefix ? "." : "", key);
    return ret_name;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcasecmp(name, *names) != 0)
        names++;
    return *names;
}

/* The member's name is not shown: who knows what a client put into a key. */
static enum status_code check_keys(const cJSON *object, const char *prefix,
                                   const char *const *names, struct error *error)
{
    const cJSON *member;

    if (!cJSON_IsObject(object))
        return REFUSE(error, "%s is no JSON object", *prefix ? prefix : "the body");
    cJSON_ArrayForEach(member, object)
    {
        if (!is_one_of(member->string, names))
            return REFUSE(error, "%s has a member that is not known here",
                          *prefix ? prefix : "the body");
        if (json_member(object, member->string) != member)
            return REFUSE(error, "%s has a member twice", *prefix ? prefix : "the body");
    }
    return STATUS_OK;
}

/* NULL: absent, or null. */
static const cJSON *find(const cJSON *object, const char *key)
{
    const cJSON *member = json_member(object, key);

    return cJSON_IsNull(member) ? NULL : member;
}

/* A member that is a text: where to take it to, and its bound. */
struct member {
    const char *key;
    size_t limit;
    const char **text;
};

static enum status_code take_texts(struct drive_asked *asked, const cJSON *object,
                                   const char *prefix, const struct member *members, size_t count,
                                   struct error *error)
{
    char name[DRIVE_ASKED_NAME_BYTES];
    enum status_code code = STATUS_OK;

    for (size_t i = 0; code == STATUS_OK && i < count; i++) {
        const cJSON *member = find(object, members[i].key);

        (void)name_member(name, prefix, members[i].key);
        if (member && !cJSON_IsString(member))
            code = REFUSE(error, "%s is no text", name);
        else if (member)
            code = drive_asked_take(
                asked,
                &(struct drive_asked_text){name, member->valuestring, strlen(member->valuestring)},
                members[i].limit, members[i].text, error);
    }
    return code;
}

static enum status_code take_flag(const cJSON *object, const char *prefix, const char *key,
                                  bool *ret_flag, struct error *error)
{
    const cJSON *member = find(object, key);
    char name[DRIVE_ASKED_NAME_BYTES];

    if (member && !cJSON_IsBool(member))
        return REFUSE(error, "%s is neither true nor false", name_member(name, prefix, key));
    if (member)
        *ret_flag = cJSON_IsTrue(member);
    return STATUS_OK;
}

static enum status_code take_number(const cJSON *object, const char *prefix, const char *key,
                                    bool is_size, uint64_t *ret_number, struct error *error)
{
    const cJSON *member = find(object, key);
    char name[DRIVE_ASKED_NAME_BYTES];

    if (!member || json_number(object, key, ret_number) == JSON_NUMBER)
        return STATUS_OK;
    if (is_size && cJSON_IsString(member) && quantity_parse(member->valuestring, ret_number) == 0)
        return STATUS_OK;
    return REFUSE(error, "%s is no number%s", name_member(name, prefix, key),
                  is_size ? " of bytes" : "");
}

/* ---- parts of a request ---- */

static enum status_code take_bucket(const cJSON *limiter, const char *key, bool is_size,
                                    struct drive_bucket *ret_bucket, struct error *error)
{
    static const char *const names[] = {"size", "refill_time_ms", "one_time_burst", NULL};
    const cJSON *object = find(limiter, key);
    char name[DRIVE_ASKED_NAME_BYTES];
    enum status_code code;

    if (!object)
        return STATUS_OK;
    code = check_keys(object, name_member(name, "rate_limiter", key), names, error);
    if (code == STATUS_OK)
        code = take_number(object, name, names[0], is_size, &ret_bucket->size, error);
    if (code == STATUS_OK)
        code = take_number(object, name, names[1], false, &ret_bucket->refill_ms, error);
    if (code == STATUS_OK)
        code = take_number(object, name, names[2], is_size, &ret_bucket->one_time_burst, error);
    return code;
}

static enum status_code take_limits(const cJSON *body, bool required, struct drive_limits *limits,
                                    struct error *error)
{
    static const char *const names[] = {"bandwidth", "ops", NULL};
    const cJSON *limiter = find(body, "rate_limiter");
    enum status_code code;

    if (!limiter)
        return required ? REFUSE(error, "rate_limiter is missing; {} removes all limits")
                        : STATUS_OK;
    code = check_keys(limiter, "rate_limiter", names, error);
    if (code == STATUS_OK)
        code = take_bucket(limiter, names[0], true, &limits->bandwidth, error);
    return code == STATUS_OK ? take_bucket(limiter, names[1], false, &limits->operations, error)
                             : code;
}

static enum status_code take_options(const cJSON *body, struct drive_asked *asked,
                                     struct error *error)
{
    const cJSON *list = find(body, "options"), *one;
    enum status_code code = STATUS_OK;

    if (list && !cJSON_IsArray(list))
        return REFUSE(error, "options is no list of texts");
    cJSON_ArrayForEach(one, list)
    {
        if (!cJSON_IsString(one))
            return REFUSE(error, "options is no list of texts");
        code = drive_asked_add_option(asked, one->valuestring, strlen(one->valuestring), error);
        if (code != STATUS_OK)
            return code;
    }
    return code;
}

static enum status_code take_container(const cJSON *object, struct drive_asked *asked,
                                       struct error *error)
{
    static const char *const names[] = {"container_id", "path", "sub_path", "read_only", NULL};
    char name[DRIVE_ASKED_NAME_BYTES];
    struct reconciler_drive_container *one = drive_asked_add_container(asked, name, error);
    enum status_code code;

    if (!one)
        return STATUS_INVALID_ARGUMENT;
    code = check_keys(object, name, names, error);
    if (code == STATUS_OK)
        code = take_texts(asked, object, name,
                          (const struct member[]){
                              {names[0], DRIVE_CONTAINER_ID_CHARS, &one->container_id},
                              {names[1], DRIVE_PATH_CHARS, &one->path},
                              {names[2], DRIVE_PATH_CHARS, &one->sub_path},
                          },
                          3, error);
    return code == STATUS_OK ? take_flag(object, name, names[3], &one->read_only, error) : code;
}

static enum status_code take_containers(const cJSON *body, struct drive_asked *asked,
                                        struct error *error)
{
    const cJSON *list = find(body, "containers"), *one;
    enum status_code code = STATUS_OK;

    if (list && !cJSON_IsArray(list))
        return REFUSE(error, "containers is no list");
    cJSON_ArrayForEach(one, list)
    {
        code = take_container(one, asked, error);
        if (code != STATUS_OK)
            return code;
    }
    return code;
}

static enum status_code take_group(const cJSON *body, struct reconciler_drive_attach *attach,
                                   struct error *error)
{
    uint64_t group = 0;
    const enum status_code code = take_number(body, "", "fs_group", false, &group, error);

    if (code == STATUS_OK && group > UINT32_MAX)
        return REFUSE(error, "fs_group must be less than 4294967295");
    attach->has_fs_group = find(body, "fs_group");
    attach->fs_group = (uint32_t)group;
    return code;
}

/* Members whose texts are one of a few words. */
static enum status_code take_words(const cJSON *body, struct reconciler_drive_attach *attach,
                                   struct error *error)
{
    const cJSON *fsck = find(body, "fsck"), *policy = find(body, "fs_group_change_policy");

    if (fsck)
        attach->fsck = cJSON_IsString(fsck) ? drive_fsck_from_name(fsck->valuestring) : DRIVE_FSCKS;
    if (attach->fsck >= DRIVE_FSCKS)
        return REFUSE(error, "fsck is neither \"none\" nor \"preen\"");
    if (policy)
        attach->fs_group_policy = cJSON_IsString(policy)
                                      ? drive_group_policy_from_name(policy->valuestring)
                                      : DRIVE_GROUP_POLICIES;
    if (attach->fs_group_policy >= DRIVE_GROUP_POLICIES)
        return REFUSE(error, "fs_group_change_policy is neither \"Always\" nor \"OnRootMismatch\"");
    return STATUS_OK;
}

/* ---- requests ---- */

static enum status_code read_body(const struct http_question *question, cJSON **ret_body,
                                  struct error *error)
{
    struct error why = {0};

    if (json_parse(question->body, question->body_length, JSON_LIMITS_HTTP, ret_body, &why) < 0)
        return REFUSE(error, "the body: %s", why.text);
    return STATUS_OK;
}

static enum status_code new_asked(enum drive_asked_call call, struct http_asked *asked,
                                  struct error *error)
{
    asked->drive = drive_asked_new(call);
    return asked->drive ? STATUS_OK : answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
}

/* "/v1/drives/ID/…" */
static enum status_code take_id(const char *path, struct drive_asked *asked, struct error *error)
{
    const char *id = path + strlen("/v1/drives/");

    return drive_asked_take(asked, &(struct drive_asked_text){"drive_id", id, strcspn(id, "/")},
                            DRIVE_ID_CHARS, &asked->attach.drive_id, error);
}

static enum status_code take_attach(const cJSON *body, struct drive_asked *asked,
                                    struct error *error)
{
    static const char *const names[] = {"drive_id",
                                        "sandbox_id",
                                        "host_path",
                                        "vm_path",
                                        "filesystem_type",
                                        "options",
                                        "rate_limiter",
                                        "is_writable",
                                        "fsck",
                                        "fs_group",
                                        "fs_group_change_policy",
                                        "containers",
                                        NULL};
    struct reconciler_drive_attach *attach = &asked->attach;
    const struct member texts[] = {
        {names[0], DRIVE_ID_CHARS, &attach->drive_id},
        {names[1], DRIVE_FORM_SANDBOX_CHARS, &attach->sandbox_id},
        {names[2], DRIVE_PATH_CHARS, &attach->host_path},
        {names[3], DRIVE_PATH_CHARS, &attach->vm_path},
        {names[4], DRIVE_FS_TYPE_CHARS, &attach->fs_type},
    };
    enum status_code code = check_keys(body, "", names, error);

    if (code == STATUS_OK)
        code = take_texts(asked, body, "", texts, array_length(texts), error);
    if (code == STATUS_OK)
        code = take_options(body, asked, error);
    if (code == STATUS_OK)
        code = take_flag(body, "", "is_writable", &attach->writable, error);
    if (code == STATUS_OK)
        code = take_limits(body, false, &attach->limits, error);
    if (code == STATUS_OK)
        code = take_words(body, attach, error);
    if (code == STATUS_OK)
        code = take_group(body, attach, error);
    return code == STATUS_OK ? take_containers(body, asked, error) : code;
}

enum status_code http_asked_drive_attach(const struct http_question *question,
                                         struct http_asked *ret_asked, struct error *error)
{
    cleanup(json_deletep) cJSON *body = NULL;
    enum status_code code = read_body(question, &body, error);

    ret_asked->method = "POST /v1/drives";
    if (code == STATUS_OK)
        code = new_asked(DRIVE_ASKED_ATTACH, ret_asked, error);
    if (code == STATUS_OK)
        code = take_attach(body, ret_asked->drive, error);
    return code == STATUS_OK ? drive_asked_check(ret_asked->drive, error) : code;
}

enum status_code http_asked_drive_detach(const struct http_question *question,
                                         struct http_asked *ret_asked, struct error *error)
{
    static const char *const no_names[] = {NULL};
    cleanup(json_deletep) cJSON *body = NULL;
    enum status_code code = new_asked(DRIVE_ASKED_DETACH, ret_asked, error);

    ret_asked->method = "POST /v1/drives/ID/detach";
    if (code == STATUS_OK && question->body_length > 0)
        code = read_body(question, &body, error);
    if (code == STATUS_OK && body)
        code = check_keys(body, "", no_names, error);
    if (code == STATUS_OK)
        code = take_id(question->path, ret_asked->drive, error);
    return code == STATUS_OK ? drive_asked_check(ret_asked->drive, error) : code;
}

enum status_code http_asked_drive_limits(const struct http_question *question,
                                         struct http_asked *ret_asked, struct error *error)
{
    static const char *const names[] = {"rate_limiter", NULL};
    cleanup(json_deletep) cJSON *body = NULL;
    enum status_code code = read_body(question, &body, error);

    ret_asked->method = "POST /v1/drives/ID/limits";
    if (code == STATUS_OK)
        code = new_asked(DRIVE_ASKED_LIMITS, ret_asked, error);
    if (code == STATUS_OK)
        code = check_keys(body, "", names, error);
    if (code == STATUS_OK)
        code = take_id(question->path, ret_asked->drive, error);
    if (code == STATUS_OK)
        code = take_limits(body, true, &ret_asked->drive->attach.limits, error);
    return code == STATUS_OK ? drive_asked_check(ret_asked->drive, error) : code;
}

/* ---- a drive ---- */

static void append_bucket(struct buffer *json, const char *name, const struct drive_bucket *bucket)
{
    json_append_name(json, name);
    if (!bucket->size)
        buffer_append_text(json, "null");
    else
        buffer_append_format(json,
                             "{\"size\":%" PRIu64 ",\"refill_time_ms\":%" PRIu64
                             ",\"one_time_burst\":%" PRIu64 "}",
                             bucket->size, bucket->refill_ms, bucket->one_time_burst);
}

static void append_flag(struct buffer *json, const char *name, bool flag)
{
    json_append_name(json, name);
    buffer_append_text(json, flag ? "true" : "false");
}

static void append_or_null(struct buffer *json, const char *name, const char *text)
{
    json_append_member(json, name, *text ? text : NULL);
}

int http_append_drive(struct buffer *json, const struct reconciler_drive *drive)
{
    buffer_append_text(json, "{");
    json_append_member(json, "drive_id", drive->drive_id);
    json_append_member(json, "sandbox_id", drive->sandbox_id);
    json_append_member(json, "host_path", drive->host_path);
    json_append_member(json, "vm_path", drive->vm_path);
    json_append_member(json, "filesystem_type", drive->fs_type);
    json_append_name(json, "options");
    buffer_append_text(json, *drive->options ? drive->options : "[]");
    json_append_name(json, "containers");
    buffer_append_text(json, drive->containers ? drive->containers : "[]");
    append_flag(json, "is_writable", drive->writable);
    json_append_name(json, "rate_limiter");
    buffer_append_text(json, "{");
    append_bucket(json, "bandwidth", &drive->limits.bandwidth);
    append_bucket(json, "ops", &drive->limits.operations);
    buffer_append_text(json, "}");
    append_or_null(json, "serial", drive->serial);
    append_or_null(json, "guest_device", drive->guest_device);
    json_append_name(json, "size_bytes");
    buffer_append_format(json, "%" PRIu64, drive->size_bytes);
    append_flag(json, "is_wanted", drive->wanted);
    json_append_member(json, "state", drive_state_name(drive->state));
    json_append_member(json, "status", drive->status ? status_name((int)drive->status) : NULL);
    append_or_null(json, "message", drive->message);
    return buffer_append_text(json, "}");
}
