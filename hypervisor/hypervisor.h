/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.h - one act on a VMM: asks for a drive's size, has it take a new one, attaches a disk
 * of the node, detaches it, limits it, or says what is there.
 *
 * One call is one short conversation on the VMM's control socket. It is short because a monitor
 * serves one client at a time, and others may need it.
 *
 * A drive that the runtime attached is found by the identity of its device, never by name alone. A
 * drive that crustd attached has the client's drive_id. Everything that the VMM has of it is named
 * after that id, so a call reads what is there and goes on from it: each may be repeated, also
 * after crustd or the connection ended in the middle of one.
 *
 * The caller opens and checks the disk to attach. QEMU gets the descriptor and opens nothing
 * itself: a block device opened with O_EXCL stays claimed as long as QEMU has the descriptor, also
 * while crustd is down, and is free once DETACH is DONE, or QEMU has ended. Access mode and
 * O_DIRECT of the descriptor must be those of the drive, because QEMU looks for a descriptor of its
 * set that has them: O_RDONLY for a read-only drive, otherwise O_RDWR, and O_DIRECT if and only if
 * `direct`.
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
 * The guest finds the drive by the reply's serial. Firecracker makes the serial itself
 * (traits.makes_serial), and tells its guest nothing: the guest has to rescan its PCI bus after
 * ATTACH, and to remove the PCI function before DETACH.
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
#include "model/sandbox.h"

/* With a drive_id, QUERY and RESIZE are about a drive that crustd attached. */
enum hypervisor_act {
    HYPERVISOR_QUERY,    /* find the drive; report its size if the VMM reports it, or its state */
    HYPERVISOR_RESIZE,   /* the disk has grown: find the drive, have its size re-read, check the
                            result. crustd's own only over a block device, because of a regular file
                            some VMMs would cut off what it has grown by meanwhile */
    HYPERVISOR_DESCRIBE, /* report the kind of guest; the device is not used. Only for kinds with
                            HYPERVISOR_GUEST_BY_CALL */
    HYPERVISOR_ATTACH,   /* a failed one takes back what there is of the drive */
    HYPERVISOR_DETACH,   /* DONE also if there is nothing of it */
    HYPERVISOR_LIMIT,    /* replaces the limits of an attached drive */
    HYPERVISOR_LIST,     /* the state of all drives that this node's crustd attached */
};

/* The outcomes of a call. act.c maps each to a reason, drive_acts.c to a status code. */
enum hypervisor_outcome {
    HYPERVISOR_DONE,
    HYPERVISOR_MONITOR_MISSING,  /* no control socket that may be used */
    HYPERVISOR_BUSY,             /* no greeting, or a block job holds the drive */
    HYPERVISOR_UNREACHABLE,      /* refused, closed or silent in mid-conversation, or invalid: what
                                    there is of a drive is unknown; repeat the call */
    HYPERVISOR_UNSUPPORTED,      /* not with this kind of VMM, monitor or drive (a resize: not raw
                                    over host_device, a fixed size or offset, an emulated NVMe) */
    HYPERVISOR_VERSION,          /* this version of the VMM does not support it */
    HYPERVISOR_REFUSED,          /* the VMM refused; the text has its reason */
    HYPERVISOR_DRIVE_NOT_FOUND,  /* none of its drives is this device */
    HYPERVISOR_READ_ONLY,        /* a read-only drive cannot be refreshed */
    HYPERVISOR_MISMATCH,         /* the recorded drive exists but is another device */
    HYPERVISOR_PAUSED,           /* done, and the VM is paused; the text has the VMM's reason */
    HYPERVISOR_CONFLICT,         /* ATTACH: what has the drive's names is another disk, has another
                                    serial or access, or lacks parts in its middle. Nothing was
                                    changed: detach it first */
    HYPERVISOR_NEEDS_DESCRIPTOR, /* ATTACH without one: the VMM has none. Nothing was changed: open
                                    the disk and repeat the call */
    HYPERVISOR_NO_ADDRESS,       /* no SCSI bus, or every address on it is taken */
    HYPERVISOR_NOT_ATTACHED,     /* LIMIT, RESIZE: crustd's drive is not attached */
    HYPERVISOR_PENDING,          /* DETACH: the VMM was told, and still has the drive, or the disk's
                                    descriptor. ATTACH: the same of an earlier detach. Repeat the
                                    call */
    HYPERVISOR_OUTCOMES,
};

/* What a VMM has of a drive that crustd attaches. */
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
    HYPERVISOR_ADDRESS_BYTES = 64,
    HYPERVISOR_VERSION_BYTES = 32,
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

struct hypervisor_request {
    enum hypervisor_act act;
    int root;                   /* O_PATH of --root; borrowed until done */
    const char *control_socket; /* below root; NULL: none */
    pid_t vmm_pid;          /* its /proc/PID/root and descriptors resolve what the VMM reports */
    const char *sandbox_id; /* its shim may listen on the control socket too; NULL: it may not */
    const char *forbidden; /* RESIZE, ATTACH: why crustd's configuration forbids it, static; NULL */
    /* DETACH of a VMM that opens paths also waits for the VMM to close it; {0}: it is not known. */
    struct hypervisor_disk disk;
    uint64_t bytes; /* RESIZE: the device's real size; never less than the drive has is requested,
                       and the VMM may refuse if it has grown again */
    uint64_t deadline_ns; /* for the whole conversation, from now */
    bool is_ahead;        /* nothing is changed before hypervisor_call_go() */

    /* A drive that the runtime attached. */
    const char *recorded_drive; /* drive id that the runtime recorded, NULL unknown */
    bool wants_address;         /* the guest's address of the drive is not known otherwise: QEMU is
                                   asked for it; Cloud Hypervisor's list contains it */

    /* A drive of crustd's. */
    const char *drive_id; /* NULL: one that the runtime attached, or LIST */
    int descriptor;       /* ATTACH: copied by the call's start; -1: go on with what the VMM has */
    const char *path;     /* ATTACH: for a VMM that opens it: absolute, below the VMM's own root */
    bool read_only;
    bool direct;        /* O_DIRECT: past the host's page cache */
    const char *serial; /* RESIZE, if the VMM makes serials: the drive's, which must stay */
    struct hypervisor_limits limits; /* ATTACH and LIMIT */
    uint64_t
        removal_ns; /* how long a guest may take to let go of the device; less than the deadline */
};

struct hypervisor_guest {
    bool is_confidential; /* its memory is hidden from the node */
    bool has_share;       /* it shares a directory with the node */
};

/* Whether a VMM's list of drives was read completely, and contains the device. */
enum hypervisor_list {
    HYPERVISOR_LIST_UNREAD,
    HYPERVISOR_LIST_HAS,
    HYPERVISOR_LIST_LACKS,
};

/* One drive that a VMM has, for LIST. */
struct hypervisor_drive_entry {
    char drive_id[HYPERVISOR_DRIVE_ID_BYTES];
    enum hypervisor_drive_state state;
    bool identified; /* its disk is known */
    struct hypervisor_disk disk;
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES]; /* that the VMM has made; "" none, or not known */
};

struct hypervisor_reply {
    enum hypervisor_outcome outcome;
    struct error error;                     /* for people, when not DONE */
    char version[HYPERVISOR_VERSION_BYTES]; /* of the VMM, as reported; "": not reported */
    uint64_t bytes;                         /* the VMM's size of the drive; 0: unknown */
    /* In the guest, as crust-guest-agent reads it: pci:02/01, scsi:255:0; "": unknown. */
    char address[HYPERVISOR_ADDRESS_BYTES];
    struct hypervisor_guest guest; /* DESCRIBE, DONE */

    /* A drive that the runtime attached. */
    char drive_id[128];        /* the node that was found; "" */
    enum hypervisor_list list; /* whether the VMM's list has the device */
    /* For a query whose list has the drive: the expected outcome of a resize, as far as this
     * conversation shows. DONE: no obstacle is known. */
    enum hypervisor_outcome resize;

    /* A drive of crustd's. The state is that at the end of the call. A failed ATTACH that could not
     * take everything back is PARTIAL or PRESENT; it goes with DETACH. */
    enum hypervisor_drive_state state;
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES];   /* in the guest; "" unknown */
    const struct hypervisor_drive_entry *entries; /* LIST; the call's */
    size_t entry_count;
};

struct hypervisor_call;

/* What differs between the kinds of VMM. The obstacles are static; NULL: there is none. */
struct hypervisor_traits {
    bool opens_path;   /* the request's path is needed, and the claim stays with the caller */
    bool makes_serial; /* whatever the request says: the reply has it. The guest is not told of the
                          disk */
    bool has_no_limit; /* LIMIT is UNSUPPORTED: limits are set by ATTACH only */
    const char *obstacle;        /* why no drive can be attached at all */
    const char *resize_obstacle; /* why it cannot be notified of a new size at all */
};

const struct hypervisor_traits *hypervisor_traits(enum hypervisor_kind kind);

typedef void hypervisor_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                             void *userdata);

/* Copies the request. 0, -ENOMEM, -EMFILE, or -EINVAL: an id or a serial out of bounds, or a
 * descriptor whose access mode or O_DIRECT contradicts the request; `error` says which. */
int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call, struct error *error);
void hypervisor_call_go(struct hypervisor_call *call);
struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call); /* returns NULL */

/* Whether the VMM's process has the disk open, whatever its monitor says; also if that cannot be
 * told. */
bool hypervisor_may_hold(pid_t vmm_pid, const struct hypervisor_disk *disk);
