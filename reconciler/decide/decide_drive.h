/* SPDX-License-Identifier: Apache-2.0 */
/* decide_drive.h - what a drive mount needs next. Pure.
 *
 * The facts are what was last read from the VMM and the guest, never what crustd intended: after a
 * crash they are unknown, and are read before anything else is done. docs/states.md has the table.
 */
#pragma once

#include <stdbool.h>

#include "model/drive.h"

enum drive_in_vmm {
    DRIVE_IN_VMM_UNKNOWN,
    DRIVE_IN_VMM_ABSENT,
    DRIVE_IN_VMM_PARTLY, /* a descriptor or block nodes of it, but no device */
    DRIVE_IN_VMM_HAS,
    DRIVE_IN_VMM_LEAVING, /* its removal was requested, and the guest has not released it */
};

enum drive_in_guest {
    DRIVE_IN_GUEST_UNKNOWN,
    DRIVE_IN_GUEST_ABSENT, /* not mounted there */
    DRIVE_IN_GUEST_MOUNTED,
};

struct drive_facts {
    enum drive_state state; /* of the row */
    bool vm_is_alive;
    bool is_wanted;
    bool is_open;    /* crustd has the host's disk open, checked and claimed */
    bool may_return; /* the guest removes the device itself, and a bus scan may have brought it back
                        since the last removal was tried */
    enum drive_in_vmm vmm;
    enum drive_in_guest guest;
};

enum drive_act {
    DRIVE_DO_NOTHING,
    DRIVE_LOOK_VMM,
    DRIVE_CLAIM, /* open the host's disk */
    DRIVE_ATTACH,
    DRIVE_LOOK_GUEST,
    DRIVE_MOUNT,
    DRIVE_ANSWER, /* no act: the drive is ready, and the client is answered once that is synced */
    DRIVE_UNMOUNT,
    DRIVE_REMOVE,
    DRIVE_END,
    DRIVE_ACTS,
};

struct drive_decision {
    enum drive_act act;
    enum drive_state state; /* to be committed before the act */
};

struct drive_decision drive_decide(const struct drive_facts *facts);

/* The phases that the table distinguishes. */
enum drive_phase {
    DRIVE_PLANNED,  /* no guest was asked to mount it */
    DRIVE_MOUNTING, /* a guest may have it mounted */
    DRIVE_IN_USE,
    DRIVE_LEAVING_GUEST,
    DRIVE_FLUSHED, /* the guest has unmounted it */
    DRIVE_ENDED,
};

enum drive_phase drive_phase(enum drive_state state);
