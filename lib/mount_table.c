/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table.c - splits a line of mountinfo in place.
 *
 *     36 35 98:0 /sub /mnt/volume rw,noatime shared:1 master:2 - ext4 /dev/vda rw,errors=continue
 *
 * After an error, ext4 of Linux 6.15 and later says emergency_ro or shutdown in place of ro.
 * Any number of optional fields stands before the lone dash. Unescaping only shortens, so it can be
 * done where the text lies.
 */
#include "lib/mount_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/quantity.h"

const char *mount_table_path(void)
{
    cleanup(fd_closep) int fd = open("/proc/1/mountinfo", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? "/proc/self/mountinfo" : "/proc/1/mountinfo";
}

int mount_table_read(struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : buffer_read_all(ret_text, fd);
}

static bool is_octal(char digit)
{
    return digit >= '0' && digit <= '7';
}

void mount_table_unescape(char *text)
{
    char *to;

    text = strchrnul(text, '\\');
    for (to = text; *text; text++) {
        if (text[0] == '\\' && is_octal(text[1]) && text[1] <= '3' && is_octal(text[2]) &&
            is_octal(text[3])) {
            *to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 3;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

static bool has_option(const char *options, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

bool mount_table_split(char *line, struct mount_entry *ret_mount)
{
    enum { ID, PARENT, DEVICE, ROOT, MOUNT_POINT, OPTIONS, FIXED };
    char *fields[FIXED], *field;
    char *file_system, *source, *super_options;
    uint32_t device[2];

    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < FIXED; i++)
        fields[i] = strsep(&line, " ");
    do
        field = strsep(&line, " ");
    while (field && strcmp(field, "-") != 0);
    file_system = strsep(&line, " ");
    source = strsep(&line, " "); /* may be empty: mount(2) was told so */
    super_options = strsep(&line, " ");
    if (!super_options || !numbers_read(fields[DEVICE], ":", 10, device))
        return false;
    *ret_mount = (struct mount_entry){
        .id = strtoull(fields[ID], NULL, 10),
        .parent = strtoull(fields[PARENT], NULL, 10),
        .device = makedev(device[0], device[1]),
        .root = fields[ROOT],
        .mount_point = fields[MOUNT_POINT],
        .options = fields[OPTIONS],
        .file_system = file_system,
        .source = source,
        .super_options = super_options,
    };
    return true;
}

bool mount_table_parse(char *line, struct mount_entry *ret_mount)
{
    if (!mount_table_split(line, ret_mount))
        return false;
    mount_table_unescape(ret_mount->root);
    mount_table_unescape(ret_mount->mount_point);
    mount_table_unescape(ret_mount->source);
    ret_mount->shut_down = has_option(ret_mount->super_options, "emergency_ro") ||
                           has_option(ret_mount->super_options, "shutdown");
    ret_mount->file_system_read_only =
        ret_mount->shut_down || has_option(ret_mount->super_options, "ro");
    ret_mount->read_only = ret_mount->file_system_read_only || has_option(ret_mount->options, "ro");
    return true;
}

bool mount_table_source_is_device(const struct mount_entry *mount)
{
    static const char *const over_devices[] = {"btrfs", "bcachefs"};
    static const char fuse[] = "fuse";
    const char *name = mount->file_system;

    for (size_t i = 0; i < array_length(over_devices); i++)
        if (strcmp(name, over_devices[i]) == 0)
            return true;
    if (strcmp(name, "fuseblk") != 0 && (strncmp(name, fuse, strlen(fuse)) != 0 ||
                                         (name[strlen(fuse)] && name[strlen(fuse)] != '.')))
        return false;
    return has_option(mount->super_options, "user_id=0");
}

bool mount_table_next(char **cursor, struct mount_entry *ret_mount)
{
    while (*cursor && **cursor) {
        char *line = strsep(cursor, "\n");

        if (mount_table_parse(line, ret_mount))
            return true;
    }
    return false;
}

/* ---- a table of any size --------------------------------------------------------------------- */

enum {
    CHUNK_BYTES = 64 * 1024,
    /* The fields up to the super options, of which four may be as long as a field is kept. */
    LINE_BYTES = 6 * MOUNT_TABLE_FIELD_BYTES,
};

struct mount_lines {
    int fd;
    int (*visit)(void *userdata, char *line);
    void *userdata;
    size_t length, field; /* bytes of the line so far, and of its last field */
    size_t read;
    char line[LINE_BYTES], chunk[CHUNK_BYTES];
};

static void keep(struct mount_lines *lines, const char *text, size_t length, size_t most)
{
    size_t room = sizeof(lines->line) - 1 - lines->length;

    if (length > most)
        length = most;
    if (length > room)
        length = room;
    memcpy(lines->line + lines->length, text, length);
    lines->length += length;
    lines->field += length;
}

static void keep_fields(struct mount_lines *lines, const char *text, size_t length)
{
    for (const char *end = text + length; text < end;) {
        const char *blank = memchr(text, ' ', (size_t)(end - text));
        const char *to = blank ? blank : end;

        keep(lines, text, (size_t)(to - text), MOUNT_TABLE_FIELD_BYTES - lines->field);
        if (blank) {
            keep(lines, blank, 1, 1);
            lines->field = 0;
        }
        text = blank ? blank + 1 : end;
    }
}

static int end_line(struct mount_lines *lines)
{
    lines->line[lines->length] = '\0';
    lines->length = lines->field = 0;
    return lines->visit(lines->userdata, lines->line);
}

static int take_chunk(struct mount_lines *lines, const char *chunk, size_t length)
{
    int r = 0;

    while (r == 0 && length > 0) {
        const char *newline = memchr(chunk, '\n', length);
        size_t part = newline ? (size_t)(newline - chunk) : length;

        keep_fields(lines, chunk, part);
        if (newline) {
            r = end_line(lines);
            part++;
        }
        chunk += part;
        length -= part;
    }
    return r;
}

int mount_lines_read(struct mount_lines *lines, size_t most, uint64_t until_ns)
{
    int r = 0;

    while (r == 0) {
        ssize_t length = read(lines->fd, lines->chunk, sizeof(lines->chunk));

        if (length < 0)
            return -errno;
        if (length == 0)
            return lines->length ? end_line(lines) : PROGRESS_DONE;
        lines->read += (size_t)length;
        if (lines->read > most)
            return BUFFER_FULL;
        r = take_chunk(lines, lines->chunk, (size_t)length);
        if (r == 0 && clock_processor() >= until_ns)
            return PROGRESS_MORE;
    }
    return r;
}

int mount_lines_new(int fd, int (*visit)(void *userdata, char *line), void *userdata,
                    struct mount_lines **ret_lines)
{
    struct mount_lines *lines;

    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    lines = malloc(sizeof(*lines));
    if (!lines)
        return -ENOMEM;
    lines->fd = fd;
    lines->visit = visit;
    lines->userdata = userdata;
    lines->length = lines->field = lines->read = 0;
    *ret_lines = lines;
    return 0;
}

struct mount_lines *mount_lines_free(struct mount_lines *lines)
{
    free(lines);
    return NULL;
}

int mount_table_each_line(int fd, size_t most, int (*visit)(void *userdata, char *line),
                          void *userdata)
{
    cleanup(freep) struct mount_lines *lines = NULL;
    int r = mount_lines_new(fd, visit, userdata, &lines);

    return r < 0 ? r : mount_lines_read(lines, most, UINT64_MAX);
}
