/* SPDX-License-Identifier: Apache-2.0 */
/* drives_ahead_test.c - what is done for a new drive while its VMM is looked at: its disk is
 * claimed and its users are searched for. And an attach that goes on in the look's conversation. */
#include "tests/unit/reconciler/drive/drives_world.h"

/* The disk has been claimed, the search runs, and the VMM has not answered. */
static void claim_ahead(void)
{
    attach();
    pass_while_due();
    assert_non_null(world.vmm_call);
    finish(TRAITS_CALL);
    open_disks();
    assert_non_null(world.vmm_call);
}

static void vmm_is_looked_at(void)
{
    act(VMM_CALL);
    finish(VMM_CALL);
}

static bool has_disk_open(void)
{
    struct pollfd end = {.fd = world.claimed};

    return world.claimed >= 0 && poll(&end, 1, 0) == 0;
}

static bool has_disk_on_record(void)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    return row.has_disk;
}

/* What was begun ahead has ended. */
static void expect_nothing_ahead(void)
{
    assert_false(has_disk_open());
    assert_null(world.search);
    assert_int_equal(world.kept_calls, 0);
}

static void attach_is_refused(const char *text)
{
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, text);
    expect_nothing_ahead();
}

static void the_disk_is_claimed_and_searched_for_meanwhile(void **state)
{
    (void)state;
    claim_ahead();
    assert_true(has_disk_open());
    assert_false(has_disk_on_record());
    finish(SEARCH_CALL);
    vmm_is_looked_at();
    assert_int_equal(world.kept_calls, 1);
    pass_while_due();
    assert_true(has_disk_on_record());
    assert_null(world.search);
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("look ask attach mount ");
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.went_on, 1);
    assert_int_equal(world.kept_calls, 0);
}

static void an_attach_waits_for_a_search_that_was_begun_ahead(void **state)
{
    (void)state;
    claim_ahead();
    vmm_is_looked_at();
    pass_while_due();
    act(GUEST_CALL);
    finish(GUEST_CALL);
    pass_while_due();
    assert_null(world.vmm_call);
    finish(SEARCH_CALL);
    assert_non_null(world.vmm_call);
    go_on();
    expect_answer(1, STATUS_OK, "");
}

/* A claim that has not been made when the VMM has answered is waited for. */
static void a_claim_begun_ahead_is_not_begun_again(void **state)
{
    (void)state;
    attach();
    pass_while_due();
    vmm_is_looked_at();
    pass_while_due();
    assert_int_equal(world.opens, 0);
    go_on();
    expect_answer(1, STATUS_OK, "");
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.went_on, 1);
}

static void a_conversation_that_has_ended_is_begun_again(void **state)
{
    (void)state;
    claim_ahead();
    world.leaves = true;
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("look ask attach mount ");
    assert_int_equal(world.went_on, 0);
    assert_int_equal(world.kept_calls, 0);
}

static void a_disk_that_others_have_is_refused_by_the_attach(void **state)
{
    (void)state;
    world.other_has_disk = true;
    claim_ahead();
    finish(SEARCH_CALL);
    assert_int_equal(world.answers, 0);
    attach_is_refused("sandbox-9");
}

/* Of two drives that are attached at the same time, one finds the other on record, although
 * neither had the disk when the processes were searched. */
static void the_record_is_searched_last(void **state)
{
    (void)state;
    claim_ahead();
    finish(SEARCH_CALL);
    world.other_has_record = true;
    attach_is_refused("sandbox-8");
}

static void a_confidential_guest_is_refused(void **state)
{
    (void)state;
    world.confidential = true;
    claim_ahead();
    assert_int_equal(world.opens, 0);
    assert_int_equal(world.answers, 0);
    attach_is_refused("confidential");
}

static void a_vmm_that_does_not_answer_costs_the_claim(void **state)
{
    (void)state;
    claim_ahead();
    assert_true(has_disk_open());
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    vmm_is_looked_at();
    expect_nothing_ahead();
    pass_while_due();
    drives_retry(world.drives);
    pass_while_due();
    assert_non_null(world.vmm_call);
    assert_null(world.traits); /* the claim would hinder others again and again */
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* The VM has a disk of this name whose row was lost: that is removed, and nothing is attached. */
static void a_stray_costs_the_claim(void **state)
{
    (void)state;
    claim_ahead();
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    attach_is_refused("not on record");
    assert_int_equal(world.went_on, 0);
}

static void a_stray_costs_the_claim_if_the_pass_fails_too(void **state)
{
    (void)state;
    claim_ahead();
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    vmm_is_looked_at();
    assert_true(has_disk_open());
    drives_roll_back(world.drives, "it is full");
    expect_nothing_ahead();
}

static void a_detach_ends_what_was_begun_ahead(void **state)
{
    (void)state;
    claim_ahead();
    detach();
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    expect_nothing_ahead();
}

static void the_end_of_the_vm_ends_what_was_begun_ahead(void **state)
{
    (void)state;
    claim_ahead();
    end_vm();
    go_on();
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
    expect_nothing_ahead();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(the_disk_is_claimed_and_searched_for_meanwhile),
        DRIVES(an_attach_waits_for_a_search_that_was_begun_ahead),
        DRIVES(a_claim_begun_ahead_is_not_begun_again),
        DRIVES(a_conversation_that_has_ended_is_begun_again),
        DRIVES(a_disk_that_others_have_is_refused_by_the_attach),
        DRIVES(the_record_is_searched_last),
        DRIVES(a_confidential_guest_is_refused),
        DRIVES(a_vmm_that_does_not_answer_costs_the_claim),
        DRIVES(a_stray_costs_the_claim),
        DRIVES(a_stray_costs_the_claim_if_the_pass_fails_too),
        DRIVES(a_detach_ends_what_was_begun_ahead),
        DRIVES(the_end_of_the_vm_ends_what_was_begun_ahead),
    };

    return cmocka_run_group_tests_name("drives ahead", tests, NULL, NULL);
}
