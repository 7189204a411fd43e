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
#include "agent-client/drive_call.h"
#include "guest-agent/drive_list.h"
#include "guest-agent/filesystem.h"
#include "guest-agent/guest_disk.h"
#include "guest-agent/guest_volume.h"
#include "guest-agent/ownership.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/text.h"

enum { KERNEL_MESSAGE_BYTES = 160 };

/* ---- an existing mount ---- */

/* Whether the disk is mounted, and if so, whether as requested. */
static enum status_code find_mount(const struct drive_mount_request *request,
                                   const struct drive_disk *disk, bool *ret_is_mounted,
                                   struct error *error)
{
    struct drive_disk copy = *disk;
    const struct drive_disks disks = {.count = 1, .disks = &copy};
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    const struct drive_guest_entry *entry;
    int r = mount_table_read(&text);

    if (r == 0)
        r = drive_list_make(&disks, text.data, &list);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot read the mounts");
    entry = &list.entries[0];
    *ret_is_mounted = entry->state == DRIVE_GUEST_MOUNTED;
    if (*ret_is_mounted && (strcmp(entry->vm_path, request->vm_path) != 0 ||
                            strcmp(entry->filesystem_type, request->filesystem_type) != 0))
        return drive_refuse(error, STATUS_ALREADY_EXISTS, "the drive is mounted on %s as %s",
                            entry->vm_path, entry->filesystem_type);
    return STATUS_OK;
}

/* A mounted drive is found without a scan of the bus, because the call is repeated regularly while
 * containers have the drive. */
static enum status_code find_disk(const struct drive_mount_work *work, struct drive_disk *ret_disk,
                                  struct error *error)
{
    const char *serial = work->request->serial;
    struct drive_setting now = work->setting;
    bool is_mounted = false;

    now.deadline_ns = 0;
    if (drive_serial_is_of_vmm(serial) && drive_find(&now, serial, ret_disk, NULL) == STATUS_OK &&
        find_mount(work->request, ret_disk, &is_mounted, NULL) == STATUS_OK && is_mounted)
        return STATUS_OK;
    return drive_find(&work->setting, serial, ret_disk, error);
}

/* ---- a detached mount of the file system ---- */

/* The kernel refused the mount, which does not heal. Its message about the last call comes without
 * its class ("e "). */
static enum status_code refuse_mount(int context, const char *type, struct error *error)
{
    int code = errno;
    char bytes[KERNEL_MESSAGE_BYTES], message[KERNEL_MESSAGE_BYTES];
    ssize_t length = read(context, bytes, sizeof(bytes) - 1);
    const char *text = bytes;

    bytes[length < 0 ? 0 : length] = '\0';
    if (length > 2 && bytes[1] == ' ')
        text += 2;
    text_clean(text, strcspn(text, "\n"), message, sizeof(message));
    return drive_refuse_errno(
        error, code == ENOMEM ? STATUS_RESOURCE_EXHAUSTED : STATUS_FAILED_PRECONDITION, -code,
        "cannot mount the disk as %s%s%s%s", type, message[0] ? " (" : "", message,
        message[0] ? ")" : "");
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

    if (context < 0)
        return drive_refuse_errno(
            error, errno == EPERM ? STATUS_PERMISSION_DENIED : STATUS_FAILED_PRECONDITION, -errno,
            "the guest's kernel cannot mount %s", type);
    if (configure(context, request, options, source) == 0)
        *ret_mount = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)options->attributes);
    return *ret_mount < 0 ? refuse_mount(context, type, error) : STATUS_OK;
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
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r,
                                  "cannot tell on which disk the file system lies");
    if (filesystem.device_count != 1 || filesystem.devices[0].device != disk->device)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the file system does not lie on %s alone", disk->name);
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
    return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                        directory < 0 && volume_fails_as_shut_down(errno)
                            ? "%s: " AGENT_SHUT_DOWN_TEXT " after an error; detach the drive"
                            : "%s is covered: something else is mounted over it",
                        request->vm_path);
}

/* ---- the mount point ---- */

static enum status_code put_in_place(int mount, const char *path, struct error *error)
{
    cleanup(fd_closep) int target = -1;
    enum status_code code = drive_target_open(path, &target, error);

    if (code != STATUS_OK)
        return code;
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno, "cannot mount on %s",
                                  path);
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
        if (drive_enter(&work->setting, volume, &containers->each[i], &error) == STATUS_OK)
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

    if (statvfs(path, &status) < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno,
                                  "cannot read the size of the file system");
    answer->filesystem_bytes = (uint64_t)status.f_frsize * status.f_blocks;
    return STATUS_OK;
}

/* Prepares the file system while only this process can see it. Groups on a read-only disk stay
 * unchanged, as with the kubelet. */
static enum status_code prepare(const struct drive_mount_work *work, const struct drive_disk *disk,
                                int mount, struct drive_mount_answer *answer, struct error *error)
{
    const struct drive_mount_request *request = work->request;
    cleanup(fd_closep) int directory = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status_code code;

    if (directory < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                  "cannot open the file system");
    code = check_disk(directory, request, disk, error);
    if (code == STATUS_OK && request->has_fs_group && !request->read_only) {
        code = ownership_set_group(directory, request->fs_group, request->fs_group_policy,
                                   work->walk, error);
        answer->walk = *work->walk;
    }
    if (code == STATUS_OK && !request->read_only && syncfs(directory) < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                  "cannot write the file system to the disk");
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

    if (snprintf(source, sizeof(source), "%s/%s", work->setting.devices, disk->name) >=
        (int)sizeof(source))
        return drive_refuse(error, STATUS_INTERNAL, "the name of the disk is too long");
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
static enum status_code check_node(const struct drive_setting *setting,
                                   const struct drive_disk *disk, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
    cleanup(fd_closep) int fd = -1;
    int r = drive_find_open(setting, disk, O_RDONLY, &fd);

    while (r == DRIVE_FIND_ABSENT && clock_boottime() < setting->deadline_ns) {
        (void)nanosleep(&pause, NULL);
        r = drive_find_open(setting, disk, O_RDONLY, &fd);
    }
    return r < 0 ? drive_refuse_errno(error, STATUS_UNAVAILABLE, r, "%s/%s is not the disk",
                                      setting->devices, disk->name)
                 : STATUS_OK;
}

/* While the kernel reads what a SCSI disk is, as it does once more to look for partitions, the disk
 * seems writable for a moment (sd_read_write_protect_flag() in Linux' drivers/scsi/sd.c). */
static enum status_code find_as_attached(const struct drive_mount_work *work,
                                         struct drive_disk *ret_disk, struct error *error)
{
    const struct drive_mount_request *request = work->request;
    const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
    uint64_t until_ns = clock_boottime() + NSEC_PER_SEC;
    enum status_code code;

    if (until_ns > work->setting.deadline_ns)
        until_ns = work->setting.deadline_ns;
    while ((code = find_disk(work, ret_disk, error)) == STATUS_OK &&
           (code = drive_find_check(ret_disk, request->bytes, request->read_only, error)) !=
               STATUS_OK &&
           clock_boottime() < until_ns)
        (void)nanosleep(&pause, NULL);
    return code;
}

enum status_code drive_mount_run(const struct drive_mount_work *work,
                                 struct drive_mount_answer *ret_answer, struct error *error)
{
    const struct drive_mount_request *request = work->request;
    struct drive_mount_answer answer = {0};
    int seen = -1; /* checked before anything is done to the disk */
    struct drive_options options;
    struct drive_disk disk;
    enum status_code code = STATUS_OK;

    if (drive_options_take(request, selinux_is_enforced(), &options, error) != DRIVE_OPTIONS_FINE)
        return STATUS_INVALID_ARGUMENT;
    code = find_as_attached(work, &disk, error);
    if (code == STATUS_OK)
        code = find_mount(request, &disk, &answer.was_mounted, error);
    if (code == STATUS_OK)
        code = answer.was_mounted ? open_seen(request, &disk, &seen, error)
                                  : drive_target_open(request->vm_path, &seen, error);
    fd_close(seen);
    if (code == STATUS_OK)
        code = check_node(&work->setting, &disk, error);
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
