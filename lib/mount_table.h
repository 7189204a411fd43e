/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table.h - mountinfo of a process, line by line.
 *
 * Source: proc(5), Documentation/filesystems/proc.rst section 3.5. Blanks, newlines and backslashes
 * in paths are written as three octal digits and come out of here as they are.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct mount_entry {
    uint64_t id;                /* of the mount, as statx(2) has it */
    uint64_t parent;            /* of the mount that it lies on */
    dev_t device;               /* of the super block; anonymous (major 0) for btrfs */
    bool read_only;             /* the mount or its file system */
    bool file_system_read_only; /* all of its mounts: by request, or after an error */
    bool shut_down;             /* after an error, as ext4 of Linux 6.15 and later says */
    char *root;                 /* which directory of the file system is mounted */
    char *mount_point;
    const char *options;     /* of the mount: "rw,noatime" */
    const char *file_system; /* "ext4" */
    char *source;            /* "/dev/vda", or whatever mount(2) was told */
    const char *super_options;
};

enum {
    MOUNT_TABLE_BYTES = 4 * 1024 * 1024,
    /* Of a longer field than this, a line has the beginning only. It is more than any path that can
     * be looked up has, each of its bytes escaped. */
    MOUNT_TABLE_FIELD_BYTES = 4 * (PATH_MAX + NAME_MAX + 2),
};

/* The node's own mounts: /proc/1/mountinfo, where it may not be read /proc/self/mountinfo. */
const char *mount_table_path(void);

/* Appends the whole of /proc/self/mountinfo. 0 or -errno. */
int mount_table_read(struct buffer *ret_text);

/* Takes the next mount from the text, unescaping in place; *cursor starts at the text's first byte.
 * A malformed line is skipped. False at the end. Strings are borrowed from the text. */
bool mount_table_next(char **cursor, struct mount_entry *ret_mount);

/* The same for a single line. False: it is malformed. */
bool mount_table_parse(char *line, struct mount_entry *ret_mount);

/* The same, but root, mount point and source stay escaped, and read_only is not set. Users can make
 * a table of megabytes, most of which is backslashes: unescaping costs more than all else. */
bool mount_table_split(char *line, struct mount_entry *ret_mount);

/* A table of any size is read line by line, with memory for one line, which is handed over without
 * its newline. /proc/swaps has such lines too. The kernel takes 4 us for each KiB, and users can
 * give a mount a line of any length, so a table can be read in parts: every mount that is there
 * from the beginning to the end is in it. */
struct mount_lines;

/* fd stays the caller's. The callback returns 0, or -errno, which ends the reading. */
int mount_lines_new(int fd, int (*visit)(void *userdata, char *line), void *userdata,
                    struct mount_lines **ret_lines);
struct mount_lines *mount_lines_free(struct mount_lines *lines); /* returns NULL */

/* Reads on until clock_processor() is `until_ns`. Returns an enum progress_outcome, -errno, or
 * BUFFER_FULL if there are more than `most` bytes. */
int mount_lines_read(struct mount_lines *lines, size_t most, uint64_t until_ns);

/* All of it in one go: 0, -errno or BUFFER_FULL. */
int mount_table_each_line(int fd, size_t most, int (*visit)(void *userdata, char *line),
                          void *userdata);

/* Whether the source of a file system whose device is anonymous says which device it lies on. Most
 * have no device, and their source is any word that mount(2) was told; a FUSE file system's is its
 * owner's word, which counts if that is root. */
bool mount_table_source_is_device(const struct mount_entry *mount);

/* Unescapes "\040" and the like in place, as mountinfo and /proc/swaps have them. */
void mount_table_unescape(char *text);
