/* SPDX-License-Identifier: Apache-2.0 */
/* drives_returning_test.c - drives of a VMM that tells its guest nothing: the guest removes the
 * device itself, and a scan of its bus brings it back while the VMM has it. And which acts of a
 * VM's drives wait for each other. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

static void bring_in_returning(void)
{
    world.opens_path = world.makes_serial = true;
    bring_in();
}

static void let_the_removal_begin(void)
{
    step_until(VMM_CALL, HYPERVISOR_DETACH);
    world.vmm_fails = HYPERVISOR_PENDING;
    go_on();
}

static void the_guest_removes_it_before_each_attempt(void **state)
{
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

/* The VMM has begun to remove it, and the guest has mounted it once more. */
static void a_refusal_after_the_removal_has_begun_is_no_hurry(void **state)
{
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
    try_again();
    expect_walked("unmount remove ");
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

static void crustd_may_end_after_the_guest_has_removed_it(void **state)
{
    bring_in_returning();
    detach();
    step_until(VMM_CALL, HYPERVISOR_DETACH);
    restart();
    go_on();
    expect_walked("unmount look unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* Another drive's mount may have brought in one that was never mounted. */
static void a_drive_that_was_never_mounted_is_removed_by_the_guest_too(void **state)
{
    attach_without_serial();
    step_until(GUEST_CALL, DRIVE_CLIENT_LIST);
    detach();
    go_on();
    expect_walked("look ask attach unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* It had not begun to answer, or could not list a disk for a moment. */
static void whether_a_guest_has_an_agent_is_found_out_again(void **state)
{
    for (unsigned is_restarted = 0; is_restarted < 2; is_restarted++) {
        begin_anew();
        attach_without_serial();
        world.lacks_agent = true;
        step_until(VMM_CALL, HYPERVISOR_DETACH);
        expect_walked("look ask attach ask ");
        if (is_restarted) {
            restart();
            go_on();
            expect_walked("look unmount ask remove ");
        } else {
            world.vmm_fails = HYPERVISOR_PENDING;
            go_on();
            world.lacks_agent = false;
            try_again();
            expect_walked("remove unmount remove ");
        }
        expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
    }
}

/* ---- a guest that does not answer ---- */

static void be_silent(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        step_until(GUEST_CALL, DRIVE_CLIENT_UNMOUNT);
        world.guest_fails = i % 2 ? STATUS_DEADLINE_EXCEEDED : STATUS_UNAVAILABLE;
        go_on();
        drives_retry(world.drives);
    }
}

/* Nor would it ever let go of the host's disk. */
static void a_silent_guest_keeps_no_drive_that_it_does_not_have_mounted(void **state)
{
    attach_without_serial();
    step_until(GUEST_CALL, DRIVE_CLIENT_LIST);
    detach();
    be_silent(4);
    step_until(GUEST_CALL, DRIVE_CLIENT_UNMOUNT);
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

/* A mount would bring back a drive that has left the guest and not yet the VMM. And of any VMM:
 * guests that answer nothing leave slots to others, so each is asked about one drive at a time. */
static void acts_wait_for_those_of_another_drive(void **state)
{
    static const struct {
        bool makes_serial;
        unsigned other;
        enum drive_step step; /* of the other drive's act */
        bool guest_unmounted; /* the other drive */
        unsigned act;
        bool is_of_another_vm, may_start;
    } cases[] = {
        {true, DRIVE_UNMOUNT, DRIVE_IDLE, false, DRIVE_MOUNT, false, true},
        {true, DRIVE_UNMOUNT, DRIVE_RUNNING, false, DRIVE_MOUNT, false, false},
        {true, DRIVE_UNMOUNT, DRIVE_RUNNING, false, DRIVE_ENTER, false, false},
        {true, DRIVE_UNMOUNT, DRIVE_RUNNING, false, DRIVE_UNMOUNT, false, true},
        {true, DRIVE_UNMOUNT, DRIVE_IDLE, true, DRIVE_MOUNT, false, false},
        {true, DRIVE_UNMOUNT, DRIVE_IDLE, true, DRIVE_MOUNT, true, true},
        {false, DRIVE_MOUNT, DRIVE_RUNNING, false, DRIVE_UNMOUNT, false, true},
        {true, DRIVE_MOUNT, DRIVE_RUNNING, false, DRIVE_UNMOUNT, false, false},
        {true, DRIVE_MOUNT, DRIVE_RUNNING, false, DRIVE_REMOVE, false, false},
        {true, DRIVE_MOUNT, DRIVE_FINISHED, false, DRIVE_UNMOUNT, false, true},
        {false, DRIVE_ENTER, DRIVE_RUNNING, false, DRIVE_ENTER, false, false},
        {false, DRIVE_ENTER, DRIVE_RUNNING, false, DRIVE_LOOK_GUEST, false, false},
        {false, DRIVE_ENTER, DRIVE_RUNNING, false, DRIVE_MOUNT, false, true},
        {false, DRIVE_ENTER, DRIVE_RUNNING, false, DRIVE_ENTER, true, true},
    };
    struct drive_work *other = add_work(1, DRIVE_DO_NOTHING), *work = add_work(2, DRIVE_DO_NOTHING);

    for (size_t i = 0; i < array_length(cases); i++) {
        world.makes_serial = cases[i].makes_serial;
        other->act = cases[i].other;
        other->step = cases[i].step;
        other->guest_unmounted = cases[i].guest_unmounted;
        (void)strcpy(work->sandbox_id, cases[i].is_of_another_vm ? "sandbox-2" : "sandbox-1");
        expect_slot(work, cases[i].act, cases[i].may_start);
    }
}

/* Drive 7 is being mounted, drive 8 is to be, and the real one is to leave. Mounts that begin
 * before others have ended would keep it in for ever; and they go on if somebody else takes it out.
 */
static void a_removal_that_waits_is_before_other_mounts(void **state)
{
    for (unsigned is_needed = 0; is_needed < 2; is_needed++) {
        struct drive_work *mounting, *next;

        begin_anew();
        bring_in_returning();
        mounting = add_work(7, DRIVE_MOUNT);
        next = add_work(8, DRIVE_DO_NOTHING);
        mounting->due = next->due = false;
        mounting->step = DRIVE_RUNNING;
        detach();
        go_on();
        expect_walked("");
        expect_slot(next, DRIVE_MOUNT, false);
        expect_slot(next, DRIVE_ENTER, false);
        if (is_needed) {
            mounting->step = DRIVE_IDLE;
            drives_give_slots(world.drives);
        } else {
            world.vmm = HYPERVISOR_DRIVE_ABSENT;
            world.drives->works->vmm = DRIVE_IN_VMM_ABSENT;
            drive_work_hurry(world.drives->works);
        }
        go_on();
        expect_walked(is_needed ? "unmount remove " : "");
        expect_slot(next, DRIVE_MOUNT, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(the_guest_removes_it_before_each_attempt),
        DRIVES(a_refusal_after_the_removal_has_begun_is_no_hurry),
        DRIVES(crustd_may_end_after_the_guest_has_removed_it),
        DRIVES(a_drive_that_was_never_mounted_is_removed_by_the_guest_too),
        DRIVES(whether_a_guest_has_an_agent_is_found_out_again),
        DRIVES(a_silent_guest_keeps_no_drive_that_it_does_not_have_mounted),
        DRIVES(a_silent_guest_keeps_what_it_has_mounted),
        DRIVES(acts_wait_for_those_of_another_drive),
        DRIVES(a_removal_that_waits_is_before_other_mounts),
    };

    return cmocka_run_group_tests_name("drives that may return", tests, NULL, NULL);
}
