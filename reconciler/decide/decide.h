/* SPDX-License-Identifier: Apache-2.0 */
/* decide.h - facts about one volume in, its state and at most one action out.
 *
 * Pure: no I/O, no clock, no memory. docs/states.md ("Resize") is its table: the first row that
 * matches decides, and every combination is tested.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/reason.h"
#include "model/volume.h"

enum decide_status { DECIDE_PRESENT, DECIDE_INVALID, DECIDE_GONE };

enum decide_device { DEVICE_BLOCK, DEVICE_FILE, DEVICE_MISSING, DEVICE_UNSUITABLE };

/* Observations on the host or in the VMM that forbid touching the drive, in their order. */
enum decide_conflict {
    CONFLICT_NONE,
    CONFLICT_SANDBOX_ORPHANED, /* the VMM has outlived its shim */
    CONFLICT_ENTRIES_DISAGREE,
    CONFLICT_IDENTITY_MISMATCH,
    CONFLICT_DEVICE_SHARED,
    CONFLICT_HOST_IN_USE,
    CONFLICT_BYPASSED,  /* a container has a directory of the node in the volume's place */
    CONFLICT_UNPLUGGED, /* a container has the volume, and the VMM has lost the drive */
    CONFLICT_DETACHED,  /* the VMM has no such drive, and no container needs it */
};

/* An obstacle between the volume's device and storage that has grown. */
enum decide_lower {
    LOWER_IN_STEP,
    LOWER_PENDING, /* a layer has not followed its lower device */
    LOWER_STALE,   /* a disk said that it grew, and keeps its old size until it is rescanned */
};

struct decide_facts {
    enum decide_status status;
    enum resize_policy policy; /* the strictest of configuration and metadata */
    enum decide_device device;
    enum decide_conflict conflict;
    enum decide_lower lower;
    bool read_only; /* nobody who has the volume may write to it */
    unsigned live_sandboxes;
    bool may_be_hidden; /* no live sandbox is known to have it, and one of them cannot be read */

    uint64_t device_bytes;
    uint64_t first_bytes;        /* the device's size when this sandbox was first seen to have it */
    uint64_t largest_bytes;      /* the largest seen since */
    uint64_t hypervisor_bytes;   /* what the VMM said or acknowledged; 0 unknown */
    uint64_t guest_synced_bytes; /* device size that the file system is known to fill; 0 none */
    bool list_read;    /* the VMM's list has the drive, read under the runtime's present records */
    bool list_again;   /* and it has to be read again on request */
    bool size_assumed; /* the VMM opened the device when it had this size already */
    bool is_undone;    /* somebody else set the VM's disk back to less, again and again */
    bool guest_proven; /* the last call in this binding had the guest grow the file system */
    bool is_raw; /* a file system on it is the pod's affair: the guest is not asked for anything */
    bool is_bound;
    bool resize_open;      /* an audit_resizes row is unfinished */
    uint64_t resize_bytes; /* the size to which it leads */
    bool is_still;         /* the device has had its size for resize.settle_ms */

    enum volume_reason hypervisor_reason; /* why the last call failed; NONE: it did not */
    enum volume_reason guest_reason;      /* UNVERIFIED: grown, but it would not say how far */
    bool may_rescan;                      /* allowed, and the stale disk was not of late */
    bool may_try;                         /* nothing has failed yet, or the next attempt is due */
};

enum decide_action {
    ACTION_NONE,
    ACTION_QUERY_HYPERVISOR,  /* learn the drive's size */
    ACTION_RESIZE_HYPERVISOR, /* have it re-read, check the answer */
    ACTION_RESIZE_GUEST,      /* have the file system grown, and verify */
    ACTION_RESCAN_DISK,       /* have the kernel read the stale disk's size again */
    ACTION_WAIT,              /* decide again once the size has been stable for long enough */
};

struct decision {
    enum volume_state state;
    enum volume_reason reason;
    enum decide_action action;
    bool opens_resize; /* the device is larger than what the VMM has, and no open row of
                          audit_resizes says so, whether or not a conflict forbids the resize */
};

struct decision decide(const struct decide_facts *facts);

/* The size that a resize counts from: the VMM's, or if that is unknown the device's when it was
 * first seen attached. */
uint64_t decide_baseline(uint64_t hypervisor_bytes, uint64_t first_bytes);

const char *decide_action_name(enum decide_action action);

/* ---- backoff -------------------------------------------------------------------------------- */

/* When to try again: exponential, 1 s doubling up to 5 minutes. The jitter keeps many sandboxes
 * that failed together from coming back together. */

#define BACKOFF_FIRST_NS   UINT64_C(1000000000)
#define BACKOFF_LARGEST_NS UINT64_C(300000000000)

/* The largest delay after so many failures in a row (1, 2, …). */
uint64_t backoff_bound(uint32_t failures);

/* A random delay up to the bound; random is any number, evenly distributed. Never less than a
 * hundredth of the bound, so that no value makes a busy loop. */
uint64_t backoff_delay(uint32_t failures, uint64_t random);

/* ---- resizable ------------------------------------------------------------------------------ */

/* Whether a resize of the device would reach the file system if it came now. docs/states.md
 * ("Resizable") is its table, and every cell is tested. */

/* What the VMM's monitor can do with the drive, as far as its list shows. */
enum resizable_monitor {
    MONITOR_UNASKED, /* the list was not read, or does not have the drive */
    MONITOR_ABLE,
    MONITOR_UNABLE,
};

struct resizable_facts {
    const struct decide_facts *resize; /* the facts of decide() */
    enum resizable_monitor monitor;
    enum volume_reason monitor_reason; /* of MONITOR_UNABLE */
};

enum resizable_answer {
    RESIZABLE_UNUSED, /* no sandbox has the volume: there is nothing to tell */
    RESIZABLE_YES,    /* each part was seen */
    RESIZABLE_NO,     /* the first observed obstacle */
    RESIZABLE_UNKNOWN,
    RESIZABLE_ANSWERS,
};

struct resizable {
    enum resizable_answer answer;
    enum volume_reason reason; /* NO: the obstacle; UNKNOWN: the missing observation */
};

struct resizable resizable_decide(const struct resizable_facts *facts);

/* NULL for RESIZABLE_UNUSED. */
const char *resizable_name(enum resizable_answer answer);
