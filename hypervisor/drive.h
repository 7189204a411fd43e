/* SPDX-License-Identifier: Apache-2.0 */
/* drive.h - attaches a disk of the node to a running VM, detaches it, and says what is there.
 *
 * A drive has the client's id. Everything that the VMM has of it is named after that id, so a call
 * reads what is there and goes on from it: each may be repeated, also after crustd or the
 * connection ended in the middle of one.
 *
 * The caller opens and checks the disk. QEMU gets the descriptor and opens nothing itself: a block
 * device opened with O_EXCL stays claimed as long as QEMU has the descriptor, also while crustd is
 * down, and is free once DETACH is DONE, or QEMU has ended. Access mode and O_DIRECT of the
 * descriptor must be those of the drive, because QEMU looks for a descriptor of its set that has
 * them: O_RDONLY for a read-only drive, otherwise O_RDWR, and O_DIRECT if and only if `direct`.
 *
 * Cloud Hypervisor and Firecracker open `path` themselves (traits.opens_path), without O_EXCL. It
 * is checked that the path, as the VMM sees it, leads to the disk, and afterwards that the VMM has
 * the disk open. The claim is then crustd's own: the caller keeps its descriptor open until DETACH
 * is DONE, and opens the disk with O_EXCL again after a restart, which a VMM that has it open does
 * not prevent. While crustd is down, nothing but the VMM's own lock (Cloud Hypervisor; none in
 * Firecracker) keeps others away.
 *
 * DETACH takes the disk away whether or not the guest has it mounted: the VMM does not protect it.
 * Unmount it first.
 *
 * The guest finds the drive by the reply's serial, and kata-agent by its address. Firecracker makes
 * the serial itself (traits.makes_serial), and tells its guest nothing: the guest has to rescan its
 * PCI bus after ATTACH, and to remove the PCI function before DETACH.
 *
 * The caller starts a call, gets exactly one `done` from the loop (never from within start), and
 * frees the call then or earlier. Freeing a running call ends the conversation and leaves what is
 * attached so far; the next call for the drive finds it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/loop.h"
#include "lib/result.h"
#include "model/hypervisor.h"

enum hypervisor_drive_act {
    HYPERVISOR_DRIVE_ATTACH, /* a failed one takes back what there is of the drive */
    HYPERVISOR_DRIVE_DETACH, /* DONE also if there is nothing of it */
    HYPERVISOR_DRIVE_LIMIT,  /* replaces the limits of an attached drive */
    HYPERVISOR_DRIVE_RESIZE, /* the disk has grown: has the VMM take its size, and tell the guest.
                                Only of block devices, because of a regular file some VMMs would cut
                                off what it has grown by meanwhile */
    HYPERVISOR_DRIVE_LOOK,   /* reports the state of one drive, and changes nothing */
    HYPERVISOR_DRIVE_LIST,   /* the same for all of them that this node's crustd attached */
};

enum hypervisor_drive_outcome {
    HYPERVISOR_DRIVE_DONE,
    HYPERVISOR_DRIVE_MONITOR_MISSING,  /* no control socket that may be used */
    HYPERVISOR_DRIVE_BUSY,             /* no greeting: another client holds the monitor */
    HYPERVISOR_DRIVE_UNREACHABLE,      /* refused, closed or silent, or invalid: what there is of
                                          the drive is unknown; repeat the call */
    HYPERVISOR_DRIVE_UNSUPPORTED,      /* not with this kind of VMM or monitor */
    HYPERVISOR_DRIVE_VERSION,          /* this version of the VMM does not have the command */
    HYPERVISOR_DRIVE_REFUSED,          /* the VMM refused; the text has its reason */
    HYPERVISOR_DRIVE_CONFLICT,         /* ATTACH: what has the drive's names is another disk, has
                                          another serial or access, or lacks parts in its middle.
                                          Nothing was changed: detach it first */
    HYPERVISOR_DRIVE_NEEDS_DESCRIPTOR, /* ATTACH without one: the VMM has none. Nothing was
                                          changed: open the disk and repeat the call */
    HYPERVISOR_DRIVE_NO_ADDRESS,       /* no SCSI bus, or every address on it is taken */
    HYPERVISOR_DRIVE_NOT_ATTACHED,     /* LIMIT, RESIZE: the drive is not attached */
    HYPERVISOR_DRIVE_PENDING,          /* DETACH: the VMM was told, and still has the drive, or the
                                          disk's descriptor. ATTACH: the same of an earlier detach.
                                          Repeat the call */
    HYPERVISOR_DRIVE_OUTCOMES,
};

/* What a VMM has of a drive. */
enum hypervisor_drive_state {
    HYPERVISOR_DRIVE_UNKNOWN, /* it was not read completely */
    HYPERVISOR_DRIVE_ABSENT,  /* nothing: the disk's claim is free */
    HYPERVISOR_DRIVE_PARTIAL, /* the disk's descriptor or nodes; the guest has no device */
    HYPERVISOR_DRIVE_PRESENT, /* the guest has the device, or has it until it lets go */
    HYPERVISOR_DRIVE_STATES,
};

enum {
    HYPERVISOR_DRIVE_ID_BYTES = 37,     /* 1 to 36 of A-Z a-z 0-9 _ - */
    HYPERVISOR_DRIVE_SERIAL_BYTES = 21, /* 1 to 20 of the same: what fits every VMM and device */
    HYPERVISOR_DRIVE_ADDRESS_BYTES = 16,
};

/* A bucket of `size` tokens (bytes or operations) that is filled in refill_ms. Either 0: no limit.
 * QEMU has nothing like a burst that comes only once, and does without. */
struct hypervisor_bucket {
    uint64_t size;
    uint64_t refill_ms;
    uint64_t one_time_burst;
};

struct hypervisor_limits {
    struct hypervisor_bucket bandwidth, operations;
};

/* The identity of a disk: a block device's number, or a regular file's device and inode. */
struct hypervisor_disk {
    bool regular_file;
    dev_t device; /* st_rdev of a block device, st_dev of a file */
    ino_t inode;  /* of a file; 0 for a block device */
};

struct hypervisor_drive_request {
    enum hypervisor_drive_act act;
    int root;                   /* O_PATH of --root; borrowed until done */
    const char *control_socket; /* below root; NULL: none */
    pid_t vmm_pid;              /* its descriptors are compared with the disk */
    const char *sandbox_id; /* its shim may listen on the control socket too; NULL: it may not */
    const char *drive_id;   /* LIST: NULL */
    const char *forbidden; /* ATTACH, RESIZE: why crustd's configuration forbids it, static; NULL */

    /* ATTACH and RESIZE. DETACH of a VMM that opens paths: it is also waited for the VMM to close
     * the disk; {0}: it is not known. */
    struct hypervisor_disk disk;
    uint64_t bytes; /* RESIZE: the disk's size; the VMM may refuse if it has grown again */

    /* ATTACH. */
    int descriptor;   /* copied by the call's start; -1: go on with the one that the VMM has */
    const char *path; /* of the disk, for a VMM that opens it: absolute, below the VMM's own root */
    bool read_only;
    bool direct;        /* O_DIRECT: past the host's page cache */
    const char *serial; /* RESIZE, if the VMM makes serials: the drive's, which must stay */
    struct hypervisor_limits limits; /* ATTACH and LIMIT */

    uint64_t removal_ns;  /* how long a guest may take to let go of the device */
    uint64_t deadline_ns; /* for the whole conversation, from now; more than removal_ns */
};

/* One drive that a VMM has, for LIST. */
struct hypervisor_drive_entry {
    char drive_id[HYPERVISOR_DRIVE_ID_BYTES];
    enum hypervisor_drive_state state;
    bool identified; /* its disk is known */
    struct hypervisor_disk disk;
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES]; /* that the VMM has made; "" none, or not known */
};

struct hypervisor_drive_reply {
    enum hypervisor_drive_outcome outcome;
    /* At the end of the call. A failed ATTACH that could not take everything back is PARTIAL or
     * PRESENT; it goes with DETACH. */
    enum hypervisor_drive_state state;
    /* ATTACH that is DONE; LOOK of a PRESENT drive. */
    char address[HYPERVISOR_DRIVE_ADDRESS_BYTES]; /* in the guest: pci:03, scsi:255:0; "" unknown */
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES];   /* in the guest; "" unknown */

    uint64_t bytes; /* RESIZE that is DONE: the size that the VMM has, at least the request's */
    const struct hypervisor_drive_entry *entries; /* LIST; the call's */
    size_t entry_count;
    struct error error; /* for people, when not DONE */
};

struct hypervisor_drive_call;

/* What differs between the kinds of VMM. */
struct hypervisor_drive_traits {
    bool opens_path;      /* the request's path is needed, and the claim stays with the caller */
    bool makes_serial;    /* whatever the request says: the reply has it. The guest is not told of
                             the disk */
    bool has_no_limit;    /* LIMIT is UNSUPPORTED: limits are set by ATTACH only */
    const char *obstacle; /* why no drive can be attached at all, static; NULL: it can */
};

const struct hypervisor_drive_traits *hypervisor_drive_traits(enum hypervisor_kind kind);

/* Whether drives can be attached to VMMs of this kind at all. */
bool hypervisor_drive_has_client(enum hypervisor_kind kind);

typedef void hypervisor_drive_done(struct hypervisor_drive_call *call,
                                   const struct hypervisor_drive_reply *reply, void *userdata);

/* Copies the request. 0, -ENOMEM, -EMFILE, or -EINVAL: an id or a serial out of bounds, or a
 * descriptor whose access mode or O_DIRECT contradicts the request; `error` says which. */
int hypervisor_drive_call_new(struct loop *loop, enum hypervisor_kind kind,
                              const struct hypervisor_drive_request *request,
                              hypervisor_drive_done *done, void *userdata,
                              struct hypervisor_drive_call **ret_call, struct error *error);

/* Whether the VMM's process has the disk open, whatever its monitor says; also if that cannot be
 * told. */
bool hypervisor_drive_may_be_held(pid_t vmm_pid, const struct hypervisor_disk *disk);

struct hypervisor_drive_call *hypervisor_drive_call_free(struct hypervisor_drive_call *call);
