/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - the table of keys, and reading and writing their values. Private to config/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/result.h"

enum key_type {
    KEY_PATH,   /* char[CONFIG_PATH_BYTES]: one absolute path */
    KEY_PATHS,  /* struct config_list: minimum…CONFIG_LIST_ITEMS absolute paths */
    KEY_GROUP,  /* char[CONFIG_TEXT_BYTES]: a group's name, or nothing */
    KEY_LISTEN, /* char[CONFIG_TEXT_BYTES]: ADDRESS:PORT, or nothing */
    KEY_NUMBER, /* uint32_t: minimum…maximum */
    KEY_SWITCH, /* bool: off, on */
    KEY_CHOICE, /* an enum: one of choices, each at the index of its value */
    KEY_ROUTES, /* enum guest_route[GUEST_ROUTES]: choices, none twice */
    KEY_WORDS,  /* struct config_list: choices where there are any, none twice */
};

enum { CONFIG_TEXT_BYTES = 64, CONFIG_KEYS_MAX = 64 };

struct config_key {
    const char *section;
    const char *name;
    enum key_type type;
    size_t offset;             /* of the value in struct config */
    const char *default_value; /* as it would stand in the file */
    bool restart;              /* a new value needs a restart */
    uint32_t minimum, maximum;
    const char *const *choices; /* ends with NULL; of KEY_ROUTES from ROUTE_NONE + 1 on */
    const char *refused;        /* a value that people are likely to try, and … */
    const char *refusal;        /* … why they can't have it */
};

extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* Index in config_keys, or -1. name NULL: any of the section. */
int config_key_find(const char *section, const char *name);

/* Checks the text and stores the value in its place. 0, or -EINVAL with what is wrong; the value
 * may then be half written, so callers work on a copy. */
int config_value_parse(const struct config_key *key, const char *text, struct config *config,
                       struct error *error);

/* Appends the value as config_value_parse() reads it. */
int config_value_format(const struct config_key *key, const struct config *config,
                        struct buffer *text);
