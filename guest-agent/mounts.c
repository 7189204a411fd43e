/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.c - splits mountinfo in place.
 *
 *     36 35 98:0 /sub /mnt/volume rw,noatime shared:1 master:2 - ext4 /dev/vda rw,errors=continue
 *
 * emergency_ro is what ext4 of Linux 6.15 and later says after an error in place of ro.
 * Any number of optional fields stands before the lone dash. Unescaping only shortens, so it can be
 * done where the text lies.
 */
#include "guest-agent/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"

int mounts_read(struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : buffer_read_all(ret_text, fd);
}

static bool is_octal(const char *text)
{
    for (int i = 0; i < 3; i++) {
        if (text[i] < '0' || text[i] > '7')
            return false;
    }
    return text[0] <= '3';
}

static void unescape(char *text)
{
    char *to = text;

    while (*text) {
        if (text[0] == '\\' && is_octal(text + 1)) {
            *to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *to++ = *text++;
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

static bool parse_line(char *line, struct mount *ret_mount)
{
    enum { ID, PARENT, DEVICE, ROOT, MOUNT_POINT, OPTIONS, FIXED };
    char *save = NULL, *fields[FIXED], *field;
    char *file_system, *source, *super_options;
    unsigned major, minor;

    for (int i = 0; i < FIXED; i++) {
        fields[i] = strtok_r(i ? NULL : line, " ", &save);
        if (!fields[i])
            return false;
    }
    do
        field = strtok_r(NULL, " ", &save);
    while (field && strcmp(field, "-") != 0);
    file_system = strtok_r(NULL, " ", &save);
    source = strtok_r(NULL, " ", &save);
    super_options = strtok_r(NULL, " ", &save);
    if (!field || !super_options || sscanf(fields[DEVICE], "%u:%u", &major, &minor) != 2)
        return false;
    unescape(fields[ROOT]);
    unescape(fields[MOUNT_POINT]);
    unescape(source);
    *ret_mount = (struct mount){
        .device = makedev(major, minor),
        .read_only = has_option(fields[OPTIONS], "ro") || has_option(super_options, "ro") ||
                     has_option(super_options, "emergency_ro"),
        .root = fields[ROOT],
        .mount_point = fields[MOUNT_POINT],
        .file_system = file_system,
        .source = source,
    };
    return true;
}

bool mounts_next(char **cursor, struct mount *ret_mount)
{
    while (*cursor && **cursor) {
        char *line = strsep(cursor, "\n");

        if (parse_line(line, ret_mount))
            return true;
    }
    return false;
}
