/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info.c - strict about types, ignores what it does not know.
 *
 * CSI drivers copy users' parameters to metadata, and mount options may contain a password. Hence
 * two rules: whatever lib/secret.h takes for a secret leaves this file only as "[redacted]", and
 * crust.resize, the only key that crustd obeys, can only make it do less. "grow" does not restrict
 * anything. A value that is not understood means observe, because its author probably wanted
 * something other than a resize.
 */
#include "observe/mount_info.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/secret.h"

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

/* A PCI address, an SPDK URL, a network export: crustd cannot resize it, but it is valid. */
static bool is_no_path(const char *device)
{
    return device[strcspn(device, "/:")] == ':';
}

static int check_device(const char *device, struct error *error)
{
    if (!device || !*device)
        return error_set(error, FILE_WRONG, "device: missing or empty");
    if (device[0] != '/' && !is_no_path(device))
        return error_set(error, FILE_WRONG, "device: not an absolute path");
    if (strlen(device) >= PATH_MAX)
        return error_set(error, FILE_WRONG, "device: longer than a path can be");
    return 0;
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

static int append_option(const cJSON *item, size_t index, struct buffer *text, struct error *error)
{
    if (!cJSON_IsString(item))
        return error_set(error, FILE_WRONG, "options[%zu]: not a string", index);
    buffer_append_text(text, index ? "," : "");
    return secret_append_json(text, item->valuestring);
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
    int r = options ? buffer_append_text(&text, "[") : 0;

    if (options && !cJSON_IsArray(options))
        return error_set(error, FILE_WRONG, "options: not an array");
    cJSON_ArrayForEach(item, options)
    {
        if (r == 0)
            r = append_option(item, index++, &text, error);
        if (r == 0)
            info->read_only = observe_read_only(info->read_only, item->valuestring);
    }
    if (r == 0 && options)
        r = buffer_append_text(&text, "]");
    if (r == 0)
        info->options = take_pointer(&text.data);
    return r;
}

static int parse_metadata(const cJSON *object, struct mount_info *info, struct error *error)
{
    const cJSON *metadata = present(object, "metadata"), *item;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    int r = metadata ? buffer_append_text(&text, "{") : 0;

    if (metadata && !cJSON_IsObject(metadata))
        return error_set(error, FILE_WRONG, "metadata: not an object");
    cJSON_ArrayForEach(item, metadata)
    {
        if (r == 0)
            r = append_metadata(metadata, item, &text, info, error);
    }
    if (r == 0 && metadata)
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
    if (r == 0)
        r = check_device(info->device, error);
    if (r == 0)
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
