/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once.c - see drive_once.h. */
#include "guest-agent/drive_once.h"
#include "guest-agent/drive_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/drive_place.h"
#include "guest-agent/ownership.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/mount_table.h"
#include "lib/path.h"

enum { LINE_BYTES = 2048, VERSION = 1, PROVE_PAUSE_NS = 20 * NSEC_PER_MSEC, STACKED = 16 };

/* The content of the printed line. */
struct report {
    enum status_code status;
    struct error error;
    bool has_disk;
    struct drive_disk disk;
    bool is_mounted;
    struct drive_walk_count walk;
};

static void refuse(struct report *report, enum status_code status, const char *text)
{
    report->status = status;
    (void)error_set(&report->error, (int)status, "%s", text);
}

static int print(const struct report *report, int output)
{
    cleanup(buffer_done) struct buffer line = BUFFER_INIT(LINE_BYTES);
    int r = buffer_append_format(&line, "{\"version\":%d,\"drive\":{", VERSION);

    if (r == 0)
        r = json_append_member(&line, "status", status_name((int)report->status));
    if (r == 0)
        r = json_append_member(&line, "text", report->error.text);
    if (r == 0)
        r = json_append_member(&line, "device", report->has_disk ? report->disk.name : "");
    if (r == 0)
        r = buffer_append_format(&line, ",\"bytes\":%" PRIu64 ",\"mounted\":%s",
                                 report->has_disk ? report->disk.bytes : 0,
                                 report->is_mounted ? "true" : "false");
    if (r == 0)
        r = buffer_append_format(
            &line, ",\"changed\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"failed\":%" PRIu64 "}}\n",
            report->walk.changed, report->walk.skipped, report->walk.failed);
    return r == 0 ? path_write(output, line.data, line.length) : r;
}

/* ---- the acts ---- */

/* Finds the disk, and waits for it if there is time. */
static bool find(const struct drive_once_request *request, uint64_t timeout_ns,
                 struct report *report)
{
    const struct drive_find_request find_request = {request->sysfs, "/dev", request->arguments[0],
                                                    timeout_ns ? clock_boottime() + timeout_ns : 0};

    report->status = drive_find(&find_request, &report->disk, &report->error);
    report->has_disk = report->status == STATUS_OK;
    return report->has_disk;
}

static void check_place(const char *const *arguments, size_t count, struct report *report)
{
    const struct drive_place place = {arguments[0], arguments[1], arguments[2], arguments[3],
                                      count == 5 ? arguments[4] : NULL};

    switch (drive_place_check(&place, &report->error)) {
    case DRIVE_PLACE_FINE:
        report->status = STATUS_OK;
        break;
    case DRIVE_PLACE_PROTECTED:
        report->status = STATUS_INVALID_ARGUMENT;
        break;
    case DRIVE_PLACE_TAKEN:
        report->status = STATUS_ALREADY_EXISTS;
        break;
    case DRIVE_PLACE_UNREACHABLE:
        report->status = STATUS_FAILED_PRECONDITION;
        break;
    default:
        report->status = STATUS_INTERNAL;
    }
}

/* btrfs has an anonymous device, so its source tells the disk. */
static bool is_on(const struct mount_entry *entry, const struct drive_disk *disk)
{
    const char *slash = strrchr(entry->source, '/');

    if (major(entry->device) != 0)
        return entry->device == disk->device;
    return mount_table_source_is_device(entry) && slash && strcmp(slash + 1, disk->name) == 0;
}

/* Whether the topmost mount on the path is of the disk. */
static int find_mount(const char *path, struct report *report)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry entry;
    char *cursor;
    int r = mount_table_read(&text);

    if (r < 0)
        return error_set_errno(&report->error, r, "cannot read mountinfo");
    cursor = text.data;
    while (cursor && mount_table_next(&cursor, &entry)) {
        if (strcmp(entry.mount_point, path) == 0)
            report->is_mounted = is_on(&entry, &report->disk);
    }
    return 0;
}

/* kata-agent may have mounted the disk there for an earlier crustd that was killed before the
 * answer. It does not mount a second time. */
static void excuse_own_mount(const char *place, struct report *report)
{
    if (find_mount(place, report) == 0 && report->is_mounted) {
        report->status = STATUS_OK;
        report->error = (struct error){0};
    }
}

static int check(const struct drive_once_request *request, struct report *report)
{
    const char *const *arguments = request->arguments;
    bool read_only = request->count > 2 && strcmp(arguments[2], "ro") == 0;
    uint64_t bytes;
    char *end;

    if ((request->count != 3 && request->count != 7 && request->count != 8) ||
        (!read_only && strcmp(arguments[2], "rw") != 0) || arguments[1][0] < '1' ||
        arguments[1][0] > '9')
        return DRIVE_ONCE_USAGE;
    bytes = strtoull(arguments[1], &end, 10);
    if (*end)
        return DRIVE_ONCE_USAGE;
    if (find(request, request->timeout_ns, report))
        report->status = drive_find_check(&report->disk, bytes, read_only, &report->error);
    if (report->status == STATUS_OK && request->count > 3)
        check_place(arguments + 3, request->count - 3, report);
    if (report->status == STATUS_ALREADY_EXISTS)
        excuse_own_mount(arguments[3], report);
    return DRIVE_ONCE_DONE;
}

static int look(const struct drive_once_request *request, struct report *report)
{
    if (request->count != 1 && request->count != 2)
        return DRIVE_ONCE_USAGE;
    if (find(request, 0, report) && request->count == 2 &&
        find_mount(request->arguments[1], report) < 0)
        report->status = STATUS_INTERNAL;
    if (report->status == STATUS_UNAVAILABLE) /* a disk that does not exist is not mounted */
        *report = (struct report){0};
    return DRIVE_ONCE_DONE;
}

/* Syncs the file system at the interval, forever; 0: only waits. */
static _Noreturn void flush_forever(int directory, uint64_t flush_ns)
{
    const struct timespec pause_time = {.tv_sec = (time_t)(flush_ns / NSEC_PER_SEC)};

    for (;;) {
        if (!flush_ns)
            (void)pause();
        else if (nanosleep(&pause_time, NULL) == 0)
            (void)syncfs(directory);
    }
}

/* Applies the group as the kubelet applies a pod's fsGroup. */
static void apply_group(const struct drive_once_request *request, int directory,
                        struct report *report)
{
    const struct ownership_request ownership = {
        .directory = directory, .group = request->fs_group, .policy = request->fs_group_policy};

    if (ownership_set_group(&ownership, &report->walk, &report->error) != STATUS_OK)
        report->status = STATUS_FAILED_PRECONDITION;
}

/* What `hold` does before it prints its line. */
static void prepare(const struct drive_once_request *request, int directory, bool read_only,
                    struct report *report)
{
    if (read_only)
        return;
    if (request->has_fs_group)
        apply_group(request, directory, report);
    if (report->status == STATUS_OK && syncfs(directory) < 0) {
        report->status = STATUS_FAILED_PRECONDITION;
        (void)error_set_errno(&report->error, -errno, "cannot sync the file system");
    }
}

static int hold(const struct drive_once_request *request, int output, struct report *report)
{
    cleanup(fd_closep) int directory = -1;
    struct statvfs status;
    int r;

    if (request->count != 2)
        return DRIVE_ONCE_USAGE;
    if (!find(request, 0, report))
        return DRIVE_ONCE_DONE;
    if (find_mount(request->arguments[1], report) < 0)
        report->status = STATUS_INTERNAL;
    else if (!report->is_mounted)
        refuse(report, STATUS_FAILED_PRECONDITION, "another disk than the drive's was mounted");
    if (report->status != STATUS_OK)
        return DRIVE_ONCE_DONE;
    directory = open(request->arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fstatvfs(directory, &status) < 0) {
        report->status = STATUS_FAILED_PRECONDITION;
        (void)error_set_errno(&report->error, -errno, "cannot open the file system");
        return DRIVE_ONCE_DONE;
    }
    prepare(request, directory, status.f_flag & ST_RDONLY, report);
    if (report->status != STATUS_OK)
        return DRIVE_ONCE_DONE;
    r = print(report, output);
    if (r < 0)
        return r;
    flush_forever(directory, status.f_flag & ST_RDONLY ? 0 : request->flush_ns);
}

/* The kernel allows an exclusive open once no mount in any namespace has the disk, which may be a
 * moment after the last unmount. */
static int open_exclusively(const char *node, uint64_t timeout_ns, const struct drive_disk *disk,
                            int *ret_fd)
{
    const struct timespec pause_time = {.tv_nsec = PROVE_PAUSE_NS};
    uint64_t ends_at = clock_boottime() + timeout_ns;
    int r = drive_find_open_node(node, disk, O_RDONLY | O_EXCL, ret_fd);

    if (r == DRIVE_FIND_DENIED && device_cgroup_allow(disk->device) == 0)
        r = drive_find_open_node(node, disk, O_RDONLY | O_EXCL, ret_fd);
    while (r == DRIVE_FIND_IN_USE && clock_boottime() < ends_at) {
        (void)nanosleep(&pause_time, NULL);
        r = drive_find_open_node(node, disk, O_RDONLY | O_EXCL, ret_fd);
    }
    return r;
}

static void prove_by(const char *node, uint64_t timeout_ns, struct report *report)
{
    cleanup(fd_closep) int fd = -1;
    int r = open_exclusively(node, timeout_ns, &report->disk, &fd);

    if (r == DRIVE_FIND_IN_USE)
        refuse(report, STATUS_FAILED_PRECONDITION, "somebody in the guest still has the disk");
    else if (r < 0 || fsync(fd) < 0) {
        report->status = STATUS_INTERNAL;
        (void)error_set_errno(&report->error, r < 0 ? r : -errno, "cannot open the disk");
    }
}

static int prove(const struct drive_once_request *request, struct report *report)
{
    if (request->count != 1 && request->count != 2)
        return DRIVE_ONCE_USAGE;
    if (!find(request, 0, report)) {
        if (report->status == STATUS_UNAVAILABLE) /* nobody has a disk that does not exist */
            *report = (struct report){0};
        return DRIVE_ONCE_DONE;
    }
    if (request->count == 1)
        refuse(report, STATUS_UNAVAILABLE, "whether somebody has the disk was not looked at");
    else
        prove_by(request->arguments[1], request->timeout_ns, report);
    return DRIVE_ONCE_DONE;
}

/* A disk that is busy stays mounted. What is mounted over it, or is of another disk, is not
 * touched. How many mounts there were, or -errno. */
static int unmount_all(const char *path, struct report *report)
{
    int r = find_mount(path, report), count = 0;

    while (r == 0 && report->is_mounted && count < STACKED && umount2(path, UMOUNT_NOFOLLOW) == 0) {
        count++;
        report->is_mounted = false;
        r = find_mount(path, report);
    }
    return r < 0 ? r : count;
}

/* The proof also shows whether this container has the agent's mounts, and not a copy of them. */
static int release(const struct drive_once_request *request, struct report *report)
{
    char node[sizeof("/dev/") + sizeof(report->disk.name)];
    int count;

    if (request->count != 2)
        return DRIVE_ONCE_USAGE;
    if (!find(request, 0, report))
        return DRIVE_ONCE_DONE;
    count = unmount_all(request->arguments[1], report);
    if (count < 0) {
        report->status = STATUS_INTERNAL;
        return DRIVE_ONCE_DONE;
    }
    (void)snprintf(node, sizeof(node), "/dev/%s", report->disk.name);
    prove_by(node, count ? request->timeout_ns : 0, report);
    return DRIVE_ONCE_DONE;
}

int drive_once_run(const struct drive_once_request *request, int output, struct error *error)
{
    struct report report = {0};
    int r = DRIVE_ONCE_USAGE;

    if (request->count < 1 || !drive_serial_is_valid(request->arguments[0]))
        return DRIVE_ONCE_USAGE;
    if (strcmp(request->act, "check") == 0)
        r = check(request, &report);
    else if (strcmp(request->act, "look") == 0)
        r = look(request, &report);
    else if (strcmp(request->act, "hold") == 0)
        r = hold(request, output, &report);
    else if (strcmp(request->act, "prove") == 0)
        r = prove(request, &report);
    else if (strcmp(request->act, "release") == 0)
        r = release(request, &report);
    if (r == DRIVE_ONCE_DONE)
        r = print(&report, output);
    if (r < 0)
        return error_set_errno(error, r, "cannot write the report");
    if (r == DRIVE_ONCE_USAGE)
        return r;
    return report.status == STATUS_OK ? DRIVE_ONCE_DONE : DRIVE_ONCE_REFUSED;
}
