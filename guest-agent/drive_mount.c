/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mount.c - the steps of MountDrive; each returns a status and fills the error. */
#include "guest-agent/drive_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_options.h"
#include "guest-agent/drive_disk.h"
#include "guest-agent/drive_enter.h"
#include "guest-agent/drive_list.h"
#include "guest-agent/drive_place.h"
#include "guest-agent/filesystem.h"
#include "guest-agent/ownership.h"
#include "guest-agent/volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/text.h"

enum { KERNEL_MESSAGE_BYTES = 160 };

static enum status_code refuse(struct error *error, enum status_code code, const char *text)
{
    (void)error_set(error, code, "%s", text);
    return code;
}

/* ---- an existing mount ---- */

/* Whether the disk is mounted, and if so, whether as requested. */
static enum status_code judge_mount(const struct drive_guest_entry *entry,
                                    const struct drive_mount_request *request, struct error *error)
{
    if (strcmp(entry->vm_path, request->vm_path) == 0 &&
        strcmp(entry->filesystem_type, request->filesystem_type) == 0)
        return STATUS_OK;
    (void)error_set(error, STATUS_ALREADY_EXISTS, "the drive is mounted on %s as %s",
                    entry->vm_path, entry->filesystem_type);
    return STATUS_ALREADY_EXISTS;
}

static enum status_code find_mount(const struct drive_mount_request *request,
                                   const struct drive_disk *disk, bool *ret_is_mounted,
                                   struct error *error)
{
    struct drive_disk copy = *disk;
    const struct drive_disks disks = {.count = 1, .disks = &copy};
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    char none[] = "";
    int r = mount_table_read(&text);

    if (r == 0)
        r = drive_list_make(&disks, text.data ? text.data : none, &list);
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot read the mounts");
        return STATUS_INTERNAL;
    }
    *ret_is_mounted = list.entries[0].state == DRIVE_GUEST_MOUNTED;
    return *ret_is_mounted ? judge_mount(&list.entries[0], request, error) : STATUS_OK;
}

/* A mounted drive is found without a scan of the bus, because the call is repeated regularly while
 * containers have the drive. */
static enum status_code find_disk(const struct drive_find_request *find,
                                  const struct drive_mount_request *request,
                                  struct drive_disk *ret_disk, struct error *error)
{
    struct drive_find_request now = *find;
    struct error ignored = {0};
    bool is_mounted = false;

    now.deadline_ns = 0;
    if (drive_serial_is_of_vmm(find->serial) && drive_find(&now, ret_disk, &ignored) == STATUS_OK &&
        find_mount(request, ret_disk, &is_mounted, &ignored) == STATUS_OK && is_mounted)
        return STATUS_OK;
    return drive_find(find, ret_disk, error);
}

/* ---- a detached mount of the file system ---- */

/* Reads the kernel's message about the last call, without its class ("e "). */
static void read_message(int context, char ret_text[static KERNEL_MESSAGE_BYTES])
{
    char bytes[KERNEL_MESSAGE_BYTES];
    ssize_t length = read(context, bytes, sizeof(bytes) - 1);
    const char *text = bytes;

    bytes[length < 0 ? 0 : length] = '\0';
    if (length > 2 && bytes[1] == ' ')
        text += 2;
    text_clean(text, strcspn(text, "\n"), ret_text, KERNEL_MESSAGE_BYTES);
}

/* The kernel refused the mount, which does not heal. */
static enum status_code refused(int context, const char *what, const char *type,
                                struct error *error)
{
    int code = errno;
    char message[KERNEL_MESSAGE_BYTES];

    read_message(context, message);
    (void)error_set_errno(error, -code, "cannot %s %s%s%s%s", what, type, message[0] ? " (" : "",
                          message, message[0] ? ")" : "");
    return code == ENOMEM ? STATUS_RESOURCE_EXHAUSTED : STATUS_FAILED_PRECONDITION;
}

/* 0, or -1 as the call returned. */
static int configure(int context, const struct drive_mount_request *request,
                     const struct drive_options *options, const char *source)
{
    if (fsconfig(context, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
        (request->read_only && fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0))
        return -1;
    for (size_t i = 0; i < options->count; i++) {
        const struct drive_parameter *parameter = &options->parameters[i];

        if (fsconfig(context, parameter->value[0] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                     parameter->name, parameter->value[0] ? parameter->value : NULL, 0) < 0)
            return -1;
    }
    return fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static enum status_code mount_detached(const struct drive_mount_request *request,
                                       const struct drive_options *options, const char *source,
                                       int *ret_mount, struct error *error)
{
    const char *type = request->filesystem_type;
    cleanup(fd_closep) int context = fsopen(type, FSOPEN_CLOEXEC);
    int mount;

    if (context < 0) {
        int code = errno;

        (void)error_set_errno(error, -code, "the guest's kernel cannot mount %s", type);
        return code == EPERM ? STATUS_PERMISSION_DENIED : STATUS_FAILED_PRECONDITION;
    }
    if (configure(context, request, options, source) < 0)
        return refused(context, "mount the disk as", type, error);
    mount = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)options->attributes);
    if (mount < 0)
        return refused(context, "mount the disk as", type, error);
    *ret_mount = mount;
    return STATUS_OK;
}

/* The kernel was given a name in /dev, which somebody may have redirected. So this checks that the
 * file system lies on the expected disk and on no other. */
static enum status_code check_disk(int directory, const struct drive_mount_request *request,
                                   const struct drive_disk *disk, struct error *error)
{
    struct filesystem filesystem;
    struct stat status;
    int r = fstat(directory, &status) < 0 ? -errno : 0;

    if (r == 0)
        r = filesystem_inspect(directory, filesystem_kind_from_name(request->filesystem_type),
                               status.st_dev, &filesystem);
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot tell on which disk the file system lies");
        return STATUS_INTERNAL;
    }
    if (filesystem.device_count != 1 || filesystem.devices[0].device != disk->device) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "the file system does not lie on %s alone", disk->name);
        return STATUS_FAILED_PRECONDITION;
    }
    return STATUS_OK;
}

/* Opens what is visible at the path, which must be the mount that was found or made, and not one
 * over it. */
static enum status_code open_seen(const struct drive_mount_request *request,
                                  const struct drive_disk *disk, int *ret_directory,
                                  struct error *error)
{
    cleanup(fd_closep) int directory =
        open(request->vm_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (directory >= 0 && check_disk(directory, request, disk, error) == STATUS_OK) {
        *ret_directory = take_fd(&directory);
        return STATUS_OK;
    }
    (void)error_set(error, STATUS_FAILED_PRECONDITION,
                    directory < 0 && volume_fails_as_shut_down(errno)
                        ? "%s: " AGENT_SHUT_DOWN_TEXT " after an error; detach the drive"
                        : "%s is covered: something else is mounted over it",
                    request->vm_path);
    return STATUS_FAILED_PRECONDITION;
}

static enum status_code check_seen(const struct drive_mount_request *request,
                                   const struct drive_disk *disk, struct error *error)
{
    int directory = -1;
    enum status_code code = open_seen(request, disk, &directory, error);

    fd_close(directory);
    return code;
}

/* ---- the group ---- */

static bool note_walk(const struct drive_walk_count *count, void *userdata)
{
    struct drive_walk_count *walk = userdata;

    *walk = *count;
    return true;
}

/* Groups on a read-only disk stay unchanged, as with the kubelet. */
static enum status_code apply_group(const struct drive_mount_work *work, int directory,
                                    struct drive_mount_answer *answer, struct error *error)
{
    const struct drive_mount_request *request = work->request;
    const struct ownership_request ownership = {.directory = directory,
                                                .group = request->fs_group,
                                                .policy = request->fs_group_policy,
                                                .report = note_walk,
                                                .userdata = work->walk};

    if (!request->has_fs_group || request->read_only)
        return STATUS_OK;
    return ownership_set_group(&ownership, &answer->walk, error);
}

/* ---- the mount point ---- */

static enum status_code open_target(const char *path, int *ret_fd, struct error *error)
{
    switch (drive_target_open(path, ret_fd, error)) {
    case DRIVE_TARGET_OPEN:
        return STATUS_OK;
    case DRIVE_TARGET_PROTECTED:
        return STATUS_INVALID_ARGUMENT;
    case DRIVE_TARGET_TAKEN:
        return STATUS_ALREADY_EXISTS;
    case DRIVE_TARGET_UNREACHABLE:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_INTERNAL;
    }
}

/* Checks the mount point before anything is done to the disk. */
static enum status_code check_target(const char *path, struct error *error)
{
    int fd = -1;
    enum status_code code = open_target(path, &fd, error);

    fd_close(fd);
    return code;
}

static enum status_code put_in_place(int mount, const char *path, struct error *error)
{
    cleanup(fd_closep) int target = -1;
    enum status_code code = open_target(path, &target, error);

    if (code != STATUS_OK)
        return code;
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0) {
        (void)error_set_errno(error, -errno, "cannot mount on %s", path);
        return STATUS_FAILED_PRECONDITION;
    }
    return STATUS_OK;
}

/* ---- containers ---- */

/* Tries all of them; the answer has the first failure. */
static void enter_containers(const struct drive_mount_work *work, const struct drive_disk *disk,
                             struct drive_mount_answer *answer)
{
    const struct drive_containers *containers = &work->request->containers;
    cleanup(fd_closep) int volume = -1;
    struct error first = {0}, error = {0};
    enum status_code code =
        containers->count ? open_seen(work->request, disk, &volume, &first) : STATUS_OK;

    for (size_t i = 0; code == STATUS_OK && i < containers->count; i++) {
        if (drive_enter(&(struct drive_visits){work->proc, work->deadline_ns}, volume,
                        &containers->each[i], &error) == STATUS_OK)
            answer->containers++;
        else if (!first.text[0])
            first = error;
    }
    text_clean(first.text, strlen(first.text), answer->container_error,
               sizeof(answer->container_error));
}

/* ---- all steps ---- */

static enum status_code measure(const char *path, struct drive_mount_answer *answer,
                                struct error *error)
{
    struct statvfs status;

    if (statvfs(path, &status) < 0) {
        (void)error_set_errno(error, -errno, "cannot read the size of the file system");
        return STATUS_INTERNAL;
    }
    answer->filesystem_bytes = (uint64_t)status.f_frsize * status.f_blocks;
    return STATUS_OK;
}

/* Prepares the file system while only this process can see it. */
static enum status_code prepare(const struct drive_mount_work *work, const struct drive_disk *disk,
                                int mount, struct drive_mount_answer *answer, struct error *error)
{
    cleanup(fd_closep) int directory = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status_code code;

    if (directory < 0) {
        (void)error_set_errno(error, -errno, "cannot open the file system");
        return STATUS_FAILED_PRECONDITION;
    }
    code = check_disk(directory, work->request, disk, error);
    if (code == STATUS_OK)
        code = apply_group(work, directory, answer, error);
    if (code == STATUS_OK && !work->request->read_only && syncfs(directory) < 0) {
        (void)error_set_errno(error, -errno, "cannot write the file system to the disk");
        code = STATUS_FAILED_PRECONDITION;
    }
    return code;
}

static enum status_code mount_disk(const struct drive_mount_work *work,
                                   const struct drive_options *options,
                                   const struct drive_disk *disk, struct drive_mount_answer *answer,
                                   struct error *error)
{
    const struct drive_mount_request *request = work->request;
    cleanup(fd_closep) int mount = -1;
    enum status_code code = STATUS_OK;
    char source[PATH_MAX];

    if (snprintf(source, sizeof(source), "%s/%s", work->devices, disk->name) >= (int)sizeof(source))
        return refuse(error, STATUS_INTERNAL, "the name of the disk is too long");
    if (request->fsck == DRIVE_FSCK_PREEN)
        code = drive_fsck_run(source, request->filesystem_type, request->read_only, &answer->fsck,
                              error);
    if (code == STATUS_OK)
        code = mount_detached(request, options, source, &mount, error);
    if (code == STATUS_OK)
        code = prepare(work, disk, mount, answer, error);
    return code == STATUS_OK ? put_in_place(mount, request->vm_path, error) : code;
}

/* The node of a disk appears a little after its attributes, and until the kernel has registered the
 * disk, opening the node fails with ENXIO, as would the mount. */
static enum status_code check_node(const struct drive_find_request *find,
                                   const struct drive_disk *disk, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
    cleanup(fd_closep) int fd = -1;
    int r = drive_find_open(find, disk, O_RDONLY, &fd);

    while (r == DRIVE_FIND_ABSENT && clock_boottime() < find->deadline_ns) {
        (void)nanosleep(&pause, NULL);
        r = drive_find_open(find, disk, O_RDONLY, &fd);
    }
    if (r == 0)
        return STATUS_OK;
    (void)error_set_errno(error, r, "%s/%s is not the disk", find->devices, disk->name);
    return STATUS_UNAVAILABLE;
}

enum status_code drive_mount_run(const struct drive_mount_work *work,
                                 struct drive_mount_answer *ret_answer, struct error *error)
{
    const struct drive_mount_request *request = work->request;
    const struct drive_find_request find = {work->sysfs, work->devices, request->serial,
                                            work->deadline_ns};
    struct drive_mount_answer answer = {0};
    struct drive_options options;
    struct drive_disk disk;
    enum status_code code = STATUS_OK;

    if (drive_options_take(request, selinux_is_enforced(), &options, error) != DRIVE_OPTIONS_FINE)
        return STATUS_INVALID_ARGUMENT;
    code = find_disk(&find, request, &disk, error);
    if (code == STATUS_OK)
        code = drive_find_check(&disk, request->bytes, request->read_only, error);
    if (code == STATUS_OK)
        code = find_mount(request, &disk, &answer.was_mounted, error);
    if (code == STATUS_OK)
        code = answer.was_mounted ? check_seen(request, &disk, error)
                                  : check_target(request->vm_path, error);
    if (code == STATUS_OK)
        code = check_node(&find, &disk, error);
    if (code != STATUS_OK)
        return code;
    strcpy(answer.device, disk.name);
    answer.bytes = disk.bytes;
    if (!answer.was_mounted)
        code = mount_disk(work, &options, &disk, &answer, error);
    if (code == STATUS_OK)
        code = measure(request->vm_path, &answer, error);
    if (code == STATUS_OK)
        enter_containers(work, &disk, &answer);
    if (code == STATUS_OK)
        *ret_answer = answer;
    return code;
}

/* ---- selinux -------------------------------------------------------------------------------- */

/* Reads one character of selinuxfs. A file by that name in another file system says
 * nothing. */

bool selinux_is_enforced_at(const char *directory, unsigned long type)
{
    cleanup(fd_closep) int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int fd = -1;
    struct statfs status;
    char enforcing = '0';

    if (at < 0 || fstatfs(at, &status) < 0 || (unsigned long)status.f_type != type)
        return false;
    fd = openat(at, "enforce", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && read(fd, &enforcing, 1) == 1 && enforcing == '1';
}

bool selinux_is_enforced(void)
{
    return selinux_is_enforced_at("/sys/fs/selinux", SELINUX_MAGIC);
}
