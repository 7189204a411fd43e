/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table_fuzz.c - mountinfo, whose paths and options users choose, read as the host reads it,
 * line by line, and as the guest does, as one text: both find the same, unless a field is longer
 * than the host keeps. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/mount_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void expect_same(const struct mount_entry *a, const struct mount_entry *b)
{
    must(a->device == b->device && a->read_only == b->read_only);
    must(strcmp(a->root, b->root) == 0 && strcmp(a->mount_point, b->mount_point) == 0);
    must(strcmp(a->file_system, b->file_system) == 0 && strcmp(a->source, b->source) == 0);
    must(!strpbrk(a->file_system, " \n"));
}

/* The line's entry is the next one of the text. */
static int compare_line(void *userdata, char *line)
{
    char **text = userdata;
    struct mount_entry one, other;

    if (!mount_table_parse(line, &other))
        return 0;
    must(mount_table_next(text, &one));
    expect_same(&one, &other);
    return 0;
}

static void compare(char *text, const char *copy, size_t length)
{
    cleanup(fd_closep) int fd = memfd_create("table", MFD_CLOEXEC);
    struct mount_entry rest;

    if (fd < 0 || write(fd, copy, length) != (ssize_t)length)
        return;
    must(mount_table_each_line(fd, length, compare_line, &text) == 0);
    must(!mount_table_next(&text, &rest));
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

    if (!text || !*text || size > MOUNT_TABLE_FIELD_BYTES)
        return 0;
    check_unescape(text);
    copy = strdup(text);
    if (copy)
        compare(text, copy, strlen(copy));
    return 0;
}
