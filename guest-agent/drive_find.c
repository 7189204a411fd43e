/* SPDX-License-Identifier: Apache-2.0 */
/* drive_find.c - polls sysfs. A uevent would be some milliseconds faster, but may get lost. */
#include "guest-agent/drive_find.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"

#define FIRST_PAUSE_NS   (2 * NSEC_PER_MSEC)
#define LONGEST_PAUSE_NS (50 * NSEC_PER_MSEC)
#define SCAN_PAUSE_NS    (1 * NSEC_PER_SEC)

static void write_attribute(const char *path, const char *text)
{
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

/* Errors are ignored, here and below: the bus may be missing or unable to rescan. */
static void scan_pci(const char *sysfs)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/bus/pci/rescan", sysfs) < (int)sizeof(path))
        write_attribute(path, "1");
}

/* Has every SCSI host and the PCI bus scan for disks. */
static void scan_buses(const char *sysfs)
{
    cleanup(dir_closep) DIR *hosts = NULL;
    char path[PATH_MAX];
    const char *name;

    if (snprintf(path, sizeof(path), "%s/class/scsi_host", sysfs) < (int)sizeof(path))
        hosts = opendir(path);
    while (hosts && (name = directory_next(hosts))) {
        if (snprintf(path, sizeof(path), "%s/class/scsi_host/%s/scan", sysfs, name) <
            (int)sizeof(path))
            write_attribute(path, "- - -");
    }
    scan_pci(sysfs);
}

static enum status_code find_once(const struct drive_find_request *request,
                                  struct drive_disk *ret_disk, struct error *error)
{
    cleanup(drive_disks_done) struct drive_disks disks = {0};
    const struct drive_disk *disk;
    int r = drive_disks_read(request->sysfs, &disks);

    if (r < 0) {
        (void)error_set_errno(error, r, "cannot list the disks");
        return STATUS_INTERNAL;
    }
    switch (drive_disks_find(&disks, request->serial, &disk)) {
    case DRIVE_DISK_FOUND:
        *ret_disk = *disk;
        return STATUS_OK;
    case DRIVE_DISK_AMBIGUOUS:
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "several disks have the serial %s, or there are too many disks",
                        request->serial);
        return STATUS_FAILED_PRECONDITION;
    case DRIVE_DISK_UNREADABLE:
        (void)error_set(error, STATUS_INTERNAL,
                        "whether a disk with the serial %s is there cannot be told: %s cannot be "
                        "read in sysfs",
                        request->serial, disks.unreadable);
        return STATUS_INTERNAL;
    case DRIVE_DISK_ABSENT:
    default:
        (void)error_set(error, STATUS_UNAVAILABLE, "no disk with the serial %s is there",
                        request->serial);
        return STATUS_UNAVAILABLE;
    }
}

enum status_code drive_find(const struct drive_find_request *request, struct drive_disk *ret_disk,
                            struct error *error)
{
    uint64_t pause_ns = FIRST_PAUSE_NS, scan_ns = clock_boottime() + SCAN_PAUSE_NS;
    enum status_code code;

    if (request->deadline_ns && drive_serial_is_of_vmm(request->serial))
        scan_pci(request->sysfs);
    code = find_once(request, ret_disk, error);
    while ((code == STATUS_UNAVAILABLE || code == STATUS_INTERNAL) &&
           clock_boottime() < request->deadline_ns) {
        const struct timespec pause = {.tv_nsec = (long)pause_ns};

        if (clock_boottime() >= scan_ns) {
            scan_buses(request->sysfs);
            scan_ns = clock_boottime() + SCAN_PAUSE_NS;
        }
        (void)nanosleep(&pause, NULL);
        pause_ns = pause_ns * 2 < LONGEST_PAUSE_NS ? pause_ns * 2 : LONGEST_PAUSE_NS;
        code = find_once(request, ret_disk, error);
    }
    return code;
}

enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error)
{
    if (disk->bytes != bytes) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "%s has %" PRIu64 " bytes and not %" PRIu64, disk->name, disk->bytes,
                        bytes);
        return STATUS_FAILED_PRECONDITION;
    }
    if (disk->read_only != read_only) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION, "%s is %s", disk->name,
                        disk->read_only ? "read-only" : "writable");
        return STATUS_FAILED_PRECONDITION;
    }
    return STATUS_OK;
}

int drive_find_open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd)
{
    cleanup(fd_closep) int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat status;

    if (fd < 0 && errno == ENXIO)
        return DRIVE_FIND_ABSENT;
    if (fd < 0 || fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISBLK(status.st_mode) || status.st_rdev != disk->device)
        return DRIVE_FIND_ABSENT;
    *ret_fd = take_fd(&fd);
    return 0;
}

int drive_find_open(const struct drive_find_request *request, const struct drive_disk *disk,
                    int flags, int *ret_fd)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", request->devices, disk->name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return drive_find_open_node(path, disk, flags, ret_fd);
}
