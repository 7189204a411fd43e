/* SPDX-License-Identifier: Apache-2.0 */
/* drives_returning_test.c - drives of a VMM that tells its guest nothing: the guest removes the
 * device itself, and a scan of its bus brings it back while the VMM has it. And which acts of a
 * VM's drives wait for each other. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include "reconciler/drive/drive_work.h"

static void bring_in_returning(void)
{
    world.opens_path = world.makes_serial = true;
    bring_in();
    world.walked[0] = '\0';
}

static void let_the_removal_begin(void)
{
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    world.vmm_fails = HYPERVISOR_DRIVE_PENDING;
    go_on();
}

static void the_guest_removes_it_before_each_attempt(void **state)
{
    (void)state;
    bring_in_returning();
    detach();
    let_the_removal_begin();
    expect_answer(2, STATUS_UNAVAILABLE, "the VMM does not");
    expect_walked("unmount remove ");
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* Each attempt waits longer than the last, although the guest obeys each time. */
static void attempts_become_rarer(void **state)
{
    const struct drive_work *work;

    (void)state;
    bring_in_returning();
    detach();
    for (unsigned i = 0; i < 3; i++) {
        let_the_removal_begin();
        drives_retry(world.drives);
    }
    work = world.drives->works;
    assert_int_equal(work->failures, 3);
}

/* The VMM has begun to remove it, and the guest has mounted it once more. */
static void a_refusal_after_the_removal_has_begun_is_no_hurry(void **state)
{
    (void)state;
    bring_in_returning();
    detach();
    let_the_removal_begin();
    world.mounted = world.busy = true;
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_answer(3, STATUS_FAILED_PRECONDITION, "77 (cat)");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    expect_walked("unmount ask ");
    world.busy = false;
    drives_retry(world.drives);
    go_on();
    expect_walked("unmount remove ");
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

static void crustd_may_end_after_the_guest_has_removed_it(void **state)
{
    (void)state;
    bring_in_returning();
    detach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    restart();
    go_on();
    expect_walked("unmount look unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* kata-agent would look for it where another disk may be by now. */
static void an_address_that_is_not_known_any_more_is_forgotten(void **state)
{
    (void)state;
    bring_in_returning();
    detach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    go_on();
    world.hides_address = true;
    drives_retry(world.drives);
    go_on();
    expect_walked("unmount remove look unmount remove ");
}

/* Another drive's mount may have brought in one that was never mounted. */
static void a_drive_that_was_never_mounted_is_removed_by_the_guest_too(void **state)
{
    (void)state;
    world.opens_path = world.makes_serial = true;
    attach_without_address();
    step_until(GUEST_CALL, DRIVE_GUEST_LOOK);
    detach();
    go_on();
    expect_walked("look ask attach unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void a_guest_without_an_agent_has_brought_nothing_back(void **state)
{
    (void)state;
    world.opens_path = world.makes_serial = true;
    attach_without_address();
    world.lacks_agent = true;
    go_on();
    expect_walked("look ask attach ask remove ");
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not");
}

static void that_a_guest_has_no_agent_is_found_out_again(void **state)
{
    (void)state;
    world.opens_path = world.makes_serial = true;
    attach_without_address();
    world.lacks_agent = true;
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    restart();
    go_on();
    expect_walked("look ask attach ask look unmount ask remove ");
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
}

/* Its agent had not begun to answer, or could not list a disk for a moment. */
static void each_removal_has_the_agent_asked_for_again(void **state)
{
    (void)state;
    world.opens_path = world.makes_serial = true;
    attach_without_address();
    world.lacks_agent = true;
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    world.vmm_fails = HYPERVISOR_DRIVE_PENDING;
    go_on();
    expect_walked("look ask attach ask remove ");
    world.lacks_agent = false;
    drives_retry(world.drives);
    go_on();
    expect_walked("unmount remove ");
}

/* ---- a guest that does not answer ---- */

static void be_silent(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
        world.guest_fails = i % 2 ? STATUS_DEADLINE_EXCEEDED : STATUS_UNAVAILABLE;
        go_on();
        drives_retry(world.drives);
    }
}

/* Nor would it ever let go of the host's disk. */
static void a_silent_guest_keeps_no_drive_that_it_does_not_have_mounted(void **state)
{
    (void)state;
    world.opens_path = world.makes_serial = true;
    attach_without_address();
    step_until(GUEST_CALL, DRIVE_GUEST_LOOK);
    detach();
    be_silent(4);
    step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
    expect_walked("look ask attach unmount unmount unmount unmount ");
    world.guest_fails = STATUS_FAILED_PRECONDITION; /* it answers */
    go_on();
    drives_retry(world.drives);
    be_silent(5);
    go_on();
    expect_walked("unmount ask unmount unmount unmount unmount unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void a_silent_guest_keeps_what_it_has_mounted(void **state)
{
    (void)state;
    bring_in_returning();
    detach();
    be_silent(6);
    expect_walked("unmount unmount unmount unmount unmount unmount ");
    assert_true(world.mounted);
    go_on();
    expect_walked("unmount remove ");
}

/* ---- and other drives of the same VM ---- */

static struct drive_work *add_work(int64_t drive_ref, unsigned act)
{
    struct drive_work *work = drive_work_add(world.drives, drive_ref, "sandbox-1");

    assert_non_null(work);
    work->sandbox.hypervisor = HYPERVISOR_QEMU;
    work->row.wanted = true;
    work->act = act;
    return work;
}

static void expect_slot(const struct drive_work *work, unsigned act, bool expected)
{
    struct drive_work asked = *work;

    asked.act = act;
    if (drives_have_slot(world.drives, &asked) != expected)
        fail_msg("act %u %s", act, expected ? "has no slot" : "has a slot");
}

/* A mount would bring back the first drive. */
static void no_drive_is_mounted_before_the_vmm_has_let_go_of_another(void **state)
{
    struct drive_work *leaving = add_work(1, DRIVE_UNMOUNT);
    struct drive_work *coming = add_work(2, DRIVE_DO_NOTHING);

    (void)state;
    world.makes_serial = true;
    expect_slot(coming, DRIVE_MOUNT, true);
    leaving->step = DRIVE_RUNNING;
    expect_slot(coming, DRIVE_MOUNT, false);
    expect_slot(coming, DRIVE_ENTER, false);
    expect_slot(coming, DRIVE_UNMOUNT, true);
    leaving->step = DRIVE_IDLE; /* unmounted; the removal follows */
    leaving->is_out_of_guest = true;
    expect_slot(coming, DRIVE_MOUNT, false);
    (void)strcpy(coming->sandbox_id, "sandbox-2");
    expect_slot(coming, DRIVE_MOUNT, true);
}

static void no_drive_is_unmounted_while_another_is_mounted(void **state)
{
    struct drive_work *coming = add_work(1, DRIVE_MOUNT);
    struct drive_work *leaving = add_work(2, DRIVE_DO_NOTHING);

    (void)state;
    coming->step = DRIVE_RUNNING;
    expect_slot(leaving, DRIVE_UNMOUNT, true); /* of another VMM */
    world.makes_serial = true;
    expect_slot(leaving, DRIVE_UNMOUNT, false);
    expect_slot(leaving, DRIVE_REMOVE, false);
    coming->step = DRIVE_FINISHED;
    expect_slot(leaving, DRIVE_UNMOUNT, true);
}

/* Drives 7 and 8: the first is being mounted, the second is to be. And the real one is to leave. */
static struct drive_work *let_it_wait_for_a_mount(struct drive_work **ret_next)
{
    struct drive_work *mounting;

    bring_in_returning();
    mounting = add_work(7, DRIVE_MOUNT);
    *ret_next = add_work(8, DRIVE_DO_NOTHING);
    mounting->due = (*ret_next)->due = false;
    mounting->step = DRIVE_RUNNING;
    detach();
    go_on();
    expect_walked("");
    return mounting;
}

/* Mounts that begin before others have ended would keep it in for ever. */
static void a_removal_that_waits_is_before_other_mounts(void **state)
{
    struct drive_work *next, *mounting = let_it_wait_for_a_mount(&next);

    (void)state;
    expect_slot(next, DRIVE_MOUNT, false);
    expect_slot(next, DRIVE_ENTER, false);
    mounting->step = DRIVE_IDLE;
    drives_give_slots(world.drives);
    go_on();
    expect_walked("unmount remove ");
    expect_slot(next, DRIVE_MOUNT, true);
}

/* Somebody else took it from the VM. */
static void a_removal_that_is_not_needed_lets_the_others_go_on(void **state)
{
    struct drive_work *next, *mounting = let_it_wait_for_a_mount(&next);

    (void)state;
    next->lacks_slot = true;
    assert_int_equal(mounting->step, DRIVE_RUNNING);
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.drives->works->vmm = DRIVE_IN_VMM_ABSENT;
    drive_work_hurry(world.drives->works);
    go_on();
    assert_false(next->lacks_slot);
    expect_slot(next, DRIVE_MOUNT, true);
}

/* Of any VMM: guests that answer nothing leave slots to others. */
static void a_guest_is_asked_about_one_drive_at_a_time(void **state)
{
    struct drive_work *asked = add_work(1, DRIVE_ENTER), *other = add_work(2, DRIVE_DO_NOTHING);

    (void)state;
    asked->step = DRIVE_RUNNING;
    expect_slot(other, DRIVE_ENTER, false);
    expect_slot(other, DRIVE_LOOK_GUEST, false);
    expect_slot(other, DRIVE_MOUNT, true);
    (void)strcpy(other->sandbox_id, "sandbox-2");
    expect_slot(other, DRIVE_ENTER, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(the_guest_removes_it_before_each_attempt),
        DRIVES(attempts_become_rarer),
        DRIVES(a_refusal_after_the_removal_has_begun_is_no_hurry),
        DRIVES(crustd_may_end_after_the_guest_has_removed_it),
        DRIVES(an_address_that_is_not_known_any_more_is_forgotten),
        DRIVES(a_drive_that_was_never_mounted_is_removed_by_the_guest_too),
        DRIVES(a_guest_without_an_agent_has_brought_nothing_back),
        DRIVES(that_a_guest_has_no_agent_is_found_out_again),
        DRIVES(each_removal_has_the_agent_asked_for_again),
        DRIVES(a_silent_guest_keeps_no_drive_that_it_does_not_have_mounted),
        DRIVES(a_silent_guest_keeps_what_it_has_mounted),
        DRIVES(no_drive_is_mounted_before_the_vmm_has_let_go_of_another),
        DRIVES(no_drive_is_unmounted_while_another_is_mounted),
        DRIVES(a_removal_that_waits_is_before_other_mounts),
        DRIVES(a_removal_that_is_not_needed_lets_the_others_go_on),
        DRIVES(a_guest_is_asked_about_one_drive_at_a_time),
    };

    return cmocka_run_group_tests_name("drives that may return", tests, NULL, NULL);
}
