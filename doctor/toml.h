/* SPDX-License-Identifier: Apache-2.0 */
/* toml.h - a TOML file, one value at a time; no I/O. Private to doctor/.
 *
 * TOML 1.0 as far as configurations of Kata and of container engines go: tables, arrays of tables,
 * dotted and quoted keys, inline tables, strings, booleans, arrays of strings. Numbers, dates,
 * other arrays' elements and strings over several lines are passed over, with their kind. Anything
 * else ends the reading with its line number; nothing is guessed. https://toml.io/en/v1.0.0
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/result.h"

enum { TOML_PARTS = 12, TOML_NAME_BYTES = 256, TOML_TEXT_BYTES = 512 };

enum toml_kind {
    TOML_STRING,
    TOML_BOOLEAN,
    TOML_OTHER,   /* also a string over several lines, or of TOML_TEXT_BYTES and more */
    TOML_ELEMENT, /* a string in an array, whose own item, TOML_OTHER, comes before */
};

struct toml_item {
    unsigned parts; /* of the table's name and the key's: a.b.c is 3 */
    const char *part[TOML_PARTS];
    enum toml_kind kind;
    const char *text; /* of a string, "" else */
    bool truth;       /* of a boolean */
    unsigned line;
};

/* The item is borrowed for the call. */
typedef void toml_callback(void *userdata, const struct toml_item *item);

/* 0, or -EBADMSG with "line N: what"; what came before has been called back then. */
int toml_read(const char *text, size_t length, toml_callback *callback, void *userdata,
              struct error *error);

/* What a file's reading comes to: the failure of its callback, which has filled error, else what
 * toml_read() returned with `syntax`. Either error then begins with the file's name. */
int toml_conclude(const char *file, int callback_result, int read_result,
                  const struct error *syntax, struct error *error);
