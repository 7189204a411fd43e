/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info.c - strict about types, ignores what it does not know.
 *
 * CSI drivers copy users' parameters to metadata, and mount options may contain a password. Hence
 * two rules: whatever lib/text.h takes for a secret leaves this file only as "[redacted]", and
 * crust.resize, the only key that crustd obeys, can only make it do less. "grow" does not restrict
 * anything. A value that is not understood means observe, because its author probably wanted
 * something other than a resize.
 */
#include "observe/observe.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

#define POLICY_KEY "crust.resize"

static const char names[] = "volume-type device fstype options metadata";

/* NULL if the member is absent or null. */
static const cJSON *present(const cJSON *object, const char *name)
{
    const cJSON *member = json_member(object, name);

    return cJSON_IsNull(member) ? NULL : member;
}

static int copy_string(const cJSON *object, const char *name, char **ret_text, struct error *error)
{
    const cJSON *member = present(object, name);

    if (!member)
        return 0;
    if (!cJSON_IsString(member))
        return error_set(error, FILE_WRONG, "%s: not a string", name);
    *ret_text = strdup(member->valuestring);
    return *ret_text ? 0 : -ENOMEM;
}

bool observe_read_only(bool so_far, const char *option)
{
    while (*option) {
        const size_t length = strcspn(option, ",");

        if (length == 2 && (strncmp(option, "ro", 2) == 0 || strncmp(option, "rw", 2) == 0))
            so_far = option[1] == 'o';
        option += length + (option[length] == ',');
    }
    return so_far;
}

/* The keys are the driver's own, and may differ in letter case only; crustd's own may not. */
static int append_metadata(const cJSON *metadata, const cJSON *item, struct buffer *text,
                           struct mount_info *info, struct error *error)
{
    bool is_policy = strcasecmp(item->string, POLICY_KEY) == 0;
    const cJSON *first = is_policy ? json_member(metadata, POLICY_KEY)
                                   : cJSON_GetObjectItemCaseSensitive(metadata, item->string);

    if (first != item || !cJSON_IsString(item)) {
        char shown[SHOWN_NAME_BYTES];

        entry_name_show(item->string, shown);
        return error_set(error, FILE_WRONG, "metadata.%s: %s", shown,
                         first != item ? "key a second time" : "not a string");
    }
    if (is_policy)
        info->policy = policy_from_name(item->valuestring);
    buffer_append_text(text, text->length > 1 ? "," : "");
    json_append_string(text, item->string);
    buffer_append_text(text, ":");
    return secret_is_name(item->string, strlen(item->string))
               ? json_append_string(text, SECRET_REDACTED)
               : secret_append_json(text, item->valuestring);
}

static int parse_options(const cJSON *object, struct mount_info *info, struct error *error)
{
    const cJSON *options = present(object, "options"), *item;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    size_t index = 0;
    int r;

    if (!options)
        return 0;
    if (!cJSON_IsArray(options))
        return error_set(error, FILE_WRONG, "options: not an array");
    buffer_append_text(&text, "[");
    cJSON_ArrayForEach(item, options)
    {
        if (!cJSON_IsString(item))
            return error_set(error, FILE_WRONG, "options[%zu]: not a string", index);
        buffer_append_text(&text, index++ ? "," : "");
        secret_append_json(&text, item->valuestring);
        info->read_only = observe_read_only(info->read_only, item->valuestring);
    }
    r = buffer_append_text(&text, "]");
    if (r == 0)
        info->options = take_pointer(&text.data);
    return r;
}

static int parse_metadata(const cJSON *object, struct mount_info *info, struct error *error)
{
    const cJSON *metadata = present(object, "metadata"), *item;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    int r;

    if (!metadata)
        return 0;
    if (!cJSON_IsObject(metadata))
        return error_set(error, FILE_WRONG, "metadata: not an object");
    r = buffer_append_text(&text, "{");
    cJSON_ArrayForEach(item, metadata)
    {
        if (r == 0)
            r = append_metadata(metadata, item, &text, info, error);
    }
    if (r == 0)
        r = buffer_append_text(&text, "}");
    if (r == 0)
        info->metadata = take_pointer(&text.data);
    return r;
}

static int parse_object(const cJSON *object, struct mount_info *info, struct error *error)
{
    int r;

    if (!cJSON_IsObject(object))
        return error_set(error, FILE_WRONG, "not an object");
    r = copy_string(object, "volume-type", &info->volume_type, error);
    if (r == 0)
        r = copy_string(object, "device", &info->device, error);
    if (r == 0)
        r = copy_string(object, "fstype", &info->fs_type, error);
    if (r != 0)
        return r;
    if (!info->device || !*info->device)
        return error_set(error, FILE_WRONG, "device: missing or empty");
    /* What is not a path (a PCI address, an SPDK URL, a network export) is valid: "NAME:…". */
    if (info->device[0] != '/' && info->device[strcspn(info->device, "/:")] != ':')
        return error_set(error, FILE_WRONG, "device: not an absolute path");
    if (strlen(info->device) >= PATH_MAX)
        return error_set(error, FILE_WRONG, "device: longer than a path can be");
    r = parse_options(object, info, error);
    if (r == 0)
        r = parse_metadata(object, info, error);
    return r;
}

int mount_info_parse(const char *text, size_t length, struct mount_info *ret_info,
                     struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct mount_info info = {.policy = POLICY_GROW};
    int r = json_read(text, length, JSON_LIMITS_MOUNT_INFO, names, &object, error);

    if (r != FILE_READ)
        return r;
    r = parse_object(object, &info, error);
    if (r != 0) {
        mount_info_done(&info);
        return r;
    }
    *ret_info = info;
    return FILE_READ;
}

void mount_info_done(struct mount_info *info)
{
    if (!info)
        return;
    free(info->volume_type);
    free(info->device);
    free(info->fs_type);
    free(info->options);
    free(info->metadata);
    *info = (struct mount_info){0};
}

/* ---- entry name ----------------------------------------------------------------------------- */

/* The names of the two layouts cannot be confused: base64url of a path begins with 'L' (the six
 * upper bits of '/'), which is not a hex digit. The decoded path is data: it is stored and shown,
 * never opened. It is the volume's identity byte by byte, so it is not normalised. */

void entry_name_show(const char *name, char ret_shown[static SHOWN_NAME_BYTES])
{
    static const char more[] = "...";
    const char *end = name + strlen(name);
    size_t used = text_escape(&name, end, ret_shown, SHOWN_NAME_BYTES - sizeof(more));

    memcpy(ret_shown + used, more, sizeof(more));
    if (name == end)
        ret_shown[used] = '\0';
}

static int refuse(const char *name, const char *why, struct error *error)
{
    char shown[SHOWN_NAME_BYTES];

    entry_name_show(name, shown);
    return error_set(error, ENTRY_NAME_OTHER, "directory name %s: %s", shown, why);
}

int entry_name_decode(const char *name, char ret_path[static ENTRY_PATH_BYTES], struct error *error)
{
    char path[ENTRY_PATH_BYTES];
    size_t length;
    int r;

    if (strlen(name) == 64 && strspn(name, "0123456789abcdef") == 64)
        return ENTRY_NAME_SHA256;
    r = base64url_decode(name, strlen(name), path, BASE64URL_PATH_BYTES, &length);
    if (r == BASE64URL_TOO_LONG)
        return refuse(name, "longer than any path", error);
    if (r < 0)
        return refuse(name, "neither canonical base64url with padding nor a SHA-256", error);
    if (!length || path[0] != '/')
        return refuse(name, "does not decode to an absolute path", error);
    if (!json_is_text(path, length))
        return refuse(name, "decodes to a path that is not UTF-8 or has a NUL", error);
    memcpy(ret_path, path, length);
    ret_path[length] = '\0';
    return ENTRY_NAME_PATH;
}
