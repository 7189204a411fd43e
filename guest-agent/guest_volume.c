/* SPDX-License-Identifier: Apache-2.0 */
/* guest_volume.c - reads mountinfo anew for each question: mounts come and go, and nothing is
 * remembered.
 *
 * Of several mounts on one mount point the last one is on top and is the one meant. A mount found
 * by its device may be hidden under another one, so each candidate is opened and checked.
 */
#include "guest-agent/guest_volume.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/encode.h"
#include "lib/mount_table.h"

#define STORAGE "/run/kata-containers/sandbox/storage/"

enum { VOLUMES = 256 }; /* in a list */

/* The next mount. False at the end. */
static bool next_volume(char **cursor, struct volume *ret_volume)
{
    struct mount_entry mount;

    while (mount_table_next(cursor, &mount)) {
        if (strlen(mount.mount_point) >= sizeof(ret_volume->mount_point) ||
            strlen(mount.file_system) >= sizeof(ret_volume->file_system))
            continue;
        strcpy(ret_volume->mount_point, mount.mount_point);
        strcpy(ret_volume->file_system, mount.file_system);
        ret_volume->kind = filesystem_kind_from_name(mount.file_system);
        ret_volume->device = mount.device;
        ret_volume->read_only = mount.read_only;
        ret_volume->file_system_read_only = mount.file_system_read_only;
        ret_volume->shut_down = mount.shut_down;
        return true;
    }
    return false;
}

int volume_open(const struct volume *volume, struct filesystem *ret_filesystem, int *ret_fd)
{
    cleanup(fd_closep) int fd = open(volume->mount_point, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int r;

    if (fd < 0)
        return -errno;
    r = filesystem_inspect(fd, volume->kind, volume->device, ret_filesystem);
    if (r < 0)
        return r;
    *ret_fd = take_fd(&fd);
    return 0;
}

bool volume_has_device(const struct volume *volume)
{
    return major(volume->device) != 0 || volume->kind == FILESYSTEM_BTRFS;
}

static bool has_recorded_errors(const struct volume *volume)
{
    char name[DEVICE_NAME_BYTES], path[128];
    uint64_t errors;

    if (volume->kind != FILESYSTEM_EXT)
        return false;
    device_name(volume->device, name);
    (void)snprintf(path, sizeof(path), "/sys/fs/ext4/%s/errors_count", name);
    return device_read_number(AT_FDCWD, path, &errors) == 0 && errors > 0;
}

bool volume_fails_as_shut_down(int error_number)
{
    return error_number == EIO || error_number == EUCLEAN || error_number == ESHUTDOWN;
}

/* After an error that it cannot live with, xfs fails every open; ext4 and btrfs become read-only.
 * Recorded errors tell such an ext4 from one that is read-only by request. ext4 of Linux 6.12 to
 * 6.14, and of stable kernels, stays "rw", but refuses every transaction, as btrfs does: here one
 * that would change nothing, because there is no such attribute. */
static bool is_shut_down(const struct volume *volume)
{
    bool has_errors = has_recorded_errors(volume);
    cleanup(fd_closep) int fd = -1;
    uint64_t transaction = 0;

    if (volume->kind == FILESYSTEM_OTHER)
        return false;
    if (volume->shut_down || (has_errors && volume->file_system_read_only))
        return true;
    fd = open(volume->mount_point, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return volume_fails_as_shut_down(errno);
    if (volume->kind == FILESYSTEM_BTRFS)
        return volume->file_system_read_only && ioctl(fd, BTRFS_IOC_START_SYNC, &transaction) < 0 &&
               errno == EROFS;
    return has_errors && !volume->read_only && fremovexattr(fd, "user.crust_absent") < 0 &&
           errno == EROFS;
}

const char *volume_trouble(const struct volume *volume, int *ret_outcome)
{
    if (is_shut_down(volume)) {
        *ret_outcome = FILESYSTEM_SHUT_DOWN;
        return AGENT_SHUT_DOWN_TEXT " after an error; unmount it, it needs fsck";
    }
    if (!has_recorded_errors(volume))
        return NULL;
    *ret_outcome = FILESYSTEM_ERRORS;
    return "the file system has recorded errors; it needs fsck";
}

/* Whether the volume can be reached and, unless disk is 0, stands on that disk. One that was shut
 * down cannot be opened; nor can what lies under it, which is then taken for shut down, too. */
static bool stands_on(const struct volume *volume, dev_t disk)
{
    cleanup(fd_closep) int fd = -1;
    struct filesystem filesystem;
    int r = volume_open(volume, &filesystem, &fd);

    if (r < 0)
        return volume_fails_as_shut_down(-r) && (!disk || volume->device == disk);
    for (unsigned i = 0; disk && i < filesystem.device_count; i++) {
        if (filesystem.devices[i].device == disk)
            return true;
    }
    return !disk;
}

int volume_find_mount(const char *path, struct volume *ret_volume, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    int r = mount_table_read(&text);
    char *cursor = text.data;
    struct volume volume;
    bool found = false;

    while (r == 0 && next_volume(&cursor, &volume)) {
        if (strcmp(volume.mount_point, path) != 0)
            continue;
        *ret_volume = volume;
        found = true;
    }
    if (r < 0)
        return r;
    return found ? VOLUME_FOUND
                 : error_set(error, VOLUME_UNKNOWN, "%s is not a mount point in this guest", path);
}

/* A writable mount of the disk, or else a read-only one. */
static int find_on_disk(const char *path, struct volume *ret_volume, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    char *cursor, name[DEVICE_NAME_BYTES];
    struct volume volume;
    bool found = false;
    dev_t disk;
    int r = device_by_path(path, &disk);

    if (r == DEVICE_IMPOSSIBLE)
        return error_set(error, VOLUME_UNKNOWN,
                         "%s is none of /MOUNT/POINT, /dev/NAME, pci:02/01, scsi:0:1", path);
    if (r == DEVICE_ABSENT || r == DEVICE_MISSING)
        return error_set(error, VOLUME_UNKNOWN, "no disk is at %s", path);
    if (r == DEVICE_AMBIGUOUS)
        return error_set(error, VOLUME_UNKNOWN, "more than one disk is at %s", path);
    if (r == DEVICE_FOUND)
        r = mount_table_read(&text);
    if (r < 0)
        return r;
    cursor = text.data;
    while ((!found || ret_volume->read_only) && next_volume(&cursor, &volume)) {
        if ((found && volume.read_only) ||
            (volume.device != disk && volume.kind != FILESYSTEM_BTRFS) ||
            (volume.kind != FILESYSTEM_OTHER && !stands_on(&volume, disk)))
            continue;
        *ret_volume = volume;
        found = true;
    }
    device_name(disk, name);
    return found ? VOLUME_FOUND
                 : error_set(error, VOLUME_UNKNOWN,
                             "the guest has not mounted %s (by a container alone does not count)",
                             name);
}

/* Kata's Go runtime names the agent's mount point by the base64url of the disk's address
 * (src/runtime/virtcontainers/kata_agent.go): "02/01", "0:1" or "/dev/vdb". In a sidecar's mount
 * namespace that mount point is not there, but its own mount of the disk is. */
static bool storage_to_disk(const char *path, char *ret_disk, size_t size)
{
    char source[BASE64URL_PATH_BYTES + 1];
    size_t length;

    if (strncmp(path, STORAGE, sizeof(STORAGE) - 1) != 0)
        return false;
    path += sizeof(STORAGE) - 1;
    if (base64url_decode(path, strlen(path), source, sizeof(source) - 1, &length) < 0 ||
        memchr(source, '\0', length))
        return false;
    source[length] = '\0';
    (void)snprintf(ret_disk, size, "%s%s",
                   source[0] == '/'      ? ""
                   : strchr(source, ':') ? "scsi:"
                                         : "pci:",
                   source);
    return true;
}

int volume_find(const char *path, struct volume *ret_volume, struct error *error)
{
    char disk[BASE64URL_PATH_BYTES + sizeof("scsi:")];
    struct volume volume;
    int r;

    if (path[0] == '/' && strncmp(path, "/dev/", 5) != 0) {
        r = volume_find_mount(path, &volume, error);
        if (r == VOLUME_UNKNOWN && storage_to_disk(path, disk, sizeof(disk)))
            r = find_on_disk(disk, &volume, error);
    } else {
        r = find_on_disk(path, &volume, error);
    }
    if (r < 0)
        return error_set_errno(error, r, "cannot find %s", path);
    if (r == VOLUME_FOUND)
        *ret_volume = volume;
    return r;
}

int volume_list(dev_t only, struct volume **ret_volumes, size_t *ret_count)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(freep) struct volume *volumes = calloc(VOLUMES, sizeof(*volumes));
    size_t count = 0;
    int r = volumes ? mount_table_read(&text) : -ENOMEM;
    char *cursor = text.data;

    while (r == 0 && count < VOLUMES && next_volume(&cursor, &volumes[count])) {
        const struct volume *volume = &volumes[count];
        size_t i = 0;

        if (volume->kind == FILESYSTEM_OTHER || (only && volume->device != only) ||
            (volume->read_only && !is_shut_down(volume)))
            continue;
        while (volumes[i].device != volume->device)
            i++;
        count += i == count && stands_on(volume, 0);
    }
    if (r < 0)
        return r;
    *ret_volumes = take_pointer(&volumes);
    *ret_count = count;
    return 0;
}

void volume_prefer_writable(struct volume *volume)
{
    cleanup(freep) struct volume *volumes = NULL;
    size_t count = 0;

    if (volume->read_only && volume_list(volume->device, &volumes, &count) == 0 && count)
        *volume = volumes[0];
}

/* ---- stats: statfs(2) of a mounted local file system does not block ---- */

void stats_of(const struct volume *volume, struct agent_stats *ret_stats)
{
    struct agent_stats stats = {.condition = "OK"};
    struct statfs statistics;
    int outcome;
    const char *trouble = volume_trouble(volume, &outcome);

    if (statfs(volume->mount_point, &statistics) == 0) {
        uint64_t unit = (uint64_t)statistics.f_bsize;

        stats.has_bytes = true;
        stats.total = statistics.f_blocks * unit;
        stats.available = statistics.f_bavail * unit;
        stats.used = (statistics.f_blocks - statistics.f_bfree) * unit;
        stats.has_inodes = statistics.f_files > 0; /* btrfs has no number of them */
        stats.total_inodes = statistics.f_files;
        stats.available_inodes = statistics.f_ffree;
        stats.used_inodes = stats.total_inodes - stats.available_inodes;
    } else {
        stats.abnormal = true;
        (void)snprintf(stats.condition, sizeof(stats.condition), "the file system answers: %s",
                       strerror(errno));
    }
    if (trouble) {
        stats.abnormal = true;
        (void)snprintf(stats.condition, sizeof(stats.condition), "%s", trouble);
    }
    *ret_stats = stats;
}

enum status_code stats_read(const char *volume_path, struct agent_stats *ret_stats,
                            struct error *error)
{
    struct volume volume;
    int r = volume_find(volume_path, &volume, error);

    if (r != VOLUME_FOUND)
        return r < 0 ? STATUS_INTERNAL : STATUS_INVALID_ARGUMENT;
    stats_of(&volume, ret_stats);
    return STATUS_OK;
}
