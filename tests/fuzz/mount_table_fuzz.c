/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table_fuzz.c - mountinfo, whose paths and options users choose, read as the host reads it,
 * line by line, and as the guest does, as one text: both find the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/mount_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* The next line that makes sense, as getline(3) brings it. */
static bool read_line(FILE *file, char **line, size_t *size, struct mount_entry *ret_mount)
{
    while (getline(line, size, file) > 0)
        if (mount_table_parse(*line, ret_mount))
            return true;
    return false;
}

static void expect_same(const struct mount_entry *a, const struct mount_entry *b)
{
    must(a->device == b->device && a->read_only == b->read_only);
    must(strcmp(a->root, b->root) == 0 && strcmp(a->mount_point, b->mount_point) == 0);
    must(strcmp(a->file_system, b->file_system) == 0 && strcmp(a->source, b->source) == 0);
    must(!strpbrk(a->file_system, " \n"));
}

static void compare(char *text, FILE *file)
{
    cleanup(freep) char *line = NULL;
    struct mount_entry one, other;
    size_t size = 0;

    while (mount_table_next(&text, &one)) {
        must(read_line(file, &line, &size, &other));
        expect_same(&one, &other);
    }
    must(!read_line(file, &line, &size, &other));
}

/* Only shortens, and what has no backslash stays. */
static void check_unescape(const char *text)
{
    cleanup(freep) char *copy = strdup(text);

    if (!copy)
        return;
    mount_table_unescape(copy);
    must(strlen(copy) <= strlen(text));
    must(strchr(text, '\\') || strcmp(copy, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(freep) char *text = strndup((const char *)data, size), *copy = NULL;
    FILE *file;

    if (!text || !*text)
        return 0;
    check_unescape(text);
    copy = strdup(text);
    file = copy ? fmemopen(copy, strlen(copy), "r") : NULL;
    if (!file)
        return 0;
    compare(text, file);
    (void)fclose(file);
    return 0;
}
