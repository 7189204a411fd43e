/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.h - asking a VMM for a drive's size, and telling it that the device has grown.
 *
 * One call is one short conversation on the VMM's control socket: find the drive by the identity of
 * its device (never by name alone), and either report its size or have it re-read the size. Short,
 * because a monitor serves one client at a time and somebody else may need it.
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
    HYPERVISOR_QUERY,    /* find the drive, report its size where the VMM tells it */
    HYPERVISOR_RESIZE,   /* find it, have its size re-read, check the answer */
    HYPERVISOR_DESCRIBE, /* what guest it runs; the device is not used. Only kinds with
                            HYPERVISOR_GUEST_BY_CALL */
};

/* What a call can come to. act_hypervisor.c has the reason for each. */
enum hypervisor_outcome {
    HYPERVISOR_DONE,
    HYPERVISOR_MONITOR_MISSING, /* no control socket that may be used */
    HYPERVISOR_BUSY,            /* it gives no greeting, or a block job holds the drive */
    HYPERVISOR_UNREACHABLE,     /* refused, closed or silent in mid-conversation, or nonsense */
    HYPERVISOR_UNSUPPORTED,     /* no resize for this kind of VMM or drive (not raw over
                                   host_device, a fixed size or offset, an emulated NVMe) */
    HYPERVISOR_VERSION,         /* this version of the VMM cannot */
    HYPERVISOR_REFUSED,         /* it said no; the text says what */
    HYPERVISOR_DRIVE_NOT_FOUND, /* none of its drives is this device */
    HYPERVISOR_READ_ONLY,       /* a read-only drive can't be refreshed */
    HYPERVISOR_MISMATCH,        /* the recorded drive exists but is another device */
    HYPERVISOR_OUTCOMES,
};

struct hypervisor_request {
    enum hypervisor_act act;
    int root;                   /* O_PATH of --root; borrowed until done */
    int sysfs;                  /* O_PATH of /sys, the same */
    const char *control_socket; /* below root; NULL: none */
    pid_t vmm_pid;              /* whose /proc/PID/root and descriptors resolve reported paths */
    const char *forbidden;      /* RESIZE: why crustd's configuration forbids it, static; NULL */
    bool regular_file;          /* the device is a file: query only */
    dev_t device;               /* st_rdev of the block device */
    dev_t file_device;          /* regular file: st_dev, inode */
    ino_t inode;
    const char *recorded_drive; /* drive id that the runtime recorded, NULL unknown */
    bool wants_address;         /* where the guest sees the drive is not known otherwise: QEMU's
                                   address is asked for; Cloud Hypervisor's comes with its list */
    const char *others_forbid;  /* why drives of other devices must keep their size; NULL: they
                                   need not */
    uint64_t bytes;             /* the device's real size; RESIZE never asks for less than the drive
                                   has */
    uint64_t deadline_ns;       /* for the whole conversation, from now */
};

enum { HYPERVISOR_VERSION_BYTES = 32 };

struct hypervisor_guest {
    bool is_confidential; /* its memory is kept from the node */
    bool has_share;       /* a directory of the node */
};

/* Whether a VMM's list of drives was read whole, and has the device. */
enum hypervisor_list {
    HYPERVISOR_LIST_UNREAD, /* or it does not tell which drive is which device */
    HYPERVISOR_LIST_HAS,
    HYPERVISOR_LIST_LACKS,
};

struct hypervisor_reply {
    enum hypervisor_outcome outcome;
    char version[HYPERVISOR_VERSION_BYTES]; /* of the VMM, as it says; "" it did not */
    char drive_id[128];                     /* the node that was found; "" */
    uint64_t bytes;                         /* the size the VMM has; 0 not learned */
    enum hypervisor_list list;              /* what the VMM's own list of drives said */
    /* Of a query whose list has the drive: what a resize of it would come to, as far as this
     * conversation shows. DONE: nothing stands in its way. */
    enum hypervisor_outcome resize;
    char address[64]; /* in the guest, as crust-guest-agent reads it (pci:02/01); "" not learned */
    bool others_refreshed;         /* the VMM has read the sizes of other drives again as well */
    struct hypervisor_guest guest; /* DESCRIBE, DONE */
    struct error doubt; /* DONE, LIST_HAS: why it is not known which drive it is; "" it is */
    struct error error; /* for a person, when not DONE */
};

struct hypervisor_call;

/* Whether VMMs of this kind can be told of a new size at all. */
bool hypervisor_has_client(enum hypervisor_kind kind);

typedef void hypervisor_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                             void *userdata);

/* Copies the request. 0 or -ENOMEM. */
int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call);
struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call); /* returns NULL */
