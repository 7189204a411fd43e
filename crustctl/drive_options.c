/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options.c - from the command line's own forms (LIMIT, PLACE) to JSON. What a field may hold
 * is the daemon's to check. */
#include "crustctl/drive_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/quantity.h"

enum { PARTS = 4, PART_BYTES = 1200 };

/* ---- parts ---- */

/* A text in pieces. */
struct parts {
    unsigned count;
    char part[PARTS][PART_BYTES];
};

/* -EINVAL: there are more, or one is too long. */
static int split(const char *text, char separator, struct parts *ret_parts)
{
    const char separators[] = {separator, '\0'};

    ret_parts->count = 0;
    while (true) {
        const size_t length = strcspn(text, separators);

        if (ret_parts->count == PARTS || length >= PART_BYTES)
            return -EINVAL;
        memcpy(ret_parts->part[ret_parts->count], text, length);
        ret_parts->part[ret_parts->count++][length] = '\0';
        if (!text[length])
            return 0;
        text += length + 1;
    }
}

static int take_digits(const char *text, uint64_t *ret_number)
{
    char *end = NULL;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return *end || errno ? -EINVAL : 0;
}

/* ---- LIMIT ---- */

/* "SIZE/MS" or "SIZE/MS/BURST" */
static int take_limit(const char *text, struct drive_bucket *ret_bucket)
{
    struct parts parts;
    int r = split(text, '/', &parts);

    if (r < 0 || parts.count < 2 || parts.count > 3 ||
        quantity_parse(parts.part[0], &ret_bucket->size) < 0 || ret_bucket->size == 0 ||
        take_digits(parts.part[1], &ret_bucket->refill_ms) < 0 || ret_bucket->refill_ms == 0)
        return -EINVAL;
    return parts.count == 3 ? quantity_parse(parts.part[2], &ret_bucket->one_time_burst) : 0;
}

/* NULL and "none": no limit. */
static int append_limit(const char *name, const char *option, const char *text, struct buffer *json,
                        struct error *error)
{
    struct drive_bucket bucket = {0};

    if (!text || strcmp(text, "none") == 0)
        return 0;
    if (take_limit(text, &bucket) < 0)
        return error_set(error, -EINVAL, "%s wants SIZE/MS, SIZE/MS/BURST or none, not \"%s\"",
                         option, text);
    json_append_name(json, name);
    return buffer_append_format(json,
                                "{\"size\":%" PRIu64 ",\"refill_time_ms\":%" PRIu64
                                ",\"one_time_burst\":%" PRIu64 "}",
                                bucket.size, bucket.refill_ms, bucket.one_time_burst);
}

static int append_limiter(const struct drive_options *options, struct buffer *json,
                          struct error *error)
{
    int r;

    json_append_name(json, "rate_limiter");
    buffer_append_text(json, "{");
    r = append_limit("bandwidth", "--bandwidth", options->bandwidth, json, error);
    if (r == 0)
        r = append_limit("ops", "--operations", options->operations, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}

/* ---- PLACE ---- */

/* "ID:PATH", "ID:PATH:SUBPATH", either with ":ro" after it */
static int append_place(const char *text, struct buffer *json, struct error *error)
{
    struct parts parts;
    bool read_only = false;
    int r = split(text, ':', &parts);

    if (r == 0 && parts.count > 2 && strcmp(parts.part[parts.count - 1], "ro") == 0) {
        read_only = true;
        parts.count--;
    }
    if (r < 0 || parts.count < 2 || parts.count > 3)
        return error_set(error, -EINVAL, "--container wants ID:PATH[:SUBPATH][:ro], not \"%s\"",
                         text);
    buffer_append_text(json, "{");
    json_append_member(json, "container_id", parts.part[0]);
    json_append_member(json, "path", parts.part[1]);
    json_append_member(json, "sub_path", parts.count == 3 ? parts.part[2] : NULL);
    return buffer_append_text(json, read_only ? ",\"read_only\":true}" : "}");
}

static int append_places(const struct drive_options *options, struct buffer *json,
                         struct error *error)
{
    int r = 0;

    json_append_name(json, "containers");
    buffer_append_text(json, "[");
    for (unsigned i = 0; r == 0 && i < options->containers; i++) {
        buffer_append_text(json, i > 0 ? "," : "");
        r = append_place(options->container[i], json, error);
    }
    return r < 0 ? r : buffer_append_text(json, "]");
}

/* ---- bodies ---- */

static const char *find_missing(const struct drive_options *options)
{
    return !options->sandbox     ? "--sandbox"
           : !options->host_path ? "--host-path"
           : !options->vm_path   ? "--vm-path"
           : !options->fs_type   ? "--type"
                                 : NULL;
}

static int append_group(const struct drive_options *options, struct buffer *json,
                        struct error *error)
{
    uint64_t group;

    json_append_member(json, "fs_group_change_policy", options->fs_group_policy);
    if (!options->fs_group)
        return 0;
    if (take_digits(options->fs_group, &group) < 0)
        return error_set(error, -EINVAL, "--fs-group wants a number, not \"%s\"",
                         options->fs_group);
    json_append_name(json, "fs_group");
    return buffer_append_format(json, "%" PRIu64, group);
}

static void append_options(const struct drive_options *options, struct buffer *json)
{
    json_append_name(json, "options");
    buffer_append_text(json, "[");
    for (unsigned i = 0; i < options->options; i++) {
        buffer_append_text(json, i > 0 ? "," : "");
        json_append_string(json, options->option[i]);
    }
    buffer_append_text(json, "]");
}

int drive_options_append_attach(const struct drive_options *options, const char *drive_id,
                                struct buffer *json, struct error *error)
{
    const char *missing = find_missing(options);
    int r;

    if (missing)
        return error_set(error, -EINVAL, "drive attach wants %s", missing);
    buffer_append_text(json, "{");
    json_append_member(json, "drive_id", drive_id);
    json_append_member(json, "sandbox_id", options->sandbox);
    json_append_member(json, "host_path", options->host_path);
    json_append_member(json, "vm_path", options->vm_path);
    json_append_member(json, "filesystem_type", options->fs_type);
    json_append_member(json, "fsck", options->fsck ? "preen" : "none");
    json_append_name(json, "is_writable");
    buffer_append_text(json, options->writable ? "true" : "false");
    append_options(options, json);
    r = append_group(options, json, error);
    if (r == 0)
        r = append_limiter(options, json, error);
    if (r == 0)
        r = append_places(options, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}

int drive_options_append_limits(const struct drive_options *options, struct buffer *json,
                                struct error *error)
{
    int r;

    if (!options->bandwidth && !options->operations)
        return error_set(error, -EINVAL,
                         "drive limits wants --bandwidth or --operations; none removes a limit");
    buffer_append_text(json, "{");
    r = append_limiter(options, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}
