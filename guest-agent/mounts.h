/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.h - /proc/self/mountinfo, line by line.
 *
 * Source: proc(5), Documentation/filesystems/proc.rst section 3.5. Blanks, newlines and backslashes
 * in paths are written as three octal digits and come out of here as they are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/buffer.h"

struct mount {
    dev_t device;     /* of the super block; anonymous (major 0) for btrfs */
    bool read_only;   /* the mount or its file system */
    const char *root; /* which directory of the file system is mounted */
    const char *mount_point;
    const char *file_system; /* "ext4" */
    const char *source;      /* "/dev/vda", or whatever mount(2) was told */
};

enum { MOUNTS_BYTES = 4 * 1024 * 1024 };

/* Appends the whole file. 0 or -errno. */
int mounts_read(struct buffer *ret_text);

/* Takes the next mount from text, unescaping in place; *cursor starts at the text's first byte. A
 * line that makes no sense is skipped. False at the end. Strings are borrowed from the text. */
bool mounts_next(char **cursor, struct mount *ret_mount);
