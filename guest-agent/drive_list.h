/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.h - the answer to ListDrives: the disks of drives, and where each is mounted.
 *
 * It is read from sysfs and mountinfo each time, so a restarted agent gives the same answer. Only
 * mounts in the agent's own mount namespace count.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "guest-agent/guest_disk.h"
#include "lib/loop.h"
#include "lib/result.h"

struct mount_entry;

/* The disk of a mount. btrfs has an anonymous device, so the node that it was mounted from is used.
 */
dev_t drive_list_device(const struct mount_entry *mount);

/* mountinfo: the text, which is unescaped in place; NULL: it is empty. 0 or -ENOMEM. */
int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list);

/* Lists the drives of this guest. 0 or -errno. */
int drive_list_read(struct drive_guest_list *ret_list);

/* ---- drive listing -------------------------------------------------------------------------- */

/* Runs drive_list_read() in a process of its own, for a bounded time.
 *
 * The kernel asks the VMM for the serial of a virtio-blk disk at each read and waits for the
 * answer, which never comes if the device is gone or stuck. At most one process waits for that:
 * until it has ended, further lists are refused at once.
 */

struct drive_listing;

/* list: borrowed, may be extended or taken. r not 0: the list is empty and the error filled. */
typedef void drive_listing_done(struct drive_listing *listing, int r, struct drive_guest_list *list,
                                const struct error *error, void *userdata);

/* Exactly one `done` from the loop, never from within. timeout_ns: the caller's; 0: none. 0,
 * -ENOMEM, or the errors of child_new(). */
int drive_listing_new(struct loop *loop, uint64_t timeout_ns, drive_listing_done *done,
                      void *userdata, struct drive_listing **ret_listing);
struct drive_listing *drive_listing_free(struct drive_listing *listing); /* returns NULL */

/* ---- drive holders -------------------------------------------------------------------------- */

/* Finds the processes in the guest that hold a drive's file system or its disk:
 * for error texts, and to decide whether to start an unmount.
 *
 * Source: proc(5) (fd, cwd, root, ns, mountinfo); mount_namespaces(7): an unmount in one namespace
 * also happens in its peers and slaves, and nowhere else.
 */

enum { DRIVE_HOLDERS_BYTES = 160 };

struct drive_holders {
    unsigned count; /* processes, without holders in the kernel (swap, loop devices) */
    char text[DRIVE_HOLDERS_BYTES]; /* the first ones: "12 (sleep), 14 (sh)" */
};

/* A mount of the file system that does not count as a holder: its place and mount namespace. */
struct drive_held_place {
    ino_t namespace;
    const char *mount_point;
};

/* The numbers of the file system and its disk. They differ for btrfs, whose devices are
 * anonymous. */
struct drive_held {
    dev_t files;  /* st_dev of its files; of btrfs, in the first subvolume */
    dev_t mounts; /* its device in mountinfo */
    dev_t disk;
    size_t place_count;
    const struct drive_held_place *places;
};

/* Finds processes that have a file, a directory or the disk itself open, and processes in whose
 * mount namespace the file system would stay mounted. Processes that end meanwhile and the caller
 * are left out. proc: "/proc". 0 or -errno. */
int drive_holders_find(const char *proc, const struct drive_held *held,
                       struct drive_holders *ret_holders);

/* ---- container find ------------------------------------------------------------------------- */

/* The first process of a container that kata-agent runs in this guest.
 *
 * kata-agent names a container's cgroup after it: "/ID", or the path that the runtime asked for,
 * which ends with the id (with systemd "PREFIX-ID.scope"). Its processes are children of the agent,
 * which is in the same pid namespace as this process, and have a mount namespace of their own.
 *
 * What a container can do about it: one that may write to the cgroup file system can call a cgroup
 * of its own after another container. Its own children have a parent in its pid namespace and do
 * not count. Its first process, moved there, makes the id ambiguous for as long as the other
 * container runs, and nothing is mounted. Such a container has CAP_SYS_ADMIN in the guest.
 *
 * Source: rustjail's container.rs in Kata Containers 4.1.0 (cgroups_path), proc(5), cgroups(7),
 * pid_namespaces(7).
 */

enum container_outcome {
    CONTAINER_FOUND,
    CONTAINER_ABSENT,    /* no process of it runs */
    CONTAINER_AMBIGUOUS, /* several mount namespaces seem to be its own */
};

struct container_place {
    int process;  /* O_PATH of its directory in /proc; the caller closes it */
    ino_t mounts; /* of its mount namespace */
};

/* proc: "/proc". id: as drive_call.h takes it. ret_place is filled if it is FOUND.
 * An outcome, or -errno. */
int container_find(const char *proc, const char *id, struct container_place *ret_place);

/* Whether a path of a cgroup is the container's own, or below it. */
bool container_has_cgroup(const char *path, size_t length, const char *id);
