/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h - which sandbox a volume belongs to: facts about its records in, the fate of its binding
 * out.
 *
 * Pure, as decide.h is. docs/states.md ("Binding") is its table, and every cell is tested. A
 * binding is a row of audit_mappings: one stay of the volume, on one device, in one sandbox.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "observe/observe.h"

/* Live sandboxes that have the volume by their records or by its own. */
enum bind_sandbox { BIND_NO_SANDBOX, BIND_ONE_SANDBOX, BIND_SEVERAL_SANDBOXES };

/* What the volume's path leads to. */
enum bind_device { BIND_DEVICE_MISSING, BIND_DEVICE_SUITABLE, BIND_DEVICE_UNSUITABLE };

/* The binding that is open. */
enum bind_present { BIND_NONE, BIND_HERE, BIND_ELSEWHERE };

/* The binding's device against the one that the path leads to now. */
enum bind_disk {
    BIND_SAME_DISK,
    BIND_REPLACED_DISK, /* another one under the same number: the VMM goes on holding the old one */
    BIND_ANOTHER_DISK,
};

struct bind_facts {
    bool present; /* its metadata can be believed */
    enum bind_sandbox sandbox;
    enum bind_device device;
    enum bind_present binding;
    enum bind_disk disk;
    bool contradicted; /* the runtime was given this path while that led to another device */
};

enum bind_action {
    BIND_NOTHING,
    BIND_OPEN, /* a new binding, in place of the one that is open, if any */
    BIND_CLOSE,
    BIND_KEEP, /* it is bound as it was: only what is known about it may be better */
};

struct binding {
    enum bind_action action;
    bool mismatch; /* the VMM has another device than the path leads to */
};

struct binding bind_decide(const struct bind_facts *facts);

/* ---- attachment ----------------------------------------------------------------------------- */

/* Whether a VM has a bound volume's drive, and the meaning if it does not.
 * docs/states.md ("Attachment") is its table, and every cell is tested. */

/* The VMM's own list of drives, as it was read under the runtime's present records. */
enum attachment_list {
    LIST_UNREAD,  /* not asked yet */
    LIST_REFUSED, /* asked, and not read: no monitor, no answer, or it does not tell which is which
                   */
    LIST_HAS,
    LIST_LACKS,
};

/* What the runtime's record says of the containers' mounts of this volume. */
enum attachment_record {
    RECORD_SILENT,
    RECORD_DEVICE,
    RECORD_DIRECTORY, /* a shared directory of the node in the place of the device */
};

struct attachment_facts {
    enum attachment_list list;
    enum attachment_record record;
    bool has_container; /* a container that has not ended mounts the volume */
    bool is_lasting;    /* the list lacked the drive three times in a row */
};

enum attachment {
    ATTACHMENT_OPEN, /* it has the drive, or nothing says that it has not */
    ATTACHMENT_DETACHED,
    ATTACHMENT_BYPASSED,
    ATTACHMENT_UNPLUGGED,
    ATTACHMENTS,
};

enum { ATTACHMENT_LASTING = 3 };

enum attachment attachment_decide(const struct attachment_facts *facts);

/* ---- layers --------------------------------------------------------------------------------- */

/* Which layer of a stack has not followed its lower device, and its remedy. Pure.
 *
 * Sizes are compared by how much they grew since both layers were last seen in step, not as they
 * are: a LUKS header is not missing space.
 */

/* In their order: the worst of a stack is the stack's. */
enum layer_state {
    LAYER_IN_STEP,
    LAYER_PENDING, /* its lower device has grown and it has not, or a path differs from others */
    LAYER_STALE,   /* the disk has announced that it grew, and keeps its old size */
};

enum { LAYER_REMEDY_BYTES = 256 };

struct layer {
    enum observed_layer_kind kind;
    unsigned above;       /* index of the layer above it, smaller than its own; 0 for the first */
    const char *name;     /* /dev/sda */
    const char *label;    /* dm name; "" */
    uint64_t bytes;       /* now */
    bool announced;       /* it said that it grew */
    uint64_t base_bytes;  /* its size, and that of the layer above, when these two were in step; */
    uint64_t above_bytes; /* 0 and 0: first seen. Both are brought up to date. */

    enum layer_state state; /* of layers_judge() */
    char remedy[LAYER_REMEDY_BYTES];
};

void layers_judge(struct layer *layers, unsigned count);

const char *layer_kind_name(enum observed_layer_kind kind);
