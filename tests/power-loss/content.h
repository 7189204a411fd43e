/* SPDX-License-Identifier: Apache-2.0 */
/* content.h - the bytes of a file and the names of a directory, and what recorded operations make
 * of them. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 256, NAME_BYTES = 64 };

enum kind { WRITE, TRUNCATE, FLUSH, LINK, UNLINK, RENAME, FLUSH_NAMES };

struct operation {
    enum kind kind;
    unsigned file;
    size_t offset, length; /* TRUNCATE: the new length */
    uint8_t *bytes;
    char name[NAME_BYTES], to[NAME_BYTES];
};

struct content {
    uint8_t *bytes;
    size_t length, room;
};

struct name {
    char text[NAME_BYTES];
    unsigned file;
};

struct names {
    struct name name[FILES];
    unsigned count;
};

static inline void must(bool condition, const char *what)
{
    if (condition)
        return;
    (void)fprintf(stderr, "power loss: %s: %s\n", what, strerror(errno));
    abort();
}

/* What is added is zeros. */
void content_resize(struct content *content, size_t length);
void content_write(struct content *content, size_t offset, const void *bytes, size_t length);
/* WRITE or TRUNCATE. */
void content_apply(struct content *content, const struct operation *operation);

void names_set(struct names *names, const char *text, unsigned file);
/* LINK, UNLINK or RENAME; any other changes nothing. */
void names_apply(struct names *names, const struct operation *operation);
