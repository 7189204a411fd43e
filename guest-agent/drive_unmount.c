/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unmount.c - looks for holders first, because a file system that is unmounted here but held
 * elsewhere can neither be used nor be detached.
 *
 * Sources for the search: proc(5) (fd, cwd, root, ns, mountinfo); mount_namespaces(7): an unmount
 * in one namespace also happens in its peers and slaves, and nowhere else.
 */
#include "guest-agent/guest_drive.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/mount_table.h"
#include "lib/text.h"

#define PAUSE_NS    (20 * NSEC_PER_MSEC)
#define PATIENCE_NS (2 * NSEC_PER_SEC)
/* The pause if containers lose the mount at each attempt. */
#define LONG_PAUSE_NS (250 * NSEC_PER_MSEC)

enum { NAMESPACES = 1024, PEER_GROUPS = 64, HOLDERS_BYTES = 160 };

struct unmount {
    const struct drive_unmount_request *request;
    const struct drive_setting *setting;
    struct drive_disk disk;
    /* The mounts of the disk in this process's namespace. */
    unsigned count;
    char first[DRIVE_PATH_BYTES]; /* unescaped */
    char second[DRIVE_PATH_BYTES];
    char below[DRIVE_PATH_BYTES]; /* a mount below the first one, not on its root; "": none */
    uint64_t first_id;            /* the first one's mount id by statx(2) */
    dev_t mounts;                 /* the file system's device in mountinfo; the disk's if there is
                                     no mount */
};

static enum status_code find_mounts(struct unmount *unmount, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry mount;
    int r = mount_table_read(&text);
    char *cursor = text.data;

    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot read the mounts");
    unmount->count = 0;
    unmount->below[0] = '\0';
    unmount->mounts = unmount->disk.device;
    while (cursor && mount_table_next(&cursor, &mount)) {
        if (drive_list_device(&mount) == unmount->disk.device) {
            if (unmount->count < 2)
                (void)snprintf(unmount->count ? unmount->second : unmount->first, DRIVE_PATH_BYTES,
                               "%s", mount.mount_point);
            if (!unmount->count)
                unmount->first_id = mount.id;
            unmount->mounts = mount.device;
            unmount->count++;
        } else if (unmount->count && mount.parent == unmount->first_id &&
                   strcmp(mount.mount_point, unmount->first) != 0) {
            (void)snprintf(unmount->below, sizeof(unmount->below), "%s", mount.mount_point);
        }
    }
    return STATUS_OK;
}

/* umount(2) unmounts the topmost mount at a path. If something is mounted over the drive, or over a
 * directory above it, that would be another mount. A file system that was shut down has no
 * attributes, but its mount has an id all the same. */
static bool is_covered(const struct unmount *unmount)
{
    struct file_handle handle = {0};
    struct statx status;
    int id;

    if (!unmount->count)
        return false;
    if (statx(AT_FDCWD, unmount->first, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID,
              &status) == 0)
        return !(status.stx_mask & STATX_MNT_ID) || status.stx_mnt_id != unmount->first_id;
    return !volume_fails_as_shut_down(errno) ||
           name_to_handle_at(AT_FDCWD, unmount->first, &handle, &id, 0) == 0 ||
           errno != EOVERFLOW || (uint64_t)id != unmount->first_id;
}

/* Checks what would keep the kernel from unmounting the drive, before it is taken from any
 * container. */
static enum status_code check_mounts(const struct unmount *unmount, struct error *error)
{
    if (is_covered(unmount))
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "%s is covered: something else is mounted over it", unmount->first);
    if (unmount->count > 1)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the drive is mounted on %s and on %s", unmount->first,
                            unmount->second);
    if (unmount->below[0])
        return drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is mounted below the drive",
                            unmount->below);
    return STATUS_OK;
}

/* Finds st_dev of the files in the file system. 0 or -errno. */
static int find_files(const struct unmount *unmount, dev_t *ret_files)
{
    struct stat status;

    *ret_files = unmount->disk.device;
    if (!unmount->count)
        return 0;
    if (stat(unmount->first, &status) == 0)
        *ret_files = status.st_dev;
    else if (!volume_fails_as_shut_down(errno)) /* that is of xfs, whose files have its device */
        return -errno;
    return 0;
}

/* ---- holders ---- */

struct search {
    const struct unmount *unmount;
    dev_t files; /* of btrfs, in the first subvolume */
    size_t own_count;
    struct { /* the mounts that containers were given */
        ino_t namespace;
        const char *path;
    } own[DRIVE_CONTAINERS];
    size_t namespace_count;
    ino_t namespaces[NAMESPACES]; /* read already; the first is that of this process */
    size_t group_count;
    unsigned groups[PEER_GROUPS]; /* of this process's mounts of the file system */
    unsigned holders;         /* processes, without holders in the kernel (swap, loop devices) */
    char text[HOLDERS_BYTES]; /* the first ones: "12 (sleep), 14 (sh)" */
};

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

static bool is_own_place(const struct search *search, ino_t namespace, const char *path)
{
    for (size_t i = 0; i < search->own_count; i++) {
        if (search->own[i].namespace == namespace && strcmp(search->own[i].path, path) == 0)
            return true;
    }
    return false;
}

/* Returns 1 if the file system would stay mounted in the process's namespace, 0, or -errno. The
 * first process found in a namespace stands for all of its processes; the very first one is this
 * process, whose mounts are noted. */
static int keeps_mount(struct search *search, int process)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(fd_closep) int fd = openat(process, "mountinfo", O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : 0;
    bool is_first = search->namespace_count == 0;
    struct stat namespace;
    char *line, *next;

    if (fstatat(process, "ns/mnt", &namespace, 0) < 0)
        return -errno;
    for (size_t i = 0; i < search->namespace_count; i++) {
        if (search->namespaces[i] == namespace.st_ino)
            return 0;
    }
    if (search->namespace_count < NAMESPACES)
        search->namespaces[search->namespace_count++] = namespace.st_ino;
    if (r == 0)
        r = buffer_read_all(&text, fd);
    if (r < 0)
        return r;
    for (line = text.data; line && *line; line = next) {
        struct mount_entry mount;
        unsigned shared, master;

        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        shared = find_group(line, " shared:");
        master = find_group(line, " master:");
        if (!mount_table_parse(line, &mount) || mount.device != search->unmount->mounts)
            continue;
        if (is_first && shared && search->group_count < PEER_GROUPS)
            search->groups[search->group_count++] = shared;
        else if (!is_first && !is_ours(search, shared) && !is_ours(search, master) &&
                 !is_own_place(search, namespace.st_ino, mount.mount_point))
            return 1;
    }
    return 0;
}

static bool leads_to_it(const struct search *search, int directory, const char *name)
{
    struct stat status;

    if (fstatat(directory, name, &status, AT_NO_AUTOMOUNT) < 0)
        return false;
    return status.st_dev == search->files ||
           (S_ISBLK(status.st_mode) && status.st_rdev == search->unmount->disk.device);
}

/* Whether it has a file, a directory or the disk itself open. */
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

static void note_holder(struct search *search, int process, const char *pid)
{
    cleanup(fd_closep) int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
    char bytes[32] = "", name[64];
    ssize_t length = fd < 0 ? 0 : read(fd, bytes, sizeof(bytes) - 1);
    size_t used = strlen(search->text);

    text_clean(bytes, length > 0 ? strcspn(bytes, "\n") : 0, name, sizeof(name));
    if (used + strlen(pid) + strlen(name) + sizeof(",  ()") <= sizeof(search->text))
        (void)snprintf(search->text + used, sizeof(search->text) - used, "%s%s (%s)",
                       used ? ", " : "", pid, name);
    search->holders++;
}

/* Processes that end meanwhile and this one are left out. 0 or -errno. */
static int find_holders(struct search *search)
{
    cleanup(dir_closep) DIR *names = opendir(search->unmount->setting->proc);
    cleanup(fd_closep) int self = -1;
    const char *name;
    int r;

    if (!names)
        return -errno;
    self = openat(dirfd(names), "self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (self < 0)
        return -errno;
    r = keeps_mount(search, self);
    if (r < 0)
        return r; /* mounts of its peers would look like another's */
    while ((name = directory_next(names))) {
        cleanup(fd_closep) int process = -1;

        if (!isdigit((unsigned char)name[0]) || strtol(name, NULL, 10) == getpid())
            continue;
        process = openat(dirfd(names), name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (process >= 0 && (keeps_mount(search, process) > 0 || has_open_file(search, process)))
            note_holder(search, process, name);
    }
    return 0;
}

/* Looks for holders of the file system that is mounted or, if the disk is not mounted, of the disk
 * alone. A container that cannot be found counts as a holder. */
static enum status_code check_holders(const struct unmount *unmount, struct error *error)
{
    const struct drive_containers *containers = &unmount->request->containers;
    const char *what = unmount->count ? unmount->first : unmount->disk.name;
    cleanup(freep) struct search *search = calloc(1, sizeof(*search));
    int r = -ENOMEM;

    if (search) {
        search->unmount = unmount;
        for (size_t i = 0; i < containers->count; i++) {
            struct container_place place;

            if (container_find(unmount->setting->proc, containers->each[i].container_id, &place) !=
                CONTAINER_FOUND)
                continue;
            search->own[search->own_count].namespace = place.mounts;
            search->own[search->own_count++].path = containers->each[i].path;
            fd_close(place.process);
        }
        r = find_files(unmount, &search->files);
        if (r == 0)
            r = find_holders(search);
    }
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot tell who uses %s", what);
    return search->holders
               ? drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is in use by %u processes: %s",
                              what, search->holders, search->text)
               : STATUS_OK;
}

/* ---- unmounting ---- */

/* Failures are ignored, because the host repeats the mount as well. */
static void enter_again(const struct unmount *unmount)
{
    const struct drive_containers *containers = &unmount->request->containers;
    cleanup(fd_closep) int volume = -1;
    struct error ignored = {0};

    if (!unmount->count || !containers->count || is_covered(unmount))
        return;
    volume = open(unmount->first, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; volume >= 0 && i < containers->count; i++)
        (void)drive_enter(unmount->setting, volume, &containers->each[i], &ignored);
}

/* Takes the drive from the containers and unmounts it; on failure they get it back. */
static enum status_code take_away(const struct unmount *unmount, struct error *error)
{
    const struct drive_containers *containers = &unmount->request->containers;
    enum status_code code = STATUS_OK;
    dev_t files;
    int r = find_files(unmount, &files);

    if (r < 0)
        code = drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot tell what is in %s",
                                  unmount->first);
    for (size_t i = 0; code == STATUS_OK && i < containers->count; i++)
        code = drive_leave(unmount->setting, files, unmount->mounts, &containers->each[i], error);
    if (code == STATUS_OK && unmount->count && umount2(unmount->first, UMOUNT_NOFOLLOW) < 0) {
        /* If it is busy, a process may have come since the search, or the kernel itself holds it.
         */
        if (errno != EBUSY)
            code = drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                      "cannot unmount %s", unmount->first);
        else if ((code = check_holders(unmount, error)) == STATUS_OK)
            code = drive_refuse(error, STATUS_FAILED_PRECONDITION,
                                "%s is in use by no process: something is mounted below it, or "
                                "swap, a loop device or an export lies on it",
                                unmount->first);
    }
    if (code != STATUS_OK)
        enter_again(unmount);
    return code;
}

/* Waits for brief holders, such as the agent's own sync of the drives. */
static enum status_code release(struct unmount *unmount, struct error *error)
{
    const struct timespec pause = {.tv_nsec = unmount->request->containers.count ? LONG_PAUSE_NS
                                                                                 : PAUSE_NS};
    const uint64_t patient_until = clock_boottime() + PATIENCE_NS;

    while (true) {
        enum status_code code = check_mounts(unmount, error);
        const uint64_t now = clock_boottime();
        const bool is_last = now >= patient_until || now >= unmount->setting->deadline_ns;

        if (code == STATUS_OK)
            code = check_holders(unmount, error);
        if (code == STATUS_OK)
            code = take_away(unmount, error);
        if (code != STATUS_FAILED_PRECONDITION || is_last)
            return code;
        (void)nanosleep(&pause, NULL);
        code = find_mounts(unmount, error);
        if (code != STATUS_OK)
            return code;
    }
}

/* ---- the disk ---- */

/* The kernel may release a file system a little after the unmount. */
static enum status_code claim(const struct unmount *unmount, bool was_mounted, int *ret_fd,
                              struct error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const struct drive_disk *disk = &unmount->disk;
    int r;

    while ((r = drive_find_open(unmount->setting, disk, O_RDONLY | O_EXCL, ret_fd)) ==
               DRIVE_FIND_IN_USE &&
           clock_boottime() < unmount->setting->deadline_ns)
        (void)nanosleep(&pause, NULL);
    if (r == DRIVE_FIND_IN_USE)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "%s is %s, and the kernel or a mount in another namespace still has it",
                            disk->name, was_mounted ? "unmounted" : "not mounted here");
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot open %s", disk->name);
    if (fsync(*ret_fd) < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                  "cannot write everything to %s", disk->name);
    return STATUS_OK;
}

/* 0 or -errno. */
static int press(const struct unmount *unmount, const char *attribute)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/block/%s/%s", unmount->setting->sysfs, unmount->disk.name,
                 attribute) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return device_write_attribute(path, "1");
}

/* Removes the disk while nobody else can open it. The guest has to remove a SCSI disk, and the PCI
 * function of a VMM that does not ask for its release: if it stayed, it would hide the next drive
 * in its slot. Other VMMs ask the guest to release the device. */
static enum status_code remove_disk(const struct unmount *unmount, bool *ret_removed,
                                    struct error *error)
{
    int r = 0;

    *ret_removed = press(unmount, "device/delete") == 0;
    if (!*ret_removed && drive_serial_is_of_vmm(unmount->disk.serial)) {
        r = press(unmount, "device/../remove"); /* the PCI function of the virtio device */
        *ret_removed = r == 0;
    }
    return r < 0 ? drive_refuse_errno(error, STATUS_INTERNAL, r,
                                      "cannot remove the PCI function of %s", unmount->disk.name)
                 : STATUS_OK;
}

enum status_code drive_unmount_run(const struct drive_unmount_request *request,
                                   const struct drive_setting *setting,
                                   struct drive_unmount_answer *ret_answer, struct error *error)
{
    struct unmount unmount = {.request = request, .setting = setting};
    struct drive_setting now = *setting;
    struct drive_unmount_answer answer = {0};
    cleanup(fd_closep) int fd = -1;
    enum status_code code;

    now.deadline_ns = 0;
    code = drive_find(&now, request->serial, &unmount.disk, error);
    if (code == STATUS_UNAVAILABLE) { /* the disk does not exist */
        *ret_answer = (struct drive_unmount_answer){.disk_removed = true};
        return STATUS_OK;
    }
    if (code == STATUS_OK)
        code = find_mounts(&unmount, error);
    answer.was_mounted = unmount.count > 0;
    if (code == STATUS_OK)
        code = release(&unmount, error);
    if (code == STATUS_OK)
        code = claim(&unmount, answer.was_mounted, &fd, error);
    if (code == STATUS_OK)
        code = remove_disk(&unmount, &answer.disk_removed, error);
    if (code == STATUS_OK)
        *ret_answer = answer;
    return code;
}
