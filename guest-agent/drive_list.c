/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.c - one entry per disk: two disks with the same serial make two entries. */
#include "guest-agent/drive_list.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/mount_table.h"
#include "lib/text.h"

dev_t drive_list_device(const struct mount_entry *mount)
{
    struct stat status;

    if (major(mount->device) == 0 && strcmp(mount->file_system, "btrfs") == 0 &&
        stat(mount->source, &status) == 0 && S_ISBLK(status.st_mode))
        return status.st_rdev;
    return mount->device;
}

/* A process in the guest may mount the disk at a path that is not UTF-8. The path is escaped, or
 * crustd would refuse the whole list. */
static void copy_text(const char *from, char *ret_text, size_t size)
{
    size_t length = strlen(from);

    if (length < size && text_is_utf8(from, length))
        memcpy(ret_text, from, length + 1);
    else
        text_clean(from, length, ret_text, size);
}

/* Of several mounts the first one of the whole file system counts, or else a bind mount of one of
 * its directories. */
static void note_mount(struct drive_guest_entry *entry, const struct mount_entry *mount,
                       bool *is_whole)
{
    bool whole = strcmp(mount->root, "/") == 0;

    if (entry->state == DRIVE_GUEST_MOUNTED && (*is_whole || !whole))
        return;
    *is_whole = whole;
    entry->state = DRIVE_GUEST_MOUNTED;
    copy_text(mount->mount_point, entry->vm_path, sizeof(entry->vm_path));
    copy_text(mount->file_system, entry->filesystem_type, sizeof(entry->filesystem_type));
}

int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list)
{
    cleanup(freep) bool *is_whole = calloc(disks->count + 1, sizeof(*is_whole));
    struct drive_guest_entry *entries = calloc(disks->count + 1, sizeof(*entries));
    struct mount_entry mount;
    char *cursor = mountinfo;

    if (!entries || !is_whole) {
        free(entries);
        return -ENOMEM;
    }
    for (size_t i = 0; i < disks->count; i++) {
        strcpy(entries[i].serial, disks->disks[i].serial);
        strcpy(entries[i].device, disks->disks[i].name);
        entries[i].bytes = disks->disks[i].bytes;
        entries[i].read_only = disks->disks[i].read_only;
    }
    while (mount_table_next(&cursor, &mount)) {
        dev_t device = disks->count ? drive_list_device(&mount) : 0;

        for (size_t i = 0; i < disks->count; i++) {
            if (disks->disks[i].device == device)
                note_mount(&entries[i], &mount, &is_whole[i]);
        }
    }
    *ret_list =
        (struct drive_guest_list){disks->count, entries, disks->incomplete || disks->unreadable[0]};
    return 0;
}

int drive_list_read(struct drive_guest_list *ret_list)
{
    cleanup(drive_disks_done) struct drive_disks disks = {0};
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    char none[] = "";
    int r = drive_disks_read("/sys", &disks);

    if (r < 0)
        return r;
    r = mount_table_read(&text);
    if (r < 0)
        return r;
    return drive_list_make(&disks, text.data ? text.data : none, ret_list);
}
