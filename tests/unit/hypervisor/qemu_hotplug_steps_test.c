/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_steps_test.c - the steps, against a model of QEMU that keeps which parts are there
 * and insists on their order. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "hypervisor/qemu_hotplug.h"
#include "lib/cleanup.h"

enum { STEPS_MAX = 64, WAITS_MAX = 5 };

struct model {
    struct qemu_hotplug_found found;
    bool other_disk;
    const char *serial;
    /* One command is refused, so often. */
    enum qemu_hotplug_command refused;
    unsigned refusals;
    const char *error_class, *text;
    bool applied;     /* the refused command was carried out all the same */
    bool guest_holds; /* a device stays after its removal was accepted */
    bool keeps_set;   /* a set stays after it was removed, as of a paused VM */
    bool keeps_nodes; /* the lower nodes were added one by one, and do not go with the highest */
    char log[1024];   /* the commands that were carried out */
    unsigned waits, reads, addresses;
};

static struct hypervisor_request request;
static struct qemu_hotplug_plan plan;

static const char *const words[QEMU_HOTPLUG_COMMANDS] = {
    [QEMU_ADD_SET] = "+set",
    [QEMU_ADD_GROUP] = "+group",
    [QEMU_ADD_NODES] = "+nodes",
    [QEMU_ADD_DEVICE] = "+device",
    [QEMU_REMOVE_SET] = "-set",
    [QEMU_REMOVE_FILE] = "-file",
    [QEMU_REMOVE_RAW] = "-raw",
    [QEMU_REMOVE_GROUP] = "-group",
    [QEMU_REMOVE_THROTTLE] = "-throttle",
    [QEMU_REMOVE_DEVICE] = "-device",
    [QEMU_ADD_CONTROLLER] = "+controller",
    [QEMU_SET_LIMITS] = "limits",
    [QEMU_RESIZE] = "resize",
};

static bool other_disk; /* of the model */

static bool is_disk(const struct qemu_hotplug_plan *of)
{
    assert_true(of->found.has[QEMU_PART_SET]);
    return !other_disk;
}

static void note(struct model *model, enum qemu_hotplug_command command)
{
    size_t length = strlen(model->log);

    (void)snprintf(model->log + length, sizeof(model->log) - length, "%s%s", length ? " " : "",
                   words[command]);
}

static void add_part(struct model *model, enum qemu_part part)
{
    struct qemu_hotplug_found *found = &model->found;

    assert_false(found->has[part]);
    for (unsigned below = 0; below < part; below++)
        assert_true(found->has[below] || part == QEMU_PART_GROUP);
    if (part == QEMU_PART_SET)
        found->sets[found->set_count++].number = plan.values.set = 7;
    if (part == QEMU_PART_FILE) {
        found->is_on_set = true;
        found->read_only = request.read_only;
    }
    if (part == QEMU_PART_DEVICE) {
        assert_true(found->has_kata_controller || found->has_own_controller);
        model->serial = request.serial;
    }
    found->has[part] = true;
}

static void add_nodes(struct model *model)
{
    for (enum qemu_part part = QEMU_PART_FILE; part <= QEMU_PART_THROTTLE; part++)
        add_part(model, part);
}

static void remove_part(struct model *model, enum qemu_part part)
{
    for (unsigned above = part + 1; above < QEMU_PARTS; above++)
        assert_true(!model->found.has[above] || (model->keeps_nodes && above < QEMU_PART_THROTTLE));
    if (part == QEMU_PART_SET) {
        assert_int_equal(plan.values.set, model->found.sets[0].number);
        if (model->keeps_set)
            return;
        model->found.sets[0] = model->found.sets[1];
        model->found.has[part] = --model->found.set_count > 0;
    } else if (part != QEMU_PART_DEVICE || !model->guest_holds) {
        model->found.has[part] = false;
    }
    if (part == QEMU_PART_THROTTLE && !model->keeps_nodes)
        model->found.has[QEMU_PART_FILE] = model->found.has[QEMU_PART_RAW] = false;
}

static void apply(struct model *model, enum qemu_hotplug_command command)
{
    note(model, command);
    if (command == QEMU_ADD_SET)
        add_part(model, QEMU_PART_SET);
    else if (command == QEMU_ADD_GROUP)
        add_part(model, QEMU_PART_GROUP);
    else if (command == QEMU_ADD_NODES)
        add_nodes(model);
    else if (command == QEMU_ADD_DEVICE)
        add_part(model, QEMU_PART_DEVICE);
    else if (command >= QEMU_REMOVE_SET && command <= QEMU_REMOVE_DEVICE)
        remove_part(model, (enum qemu_part)(command - QEMU_REMOVE_SET));
    else if (command == QEMU_ADD_CONTROLLER)
        model->found.has_own_controller = true;
    else
        assert_true(model->found.has[QEMU_PART_GROUP]);
}

/* Nodes refer to the set and the group, a device to its nodes: QEMU refuses one without the other.
 */
static bool can_apply(const struct model *model, enum qemu_hotplug_command command)
{
    const bool *has = model->found.has;

    switch ((int)command) {
    case QEMU_ADD_NODES:
        return has[QEMU_PART_SET] && has[QEMU_PART_GROUP];
    case QEMU_ADD_DEVICE:
        return has[QEMU_PART_THROTTLE];
    default:
        return true;
    }
}

/* Sets *step to what is next. false: it was refused. */
static bool run_command(struct model *model, enum qemu_hotplug_command command,
                        struct qemu_hotplug_step *step)
{
    const bool is_refused = model->refusals && command == model->refused;

    if (!can_apply(model, command)) {
        *step = qemu_hotplug_step_refused(&plan, command, "GenericError", "Cannot find it");
        return false;
    }
    if (!is_refused || model->applied)
        apply(model, command);
    model->refusals -= is_refused;
    *step = is_refused ? qemu_hotplug_step_refused(&plan, command, model->error_class, model->text)
                       : qemu_hotplug_step_done(&plan, command);
    return !is_refused;
}

/* QEMU carries out all of them, also those after one that it has refused; at most *steps. */
static struct qemu_hotplug_step run_commands(struct model *model, struct qemu_hotplug_step step,
                                             unsigned *steps)
{
    const enum qemu_hotplug_command last = step.last;
    bool goes_on = true;

    for (enum qemu_hotplug_command command = step.command; command <= last && *steps; command++) {
        if (goes_on)
            goes_on = run_command(model, command, &step);
        else if (can_apply(model, command))
            apply(model, command);
        --*steps;
    }
    return step;
}

/* Carries out up to `steps` steps; fewer than that are needed by every call. */
static struct qemu_hotplug_step carry_out(struct model *model, unsigned steps)
{
    struct qemu_hotplug_step step = {.next = QEMU_HOTPLUG_READ};

    qemu_hotplug_plan_init(&plan, &request);
    plan.is_disk = is_disk;
    other_disk = model->other_disk;
    model->log[0] = '\0';
    model->waits = model->reads = model->addresses = 0;
    while (steps && step.next != QEMU_HOTPLUG_END) {
        if (step.next == QEMU_HOTPLUG_COMMAND) {
            step = run_commands(model, step, &steps);
            continue;
        }
        steps--;
        if (step.next == QEMU_HOTPLUG_WAIT && ++model->waits == WAITS_MAX)
            step = qemu_hotplug_step_late(&plan);
        else if (step.next == QEMU_HOTPLUG_ADDRESS) {
            model->addresses++;
            step = qemu_hotplug_step_address(&plan, model->serial);
        } else {
            model->reads++;
            plan.found = model->found;
            step = qemu_hotplug_step_found(&plan);
        }
    }
    return step;
}

static void expect(struct model *model, enum hypervisor_act act, enum hypervisor_outcome outcome,
                   enum hypervisor_drive_state left)
{
    struct qemu_hotplug_step step;

    request.act = act;
    step = carry_out(model, STEPS_MAX);
    assert_int_equal(step.next, QEMU_HOTPLUG_END);
    if (step.outcome != outcome)
        print_error("%s: %s\n", model->log, plan.error.text);
    assert_int_equal(step.outcome, outcome);
    assert_int_equal(qemu_hotplug_state(&model->found), left);
    if (outcome != HYPERVISOR_DONE)
        assert_true(plan.error.text[0]);
}

static struct model model_of(bool has_scsi)
{
    struct model model = {.serial = "", .error_class = "GenericError"};

    model.found.has_kata_controller = has_scsi;
    request = (struct hypervisor_request){.drive_id = "d", .serial = "crust-1", .descriptor = 3};
    return model;
}

#define ATTACH  HYPERVISOR_ATTACH
#define DETACH  HYPERVISOR_DETACH
#define DONE    HYPERVISOR_DONE
#define ABSENT  HYPERVISOR_DRIVE_ABSENT
#define PARTIAL HYPERVISOR_DRIVE_PARTIAL
#define PRESENT HYPERVISOR_DRIVE_PRESENT

static void goes_up_and_down(void **state)
{
    struct model model = model_of(true);

    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group +nodes +device");
    assert_string_equal(plan.values.bus, "scsi0.0");
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "limits");
    expect(&model, DETACH, DONE, ABSENT);
    assert_string_equal(model.log, "-device -throttle -group -set");
    expect(&model, DETACH, DONE, ABSENT);
    assert_string_equal(model.log, "");
}

/* QEMU does so when its last monitor client goes. */
static void close_unused_set(struct model *model)
{
    if (model->found.has[QEMU_PART_FILE])
        return;
    model->found.has[QEMU_PART_SET] = false;
    model->found.set_count = 0;
}

/* Interrupted after any number of steps, in either direction; then any call does its own. */
static void goes_on_from_anywhere(void **state)
{
    for (unsigned steps = 0; steps < 16; steps++) {
        for (unsigned way = 0; way < 8; way++) {
            struct model model = model_of(true);

            request.act = ATTACH;
            (void)carry_out(&model, way & 1 ? STEPS_MAX : steps);
            if (way & 1) {
                request.act = DETACH;
                (void)carry_out(&model, steps);
            }
            if (way & 4)
                close_unused_set(&model);
            expect(&model, way & 2 ? DETACH : ATTACH, DONE, way & 2 ? ABSENT : PRESENT);
        }
    }
}

static void goes_on_from_a_group_without_its_set(void **state)
{
    struct model model = model_of(true);

    request.act = ATTACH;
    (void)carry_out(&model, 3);
    close_unused_set(&model);
    request.descriptor = -1;
    expect(&model, ATTACH, HYPERVISOR_NEEDS_DESCRIPTOR, PARTIAL);
    request.descriptor = 3;
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "limits +set +nodes +device");
}

/* Whatever is refused, once or always: nothing is left of an attach that fails. */
static void a_failed_attach_leaves_nothing(void **state)
{
    for (enum qemu_hotplug_command add = QEMU_ADD_SET; add <= QEMU_ADD_DEVICE; add++) {
        struct model model = model_of(true);

        model.refused = add;
        model.refusals = 1;
        model.text = "Failed to get \"write\" lock\nIs another process using the image?";
        expect(&model, ATTACH, HYPERVISOR_REFUSED, ABSENT);
        assert_string_equal(plan.error.text, "Failed to get \"write\" lock");
        model.refusals = 1;
        model.error_class = "CommandNotFound";
        expect(&model, ATTACH, HYPERVISOR_VERSION, ABSENT);
    }
}

/* What QEMU has already was added by a call whose answer was lost. */
static void a_duplicate_is_looked_at(void **state)
{
    for (enum qemu_hotplug_command add = QEMU_ADD_GROUP; add <= QEMU_ADD_DEVICE; add++) {
        struct model model = model_of(true);

        model.refused = add;
        model.refusals = 1;
        model.applied = true;
        model.text = "Duplicate device ID";
        expect(&model, ATTACH, DONE, PRESENT);
        model = model_of(true);
        model.refused = add;
        model.refusals = 100; /* and yet it never shows */
        model.text = "Duplicate nodes with node-name";
        expect(&model, ATTACH, HYPERVISOR_REFUSED, ABSENT);
    }
}

static void takes_the_next_address(void **state)
{
    struct model model = model_of(true);

    model.refused = QEMU_ADD_DEVICE;
    model.refusals = 2;
    model.text = "lun already used by 'crust-x'";
    expect(&model, ATTACH, DONE, PRESENT);
    assert_int_equal(plan.values.scsi_id, 255);
    assert_int_equal(plan.values.lun, 2);
}

/* From 255 downwards, 256 units each, and never below Kata's bound. */
static void gives_up_after_many_addresses(void **state)
{
    struct qemu_hotplug_step step;
    unsigned tried = 0;

    (void)model_of(true);
    request.act = ATTACH;
    qemu_hotplug_plan_init(&plan, &request);
    do {
        step = qemu_hotplug_step_refused(&plan, QEMU_ADD_DEVICE, "GenericError",
                                         "lun already used by 'x'");
        tried++;
        assert_true(plan.values.lun < 256 && plan.values.scsi_id <= 255);
        assert_int_equal(plan.values.scsi_id, 255 - tried / 256);
    } while (step.next == QEMU_HOTPLUG_COMMAND && step.command == QEMU_ADD_DEVICE);
    assert_int_equal(step.next, QEMU_HOTPLUG_READ);
    assert_int_equal(plan.failure, HYPERVISOR_NO_ADDRESS);
    assert_true(plan.values.scsi_id >= QEMU_HOTPLUG_SCSI_ID_LAST);
}

static void brings_a_controller_along(void **state)
{
    struct model model = model_of(false);

    expect(&model, ATTACH, HYPERVISOR_NO_ADDRESS, ABSENT);
    strcpy(model.found.bridges[0], "pci-bridge-0");
    strcpy(model.found.bridges[1], "pci-bridge-1");
    model.found.bridge_count = 2;
    model.refused = QEMU_ADD_CONTROLLER;
    model.refusals = 2;
    model.text = "PCI: slot 31 function 0 not available for virtio-scsi-pci, in use by x";
    expect(&model, ATTACH, HYPERVISOR_NO_ADDRESS, ABSENT);
    model.refusals = 1;
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group +nodes +controller +device");
    assert_string_equal(plan.values.bus, "crust-scsi.0");
    expect(&model, DETACH, DONE, ABSENT); /* the controller stays */
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group +nodes +device");
}

static void foreign_parts_stay(void **state)
{
    struct model model = model_of(true);

    expect(&model, ATTACH, DONE, PRESENT);
    model.other_disk = true;
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
    model.other_disk = false;
    request.read_only = true;
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
    request.read_only = false;
    model.serial = "crust-2";
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
    model.serial = request.serial;
    model.found.is_on_set = false;
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
    model.found.is_on_set = true;
    model.found.has[QEMU_PART_RAW] = false;
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
}

static void needs_a_descriptor_only_at_first(void **state)
{
    struct model model = model_of(true);

    request.descriptor = -1;
    expect(&model, ATTACH, HYPERVISOR_NEEDS_DESCRIPTOR, ABSENT);
    assert_string_equal(model.log, "");
    model.found.has[QEMU_PART_SET] = true;
    model.found.set_count = 1;
    model.found.sets[0].number = 7;
    expect(&model, ATTACH, DONE, PRESENT);
    assert_int_equal(plan.values.set, 7);
}

static void a_guest_may_hold_the_device(void **state)
{
    struct model model = model_of(true);

    expect(&model, ATTACH, DONE, PRESENT);
    model.guest_holds = true;
    expect(&model, DETACH, HYPERVISOR_PENDING, PRESENT);
    assert_string_equal(model.log, "-device");
    model.refused = QEMU_REMOVE_DEVICE;
    model.refusals = 1;
    model.text = "Device crust-x is already in the process of unplug";
    expect(&model, DETACH, HYPERVISOR_PENDING, PRESENT);
    assert_string_equal(model.log, "");
    model.found.has[QEMU_PART_DEVICE] = false;
    expect(&model, DETACH, DONE, ABSENT);
}

static void a_paused_vm_keeps_the_descriptor(void **state)
{
    struct model model = model_of(true);

    expect(&model, ATTACH, DONE, PRESENT);
    model.keeps_set = true;
    expect(&model, DETACH, HYPERVISOR_PENDING, PARTIAL);
    model.keeps_set = false;
    expect(&model, DETACH, DONE, ABSENT);
}

/* It was gone before the command came, or is in use for a moment longer, or is refused. */
static void removals_may_be_refused(void **state)
{
    static const enum qemu_part parts[] = {QEMU_PART_SET, QEMU_PART_GROUP, QEMU_PART_THROTTLE,
                                           QEMU_PART_DEVICE};

    for (unsigned i = 0; i < array_length(parts); i++) {
        const enum qemu_part part = parts[i];
        struct model model = model_of(true);

        expect(&model, ATTACH, DONE, PRESENT);
        model.refused = QEMU_REMOVE_SET + part;
        model.refusals = 1;
        model.applied = true;
        model.text = "Failed to find node with node-name='x'";
        expect(&model, DETACH, DONE, ABSENT);
        expect(&model, ATTACH, DONE, PRESENT);
        model.refusals = 2;
        model.applied = false;
        model.text = "Node x is in use";
        expect(&model, DETACH, DONE, ABSENT);
        assert_int_equal(model.waits, 2);
        expect(&model, ATTACH, DONE, PRESENT);
        model.refusals = 1;
        model.text = "No";
        expect(&model, DETACH, HYPERVISOR_REFUSED, part == QEMU_PART_DEVICE ? PRESENT : PARTIAL);
    }
}

static void removes_every_set(void **state)
{
    struct model model = model_of(true);

    expect(&model, ATTACH, DONE, PRESENT);
    model.found.sets[model.found.set_count++].number = 9;
    expect(&model, DETACH, DONE, ABSENT);
    assert_string_equal(model.log, "-device -throttle -group -set -set");
}

/* What QEMU then says of the new device is not what it was told. */
static void a_new_device_that_is_another_is_a_conflict(void **state)
{
    struct model model = model_of(true);

    model.other_disk = true;
    expect(&model, ATTACH, HYPERVISOR_CONFLICT, PRESENT);
    assert_int_equal(model.reads, 2);
}

/* A new group has no limits. What an earlier call left may have any. */
static void new_throttle_group_gets_only_limits_that_are_set(void **state)
{
    struct model model = model_of(true);

    request.limits.operations = (struct hypervisor_bucket){.size = 5}; /* without a time: none */
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group +nodes +device");
    model = model_of(true);
    request.limits.operations = (struct hypervisor_bucket){.size = 5, .refill_ms = 1000};
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group limits +nodes +device");
    model = model_of(true);
    model.refused = QEMU_ADD_GROUP; /* added by a call whose answer was lost */
    model.refusals = 1;
    model.applied = true;
    model.text = "attempt to add duplicate property 'crust-g' to object (type 'container')";
    expect(&model, ATTACH, DONE, PRESENT);
    assert_string_equal(model.log, "+set +group limits +nodes +device");
}

static void limits_only_what_is_there(void **state)
{
    struct model model = model_of(true);

    expect(&model, HYPERVISOR_LIMIT, HYPERVISOR_NOT_ATTACHED, ABSENT);
    expect(&model, HYPERVISOR_QUERY, DONE, ABSENT);
    expect(&model, ATTACH, DONE, PRESENT);
    expect(&model, HYPERVISOR_LIMIT, DONE, PRESENT);
    assert_string_equal(model.log, "limits");
    model.refused = QEMU_SET_LIMITS;
    model.refusals = 1;
    model.text = "bps/iops/max total values and read/write values cannot be used at the same time";
    expect(&model, HYPERVISOR_LIMIT, HYPERVISOR_REFUSED, PRESENT);
    expect(&model, HYPERVISOR_QUERY, DONE, PRESENT);
}

static void resizes_only_the_disk_that_was_asked_for(void **state)
{
    struct model model = model_of(true);

    expect(&model, HYPERVISOR_RESIZE, HYPERVISOR_NOT_ATTACHED, ABSENT);
    expect(&model, ATTACH, DONE, PRESENT);
    expect(&model, HYPERVISOR_RESIZE, DONE, PRESENT);
    assert_string_equal(model.log, "resize");
    model.refused = QEMU_RESIZE;
    model.refusals = 1;
    model.text = "Cannot grow device files";
    expect(&model, HYPERVISOR_RESIZE, HYPERVISOR_REFUSED, PRESENT);
    model.other_disk = true;
    expect(&model, HYPERVISOR_RESIZE, HYPERVISOR_CONFLICT, PRESENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_up_and_down),
        cmocka_unit_test(goes_on_from_anywhere),
        cmocka_unit_test(goes_on_from_a_group_without_its_set),
        cmocka_unit_test(a_failed_attach_leaves_nothing),
        cmocka_unit_test(a_duplicate_is_looked_at),
        cmocka_unit_test(takes_the_next_address),
        cmocka_unit_test(gives_up_after_many_addresses),
        cmocka_unit_test(brings_a_controller_along),
        cmocka_unit_test(foreign_parts_stay),
        cmocka_unit_test(needs_a_descriptor_only_at_first),
        cmocka_unit_test(a_guest_may_hold_the_device),
        cmocka_unit_test(a_paused_vm_keeps_the_descriptor),
        cmocka_unit_test(removals_may_be_refused),
        cmocka_unit_test(removes_every_set),
        cmocka_unit_test(a_new_device_that_is_another_is_a_conflict),
        cmocka_unit_test(new_throttle_group_gets_only_limits_that_are_set),
        cmocka_unit_test(limits_only_what_is_there),
        cmocka_unit_test(resizes_only_the_disk_that_was_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
