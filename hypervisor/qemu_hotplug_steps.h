/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_steps.h - what to do next to a drive, from what QEMU has of it. Pure. Private to
 * hypervisor/.
 *
 *     READ ─▶ found ─▶ COMMAND ─▶ done ─▶ COMMAND … READ ─▶ found ─▶ END
 *                         └─▶ refused ─▶ the next address, READ, WAIT, or backwards
 *
 * Commands that need nothing of each other's answers are given together: each answer is a way to
 * QEMU and back.
 *
 * A success is believed until all is read again, which comes before each END that claims something,
 * but for an attach that has added every part itself and was refused none. Its guest then compares
 * serial, size and access with what was asked for, whatever QEMU says.
 * An attach that fails goes backwards until nothing of the drive is left.
 */
#pragma once

#include "hypervisor/drive.h"
#include "hypervisor/qemu_hotplug_found.h"

enum qemu_hotplug_next {
    QEMU_HOTPLUG_READ,    /* ask the four questions, then call qemu_hotplug_step_found() */
    QEMU_HOTPLUG_COMMAND, /* then qemu_hotplug_step_done() or _refused() for each */
    QEMU_HOTPLUG_ANSWER,  /* the one to the next of these commands, then the same */
    QEMU_HOTPLUG_ADDRESS, /* ask the device's target, unit and serial, then END or _address() */
    QEMU_HOTPLUG_WAIT,    /* a little, then READ; too long: qemu_hotplug_step_late() */
    QEMU_HOTPLUG_END,
};

struct qemu_hotplug_step {
    enum qemu_hotplug_next next;
    enum qemu_hotplug_command command, last; /* COMMAND: from one to the other, together */
    enum hypervisor_drive_outcome outcome;   /* END; its text is plan->error */
};

struct qemu_hotplug_plan {
    struct qemu_hotplug_values values;
    struct qemu_hotplug_found found;
    /* Whether the set's descriptor is the request's disk; asked for in step_found() and in
     * step_done(). */
    bool (*is_disk)(const struct qemu_hotplug_plan *plan, void *userdata);
    void *userdata;
    enum hypervisor_drive_outcome failure; /* of an attach that goes backwards; DONE: none */
    struct error error;
    enum qemu_hotplug_command last; /* of those that were given together */
    bool is_refused;                /* one of them was; then this comes next: */
    struct qemu_hotplug_step refusal;
    bool is_new; /* QEMU had nothing of the drive when all was read last */
    bool limits_set;
    bool duplicate;              /* a part was said to be there already */
    bool told;                   /* the device's removal was accepted */
    bool cleared;                /* everything was believed to be removed */
    unsigned addresses, bridges; /* tried so far */
};

void qemu_hotplug_plan_init(struct qemu_hotplug_plan *plan,
                            const struct hypervisor_drive_request *request);

/* plan->found is complete. */
struct qemu_hotplug_step qemu_hotplug_step_found(struct qemu_hotplug_plan *plan);
/* The command succeeded; ADD_SET: plan->values.set and found.sets[0] are the new set. */
struct qemu_hotplug_step qemu_hotplug_step_done(struct qemu_hotplug_plan *plan,
                                                enum qemu_hotplug_command command);
struct qemu_hotplug_step qemu_hotplug_step_refused(struct qemu_hotplug_plan *plan,
                                                   enum qemu_hotplug_command command,
                                                   const char *error_class, const char *text);
/* The device's target and unit are in plan->values, and this is its serial. */
struct qemu_hotplug_step qemu_hotplug_step_address(struct qemu_hotplug_plan *plan,
                                                   const char *serial);
/* Waited for as long as the request allows. */
struct qemu_hotplug_step qemu_hotplug_step_late(struct qemu_hotplug_plan *plan);
