/* SPDX-License-Identifier: Apache-2.0 */
/* drives_failures_test.c - attaches that fail: for good and unwound, or tried again; and detaches
 * that something in the guest holds up. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

/* An attach in these circumstances. At the act, which begins once the VM has the disk if is_late is
 * set, the VMM or the guest fails once. healed: what is walked at the next attempt; NULL: the
 * attach has failed for good, and nothing is left of it. */
static const struct attach_case {
    const char *what;
    enum drive_claim_outcome claim;
    enum hypervisor_drive_state vmm; /* UNKNOWN: ABSENT */
    bool opens_path, makes_serial, confidential, other_has_disk, lacks_agent, is_late;
    enum world_call call;
    int act;
    enum hypervisor_outcome vmm_fails;
    enum status_code guest_fails, code;
    const char *text, *walked, *healed;
} cases[] = {
    {"outside of the prefixes", .claim = DRIVE_CLAIM_OUTSIDE, .code = STATUS_PERMISSION_DENIED,
     .text = "the disk cannot be had", .walked = "look "},
    {"no such disk", .claim = DRIVE_CLAIM_MISSING, .code = STATUS_NOT_FOUND,
     .text = "the disk cannot be had", .walked = "look "},
    {"no disk", .claim = DRIVE_CLAIM_UNSUITABLE, .code = STATUS_FAILED_PRECONDITION,
     .text = "the disk cannot be had", .walked = "look "},
    {"a read-only disk", .claim = DRIVE_CLAIM_READ_ONLY, .code = STATUS_FAILED_PRECONDITION,
     .text = "the disk cannot be had", .walked = "look "},
    {"a disk that may not be opened", .claim = DRIVE_CLAIM_FORBIDDEN,
     .code = STATUS_FAILED_PRECONDITION, .text = "the disk cannot be had", .walked = "look "},
    {"a confidential guest", .confidential = true, .code = STATUS_FAILED_PRECONDITION,
     .text = "confidential", .walked = "look "},
    {"parts under a row that was lost are no reason to ask less", .vmm = HYPERVISOR_DRIVE_PARTIAL,
     .opens_path = true, .confidential = true, .code = STATUS_FAILED_PRECONDITION,
     .text = "confidential", .walked = "look remove "},
    {"a VM without a monitor, which nobody can ask about an end",
     .vmm_fails = HYPERVISOR_MONITOR_MISSING, .call = VMM_CALL, .act = HYPERVISOR_QUERY,
     .code = STATUS_FAILED_PRECONDITION, .text = "the VMM does not", .walked = "look "},
    {"another VM has the disk", .other_has_disk = true, .code = STATUS_FAILED_PRECONDITION,
     .text = "sandbox-9 has the disk", .walked = "look ask "},
    {"the mount fails", .call = GUEST_CALL, .act = DRIVE_CLIENT_MOUNT,
     .guest_fails = STATUS_INVALID_ARGUMENT, .code = STATUS_INVALID_ARGUMENT,
     .text = "the guest does not", .walked = "look ask attach mount unmount remove "},
    {"a guest without an agent is not given the disk", .lacks_agent = true,
     .code = STATUS_FAILED_PRECONDITION, .text = "the guest does not", .walked = "look ask "},
    {"a guest that has lost its agent was not asked to mount it", .opens_path = true,
     .makes_serial = true, .is_late = true, .call = GUEST_CALL, .act = DRIVE_CLIENT_LIST,
     .guest_fails = STATUS_UNIMPLEMENTED, .code = STATUS_FAILED_PRECONDITION,
     .text = "the guest does not", .walked = "look ask attach ask remove "},
    {"a guest without an agent has brought nothing back", .opens_path = true, .makes_serial = true,
     .lacks_agent = true, .is_late = true, .code = STATUS_FAILED_PRECONDITION,
     .text = "the guest does not", .walked = "look ask attach ask remove "},
    {"a guest that does not answer is not given the disk", .call = GUEST_CALL,
     .act = DRIVE_CLIENT_LIST, .guest_fails = STATUS_UNAVAILABLE, .code = STATUS_UNAVAILABLE,
     .text = "the guest does not", .walked = "look ask ", .healed = "ask attach mount "},
    {"a VMM that does not answer", .call = VMM_CALL, .act = HYPERVISOR_QUERY,
     .vmm_fails = HYPERVISOR_UNREACHABLE, .code = STATUS_UNAVAILABLE, .text = "the VMM does not",
     .walked = "look ", .healed = "look ask attach mount "},
};

static void run(const struct attach_case *given)
{
    world.claim = given->claim;
    world.vmm = given->vmm ? given->vmm : HYPERVISOR_DRIVE_ABSENT;
    world.opens_path = given->opens_path;
    world.makes_serial = given->makes_serial;
    world.confidential = given->confidential;
    world.other_has_disk = given->other_has_disk;
    attach();
    if (given->is_late)
        step_until(VMM_CALL, HYPERVISOR_ATTACH);
    world.lacks_agent = given->lacks_agent;
    if (given->call) {
        step_until(given->call, given->act);
        world.vmm_fails = given->vmm_fails;
        world.guest_fails = given->guest_fails;
    }
    go_on();
    expect_walked(given->walked);
    if (!given->healed) {
        expect_failed(given->code, given->text);
        assert_true(drives_are_idle(world.drives));
        return;
    }
    expect_answer(1, given->code, given->text);
    expect_row(DRIVE_REQUESTED, true, given->code);
    try_again();
    expect_walked(given->healed);
    expect_row(DRIVE_READY, true, STATUS_OK);
}

static void an_attach_that_fails_is_unwound_or_tried_again(void **state)
{
    for (size_t i = 0; i < array_length(cases); i++) {
        begin_anew();
        print_message("%s\n", cases[i].what);
        run(&cases[i]);
    }
}

/* Network storage that is gone: open(2) does not return. */
static void an_open_that_hangs_is_begun_once(void **state)
{
    world.storage_is_dead = true;
    attach();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "its storage has not answered");
    expect_row(DRIVE_REQUESTED, true, STATUS_UNAVAILABLE);
    attach();
    go_on();
    expect_answer(
        2, STATUS_UNAVAILABLE,
        "/dev/disk-1 cannot be opened: an earlier process for it still waits in the kernel");
    assert_int_equal(world.opens, 1);
    world.storage_is_dead = false;
    attach();
    go_on();
    expect_answer(3, STATUS_OK, "");
}

static void a_disk_that_another_vm_took_while_crustd_was_down_is_given_back(void **state)
{
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    act(VMM_CALL);
    restart();
    world.other_has_disk = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "sandbox-9 has the disk");
    expect_walked("look ask attach look remove ");
}

/* What it has under the drive's serial is not the disk that has just come. Nor is it lost with an
 * attach that fails. */
static void a_mount_from_before_the_attach_does_not_count(void **state)
{
    world.mounted = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    world.vmm_fails = HYPERVISOR_REFUSED;
    go_on();
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
    expect_walked("look ask attach ");
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    world.mounted = false;
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("look ask attach ask mount ");
}

/* The reason of the attach stays on record, whatever stands in the way of taking it out. */
static void a_failed_unwinding_is_tried_again(void **state)
{
    attach();
    step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    (void)step();
    step_until(GUEST_CALL, DRIVE_CLIENT_UNMOUNT);
    world.guest_fails = STATUS_UNAVAILABLE;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the guest does not");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
    drives_retry(world.drives);
    step_until(VMM_CALL, HYPERVISOR_DETACH);
    world.vmm_fails = HYPERVISOR_PENDING;
    go_on();
    expect_row(DRIVE_REMOVING, false, STATUS_FAILED_PRECONDITION);
    attach(); /* the same: it joins, and hears what the attach came to */
    go_on();
    expect_answer(2, STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
}

/* Another client of the monitor is soon done. */
static void a_busy_monitor_is_waited_for(void **state)
{
    attach();
    for (unsigned i = 0; i < 4; i++) {
        world.vmm_fails = HYPERVISOR_BUSY;
        go_on();
        assert_int_equal(world.answers, 0);
        while (i == 0 && !drives_are_due(world.drives)) /* by itself */
            loop_run_once(&world.node.loop);
        drives_retry(world.drives);
    }
    world.vmm_fails = HYPERVISOR_BUSY;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the VMM does not");
    world.walked[0] = '\0';
    drives_note_sandbox(world.drives, "sandbox-1"); /* as each sweep does: the pause is not over */
    go_on();
    expect_walked("");
    try_again();
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* The guest is looked at before each attempt to mount the drive, and unmounts it before each to
 * take it out: that works, and the attempts become rarer all the same. */
static void pauses_become_longer_though_other_acts_succeed(void **state)
{
    for (unsigned is_detached = 0; is_detached < 2; is_detached++) {
        begin_anew();
        world.opens_path = world.makes_serial = is_detached;
        attach();
        if (is_detached) {
            go_on();
            detach();
        }
        for (unsigned i = 1; i < 5; i++) {
            world.walked[0] = '\0';
            if (is_detached)
                step_until(VMM_CALL, HYPERVISOR_DETACH);
            else
                step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
            assert_non_null(strstr(world.walked, is_detached ? "unmount " : "ask "));
            world.vmm_fails = is_detached ? HYPERVISOR_PENDING : HYPERVISOR_DONE;
            world.guest_fails = is_detached ? STATUS_OK : STATUS_UNAVAILABLE;
            (void)step();
            assert_true(world.drives->works->next_ns > 0);
            assert_int_equal(world.drives->works->failures, i); /* so much longer is the pause */
            drives_retry(world.drives);
        }
        go_on();
        expect_row(is_detached ? DRIVE_REMOVED : DRIVE_READY, !is_detached, STATUS_OK);
    }
}

static void a_guest_that_takes_its_time_is_asked_again_at_once(void **state)
{
    attach();
    step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
    world.drives->works->deadline_ns = 1; /* it has used all of it */
    world.guest_fails = STATUS_DEADLINE_EXCEEDED;
    (void)step();
    assert_int_equal(world.answers, 0);
    assert_non_null(world.guest_call);
    go_on();
    expect_answer(1, STATUS_OK, "");
}

/* ---- detaches ---- */

/* It is unmounted, and a namespace in the guest has it still: that goes on. Nor does it count as an
 * attach that failed, although it may never have been ready. */
static void a_disk_that_only_a_namespace_has_goes_on_its_way_out(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    for (unsigned was_ready = 0; was_ready < 2; was_ready++) {
        attach();
        step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
        if (was_ready)
            go_on();
        detach();
        step_until(GUEST_CALL, DRIVE_CLIENT_UNMOUNT);
        world.guest_fails = STATUS_FAILED_PRECONDITION;
        world.mounted = false;
        go_on();
        expect_answer(world.answers, STATUS_FAILED_PRECONDITION, "77 (cat)");
        expect_row(DRIVE_UNMOUNTING, false, STATUS_UNAVAILABLE);
        assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
        detach();
        go_on();
        expect_answer(3 * (was_ready + 1), STATUS_OK, "");
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
    }
}

/* Its record was lost: what is mounted is not taken from under the guest. */
static void a_disk_that_is_not_on_record_is_unmounted_first(void **state)
{
    for (unsigned is_detached = 0; is_detached < 2; is_detached++) {
        world.vmm = HYPERVISOR_DRIVE_PRESENT;
        world.mounted = true;
        attach();
        pass_while_due();
        if (is_detached)
            detach();
        go_on();
        expect_walked("look unmount remove ");
        if (is_detached)
            expect_row(DRIVE_REMOVED, false, STATUS_OK);
        else
            expect_failed(STATUS_FAILED_PRECONDITION, "not on record");
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    }
    bring_in();
}

static void a_disk_that_is_not_on_record_stays_while_it_is_used(void **state)
{
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    world.mounted = world.busy = true;
    attach();
    go_on();
    expect_answer(1, STATUS_FAILED_PRECONDITION, "77 (cat) has it");
    for (unsigned i = 0; i < 2; i++) {
        expect_walked("look unmount ask ");
        expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
        restart();
        go_on();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(an_attach_that_fails_is_unwound_or_tried_again),
        DRIVES(an_open_that_hangs_is_begun_once),
        DRIVES(a_disk_that_another_vm_took_while_crustd_was_down_is_given_back),
        DRIVES(a_mount_from_before_the_attach_does_not_count),
        DRIVES(a_failed_unwinding_is_tried_again),
        DRIVES(a_busy_monitor_is_waited_for),
        DRIVES(pauses_become_longer_though_other_acts_succeed),
        DRIVES(a_guest_that_takes_its_time_is_asked_again_at_once),
        DRIVES(a_disk_that_only_a_namespace_has_goes_on_its_way_out),
        DRIVES(a_disk_that_is_not_on_record_is_unmounted_first),
        DRIVES(a_disk_that_is_not_on_record_stays_while_it_is_used),
    };

    return cmocka_run_group_tests_name("drives_failures", tests, NULL, NULL);
}
