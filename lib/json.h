/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - a strict check in front of cJSON, and a writer.
 *
 * cJSON 1.7.15 lets through what other readers of the same file see differently: duplicate keys
 * (the first wins, Go takes the last), \u0000 (cuts the string), invalid UTF-8, trailing text. So
 * json_parse() first walks the text and refuses: more than `bytes`, deeper than `depth`, more
 * values than `values`, anything but one value and white space, invalid UTF-8, a NUL written either
 * way, lone surrogates, and one key twice in an object in any letter case (Go matches keys without
 * regard to case).
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
    unsigned values; /* all that cJSON would make a node of: 2 bytes of text become 100 of memory.
                        0: any number, for what crustd itself wrote */
};

/* Limits per kind of input (DESIGN: hostile input). A file of the runtime's is read and taken apart
 * in one go: the largest costs some 10 ms. */
#define JSON_LIMITS_MOUNT_INFO ((struct json_limits){64 * 1024, 4, 4096})
#define JSON_LIMITS_PERSIST    ((struct json_limits){1024 * 1024, 16, 65536})
#define JSON_LIMITS_BUNDLE     ((struct json_limits){1024 * 1024, 32, 32768})
#define JSON_LIMITS_QMP        ((struct json_limits){2 * 1024 * 1024, 16, 65536})
#define JSON_LIMITS_VMM_HTTP   ((struct json_limits){1024 * 1024, 16, 16384})
#define JSON_LIMITS_HTTP       ((struct json_limits){64 * 1024, 8, 4096})

/* Negative; each has the value of the errno that describes it. */
enum json_failure {
    JSON_WRONG = -EBADMSG, /* the error says what, and at which byte */
    JSON_TOO_LONG = -EMSGSIZE,
    JSON_NO_MEMORY = -ENOMEM,
};

/* Owned by the caller: cJSON_Delete(). 0, or an enum json_failure. */
int json_parse(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
               struct error *error);

static inline void json_deletep(cJSON **value)
{
    cJSON_Delete(*value);
}

/* Members by name without regard to letter case, as Go's encoding/json reads them. NULL if absent
 * or of another type. Strings borrowed from the object. */
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
