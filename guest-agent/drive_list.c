/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.c - one entry per disk: two disks with the same serial make two entries. */
#include "guest-agent/drive_list.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/mount_table.h"
#include "lib/path.h"
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
    while (mountinfo && mount_table_next(&mountinfo, &mount)) {
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
    int r = drive_disks_read("/sys", &disks);

    if (r == 0)
        r = mount_table_read(&text);
    return r < 0 ? r : drive_list_make(&disks, text.data, ret_list);
}

/* ---- drive listing -------------------------------------------------------------------------- */

#define LONGEST_NS (5 * NSEC_PER_SEC)

struct drive_listing {
    struct child *child;
    drive_listing_done *done;
    void *userdata;
};

/* In the child, which writes the list and its entries as they are in memory, or fails with an errno
 * as its exit code. */
static int list_drives(const void *argument)
{
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    int r = drive_list_read(&list);

    (void)argument;
    if (r == 0)
        r = path_write(STDOUT_FILENO, (const char *)&list, sizeof(list));
    if (r == 0)
        r = path_write(STDOUT_FILENO, (const char *)list.entries,
                       list.count * sizeof(*list.entries));
    return -r;
}

/* 0 or -errno. */
static int take(const struct buffer *output, struct drive_guest_list *ret_list)
{
    struct drive_guest_list list;
    size_t length = output->length - sizeof(list);

    if (output->length < sizeof(list))
        return -EBADMSG;
    memcpy(&list, output->data, sizeof(list));
    if (length != list.count * sizeof(*list.entries))
        return -EBADMSG;
    list.entries = malloc(length + 1);
    if (!list.entries)
        return -ENOMEM;
    memcpy(list.entries, output->data + sizeof(list), length);
    *ret_list = list;
    return 0;
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct drive_listing *listing = userdata;
    struct drive_guest_list list = {0};
    struct error error = {0};
    int r = end == CHILD_EXITED ? -status : -EIO;

    if (r == 0)
        r = take(output, &list);
    listing->child = child_free(child);
    if (end == CHILD_TIMEOUT)
        (void)error_set(&error, r, "a disk of the guest does not say which serial it has");
    else if (r < 0)
        (void)error_set_errno(&error, r, "cannot list the drives");
    listing->done(listing, r, &list, &error, listing->userdata);
    drive_guest_list_done(&list);
}

int drive_listing_new(struct loop *loop, uint64_t timeout_ns, drive_listing_done *done,
                      void *userdata, struct drive_listing **ret_listing)
{
    const struct child_request request = {
        .function = list_drives,
        .output_limit =
            sizeof(struct drive_guest_list) + DRIVE_LIST * sizeof(struct drive_guest_entry),
        .input = -1,
        .root = -1,
        .allowed_ns = timeout_ns && timeout_ns / 2 < LONGEST_NS ? timeout_ns / 2 : LONGEST_NS,
        .subject = child_subject("serials"),
    };
    struct drive_listing *listing = calloc(1, sizeof(*listing));
    int r;

    if (!listing)
        return -ENOMEM;
    listing->done = done;
    listing->userdata = userdata;
    r = child_new(loop, &request, on_end, listing, &listing->child);
    if (r < 0) {
        free(listing);
        return r;
    }
    *ret_listing = listing;
    return 0;
}

struct drive_listing *drive_listing_free(struct drive_listing *listing)
{
    if (!listing)
        return NULL;
    listing->child = child_free(listing->child);
    free(listing);
    return NULL;
}

/* ---- drive holders -------------------------------------------------------------------------- */

/* One pass over /proc. */

enum { NAMESPACES = 1024, PEER_GROUPS = 64 };

struct search {
    const struct drive_held *held;
    struct drive_holders *holders;
    ino_t namespaces[NAMESPACES]; /* read already; the first is that of this process */
    size_t namespace_count;
    unsigned groups[PEER_GROUPS]; /* of this process's mounts of the file system */
    size_t group_count;
};

/* ---- mounts ---- */

/* The number after "shared:" or "master:" in a line's optional fields; 0: none. */
static unsigned find_group(const char *line, const char *tag)
{
    const char *end = strstr(line, " - "), *at = strstr(line, tag);

    return end && at && at < end ? (unsigned)strtoul(at + strlen(tag), NULL, 10) : 0;
}

static bool is_ours(const struct search *search, unsigned group)
{
    for (size_t i = 0; i < search->group_count; i++) {
        if (group && search->groups[i] == group)
            return true;
    }
    return false;
}

struct line {
    unsigned shared, master;
    struct mount_entry mount;
};

/* Reads the next mount of the file system. false at the end. */
static bool next_line(const struct search *search, char **cursor, struct line *ret_line)
{
    while (**cursor) {
        char *line = *cursor, *end = strchr(line, '\n');

        *cursor = end ? end + 1 : line + strlen(line);
        if (end)
            *end = '\0';
        ret_line->shared = find_group(line, " shared:");
        ret_line->master = find_group(line, " master:");
        if (mount_table_parse(line, &ret_line->mount) &&
            ret_line->mount.device == search->held->mounts)
            return true;
    }
    return false;
}

static void note_groups(struct search *search, char *text)
{
    struct line line;

    while (next_line(search, &text, &line)) {
        if (line.shared && search->group_count < PEER_GROUPS)
            search->groups[search->group_count++] = line.shared;
    }
}

/* Whether the caller named the mount as no holder. */
static bool is_left_out(const struct search *search, ino_t namespace, const char *mount_point)
{
    for (size_t i = 0; i < search->held->place_count; i++) {
        const struct drive_held_place *place = &search->held->places[i];

        if (place->namespace == namespace && strcmp(place->mount_point, mount_point) == 0)
            return true;
    }
    return false;
}

static bool keeps_mount(const struct search *search, ino_t namespace, char *text)
{
    struct line line;

    while (next_line(search, &text, &line)) {
        if (!is_ours(search, line.shared) && !is_ours(search, line.master) &&
            !is_left_out(search, namespace, line.mount.mount_point))
            return true;
    }
    return false;
}

static int read_mounts(int process, struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = openat(process, "mountinfo", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : buffer_read_all(ret_text, fd);
}

/* Whether the namespace has not been read yet. */
static bool is_new_namespace(struct search *search, int process, ino_t *ret_namespace)
{
    struct stat status;

    if (fstatat(process, "ns/mnt", &status, 0) < 0)
        return false;
    *ret_namespace = status.st_ino;
    for (size_t i = 0; i < search->namespace_count; i++) {
        if (search->namespaces[i] == status.st_ino)
            return false;
    }
    if (search->namespace_count < NAMESPACES)
        search->namespaces[search->namespace_count++] = status.st_ino;
    return true;
}

/* The first process found in a namespace stands for all of its processes. */
static bool has_mount(struct search *search, int process)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    ino_t namespace;

    return is_new_namespace(search, process, &namespace) && read_mounts(process, &text) == 0 &&
           text.data && keeps_mount(search, namespace, text.data);
}

/* ---- open files ---- */

static bool leads_to_it(const struct search *search, int directory, const char *name)
{
    struct stat status;

    if (fstatat(directory, name, &status, AT_NO_AUTOMOUNT) < 0)
        return false;
    return status.st_dev == search->held->files ||
           (S_ISBLK(status.st_mode) && status.st_rdev == search->held->disk);
}

static bool has_open_file(const struct search *search, int process)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;

    if (leads_to_it(search, process, "cwd") || leads_to_it(search, process, "root") ||
        leads_to_it(search, process, "exe"))
        return true;
    if (directory_list_below(process, "fd", &names) < 0)
        return false;
    while ((name = directory_next(names))) {
        if (leads_to_it(search, dirfd(names), name))
            return true;
    }
    return false;
}

/* ---- processes ---- */

static void note_holder(struct search *search, int process, const char *pid)
{
    cleanup(fd_closep) int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
    struct drive_holders *holders = search->holders;
    char bytes[32] = "", name[64];
    ssize_t length = fd < 0 ? 0 : read(fd, bytes, sizeof(bytes) - 1);
    size_t used = strlen(holders->text);

    text_clean(bytes, length > 0 ? strcspn(bytes, "\n") : 0, name, sizeof(name));
    if (used + strlen(pid) + strlen(name) + sizeof(",  ()") <= sizeof(holders->text))
        (void)snprintf(holders->text + used, sizeof(holders->text) - used, "%s%s (%s)",
                       used ? ", " : "", pid, name);
    holders->count++;
}

static int begin(struct search *search, const char *proc)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(fd_closep) int self = -1;
    char path[PATH_MAX];
    ino_t namespace;
    int r;

    if (snprintf(path, sizeof(path), "%s/self", proc) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    self = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (self < 0)
        return -errno;
    (void)is_new_namespace(search, self, &namespace);
    r = read_mounts(self, &text);
    if (r == 0 && text.data)
        note_groups(search, text.data);
    return r;
}

int drive_holders_find(const char *proc, const struct drive_held *held,
                       struct drive_holders *ret_holders)
{
    cleanup(freep) struct search *search = calloc(1, sizeof(*search));
    cleanup(dir_closep) DIR *names = opendir(proc);
    struct drive_holders holders = {0};
    const char *name;
    int r;

    if (!names)
        return -errno;
    if (!search)
        return -ENOMEM;
    *search = (struct search){.held = held, .holders = &holders};
    r = begin(search, proc);
    while (r == 0 && (name = directory_next(names))) {
        cleanup(fd_closep) int process = -1;

        if (!isdigit((unsigned char)name[0]) || strtol(name, NULL, 10) == getpid())
            continue;
        process = openat(dirfd(names), name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (process >= 0 && (has_mount(search, process) || has_open_file(search, process)))
            note_holder(search, process, name);
    }
    *ret_holders = holders;
    return r;
}
