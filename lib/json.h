/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - strict reading of all or of the named members of a text, and a writer.
 *
 * cJSON 1.7.15 lets through what other readers of the same file see differently: \u0000 (cuts the
 * string), invalid UTF-8, trailing text. So the whole text is first walked, and refused if it has
 * more than `bytes`, is deeper than `depth`, has more values than `values`, is anything but one
 * value and white space, or has invalid UTF-8, a NUL written either way, or lone surrogates.
 *
 * A key twice in one object, in whatever letter case: readers differ there, too (Go matches keys
 * without regard to case, and takes the last), but others' objects are free to have one, so it
 * matters for members that are read and for no others. json_read() refuses the text; behind
 * json_parse() such a member is not there.
 */
#pragma once

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct json_limits {
    size_t bytes;
    unsigned depth;  /* nested arrays and objects; {} is 1 */
    unsigned values; /* of those that are kept, each of which cJSON makes a node of: 2 bytes of text
                        become 100 of memory. 0: any number, for what crustd itself wrote */
};

/* Limits per kind of input (DESIGN: hostile input). A file of the runtime's is read and taken apart
 * in one go: the largest costs some 10 ms. Service links put thousands of variables into a
 * bundle. */
#define JSON_LIMITS_MOUNT_INFO ((struct json_limits){64 * 1024, 4, 4096})
#define JSON_LIMITS_PERSIST    ((struct json_limits){1024 * 1024, 16, 65536})
#define JSON_LIMITS_BUNDLE     ((struct json_limits){8 * 1024 * 1024, 64, 81920})
#define JSON_LIMITS_QMP        ((struct json_limits){2 * 1024 * 1024, 16, 65536})
#define JSON_LIMITS_VMM_HTTP   ((struct json_limits){1024 * 1024, 16, 16384})
#define JSON_LIMITS_HTTP       ((struct json_limits){64 * 1024, 8, 4096})

/* Negative; each has the value of the errno that describes it. */
enum json_failure {
    JSON_WRONG = -EBADMSG, /* the error says what, and at which byte */
    JSON_TOO_LONG = -EMSGSIZE,
    JSON_NO_MEMORY = -ENOMEM,
};

/* All of a text. Owned by the caller: cJSON_Delete(). 0, or an enum json_failure. */
int json_parse(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
               struct error *error);

/* Files are written in place: opened, truncated, written. A reader in between gets a prefix. */
enum file_text {
    FILE_READ,
    FILE_WRONG, /* the error says what and where */
    FILE_CUT,   /* empty or a prefix: probably a write in progress */
};

/* Makes a tree of the members that the caller names, and of nothing else. An enum file_text or
 * JSON_NO_MEMORY.
 *
 *   "mounts{source type} annotations{=io.kubernetes.pod.name} device"
 *
 * Braces have the names inside the object, or inside each object of the array; a value without them
 * is kept as it is. "=" is a key of a map, where letter case counts, and not the name of a field.
 * At most 64 names in one object. */
int json_read(const char *text, size_t length, struct json_limits limits, const char *names,
              cJSON **ret_value, struct error *error);

static inline void json_deletep(cJSON **value)
{
    cJSON_Delete(*value);
}

/* Members by name without regard to letter case, as Go's encoding/json reads them. NULL if absent,
 * there twice or of another type. Strings borrowed from the object. */
const cJSON *json_member(const cJSON *object, const char *name);
const char *json_string(const cJSON *object, const char *name);
const char *json_text(const cJSON *object, const char *name); /* the same, but "" for NULL */
/* Whole numbers in 0…2^53-1, the ones that a double holds without a neighbour rounded onto them. */
enum json_number { JSON_NUMBER, JSON_NUMBER_ABSENT, JSON_NUMBER_WRONG };
enum json_number json_number(const cJSON *object, const char *name, uint64_t *ret_number);

/* Well-formed UTF-8 without NUL. */
bool json_is_text(const char *text, size_t length);

/* Appends a quoted, escaped string, or nothing of it. Invalid UTF-8 bytes become U+FFFD. NULL
 * becomes null. */
int json_append_string(struct buffer *buffer, const char *text);

/* Begins a member: `"name":`, after a comma unless it is the first of its object. The name is a
 * constant without anything to escape. */
int json_append_name(struct buffer *buffer, const char *name);

/* A member that is a string, or null. */
int json_append_member(struct buffer *buffer, const char *name, const char *text);
