/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unmount.c - looks for holders first, because a file system that is unmounted here but held
 * elsewhere can neither be used nor be detached. */
#include "guest-agent/drive_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/drive_list.h"
#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"

#define PAUSE_NS    (20 * NSEC_PER_MSEC)
#define PATIENCE_NS (2 * NSEC_PER_SEC)
/* The pause if containers lose the mount at each attempt. */
#define LONG_PAUSE_NS (250 * NSEC_PER_MSEC)

/* The mounts of the disk in this process's namespace. */
struct places {
    unsigned count;
    char first[DRIVE_PATH_BYTES]; /* unescaped */
    char second[DRIVE_PATH_BYTES];
    char below[DRIVE_PATH_BYTES]; /* a mount below the first one, not on its root; "": none */
    uint64_t first_id;            /* the first one's mount id by statx(2) */
    dev_t device;                 /* the device in mountinfo */
};

static enum status_code find_places(const struct drive_disk *disk, struct places *places,
                                    struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry mount;
    int r = mount_table_read(&text);
    char *cursor = text.data;

    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot read the mounts");
    *places = (struct places){0};
    while (cursor && mount_table_next(&cursor, &mount)) {
        if (drive_list_device(&mount) == disk->device) {
            if (places->count < 2)
                (void)snprintf(places->count ? places->second : places->first, DRIVE_PATH_BYTES,
                               "%s", mount.mount_point);
            if (!places->count)
                places->first_id = mount.id;
            places->device = mount.device;
            places->count++;
        } else if (places->count && mount.parent == places->first_id &&
                   strcmp(mount.mount_point, places->first) != 0) {
            (void)snprintf(places->below, sizeof(places->below), "%s", mount.mount_point);
        }
    }
    return STATUS_OK;
}

/* ---- unmounting ---- */

/* Whether the first mount is the topmost one at its path. A file system that was shut down has no
 * attributes, but its mount has an id all the same. */
static bool is_topmost(const struct places *places)
{
    struct file_handle handle = {0};
    struct statx status;
    int id;

    if (statx(AT_FDCWD, places->first, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID,
              &status) == 0)
        return (status.stx_mask & STATX_MNT_ID) && status.stx_mnt_id == places->first_id;
    return volume_fails_as_shut_down(errno) &&
           name_to_handle_at(AT_FDCWD, places->first, &handle, &id, 0) < 0 && errno == EOVERFLOW &&
           (uint64_t)id == places->first_id;
}

/* umount(2) unmounts the topmost mount at a path. If something is mounted over the drive, or over a
 * directory above it, that would be another mount. */
static enum status_code check_seen(const struct places *places, struct error *error)
{
    if (!places->count || is_topmost(places))
        return STATUS_OK;
    return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                        "%s is covered: something else is mounted over it", places->first);
}

/* Checks what would keep the kernel from unmounting the drive, before it is taken from any
 * container. */
static enum status_code check_alone(const struct places *places, struct error *error)
{
    if (places->count > 1)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the drive is mounted on %s and on %s", places->first, places->second);
    if (places->below[0])
        return drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is mounted below the drive",
                            places->below);
    return STATUS_OK;
}

/* Finds st_dev of the files in the file system. 0 or -errno. */
static int find_files(const struct drive_disk *disk, const struct places *places, dev_t *ret_files)
{
    struct stat status;

    *ret_files = disk->device;
    if (!places->count)
        return 0;
    if (stat(places->first, &status) == 0)
        *ret_files = status.st_dev;
    else if (!volume_fails_as_shut_down(errno)) /* that is of xfs, whose files have its device */
        return -errno;
    return 0;
}

/* Finds the mounts that containers were given. A container that cannot be found counts as a
 * holder. */
static size_t find_own_places(const struct drive_unmount_work *work,
                              struct drive_held_place own[static DRIVE_CONTAINERS])
{
    const struct drive_containers *containers = &work->request->containers;
    size_t count = 0;

    for (size_t i = 0; i < containers->count; i++) {
        const struct drive_container *one = &containers->each[i];
        struct container_place place;

        if (container_find(work->setting.proc, one->container_id, &place) != CONTAINER_FOUND)
            continue;
        own[count++] = (struct drive_held_place){place.mounts, one->path};
        fd_close(place.process);
    }
    return count;
}

/* Looks for holders of the file system mounted at places->first or, if the disk is not mounted, of
 * the disk alone. */
static enum status_code check_holders(const struct drive_unmount_work *work,
                                      const struct drive_disk *disk, const struct places *places,
                                      struct error *error)
{
    const char *what = places->count ? places->first : disk->name;
    struct drive_held_place own[DRIVE_CONTAINERS];
    struct drive_held held = {disk->device, disk->device, disk->device, find_own_places(work, own),
                              own};
    struct drive_holders holders;
    int r = find_files(disk, places, &held.files);

    if (places->count)
        held.mounts = places->device;
    if (r == 0)
        r = drive_holders_find(work->setting.proc, &held, &holders);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot tell who uses %s", what);
    return holders.count
               ? drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is in use by %u processes: %s",
                              what, holders.count, holders.text)
               : STATUS_OK;
}

/* Busy although no process was found: a process came after the search, or the kernel itself holds
 * the file system. */
static enum status_code refuse_busy(const struct drive_unmount_work *work,
                                    const struct drive_disk *disk, const struct places *places,
                                    struct error *error)
{
    enum status_code code = check_holders(work, disk, places, error);

    return code != STATUS_OK
               ? code
               : drive_refuse(error, STATUS_FAILED_PRECONDITION,
                              "%s is in use by no process: something is mounted below it, or swap, "
                              "a loop device or an export lies on it",
                              places->first);
}

static enum status_code unmount(const struct drive_unmount_work *work,
                                const struct drive_disk *disk, const struct places *places,
                                struct error *error)
{
    if (umount2(places->first, UMOUNT_NOFOLLOW) == 0)
        return STATUS_OK;
    if (errno == EBUSY)
        return refuse_busy(work, disk, places, error);
    return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno, "cannot unmount %s",
                              places->first);
}

/* ---- containers ---- */

static enum status_code leave_containers(const struct drive_unmount_work *work,
                                         const struct drive_disk *disk, const struct places *places,
                                         struct error *error)
{
    const struct drive_containers *containers = &work->request->containers;
    const dev_t mounts = places->count ? places->device : disk->device;
    enum status_code code = STATUS_OK;
    dev_t files;
    int r = find_files(disk, places, &files);

    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot tell what is in %s",
                                  places->first);
    for (size_t i = 0; code == STATUS_OK && i < containers->count; i++)
        code = drive_leave(&work->setting, files, mounts, &containers->each[i], error);
    return code;
}

/* Failures are ignored, because the host repeats the mount as well. */
static void enter_again(const struct drive_unmount_work *work, const struct places *places)
{
    const struct drive_containers *containers = &work->request->containers;
    cleanup(fd_closep) int volume = -1;
    struct error ignored = {0};

    if (!places->count || !containers->count || check_seen(places, &ignored) != STATUS_OK)
        return;
    volume = open(places->first, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; volume >= 0 && i < containers->count; i++)
        (void)drive_enter(&work->setting, volume, &containers->each[i], &ignored);
}

/* Takes the drive from the containers and unmounts it; on failure they get it back. */
static enum status_code take_away(const struct drive_unmount_work *work,
                                  const struct drive_disk *disk, const struct places *places,
                                  struct error *error)
{
    enum status_code code = leave_containers(work, disk, places, error);

    if (code == STATUS_OK && places->count)
        code = unmount(work, disk, places, error);
    if (code != STATUS_OK)
        enter_again(work, places);
    return code;
}

/* Waits for brief holders, such as the agent's own sync of the drives. */
static enum status_code release(const struct drive_unmount_work *work,
                                const struct drive_disk *disk, struct places *places,
                                struct error *error)
{
    const struct timespec pause = {.tv_nsec =
                                       work->request->containers.count ? LONG_PAUSE_NS : PAUSE_NS};
    const uint64_t patient_until = clock_boottime() + PATIENCE_NS;

    while (true) {
        enum status_code code = check_seen(places, error);
        const uint64_t now = clock_boottime();
        const bool is_last = now >= patient_until || now >= work->setting.deadline_ns;

        if (code == STATUS_OK)
            code = check_alone(places, error);
        if (code == STATUS_OK)
            code = check_holders(work, disk, places, error);
        if (code == STATUS_OK)
            code = take_away(work, disk, places, error);
        if (code != STATUS_FAILED_PRECONDITION || is_last)
            return code;
        (void)nanosleep(&pause, NULL);
        code = find_places(disk, places, error);
        if (code != STATUS_OK)
            return code;
    }
}

/* ---- the disk ---- */

/* The kernel may release a file system a little after the unmount. */
static enum status_code claim(const struct drive_setting *setting, const struct drive_disk *disk,
                              bool was_mounted, int *ret_fd, struct error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int r = drive_find_open(setting, disk, O_RDONLY | O_EXCL, ret_fd);

    while (r == DRIVE_FIND_IN_USE && clock_boottime() < setting->deadline_ns) {
        (void)nanosleep(&pause, NULL);
        r = drive_find_open(setting, disk, O_RDONLY | O_EXCL, ret_fd);
    }
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
static int press(const struct drive_unmount_work *work, const struct drive_disk *disk,
                 const char *attribute)
{
    cleanup(fd_closep) int fd = -1;
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/block/%s/%s", work->setting.sysfs, disk->name,
                 attribute) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, "1", 1) < 0 ? -errno : 0;
}

/* Removes the disk while nobody else can open it. The guest has to remove a SCSI disk, and the PCI
 * function of a VMM that does not ask for its release: if it stayed, it would hide the next drive
 * in its slot. Other VMMs ask the guest to release the device. */
static enum status_code remove_disk(const struct drive_unmount_work *work,
                                    const struct drive_disk *disk, bool *ret_removed,
                                    struct error *error)
{
    int r = 0;

    *ret_removed = press(work, disk, "device/delete") == 0;
    if (!*ret_removed && drive_serial_is_of_vmm(disk->serial)) {
        r = press(work, disk, "device/../remove"); /* the PCI function of the virtio device */
        *ret_removed = r == 0;
    }
    return r < 0 ? drive_refuse_errno(error, STATUS_INTERNAL, r,
                                      "cannot remove the PCI function of %s", disk->name)
                 : STATUS_OK;
}

enum status_code drive_unmount_run(const struct drive_unmount_work *work,
                                   struct drive_unmount_answer *ret_answer, struct error *error)
{
    struct drive_setting now = work->setting;
    struct drive_unmount_answer answer = {0};
    cleanup(fd_closep) int fd = -1;
    struct places places = {0};
    struct drive_disk disk;
    enum status_code code;

    now.deadline_ns = 0;
    code = drive_find(&now, work->request->serial, &disk, error);
    if (code == STATUS_UNAVAILABLE) { /* the disk does not exist */
        *ret_answer = (struct drive_unmount_answer){.disk_removed = true};
        return STATUS_OK;
    }
    if (code == STATUS_OK)
        code = find_places(&disk, &places, error);
    answer.was_mounted = places.count > 0;
    if (code == STATUS_OK)
        code = release(work, &disk, &places, error);
    if (code == STATUS_OK)
        code = claim(&work->setting, &disk, answer.was_mounted, &fd, error);
    if (code == STATUS_OK)
        code = remove_disk(work, &disk, &answer.disk_removed, error);
    if (code == STATUS_OK)
        *ret_answer = answer;
    return code;
}
