/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table.c - splits a line of mountinfo in place.
 *
 *     36 35 98:0 /sub /mnt/volume rw,noatime shared:1 master:2 - ext4 /dev/vda rw,errors=continue
 *
 * emergency_ro is what ext4 of Linux 6.15 and later says after an error in place of ro.
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

#include "lib/cleanup.h"
#include "lib/numbers.h"

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

void mount_table_unescape(char *text)
{
    char *to = text;

    for (; *text; text++) {
        if (text[0] == '\\' && text[1] <= '3' && strspn(text + 1, "01234567") >= 3) {
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

bool mount_table_parse(char *line, struct mount_entry *ret_mount)
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
    mount_table_unescape(fields[ROOT]);
    mount_table_unescape(fields[MOUNT_POINT]);
    mount_table_unescape(source);
    *ret_mount = (struct mount_entry){
        .id = strtoull(fields[ID], NULL, 10),
        .parent = strtoull(fields[PARENT], NULL, 10),
        .device = makedev(device[0], device[1]),
        .read_only = has_option(fields[OPTIONS], "ro") || has_option(super_options, "ro") ||
                     has_option(super_options, "emergency_ro"),
        .root = fields[ROOT],
        .mount_point = fields[MOUNT_POINT],
        .file_system = file_system,
        .source = source,
        .super_options = super_options,
    };
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
