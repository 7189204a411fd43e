/* SPDX-License-Identifier: Apache-2.0 */
/* marks.h - what must be looked at again: keys in the order they were first marked, none twice.
 *
 * A mark carries nothing but its key, so any number of events about one thing costs one look, and
 * the order of events cannot matter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mark;

struct marks {
    struct mark *first; /* a uthash table, which keeps insertion order */
    bool lost;          /* a mark found no memory: everything must be looked at */
};

void marks_done(struct marks *marks);

void marks_add(struct marks *marks, const void *key, size_t length);
bool marks_is_empty(const struct marks *marks);
size_t marks_count(const struct marks *marks);

/* Takes the oldest mark: its key goes to ret_key (at most size bytes; keys longer than any given
 * size are a programming error). false if there is none. */
bool marks_take(struct marks *marks, void *ret_key, size_t size, size_t *ret_length);

/* Numbers and names as keys. */
void marks_add_number(struct marks *marks, uint64_t number);
bool marks_take_number(struct marks *marks, uint64_t *ret_number);
void marks_add_name(struct marks *marks, const char *name);
bool marks_take_name(struct marks *marks, char *ret_name, size_t size);
void marks_remove_name(struct marks *marks, const char *name); /* if it is there */
