/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call.h - the calls of crust.guest.v1.Drives in plain structures: crustd asks, and
 * crust-guest-agent answers. crust_drive.proto says what each call does.
 *
 * Neither side trusts the other: texts are bounded and contain no NUL, identifiers are checked for
 * their form, the numbers of options and drives are bounded, and enums are checked for their
 * values.
 *
 * Statuses of a call that failed (lib/result.h), with a message for people:
 *   INVALID_ARGUMENT     a field is malformed, an option is refused, vm_path is protected
 *   ALREADY_EXISTS       the drive is mounted otherwise, or vm_path is a mount point already
 *   FAILED_PRECONDITION  the disk is not what was asked for (size, read-only, several of one
 *                        serial), the guest's kernel or programs cannot do it, the file system
 *                        refuses; of UnmountDrive: somebody holds the disk, mounted
 *                        or, where the message says so, unmounted already
 *   UNAVAILABLE          no disk has appeared in time, another call for the drive is in progress,
 *                        or UnmountDrive has cancelled the mount
 *   DEADLINE_EXCEEDED    the work goes on; call again to wait for it
 *   UNIMPLEMENTED        an agent without this service
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "model/drive.h"

#define DRIVE_SERVICE        "crust.guest.v1.Drives"
#define DRIVE_METHOD_MOUNT   "MountDrive"
#define DRIVE_METHOD_UNMOUNT "UnmountDrive"
#define DRIVE_METHOD_LIST    "ListDrives"

/* A serial is either chosen by crustd: this prefix and 14 characters of base32 (a-z, 2-7); or by
 * the VMM: 3 to 20 digits. Only Firecracker chooses the serial itself. It does not notify its guest
 * when a disk is attached or detached, so the guest rescans its PCI bus before it looks for such a
 * serial, and removes the PCI function when it releases the disk. Such a serial is not guaranteed
 * to be unique. (firecracker/docs/device-hotplug.md) */
#define DRIVE_SERIAL_PREFIX "crust-"

/* Sizes of texts, including the NUL. */
enum {
    DRIVE_ID_BYTES = DRIVE_ID_CHARS + 1,
    DRIVE_SERIAL_BYTES = DRIVE_SERIAL_CHARS + 1,
    DRIVE_PATH_BYTES = 4096, /* a drive may be mounted elsewhere than on a valid vm_path */
    DRIVE_TYPE_BYTES = DRIVE_FS_TYPE_CHARS + 1,
    DRIVE_OPTION_BYTES = DRIVE_OPTION_CHARS + 1,
    DRIVE_DEVICE_BYTES = 64, /* a name such as "sda", not a path */
    DRIVE_CONTAINER_ERROR_BYTES = 256,
};

enum { DRIVE_LIST = 256 }; /* drives in one answer */

enum drive_fsck_result { DRIVE_FSCK_NOT_RUN, DRIVE_FSCK_CLEAN, DRIVE_FSCK_REPAIRED };

/* A running container that is to have the drive too. */
struct drive_container {
    char container_id[DRIVE_CONTAINER_ID_CHARS + 1];
    char path[DRIVE_PATH_CHARS + 1];     /* absolute, clean (lib/path.h) */
    char sub_path[DRIVE_PATH_CHARS + 1]; /* relative and clean; "": the whole drive */
    bool read_only;
};

struct drive_containers {
    size_t count;
    struct drive_container each[DRIVE_CONTAINERS];
};

struct drive_mount_request {
    char drive_id[DRIVE_ID_BYTES];
    char serial[DRIVE_SERIAL_BYTES];
    uint64_t bytes; /* the disk's size; 0 is refused */
    bool read_only;
    char vm_path[DRIVE_PATH_BYTES]; /* absolute, without "." and ".." */
    char filesystem_type[DRIVE_TYPE_BYTES];
    size_t option_count;
    char options[DRIVE_OPTIONS][DRIVE_OPTION_BYTES];
    enum drive_fsck fsck;
    bool has_fs_group;
    uint32_t fs_group;
    enum drive_group_policy fs_group_policy;
    uint64_t timeout_ms; /* until the answer; 0: the agent's default, 10 s */
    struct drive_containers containers;
};

/* The progress of the walk for fs_group, or its total. */
struct drive_walk_count {
    uint64_t changed, skipped, failed;
};

struct drive_mount_answer {
    char device[DRIVE_DEVICE_BYTES];
    uint64_t bytes;            /* of the disk */
    uint64_t filesystem_bytes; /* statfs(2)'s total */
    struct drive_walk_count walk;
    enum drive_fsck_result fsck;
    bool was_mounted;    /* as requested, already before this call */
    unsigned containers; /* that have the drive now; fewer than requested without a text: the agent
                            is too old to know of containers */
    char container_error[DRIVE_CONTAINER_ERROR_BYTES]; /* of the first that failed; "" none */
};

struct drive_unmount_request {
    char drive_id[DRIVE_ID_BYTES];
    char serial[DRIVE_SERIAL_BYTES];
    uint64_t timeout_ms; /* as above */
    struct drive_containers containers;
};

struct drive_unmount_answer {
    bool was_mounted;
    bool disk_removed; /* the guest removed it (SCSI, Firecracker), or it does not exist */
};

enum drive_guest_state {
    DRIVE_GUEST_PRESENT, /* the disk exists and is not mounted */
    DRIVE_GUEST_MOUNTING,
    DRIVE_GUEST_MOUNTED,
    DRIVE_GUEST_UNMOUNTING,
};

struct drive_guest_entry {
    char serial[DRIVE_SERIAL_BYTES];
    char drive_id[DRIVE_ID_BYTES]; /* while a call is in progress, else "" */
    enum drive_guest_state state;
    char device[DRIVE_DEVICE_BYTES]; /* "": the disk does not exist */
    uint64_t bytes;
    bool read_only;
    char vm_path[DRIVE_PATH_BYTES]; /* "": not mounted */
    char filesystem_type[DRIVE_TYPE_BYTES];
    struct drive_walk_count walk; /* while MOUNTING */
};

struct drive_guest_list {
    size_t count;
    struct drive_guest_entry *entries; /* owned */
    bool incomplete;                   /* there are more than fit, or a disk could not be read */
};

void drive_guest_list_done(struct drive_guest_list *list); /* frees, resets */

/* Whether the text has the form of an id or of a serial. */
bool drive_id_is_valid(const char *id);
bool drive_serial_is_valid(const char *serial);
/* Whether it has the form of a serial that the VMM chose. */
bool drive_serial_is_of_vmm(const char *serial);

/* The messages, and the structure of each. */
enum drive_message {
    DRIVE_MOUNT_REQUEST,
    DRIVE_MOUNT_ANSWER,
    DRIVE_UNMOUNT_REQUEST,
    DRIVE_UNMOUNT_ANSWER,
    DRIVE_LIST_REQUEST, /* bool: no disks are to be read */
};

/* Appends to the buffer. 0, -EMSGSIZE, -ENOMEM. */
int drive_append(struct buffer *payload, enum drive_message which, const void *structure);

/* 0; -EBADMSG: not such a message; -EINVAL: *ret_wrong (unless it is NULL) names the malformed
 * field, and the structure is not to be used. */
int drive_parse(const void *payload, size_t length, enum drive_message which, void *ret_structure,
                const char **ret_wrong);

/* The same for a list: it is cut to AGENT_REPLY_BYTES and then marked incomplete. A malformed field
 * is -EBADMSG. The caller frees a list with drive_guest_list_done(). */
int drive_append_list(struct buffer *payload, const struct drive_guest_list *list);
int drive_parse_list(const void *payload, size_t length, struct drive_guest_list *ret_list);
