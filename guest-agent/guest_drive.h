/* SPDX-License-Identifier: Apache-2.0 */
/* guest_drive.h - the drives of this guest: disks that crustd has attached to it, mounted and
 * unmounted for the calls of crust.guest.v1.Drives.
 *
 * Neither the kernel's name of a disk nor the order in which disks appear identifies it. Its serial
 * does, and is read from sysfs at each call. Nothing is remembered: an agent that was restarted
 * gives the same answers.
 *
 * Functions that return a status block, and are to be called in a process of their own. The status
 * is one of those listed in drive_call.h, and the error is filled unless it is OK.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/task.h"
#include "lib/loop.h"
#include "lib/result.h"

/* Fill the error and are the code, for `return drive_refuse(error, STATUS_INTERNAL, "…")`. The
 * second appends what r, a negative errno, means. */
#define drive_refuse(error, code, ...)                                                             \
    ((enum status_code)error_set((error), (int)(code), __VA_ARGS__))
#define drive_refuse_errno(error, code, r, ...)                                                    \
    __extension__({                                                                                \
        enum status_code refused_as = (code); /* before errno changes */                           \
        (void)error_set_errno((error), (r), __VA_ARGS__);                                          \
        refused_as;                                                                                \
    })

/* Where a call for a drive works, and until when. */
struct drive_setting {
    const char *sysfs;    /* "/sys" */
    const char *devices;  /* "/dev" */
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* on the boottime clock; 0: nothing is waited for */
    bool in_container;    /* if the device cgroup forbids the disk, that is changed */
};

/* ---- calls: drive_serve.c ------------------------------------------------------------------- */

struct drive_call {
    enum drive_call_kind { DRIVE_CALL_LIST, DRIVE_CALL_MOUNT, DRIVE_CALL_UNMOUNT } kind;
    union {
        struct { /* LIST */
            bool without_disks, without_tasks;
        };
        /* Both begin with drive_id and serial. */
        struct drive_mount_request mount;
        struct drive_unmount_request unmount;
    };
    uint64_t timeout_ms; /* as requested; 0 in `mount`, so that equal requests are equal */
    struct drive_setting setting;
};

/* UNIMPLEMENTED: no such method. INVALID_ARGUMENT. Sets no deadline. */
enum status_code drive_call_parse(const char *method, const struct buffer *payload,
                                  struct drive_call *ret_call, struct error *error);

/* Appends the answer to the payload. */
enum status_code drive_call_run(const struct drive_call *call, struct drive_walk_count *walk,
                                struct buffer *payload, struct error *error);

enum { DRIVE_TASK_LIMIT = 16 }; /* drives that are mounted at once, or unmounted */

/* Makes the call in a task of the drive's. Equal calls wait for the same task. An UnmountDrive
 * cancels a MountDrive in progress. A call is answered by its deadline; the task goes on, and the
 * call may be repeated. timeout_ns: the connection's; 0: none. OK: `done` is called, with a status
 * as the outcome. Or the call was refused. */
enum status_code drive_serve(struct loop *loop, struct drive_call *call, uint64_t timeout_ns,
                             struct task_waiter *waiter, task_done *done, struct error *error);

/* The wire's code of an outcome that `done` was called with. */
enum status_code drive_status(int outcome);

/* ---- sync: drive_serve.c -------------------------------------------------------------------- */

/* A VM may end without notice (Kata kills QEMU when a sandbox ends), and data that its guest has
 * not written to the disk is lost. So the file systems of all writable drives are synced at a
 * steady pace, each in a task of its own: a disk that hangs delays only its own next sync. While
 * the serial of a disk cannot be read, the drives of the last list are synced. */

/* Includes drives that are mounted already. interval_ns 0: never syncs. */
void drive_flush_start(struct loop *loop, uint64_t interval_ns);

/* A drive was mounted. A disk whose serial was chosen by the VMM is only known as a drive by this
 * call, because all disks of such a guest, its root included, have such serials. So an agent that
 * was restarted does not sync that drive until it is asked to mount it again. */
void drive_flush_wake(const char *serial);

void drive_flush_end(void);

/* ---- disks: guest_disk.c -------------------------------------------------------------------- */

struct drive_disk {
    char name[DRIVE_DEVICE_BYTES]; /* the kernel's, "sda" */
    char serial[DRIVE_SERIAL_BYTES];
    dev_t device;
    uint64_t bytes;
    bool read_only; /* the disk itself, or made so by blockdev --setro */
};

struct drive_disks {
    size_t count;
    struct drive_disk *disks;            /* owned; in the order of their names */
    bool incomplete;                     /* there are more than DRIVE_LIST disks */
    char unreadable[DRIVE_DEVICE_BYTES]; /* one that exists and may be any drive, because its serial
                                            or numbers cannot be read; "": none */
};

/* All disks whose serial has the form of a drive's, but for those removed meanwhile. 0 or -errno.
 */
int drive_disks_read(const char *sysfs, struct drive_disks *ret_disks);
void drive_disks_done(struct drive_disks *disks); /* frees, resets */

/* UNAVAILABLE: there is none with the serial; INTERNAL: none has it, but one that could not be read
 * may have it; FAILED_PRECONDITION: several have it, or the disks are incomplete. */
enum status_code drive_disks_find(const struct drive_disks *disks, const char *serial,
                                  struct drive_disk *ret_disk, struct error *error);

/* The same, but waits for the disk until the deadline. If the VMM's notification of a new disk is
 * lost, or the guest has removed the disk itself, only a scan of the buses finds it, so they are
 * scanned once a second. Firecracker does not notify its guest: for a serial of its form the PCI
 * bus is also scanned before the first read, also because another disk may have the same serial. */
enum status_code drive_find(const struct drive_setting *setting, const char *serial,
                            struct drive_disk *ret_disk, struct error *error);

enum drive_find_failure {
    DRIVE_FIND_IN_USE = -EBUSY,  /* with O_EXCL */
    DRIVE_FIND_DENIED = -EPERM,  /* by the device cgroup */
    DRIVE_FIND_ABSENT = -ENOENT, /* no node, that of another disk, or one without a disk */
};

/* Opens the disk's node. flags: of open(2). 0, IN_USE, ABSENT or another -errno. */
int drive_find_open(const struct drive_setting *setting, const struct drive_disk *disk, int flags,
                    int *ret_fd);

/* Lets this process use a block device that its device cgroup forbids, for a helper in a container.
 *
 * Where the guest has cgroup v1, as with an initrd in which kata-agent is process 1, the agent
 * allows a container no disk unless the pod is privileged, and its protocol cannot say "any disk":
 * it takes a number, which is not known outside the guest (Kata:
 * src/libs/protocols/src/trans.rs, src/agent/rustjail/src/cgroups/fs/mod.rs). The agent leaves the
 * cgroup's parent open, so the container may widen its own. It needs CAP_SYS_ADMIN.
 *
 * 0; -ENOENT: no device cgroup of version 1 has this process; another -errno. */
int device_cgroup_allow(dev_t device);

struct mount_entry;

/* The disk of a mount. btrfs has an anonymous device, so the node that it was mounted from is used.
 */
dev_t drive_list_device(const struct mount_entry *mount);

/* The disks, and where each is mounted in this process's mount namespace. mountinfo: the text,
 * which is unescaped in place; NULL: it is empty. 0 or -ENOMEM. */
int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list);

/* The same for this guest. 0 or -errno. */
int drive_list_read(struct drive_guest_list *ret_list);

/* ---- mounting: drive_mount.c ---------------------------------------------------------------- */

/* Mounts a drive, from the wait for its disk to the mount point.
 *
 * The mount becomes visible in the guest as the last step: the file system is mounted detached
 * (fsopen(2), fsmount(2)), gets its group, is synced, and is then moved to its mount point. A
 * process that is killed before that leaves nothing behind, because the kernel drops a detached
 * mount. A visible mount is complete.
 *
 * Containers get the mount after that, also if the drive was mounted before. A container that
 * cannot have it does not affect the drive: the answer has the reason.
 *
 * deadline: for the disk to appear, and for containers. walk: the progress of the walk for
 * fs_group. Source: fsopen(2), fsconfig(2), fsmount(2), move_mount(2); Linux 5.2 or later. */
enum status_code drive_mount_run(const struct drive_mount_request *request,
                                 const struct drive_setting *setting, struct drive_walk_count *walk,
                                 struct drive_mount_answer *ret_answer, struct error *error);

/* Whether the kernel's own file system at the directory says that it enforces SELinux. */
bool selinux_is_enforced_at(const char *directory, unsigned long type);

/* ---- fsGroup: ownership.c ------------------------------------------------------------------- */

/* A pod's fsGroup applied to a volume, as the kubelet does it.
 *
 * Every entry gets the group, and, unless it is a symbolic link, mode | 0660; directories also
 * | 02110. A directory comes after what is in it and the root last, so a walk that was interrupted
 * is repeated under ON_ROOT_MISMATCH. That policy skips the walk where the root has the group,
 * setgid and 0770.
 *
 * Source: Kubernetes, pkg/volume/volume_linux.go. It differs from the kubelet in three points:
 * an entry that is right already is not touched, because chown(2) takes its file capabilities; a
 * directory that cannot be read does not end the walk; and other file systems are not entered.
 *
 * Nothing is reached by a path that a link could redirect. The names in the tree are the tenant's,
 * and so is its depth: the walk has a bounded number of descriptors, and 24 bytes a level. */

enum { OWNERSHIP_DEPTH = 131072 }; /* levels of directories; what is deeper fails */

/* directory: the root, O_PATH or not; a mount that is not attached yet is fine. count: set to zero,
 * then kept up to date during the walk, so it may lie in shared memory. OK, also if single entries
 * failed; FAILED_PRECONDITION: the file system is read-only, or directories could not be read or
 * were moved, and the root is unchanged; INTERNAL: the root cannot be read, or memory is short. */
enum status_code ownership_set_group(int directory, gid_t group, enum drive_group_policy policy,
                                     struct drive_walk_count *count, struct error *error);

/* ---- mount options: drive_options.c --------------------------------------------------------- */

struct drive_parameter {
    char name[DRIVE_OPTION_BYTES];
    char value[DRIVE_OPTION_BYTES]; /* "": a flag */
};

struct drive_options {
    uint64_t attributes; /* MOUNT_ATTR_*, for fsmount(2) */
    size_t count;
    struct drive_parameter parameters[DRIVE_OPTIONS]; /* for fsconfig(2); "ro" is not among them */
};

/* Uses the request's file system type, options and read_only. enforces_labels: the guest enforces
 * SELinux, so context= is allowed; elsewhere the kernel refuses to mount with it. INVALID_ARGUMENT:
 * the error has the option's position, but no part of its text. */
enum status_code drive_options_take(const struct drive_mount_request *request, bool enforces_labels,
                                    struct drive_options *ret_options, struct error *error);

/* ---- unmounting: drive_unmount.c ------------------------------------------------------------ */

/* Unmounts a drive for good, or changes nothing and names its holders.
 *
 * OK means that nobody in the guest has the file system or the disk open, and that all data is on
 * the disk. The proof is an exclusive open(2) of the disk, which the kernel refuses while the file
 * system is mounted in any namespace.
 *
 * The request names the containers that were given the mount: it is taken from them first. If the
 * unmount then fails, they get it back at once. Obstacles that can be seen are looked for before.
 *
 * deadline: for the kernel to release the disk, and for containers. Source: umount2(2), open(2)
 * (O_EXCL of a block device), Documentation/ABI (the attribute `delete` of a SCSI device),
 * Documentation/ABI/testing/sysfs-bus-pci (`rescan` of the bus, `remove` of a function). */
enum status_code drive_unmount_run(const struct drive_unmount_request *request,
                                   const struct drive_setting *setting,
                                   struct drive_unmount_answer *ret_answer, struct error *error);

/* ---- places, in the guest and in containers: drive_enter.c ---------------------------------- */

/* Opens the directory that a drive is to be mounted on.
 *
 * The path is walked from "/" without following a link. Protected places are recognised by the type
 * of their file system, by the super block of /dev and /dev/shm (which are tmpfs to statfs(2)) and,
 * for the agents' directories, by inode, but never by name: a bind mount of /proc at another path
 * is still /proc.
 *
 * path: absolute, without "." and "..". Missing directories are created with mode 0755, and stay.
 * *ret_fd is an O_PATH descriptor for move_mount(2). INVALID_ARGUMENT: "/", a kernel file system,
 * /dev, /run/kata-containers; ALREADY_EXISTS: already a mount point; FAILED_PRECONDITION: behind a
 * link, not a directory, or it cannot be created; INTERNAL. */
enum status_code drive_target_open(const char *path, int *ret_fd, struct error *error);

/* Mounts a drive of the guest in a running container, and unmounts it there.
 *
 * The mount, or its sub_path (resolved below the drive's root, without links and other mounts), is
 * cloned, made nodev, nosuid and private, read-only if asked for, and then attached in the
 * container's mount namespace. If the mount at the path is shared there, the kernel propagates the
 * new mount to its peers, and removes it from them together with the container's.
 *
 * A process of its own enters that namespace, for a bounded time (5 s even after the deadline),
 * because a container may have mounted a file system over the path that never answers. In the
 * namespace nothing is read from the container's /proc, no link on the way to the path is followed,
 * and the place is checked like vm_path: the container's own kernel file systems and its /dev are
 * refused. /dev, /dev/shm and /run/kata-containers themselves are resolved through links, which can
 * only lead to a refusal.
 *
 * An existing mount of the drive is made nodev, nosuid and, if asked for, read-only; a read-only
 * one stays so. The mount lasts until the drive is detached, the container ends or restarts, or a
 * process in it with CAP_SYS_ADMIN unmounts it.
 *
 * volume: the drive's root, as an open directory. OK: the container has the drive at its path, now
 * or already before. FAILED_PRECONDITION: the container does not run, or its place or sub_path is
 * unsuitable. UNAVAILABLE: a file system did not answer in time, or the container is still being
 * created and has the guest's root. INTERNAL. Source: open_tree(2), mount_setattr(2),
 * move_mount(2), setns(2), umount2(2); Linux 5.12 or later. */
enum status_code drive_enter(const struct drive_setting *setting, int volume,
                             const struct drive_container *container, struct error *error);

/* files: st_dev of the files in the file system; mounts: its device in mountinfo. OK: the drive is
 * unmounted there, the container does not run, or it has something else at the path.
 * FAILED_PRECONDITION: it is in use there. The others as above. */
enum status_code drive_leave(const struct drive_setting *setting, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error);

/* ---- containers: container_find.c ----------------------------------------------------------- */

enum container_outcome {
    CONTAINER_FOUND,
    CONTAINER_ABSENT,    /* no process of it runs */
    CONTAINER_AMBIGUOUS, /* several mount namespaces seem to be its own */
};

struct container_place {
    int process;  /* O_PATH of its directory in /proc; the caller closes it */
    ino_t mounts; /* of its mount namespace */
};

/* The first process of a container that kata-agent runs in this guest. id: as drive_call.h takes
 * it. ret_place is filled if it is FOUND. An outcome, or -errno. */
int container_find(const char *proc, const char *id, struct container_place *ret_place);

/* Whether a path of a cgroup is the container's own, or below it. */
bool container_has_cgroup(const char *path, size_t length, const char *id);
