/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.h - asks a VMM for a drive's size, and notifies it that the device has grown.
 *
 * One call is one short conversation on the VMM's control socket: it finds the drive by the
 * identity of its device (never by name alone), and either reports its size or has the VMM re-read
 * it. It is short because a monitor serves one client at a time, and others may need it.
 *
 * The caller starts a call, gets exactly one `done` from the loop (never from within start), and
 * frees the call then or earlier; freeing a running call ends the conversation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/loop.h"
#include "lib/result.h"
#include "model/hypervisor.h"

enum hypervisor_act {
    HYPERVISOR_QUERY,    /* find the drive, report its size if the VMM reports it */
    HYPERVISOR_RESIZE,   /* find it, have its size re-read, check the result */
    HYPERVISOR_DESCRIBE, /* report the kind of guest; the device is not used. Only for kinds with
                            HYPERVISOR_GUEST_BY_CALL */
};

/* The outcomes of a call. act_hypervisor.c maps each to a reason. */
enum hypervisor_outcome {
    HYPERVISOR_DONE,
    HYPERVISOR_MONITOR_MISSING, /* no control socket that may be used */
    HYPERVISOR_BUSY,            /* no greeting, or a block job holds the drive */
    HYPERVISOR_UNREACHABLE,     /* refused, closed or silent in mid-conversation, or invalid */
    HYPERVISOR_UNSUPPORTED,     /* no resize for this kind of VMM or drive (not raw over
                                   host_device, a fixed size or offset, an emulated NVMe) */
    HYPERVISOR_VERSION,         /* this version of the VMM does not support it */
    HYPERVISOR_REFUSED,         /* the VMM refused; the text has its reason */
    HYPERVISOR_DRIVE_NOT_FOUND, /* none of its drives is this device */
    HYPERVISOR_READ_ONLY,       /* a read-only drive cannot be refreshed */
    HYPERVISOR_MISMATCH,        /* the recorded drive exists but is another device */
    HYPERVISOR_PAUSED,          /* done, and the VM is paused; the text has the VMM's reason */
    HYPERVISOR_OUTCOMES,
};

struct hypervisor_request {
    enum hypervisor_act act;
    int root;                   /* O_PATH of --root; borrowed until done */
    const char *control_socket; /* below root; NULL: none */
    pid_t vmm_pid;              /* its /proc/PID/root and descriptors resolve reported paths */
    const char *sandbox_id; /* its shim may listen on the control socket too; NULL: it may not */
    const char *forbidden;  /* RESIZE: why crustd's configuration forbids it, static; NULL */
    bool regular_file;      /* the device is a file: query only */
    dev_t device;           /* st_rdev of the block device */
    dev_t file_device;      /* regular file: st_dev, inode */
    ino_t inode;
    const char *recorded_drive; /* drive id that the runtime recorded, NULL unknown */
    bool wants_address;         /* the guest's address of the drive is not known otherwise: QEMU is
                                   asked for it; Cloud Hypervisor's list contains it */
    uint64_t bytes;             /* the device's real size; RESIZE never requests less than the
                                   drive has */
    uint64_t deadline_ns;       /* for the whole conversation, from now */
};

enum { HYPERVISOR_VERSION_BYTES = 32 };

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

struct hypervisor_reply {
    enum hypervisor_outcome outcome;
    char version[HYPERVISOR_VERSION_BYTES]; /* of the VMM, as reported; "": not reported */
    char drive_id[128];                     /* the node that was found; "" */
    uint64_t bytes;                         /* the VMM's size; 0: unknown */
    enum hypervisor_list list;              /* whether the VMM's list has the device */
    /* For a query whose list has the drive: the expected outcome of a resize, as far as this
     * conversation shows. DONE: no obstacle is known. */
    enum hypervisor_outcome resize;
    char address[64]; /* in the guest, as crust-guest-agent reads it (pci:02/01); "": unknown */
    struct hypervisor_guest guest; /* DESCRIBE, DONE */
    struct error error;            /* for people, when not DONE */
};

struct hypervisor_call;

/* Whether crustd can notify VMMs of this kind of a new size at all. */
bool hypervisor_has_client(enum hypervisor_kind kind);

typedef void hypervisor_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                             void *userdata);

/* Copies the request. 0 or -ENOMEM. */
int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call);
struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call); /* returns NULL */
