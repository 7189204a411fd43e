/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_steps.c - up through the parts of a drive, or down.
 *
 * Up: the lowest part that is missing is added. Down: the highest that is there is removed. Both go
 * by what was found, so a call goes on from wherever an earlier one ended.
 *
 * Only an attach that found the parts to be the request's own goes on from them, and takes them
 * back when it fails. Others are a conflict, and stay as they are.
 */
#include "hypervisor/qemu_hotplug.h"

#include <stdio.h>
#include <string.h>

enum { ADDRESSES = 2048 /* to be tried in one call */ };

static struct qemu_hotplug_step step(enum qemu_hotplug_next next)
{
    return (struct qemu_hotplug_step){.next = next};
}

static struct qemu_hotplug_step commands(enum qemu_hotplug_command first,
                                         enum qemu_hotplug_command last)
{
    return (struct qemu_hotplug_step){.next = QEMU_HOTPLUG_COMMAND, .command = first, .last = last};
}

static struct qemu_hotplug_step command(enum qemu_hotplug_command command)
{
    return commands(command, command);
}

static struct qemu_hotplug_step end(enum hypervisor_outcome outcome)
{
    return (struct qemu_hotplug_step){.next = QEMU_HOTPLUG_END, .outcome = outcome};
}

void qemu_hotplug_plan_init(struct qemu_hotplug_plan *plan,
                            const struct hypervisor_request *request)
{
    *plan = (struct qemu_hotplug_plan){.failure = HYPERVISOR_DONE};
    plan->values.request = request;
    plan->values.scsi_id = QEMU_HOTPLUG_SCSI_ID;
    if (request->drive_id)
        qemu_hotplug_names_init(&plan->values.names, request->drive_id);
}

/* ---- down ---- */

static struct qemu_hotplug_step go_down(struct qemu_hotplug_plan *plan)
{
    for (unsigned part = QEMU_PARTS; part-- > 0;) {
        if (!plan->found.has[part])
            continue;
        if (part == QEMU_PART_DEVICE && plan->told)
            return step(QEMU_HOTPLUG_WAIT);
        if (part == QEMU_PART_SET && plan->found.set_count)
            plan->values.set = plan->found.sets[0].number;
        return command(QEMU_REMOVE_SET + part);
    }
    plan->cleared = true;
    return step(QEMU_HOTPLUG_READ);
}

/* QEMU before 9.1 keeps a descriptor of a paused VM although it was told to close it; so what is
 * still there after everything was removed is given time. */
static struct qemu_hotplug_step found_down(struct qemu_hotplug_plan *plan)
{
    if (qemu_hotplug_is_absent(&plan->found))
        return end(plan->failure);
    if (plan->cleared) {
        plan->cleared = false;
        return step(QEMU_HOTPLUG_WAIT);
    }
    return go_down(plan);
}

/* ---- up ---- */

/* The attach has failed: takes back what there is. */
static struct qemu_hotplug_step fail(struct qemu_hotplug_plan *plan,
                                     enum hypervisor_outcome outcome, const char *text)
{
    plan->failure = outcome;
    (void)error_set(&plan->error, 0, "%s", text);
    return step(QEMU_HOTPLUG_READ);
}

static struct qemu_hotplug_step conflict(struct qemu_hotplug_plan *plan, const char *text)
{
    (void)error_set(&plan->error, 0, "%s", text);
    return end(HYPERVISOR_CONFLICT);
}

/* false: the VM has no controller. */
static bool choose_bus(struct qemu_hotplug_plan *plan)
{
    const struct qemu_hotplug_found *found = &plan->found;

    if (found->has_kata_controller)
        strcpy(plan->values.bus, QEMU_KATA_CONTROLLER ".0");
    else if (found->has_own_controller)
        strcpy(plan->values.bus, QEMU_HOTPLUG_CONTROLLER ".0");
    return found->has_kata_controller || found->has_own_controller;
}

/* Without a bus a controller is added first. */
static struct qemu_hotplug_step add_device(struct qemu_hotplug_plan *plan)
{
    const struct qemu_hotplug_found *found = &plan->found;

    if (choose_bus(plan))
        return command(QEMU_ADD_DEVICE);
    if (plan->bridges < found->bridge_count) {
        strcpy(plan->values.bus, found->bridges[plan->bridges]);
        return command(QEMU_ADD_CONTROLLER);
    }
    return fail(plan, HYPERVISOR_NO_ADDRESS,
                found->bridge_count ? "slot 31 of every PCI bridge is taken"
                                    : "the VM has neither a SCSI controller nor a PCI bridge");
}

static struct qemu_hotplug_step go_up(struct qemu_hotplug_plan *plan)
{
    const bool *has = plan->found.has;
    enum qemu_part part = QEMU_PART_SET;

    while (part < QEMU_PARTS && has[part])
        part++;
    if (has[QEMU_PART_GROUP] && !plan->limits_set)
        return command(QEMU_SET_LIMITS);
    if (part == QEMU_PARTS)
        return step(QEMU_HOTPLUG_ADDRESS);
    if (part == QEMU_PART_SET && plan->values.request->descriptor < 0) {
        (void)error_set(&plan->error, 0, "QEMU does not have the disk: it has to be opened");
        return end(HYPERVISOR_NEEDS_DESCRIPTOR);
    }
    if (part == QEMU_PART_SET)
        return commands(QEMU_ADD_SET, has[QEMU_PART_GROUP] ? QEMU_ADD_SET : QEMU_ADD_GROUP);
    if (part == QEMU_PART_GROUP)
        return command(QEMU_ADD_GROUP);
    if (part == QEMU_PART_DEVICE)
        return add_device(plan);
    return commands(QEMU_ADD_NODES, choose_bus(plan) ? QEMU_ADD_DEVICE : QEMU_ADD_NODES);
}

static struct qemu_hotplug_step found_up(struct qemu_hotplug_plan *plan)
{
    const struct qemu_hotplug_found *found = &plan->found;

    plan->is_new = qemu_hotplug_is_absent(found);
    if (plan->failure != HYPERVISOR_DONE)
        return found_down(plan);
    if (qemu_hotplug_has_gap(found))
        return conflict(plan, "QEMU has only some of this drive's parts");
    if (found->has[QEMU_PART_SET]) {
        plan->values.set = found->sets[0].number;
        if (!plan->is_disk(plan))
            return conflict(plan, "QEMU has another disk under this drive's id");
    }
    if (found->has[QEMU_PART_FILE] && found->read_only != plan->values.request->read_only)
        return conflict(plan, found->read_only ? "QEMU has this drive as a read-only one"
                                               : "QEMU has this drive as a writable one");
    return go_up(plan);
}

/* ---- drives that are there ---- */

static struct qemu_hotplug_step not_attached(struct qemu_hotplug_plan *plan)
{
    (void)error_set(&plan->error, 0, "QEMU does not have this drive");
    return end(HYPERVISOR_NOT_ATTACHED);
}

static struct qemu_hotplug_step resize(struct qemu_hotplug_plan *plan)
{
    const struct qemu_hotplug_found *found = &plan->found;

    if (!found->has[QEMU_PART_DEVICE] || !found->has[QEMU_PART_THROTTLE])
        return not_attached(plan);
    if (!found->has[QEMU_PART_SET] || !plan->is_disk(plan))
        return conflict(plan, "QEMU has another disk under this drive's id");
    return command(QEMU_RESIZE);
}

/* ---- the steps ---- */

struct qemu_hotplug_step qemu_hotplug_step_found(struct qemu_hotplug_plan *plan)
{
    const enum hypervisor_act act = plan->values.request->act;
    const bool *has = plan->found.has;

    if (act == HYPERVISOR_ATTACH)
        return found_up(plan);
    if (act == HYPERVISOR_DETACH)
        return found_down(plan);
    if (act == HYPERVISOR_RESIZE)
        return resize(plan);
    if (act == HYPERVISOR_LIMIT)
        return has[QEMU_PART_GROUP] && has[QEMU_PART_THROTTLE] ? command(QEMU_SET_LIMITS)
                                                               : not_attached(plan);
    return has[QEMU_PART_DEVICE] ? step(QEMU_HOTPLUG_ADDRESS) : end(HYPERVISOR_DONE);
}

static void set_nodes(struct qemu_hotplug_found *found, bool are_there)
{
    for (enum qemu_part part = QEMU_PART_FILE; part <= QEMU_PART_THROTTLE; part++)
        found->has[part] = are_there;
}

static struct qemu_hotplug_step removed(struct qemu_hotplug_plan *plan,
                                        enum qemu_hotplug_command done)
{
    struct qemu_hotplug_found *found = &plan->found;

    if (done == QEMU_REMOVE_DEVICE) {
        plan->told = true;
        return step(QEMU_HOTPLUG_READ); /* it may take the guest's consent */
    }
    if (done == QEMU_REMOVE_SET && found->set_count > 1)
        found->sets[0] = found->sets[--found->set_count];
    else
        found->has[done - QEMU_REMOVE_SET] = false;
    if (done == QEMU_REMOVE_THROTTLE)
        set_nodes(found, false);
    return go_down(plan);
}

static struct qemu_hotplug_step added(struct qemu_hotplug_plan *plan,
                                      enum qemu_hotplug_command done)
{
    struct qemu_hotplug_found *found = &plan->found;

    plan->duplicate = false;
    if (done == QEMU_ADD_SET)
        found->has[QEMU_PART_SET] = true;
    if (done == QEMU_ADD_GROUP) {
        found->has[QEMU_PART_GROUP] = true;
        /* A new group has no limits. */
        plan->limits_set = !qemu_hotplug_is_limited(&plan->values.request->limits);
    }
    if (done == QEMU_ADD_NODES)
        set_nodes(found, true);
    if (done == QEMU_ADD_CONTROLLER)
        found->has_own_controller = true;
    if (done != QEMU_ADD_DEVICE)
        return go_up(plan);
    found->has[QEMU_PART_DEVICE] = true;
    /* All is there. Anything that is not as it should be is judged by what QEMU says of all parts.
     */
    return plan->is_new && plan->is_disk(plan) ? end(HYPERVISOR_DONE) : step(QEMU_HOTPLUG_READ);
}

struct qemu_hotplug_step qemu_hotplug_step_done(struct qemu_hotplug_plan *plan,
                                                enum qemu_hotplug_command done)
{
    if (done == QEMU_SET_LIMITS) {
        plan->limits_set = true;
        return plan->values.request->act == HYPERVISOR_LIMIT ? end(HYPERVISOR_DONE) : go_up(plan);
    }
    if (done == QEMU_RESIZE)
        return end(HYPERVISOR_DONE);
    if (done >= QEMU_REMOVE_SET && done <= QEMU_REMOVE_DEVICE)
        return removed(plan, done);
    return added(plan, done);
}

/* ---- refusals ---- */

static bool says(const char *text, const char *word)
{
    return strcasestr(text, word);
}

/* The same address cannot be had; the next one. */
static struct qemu_hotplug_step next_address(struct qemu_hotplug_plan *plan)
{
    struct qemu_hotplug_values *values = &plan->values;

    if (++values->lun == QEMU_HOTPLUG_LUNS) {
        values->lun = 0;
        values->scsi_id--;
    }
    if (++plan->addresses == ADDRESSES || values->scsi_id < QEMU_HOTPLUG_SCSI_ID_LAST)
        return fail(plan, HYPERVISOR_NO_ADDRESS, "every SCSI address is taken");
    return command(QEMU_ADD_DEVICE);
}

static struct qemu_hotplug_step refused_up(struct qemu_hotplug_plan *plan,
                                           enum qemu_hotplug_command refused,
                                           const char *error_class, const char *text)
{
    if (strcmp(error_class, "CommandNotFound") == 0)
        return fail(plan, HYPERVISOR_VERSION, text);
    if (refused == QEMU_ADD_DEVICE && says(text, "lun already used"))
        return next_address(plan);
    if (says(text, "duplicate") && !plan->duplicate) {
        plan->duplicate = true;
        return step(QEMU_HOTPLUG_READ);
    }
    if (refused == QEMU_ADD_CONTROLLER) {
        plan->bridges++;
        return add_device(plan);
    }
    return fail(plan, HYPERVISOR_REFUSED, text);
}

static bool is_gone(const char *error_class, const char *text)
{
    return strcmp(error_class, "DeviceNotFound") == 0 || says(text, "not found") ||
           says(text, "failed to find") || says(text, "cannot find");
}

static struct qemu_hotplug_step refused_down(struct qemu_hotplug_plan *plan,
                                             enum qemu_hotplug_command refused,
                                             const char *error_class, const char *text)
{
    if (is_gone(error_class, text)) {
        if (refused == QEMU_REMOVE_DEVICE) /* not through removed(): nothing is to be waited for */
            plan->found.has[QEMU_PART_DEVICE] = false;
        else
            return removed(plan, refused);
        return go_down(plan);
    }
    if (refused == QEMU_REMOVE_DEVICE && says(text, "unplug")) {
        plan->told = true;
        return step(QEMU_HOTPLUG_WAIT);
    }
    if (says(text, "in use") || says(text, "busy"))
        return step(QEMU_HOTPLUG_WAIT);
    if (plan->failure == HYPERVISOR_DONE) {
        (void)error_set(&plan->error, 0, "%s", text);
        return end(HYPERVISOR_REFUSED);
    }
    return end(plan->failure); /* the first reason counts */
}

struct qemu_hotplug_step qemu_hotplug_step_refused(struct qemu_hotplug_plan *plan,
                                                   enum qemu_hotplug_command refused,
                                                   const char *error_class, const char *text)
{
    char line[ERROR_TEXT_BYTES];

    (void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\r\n"), text);
    if (refused >= QEMU_REMOVE_SET && refused <= QEMU_REMOVE_DEVICE)
        return refused_down(plan, refused, error_class, line);
    if (plan->values.request->act == HYPERVISOR_ATTACH)
        return refused_up(plan, refused, error_class, line);
    (void)error_set(&plan->error, 0, "%s", line);
    return end(strcmp(error_class, "CommandNotFound") == 0 ? HYPERVISOR_VERSION
                                                           : HYPERVISOR_REFUSED);
}

struct qemu_hotplug_step qemu_hotplug_step_address(struct qemu_hotplug_plan *plan,
                                                   const char *serial)
{
    const struct hypervisor_request *request = plan->values.request;

    if (request->act == HYPERVISOR_ATTACH && strcmp(serial, request->serial) != 0)
        return conflict(plan, "QEMU has this drive with another serial");
    return end(HYPERVISOR_DONE);
}

struct qemu_hotplug_step qemu_hotplug_step_late(struct qemu_hotplug_plan *plan)
{
    if (plan->failure != HYPERVISOR_DONE)
        return end(plan->failure);
    (void)error_set(&plan->error, 0, "%s",
                    plan->found.has[QEMU_PART_DEVICE]
                        ? "the guest has not let go of the device"
                        : "QEMU has not let go of the disk; a paused VM keeps it until it goes on");
    return end(HYPERVISOR_PENDING);
}
