/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mount.c - the steps of MountDrive; each returns a status and fills the error. */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/text.h"

enum { KERNEL_MESSAGE_BYTES = 160 };

struct mounting {
    const struct drive_mount_request *request;
    const struct drive_setting *setting;
    struct drive_walk_count *walk;
    struct drive_options options;
    struct drive_disk disk;
    struct drive_mount_answer answer;
};

/* ---- the disk ---- */

/* Whether the disk is mounted, and if so, whether as requested. */
static enum status_code find_mount(struct mounting *mounting, struct error *error)
{
    const struct drive_mount_request *request = mounting->request;
    const struct drive_disks disks = {.count = 1, .disks = &mounting->disk};
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    const struct drive_guest_entry *entry;
    int r = mount_table_read(&text);

    if (r == 0)
        r = drive_list_make(&disks, text.data, &list);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot read the mounts");
    entry = &list.entries[0];
    mounting->answer.was_mounted = entry->state == DRIVE_GUEST_MOUNTED;
    if (mounting->answer.was_mounted &&
        (strcmp(entry->vm_path, request->vm_path) != 0 ||
         strcmp(entry->filesystem_type, request->filesystem_type) != 0))
        return drive_refuse(error, STATUS_ALREADY_EXISTS, "the drive is mounted on %s as %s",
                            entry->vm_path, entry->filesystem_type);
    return STATUS_OK;
}

/* A mounted drive is found without a scan of the bus, because the call is repeated regularly while
 * containers have the drive. */
static enum status_code find_disk(struct mounting *mounting, struct error *error)
{
    const char *serial = mounting->request->serial;
    struct drive_setting now = *mounting->setting;

    now.deadline_ns = 0;
    if (drive_serial_is_of_vmm(serial) &&
        drive_find(&now, serial, &mounting->disk, NULL) == STATUS_OK &&
        find_mount(mounting, NULL) == STATUS_OK && mounting->answer.was_mounted)
        return STATUS_OK;
    return drive_find(mounting->setting, serial, &mounting->disk, error);
}

/* Whether the disk has the size and the access that the drive was attached with. */
static enum status_code check_size(const struct mounting *mounting, struct error *error)
{
    const struct drive_disk *disk = &mounting->disk;

    if (disk->bytes != mounting->request->bytes)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "%s has %" PRIu64 " bytes and not %" PRIu64, disk->name, disk->bytes,
                            mounting->request->bytes);
    if (disk->read_only != mounting->request->read_only)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is %s", disk->name,
                            disk->read_only ? "read-only" : "writable");
    return STATUS_OK;
}

/* While the kernel reads what a SCSI disk is, as it does once more to look for partitions, the disk
 * seems writable for a moment (sd_read_write_protect_flag() in Linux' drivers/scsi/sd.c). */
static enum status_code find_as_attached(struct mounting *mounting, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
    uint64_t until_ns = clock_boottime() + NSEC_PER_SEC;
    enum status_code code;

    if (until_ns > mounting->setting->deadline_ns)
        until_ns = mounting->setting->deadline_ns;
    while ((code = find_disk(mounting, error)) == STATUS_OK &&
           (code = check_size(mounting, error)) != STATUS_OK && clock_boottime() < until_ns)
        (void)nanosleep(&pause, NULL);
    return code;
}

/* The node of a disk appears a little after its attributes, and until the kernel has registered the
 * disk, opening the node fails with ENXIO, as would the mount. */
static enum status_code check_node(const struct mounting *mounting, struct error *error)
{
    const struct drive_setting *setting = mounting->setting;
    const struct timespec pause = {.tv_nsec = 5 * NSEC_PER_MSEC};
    cleanup(fd_closep) int fd = -1;
    int r;

    while ((r = drive_find_open(setting, &mounting->disk, O_RDONLY, &fd)) == DRIVE_FIND_ABSENT &&
           clock_boottime() < setting->deadline_ns)
        (void)nanosleep(&pause, NULL);
    return r < 0 ? drive_refuse_errno(error, STATUS_UNAVAILABLE, r, "%s/%s is not the disk",
                                      setting->devices, mounting->disk.name)
                 : STATUS_OK;
}

/* The kernel was given a name in /dev, which somebody may have redirected. So this checks that the
 * file system lies on the expected disk and on no other. */
static enum status_code check_disk(const struct mounting *mounting, int directory,
                                   struct error *error)
{
    enum filesystem_kind kind = filesystem_kind_from_name(mounting->request->filesystem_type);
    struct filesystem filesystem;
    struct stat status;
    int r = fstat(directory, &status) < 0 ? -errno : 0;

    if (r == 0)
        r = filesystem_inspect(directory, kind, status.st_dev, &filesystem);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r,
                                  "cannot tell on which disk the file system lies");
    if (filesystem.device_count != 1 || filesystem.devices[0].device != mounting->disk.device)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the file system does not lie on %s alone", mounting->disk.name);
    return STATUS_OK;
}

/* Opens what is visible at the path, which must be the mount that was found or made, and not one
 * over it. */
static enum status_code open_seen(const struct mounting *mounting, int *ret_directory,
                                  struct error *error)
{
    const char *path = mounting->request->vm_path;
    cleanup(fd_closep) int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (directory >= 0 && check_disk(mounting, directory, error) == STATUS_OK) {
        *ret_directory = take_fd(&directory);
        return STATUS_OK;
    }
    return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                        directory < 0 && volume_fails_as_shut_down(errno)
                            ? "%s: " AGENT_SHUT_DOWN_TEXT " after an error; detach the drive"
                            : "%s is covered: something else is mounted over it",
                        path);
}

/* ---- fsck ---- */

/* Exit codes of e2fsck(8), which may be added up. */
enum { E2FSCK_REPAIRED = 1, E2FSCK_RESTART = 2, NOT_STARTED = 127 };

/* The input and output of e2fsck are /dev/null. The exit code, or -errno. */
static int run_e2fsck(const char *program, const char *device, bool read_only)
{
    char name[] = "e2fsck", repair[] = "-p", check[] = "-n", *path;
    char *environment[] = {NULL};
    int status, nothing;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        path = strdup(device);
        nothing = open("/dev/null", O_RDWR);
        if (path && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
            dup2(nothing, STDOUT_FILENO) >= 0 && dup2(nothing, STDERR_FILENO) >= 0)
            (void)execve(program, (char *[]){name, read_only ? check : repair, path, NULL},
                         environment);
        _exit(NOT_STARTED);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/* Checks a file system before it is mounted, by the guest's e2fsck: -p repairs what is safe to
 * repair, and -n only checks, for a read-only disk. xfs and btrfs repair themselves when they are
 * mounted, so nothing is run for them (fsck.xfs(8), fsck.btrfs(8)). */
static enum status_code check_file_system(const struct drive_mount_request *request,
                                          const char *device, enum drive_fsck_result *ret_result,
                                          struct error *error)
{
    static const char *const programs[] = {"/sbin/e2fsck", "/usr/sbin/e2fsck", "/usr/bin/e2fsck"};
    size_t i = 0;
    int code;

    if (strcmp(request->filesystem_type, "ext4") != 0)
        return STATUS_OK;
    while (i < array_length(programs) && access(programs[i], X_OK) < 0)
        i++;
    if (i == array_length(programs))
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the guest has no e2fsck: attach the drive without `fsck`");
    code = run_e2fsck(programs[i], device, request->read_only);
    if (code < 0 || code == NOT_STARTED)
        return drive_refuse_errno(error, STATUS_INTERNAL, code < 0 ? code : -ENOEXEC,
                                  "cannot run %s", programs[i]);
    if (code & ~(E2FSCK_REPAIRED | E2FSCK_RESTART))
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "e2fsck %s found what it does not repair without asking (exit code %d)",
                            request->read_only ? "-n" : "-p", code);
    *ret_result = code ? DRIVE_FSCK_REPAIRED : DRIVE_FSCK_CLEAN;
    return STATUS_OK;
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
static int configure(int context, const struct mounting *mounting, const char *source)
{
    if (fsconfig(context, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
        (mounting->request->read_only && fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0))
        return -1;
    for (size_t i = 0; i < mounting->options.count; i++) {
        const struct drive_parameter *parameter = &mounting->options.parameters[i];

        if (fsconfig(context, parameter->value[0] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                     parameter->name, parameter->value[0] ? parameter->value : NULL, 0) < 0)
            return -1;
    }
    return fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static enum status_code mount_detached(const struct mounting *mounting, const char *source,
                                       int *ret_mount, struct error *error)
{
    const char *type = mounting->request->filesystem_type;
    cleanup(fd_closep) int context = fsopen(type, FSOPEN_CLOEXEC);

    if (context < 0)
        return drive_refuse_errno(
            error, errno == EPERM ? STATUS_PERMISSION_DENIED : STATUS_FAILED_PRECONDITION, -errno,
            "the guest's kernel cannot mount %s", type);
    if (configure(context, mounting, source) == 0)
        *ret_mount = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)mounting->options.attributes);
    return *ret_mount < 0 ? refuse_mount(context, type, error) : STATUS_OK;
}

/* Prepares the file system while only this process can see it. Groups on a read-only disk stay
 * unchanged, as with the kubelet. */
static enum status_code prepare(struct mounting *mounting, int mount, struct error *error)
{
    const struct drive_mount_request *request = mounting->request;
    cleanup(fd_closep) int directory = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status_code code;

    if (directory < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                  "cannot open the file system");
    code = check_disk(mounting, directory, error);
    if (code == STATUS_OK && request->has_fs_group && !request->read_only) {
        code = ownership_set_group(directory, request->fs_group, request->fs_group_policy,
                                   mounting->walk, error);
        mounting->answer.walk = *mounting->walk;
    }
    if (code == STATUS_OK && !request->read_only && syncfs(directory) < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                  "cannot write the file system to the disk");
    return code;
}

static enum status_code mount_disk(struct mounting *mounting, struct error *error)
{
    const struct drive_mount_request *request = mounting->request;
    cleanup(fd_closep) int mount = -1;
    cleanup(fd_closep) int target = -1;
    enum status_code code = STATUS_OK;
    char source[PATH_MAX];

    if (snprintf(source, sizeof(source), "%s/%s", mounting->setting->devices,
                 mounting->disk.name) >= (int)sizeof(source))
        return drive_refuse(error, STATUS_INTERNAL, "the name of the disk is too long");
    if (request->fsck == DRIVE_FSCK_PREEN)
        code = check_file_system(request, source, &mounting->answer.fsck, error);
    if (code == STATUS_OK)
        code = mount_detached(mounting, source, &mount, error);
    if (code == STATUS_OK)
        code = prepare(mounting, mount, error);
    if (code == STATUS_OK)
        code = drive_target_open(request->vm_path, &target, error);
    if (code == STATUS_OK &&
        move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno, "cannot mount on %s",
                                  request->vm_path);
    return code;
}

/* ---- all steps ---- */

/* Tries all containers; the answer has the first failure. */
static void enter_containers(struct mounting *mounting)
{
    const struct drive_containers *containers = &mounting->request->containers;
    struct drive_mount_answer *answer = &mounting->answer;
    cleanup(fd_closep) int volume = -1;
    struct error first = {0}, error = {0};
    enum status_code code = containers->count ? open_seen(mounting, &volume, &first) : STATUS_OK;

    for (size_t i = 0; code == STATUS_OK && i < containers->count; i++) {
        if (drive_enter(mounting->setting, volume, &containers->each[i], &error) == STATUS_OK)
            answer->containers++;
        else if (!first.text[0])
            first = error;
    }
    text_clean(first.text, strlen(first.text), answer->container_error,
               sizeof(answer->container_error));
}

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

enum status_code drive_mount_run(const struct drive_mount_request *request,
                                 const struct drive_setting *setting, struct drive_walk_count *walk,
                                 struct drive_mount_answer *ret_answer, struct error *error)
{
    struct mounting mounting = {.request = request, .setting = setting, .walk = walk};
    bool enforces_labels = selinux_is_enforced_at("/sys/fs/selinux", SELINUX_MAGIC);
    int seen = -1; /* checked before anything is done to the disk */
    struct statvfs status;
    enum status_code code = drive_options_take(request, enforces_labels, &mounting.options, error);

    if (code == STATUS_OK)
        code = find_as_attached(&mounting, error);
    if (code == STATUS_OK)
        code = find_mount(&mounting, error);
    if (code == STATUS_OK)
        code = mounting.answer.was_mounted ? open_seen(&mounting, &seen, error)
                                           : drive_target_open(request->vm_path, &seen, error);
    fd_close(seen);
    if (code == STATUS_OK)
        code = check_node(&mounting, error);
    if (code == STATUS_OK && !mounting.answer.was_mounted)
        code = mount_disk(&mounting, error);
    if (code == STATUS_OK && statvfs(request->vm_path, &status) < 0)
        code = drive_refuse_errno(error, STATUS_INTERNAL, -errno,
                                  "cannot read the size of the file system");
    if (code != STATUS_OK)
        return code;
    strcpy(mounting.answer.device, mounting.disk.name);
    mounting.answer.bytes = mounting.disk.bytes;
    mounting.answer.filesystem_bytes = (uint64_t)status.f_frsize * status.f_blocks;
    enter_containers(&mounting);
    *ret_answer = mounting.answer;
    return STATUS_OK;
}
