/* SPDX-License-Identifier: Apache-2.0 */
/* drives_failures_test.c - attaches that fail: for good and unwound, or tried again. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include "reconciler/drive/drive_work.h"

static void a_disk_that_cannot_be_had_fails_the_attach(void **state)
{
    static const enum status_code codes[] = {
        [DRIVE_CLAIM_OUTSIDE] = STATUS_PERMISSION_DENIED,
        [DRIVE_CLAIM_MISSING] = STATUS_NOT_FOUND,
        [DRIVE_CLAIM_UNSUITABLE] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_READ_ONLY] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_IN_USE] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_TAKEN] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_FORBIDDEN] = STATUS_FAILED_PRECONDITION,
    };

    (void)state;
    for (enum drive_claim_outcome i = DRIVE_CLAIM_OUTSIDE; i < array_length(codes); i++) {
        world.claim = i;
        world.answers = 0;
        attach();
        go_on();
        expect_failed(codes[i], "the disk cannot be had");
    }
}

/* Network storage that is gone: open(2) does not return. */
static void an_open_that_hangs_is_begun_once(void **state)
{
    (void)state;
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

static void a_confidential_guest_gets_no_disk(void **state)
{
    (void)state;
    world.confidential = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "confidential");
    expect_walked("look ");
}

/* Parts that were left under a row that was lost are no reason to ask less. */
static void a_disk_is_claimed_though_the_vmm_has_parts_of_it(void **state)
{
    (void)state;
    world.opens_path = true;
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    world.confidential = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "confidential");
    expect_walked("look remove ");
}

/* Nothing was brought into it, and nobody can ask it whether that is so. */
static void a_vm_without_a_monitor_fails_the_attach(void **state)
{
    (void)state;
    attach();
    for (unsigned i = 0; running_call() || drives_are_due(world.drives); i++) {
        assert_true(i < 20);
        world.vmm_fails = HYPERVISOR_DRIVE_MONITOR_MISSING; /* whatever it is asked */
        (void)step();
    }
    expect_failed(STATUS_FAILED_PRECONDITION, "the VMM does not");
    expect_walked("look ");
    assert_true(drives_are_idle(world.drives));
}

static void a_disk_that_another_vm_has_is_not_attached(void **state)
{
    (void)state;
    world.other_has_disk = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "sandbox-9 has the disk");
    expect_walked("look ask ");
}

static void a_disk_that_another_vm_took_while_crustd_was_down_is_given_back(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    act(VMM_CALL);
    restart();
    world.other_has_disk = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "sandbox-9 has the disk");
    expect_walked("look ask attach look remove ");
}

static void a_mount_that_fails_is_unwound(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_INVALID_ARGUMENT;
    go_on();
    expect_failed(STATUS_INVALID_ARGUMENT, "the guest does not");
    expect_walked("look ask attach mount unmount remove ");
}

static void a_vm_whose_guest_has_no_agent_is_not_given_the_disk(void **state)
{
    (void)state;
    world.lacks_agent = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_walked("look ask ");
}

static void a_vm_whose_guest_does_not_answer_is_not_given_the_disk(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_LOOK);
    world.guest_fails = STATUS_UNAVAILABLE;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the guest does not");
    expect_row(DRIVE_REQUESTED, true, STATUS_UNAVAILABLE);
    expect_walked("look ask ");
    drives_retry(world.drives);
    go_on();
    expect_walked("ask attach mount ");
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* Nobody was asked to mount it, so it can be taken back although nobody answers. */
static void a_guest_that_has_lost_its_agent_gives_the_disk_back(void **state)
{
    (void)state;
    attach_without_address();
    step_until(GUEST_CALL, DRIVE_GUEST_LOOK);
    world.guest_fails = STATUS_UNIMPLEMENTED;
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_walked("look ask attach ask remove ");
}

/* What it has under the drive's serial is not the disk that has just come. */
static void a_mount_from_before_the_attach_does_not_count(void **state)
{
    (void)state;
    world.mounted = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    world.mounted = false;
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("look ask attach ask mount ");
}

static void a_mount_from_before_the_attach_is_not_lost_with_it(void **state)
{
    (void)state;
    world.mounted = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    world.vmm_fails = HYPERVISOR_DRIVE_REFUSED;
    go_on();
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
    expect_walked("look ask attach ");
}

/* It was asked before the VM had the disk, and did not speak of that. */
static void a_guest_that_has_not_answered_before_the_attach_is_asked_again(void **state)
{
    (void)state;
    world.opens_path = true;
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_LOOK);
    act(VMM_CALL);
    finish(VMM_CALL);
    pass_while_due();
    finish(TRAITS_CALL);
    pass_while_due();
    finish(SEARCH_CALL);
    assert_null(world.guest_call); /* it could answer before the next pass */
    act(VMM_CALL);
    finish(VMM_CALL);
    pass_while_due();
    assert_string_equal(world.asked_address, address_of_drive());
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("look attach ask mount ");
}

static void an_attach_that_cannot_be_unmounted_is_answered(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    (void)step();
    step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
    world.guest_fails = STATUS_UNAVAILABLE;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the guest does not");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
}

/* The reason of the attach stays on record, whatever stands in the way of taking it out. */
static void a_failed_unwinding_is_tried_again(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    (void)step();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    world.vmm_fails = HYPERVISOR_DRIVE_PENDING;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the VMM does not");
    expect_row(DRIVE_REMOVING, false, STATUS_FAILED_PRECONDITION);
    attach(); /* the same: it joins, and hears what the attach came to */
    go_on();
    expect_answer(2, STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
}

static void a_failure_that_may_heal_is_reported_and_tried_again(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    attach();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the VMM does not");
    expect_row(DRIVE_REQUESTED, true, STATUS_UNAVAILABLE);
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    attach();
    go_on();
    expect_answer(2, STATUS_OK, "");
}

/* Another client of the monitor is soon done. */
static void a_busy_monitor_is_waited_for(void **state)
{
    (void)state;
    attach();
    for (unsigned i = 0; i < 4; i++) {
        world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
        go_on();
        assert_int_equal(world.answers, 0);
        drives_retry(world.drives);
    }
    world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "the VMM does not");
}

/* Sandboxes are observed at each sweep. */
static void news_of_a_sandbox_do_not_shorten_the_pause(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    attach();
    go_on();
    drives_note_sandbox(world.drives, "sandbox-1");
    go_on();
    expect_walked("look ");
    end_vm();
    go_on();
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

static void attempts_become_rarer_though_the_guest_is_looked_at(void **state)
{
    const struct drive_work *work = NULL;

    (void)state;
    attach();
    for (unsigned i = 1; i < 6; i++) {
        step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
        world.guest_fails = STATUS_UNAVAILABLE;
        (void)step();
        work = world.drives->works;
        assert_int_equal(work->failures, i);
        drives_retry(world.drives);
    }
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_int_equal(work->failures, 0);
}

static void a_guest_that_takes_its_time_is_asked_again_at_once(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.drives->works->deadline_ns = 1; /* it has used all of it */
    world.guest_fails = STATUS_DEADLINE_EXCEEDED;
    (void)step();
    assert_int_equal(world.answers, 0);
    assert_non_null(world.guest_call);
    go_on();
    expect_answer(1, STATUS_OK, "");
}

static void an_attempt_is_due_after_a_while(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
    attach();
    go_on();
    while (!drives_are_due(world.drives))
        loop_run_once(&world.node.loop);
    go_on();
    expect_answer(1, STATUS_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_disk_that_cannot_be_had_fails_the_attach),
        DRIVES(an_open_that_hangs_is_begun_once),
        DRIVES(a_confidential_guest_gets_no_disk),
        DRIVES(a_disk_is_claimed_though_the_vmm_has_parts_of_it),
        DRIVES(a_vm_without_a_monitor_fails_the_attach),
        DRIVES(a_disk_that_another_vm_has_is_not_attached),
        DRIVES(a_disk_that_another_vm_took_while_crustd_was_down_is_given_back),
        DRIVES(a_mount_that_fails_is_unwound),
        DRIVES(a_vm_whose_guest_has_no_agent_is_not_given_the_disk),
        DRIVES(a_vm_whose_guest_does_not_answer_is_not_given_the_disk),
        DRIVES(a_guest_that_has_lost_its_agent_gives_the_disk_back),
        DRIVES(a_mount_from_before_the_attach_does_not_count),
        DRIVES(a_mount_from_before_the_attach_is_not_lost_with_it),
        DRIVES(a_guest_that_has_not_answered_before_the_attach_is_asked_again),
        DRIVES(an_attach_that_cannot_be_unmounted_is_answered),
        DRIVES(a_failed_unwinding_is_tried_again),
        DRIVES(a_failure_that_may_heal_is_reported_and_tried_again),
        DRIVES(a_busy_monitor_is_waited_for),
        DRIVES(news_of_a_sandbox_do_not_shorten_the_pause),
        DRIVES(attempts_become_rarer_though_the_guest_is_looked_at),
        DRIVES(a_guest_that_takes_its_time_is_asked_again_at_once),
        DRIVES(an_attempt_is_due_after_a_while),
    };

    return cmocka_run_group_tests_name("drives_failures", tests, NULL, NULL);
}
