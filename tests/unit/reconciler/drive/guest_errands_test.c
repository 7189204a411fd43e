/* SPDX-License-Identifier: Apache-2.0 */
/* guest_errands_test.c - a drive in a guest that has only kata-agent: the look, and what proves
 * that nobody has the disk. The checks before a mount are in guest_container_test.c. */
#include "reconciler/drive/guest_state.h"
#include "tests/unit/reconciler/drive/guest_container_scenery.h"

/* ---- looking ---- */

#define LOOK "--drive look --timeout 4 " SERIAL

static void a_drive_in_use_is_looked_at(void **state)
{
    (void)state;
    test.drive.state = DRIVE_READY;
    begin(DRIVE_GUEST_LOOK);
    expect_helper(LOOK " /vol/0", "/run/data");
    helper_prints("OK", "", "sda", true);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect_helper(LOOK, "");
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_AGENT_UNREACHABLE, false, "no answer");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
}

static void remains_of_a_helper_are_passed_on_once(void **state)
{
    struct helper_outcome outcome = {.reason = REASON_HELPER_FAILED, .left = true};

    (void)state;
    (void)error_set(&outcome.removal_error, 0, "busy");
    test.drive.state = DRIVE_READY;
    begin(DRIVE_GUEST_LOOK);
    helper_ends(&outcome);
    assert_int_equal(test.leftovers, 1);
    begin(DRIVE_GUEST_LOOK);
    helper_prints("OK", "", "sda", true);
    assert_int_equal(test.leftovers, 1);
}

/* The VM has ended, or crustd has another database. */
static void a_helper_that_runs_on_is_passed_on_with_its_record(void **state)
{
    (void)state;
    test.drive.state = DRIVE_READY;
    begin(DRIVE_GUEST_LOOK);
    test.call = drive_guest_call_free(test.call);
    assert_int_equal(test.passed_on, 1);
    test.helper_name = ""; /* it is not on record yet */
    begin(DRIVE_GUEST_LOOK);
    test.call = drive_guest_call_free(test.call);
    assert_int_equal(test.leftovers, 1);
}

/* A guest that is short of memory for a moment does not have the drive mounted anew. */
static void a_drive_that_is_held_is_not_missed(void **state)
{
    (void)state;
    test.drive.state = DRIVE_READY;
    tree_make(HELD);
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_HELPER_FAILED, true, "ENOMEM");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "ENOMEM");
}

static void a_mount_that_was_not_answered_is_not_believed(void **state)
{
    (void)state;
    tree_make(HELD);
    begin(DRIVE_GUEST_LOOK);
    assert_null(test.helper);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

/* ---- unmounting ---- */

#define PROVE "--drive prove --timeout 4 " SERIAL

static void begin_unmount(void)
{
    if (!tree_has(HELD))
        tree_make(HELD);
    begin(DRIVE_GUEST_UNMOUNT);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    assert_true(tree_has(HELD));
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    assert_false(tree_has(HELD));
    expect_helper(PROVE, "");
}

static void an_unmount_removes_the_container_and_proves_it(void **state)
{
    (void)state;
    begin_unmount();
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    expect_helper(PROVE " /vol/0", "/dev/sda");
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static void a_disk_that_is_not_there_is_nobodys(void **state)
{
    (void)state;
    begin_unmount();
    helper_prints("OK", "", "", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static void prove_that_it_is_busy(void)
{
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    helper_prints("FAILED_PRECONDITION", "somebody in the guest still has the disk", "sda", false);
}

static void expect_release(void)
{
    expect_helper("--drive release --timeout 4 " SERIAL " /run/data", "");
    assert_true(test.in_mounts_of_agent);
}

/* What is mounted does not have to be known to kata-agent, but here it is in use. */
static void begin_busy_unmount(void)
{
    begin_unmount();
    prove_that_it_is_busy();
    if (!test.helper)
        return;
    expect_release();
    helper_prints("FAILED_PRECONDITION", "somebody in the guest has the disk", "sda", true);
}

static void a_mount_that_the_agent_has_forgotten_is_released(void **state)
{
    (void)state;
    begin_unmount();
    assert_false(test.in_mounts_of_agent);
    prove_that_it_is_busy();
    expect_release();
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    assert_null(test.container);
}

static void a_release_that_cannot_be_leaves_the_drive_as_it_was(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        begin_unmount();
        prove_that_it_is_busy();
        if (i == 0)
            helper_fails(REASON_AGENT_POLICY_DENIED, true, "denied");
        else if (i == 1)
            helper_fails(REASON_HELPER_WRONG_ARCHITECTURE, false, "cannot be executed");
        else
            helper_ends(&(struct helper_outcome){.line = "nonsense"});
        assert_int_equal(test.request.act, CONTAINER_HOLD);
        container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true},
                       LINE("OK", ""));
        expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "still has the disk: end");
    }
}

/* kata-agent has forgotten the mount, which was busy. */
static void a_disk_that_somebody_has_is_held_again(void **state)
{
    (void)state;
    test.drive.request.has_fs_group = true;
    begin_busy_unmount();
    assert_int_equal(test.ends, 0);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_string_equal(test.storage.address, "scsi:255:3");
    assert_string_equal(test.mount_point, "/run/data"); /* kata-agent takes over the mount */
    assert_null(strstr(test.container_arguments, "--fs-group")); /* it has been given */
    assert_true(tree_has(HELD "/agent"));
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED,
           "still has the disk: end what uses it");
    assert_true(tree_has(HELD));
}

/* The guest may have taken its directory for the one that was just removed. */
static void a_refused_container_holds_the_disk_at_its_second_try(void **state)
{
    (void)state;
    begin_busy_unmount();
    container_ends((struct container_reply){.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE},
                   "");
    wait_for_second_container();
    assert_string_equal(test.mount_point, "/run/data");
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "still has the disk");
    assert_true(tree_has(HELD));
}

static void holding_again_has_a_time_of_its_own(void **state)
{
    (void)state;
    begin_unmount();
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    test.call->ends_at = 0; /* a slow guest has used all of it */
    helper_prints("FAILED_PRECONDITION", "somebody in the guest still has the disk", "sda", false);
    helper_prints("FAILED_PRECONDITION", "somebody in the guest still has the disk", "sda", true);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_true(test.request.total_ns > 1 && test.request.step_ns > 1);
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "still has the disk");
}

static void a_disk_that_cannot_be_held_again(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    begin_busy_unmount();
    container_ends(reply, "");
    wait_for_second_container();
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_false(tree_has(HELD));
    begin_busy_unmount();
    container_ends(reply, "");
    test.program_result = HELPER_PROGRAM_MISSING;
    while (!test.ends)
        loop_run_once(&test.node.loop);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    test.program_result = HELPER_PROGRAM_OK;
    begin_busy_unmount();
    reply.left = true;
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_true(tree_has(HELD));
    begin_busy_unmount();
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true},
                   LINE("FAILED_PRECONDITION", "another disk than the drive's was mounted"));
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_false(tree_has(HELD));
    test.at = "";
    begin_busy_unmount();
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
}

static void a_container_that_cannot_be_removed_is_kept_on_the_share(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_TIMED_OUT, .left = true};

    (void)state;
    (void)error_set(&reply.error, 0, "RemoveContainer: no answer");
    tree_make(HELD);
    begin(DRIVE_GUEST_UNMOUNT);
    container_ends(reply, "");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
    assert_true(tree_has(HELD));
}

static void a_drive_without_a_container_is_proved_free_all_the_same(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_UNMOUNT);
    assert_null(test.container);
    expect_helper(PROVE, "");
    helper_prints("OK", "", "", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

/* Of a drive that containers have: crust-guest-agent is away for a moment only, and what
 * kata-agent has mounted as well it could not unmount. */
static void what_containers_have_is_left_to_the_agent(void **state)
{
    char containers[] = "[{\"container_id\":\"c1\",\"path\":\"/in\",\"sub_path\":\"\"}]";

    (void)state;
    test.drive.request.containers = containers;
    begin(DRIVE_GUEST_UNMOUNT);
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    helper_prints("FAILED_PRECONDITION", "somebody in the guest still has the disk", "sda", false);
    assert_null(test.container);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "only crust-guest-agent");
    assert_false(tree_has(HELD));
    begin_busy_unmount(); /* one that kata-agent has got all the same */
    assert_null(test.container);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "only crust-guest-agent");
    assert_false(tree_has(HELD));
    begin(DRIVE_GUEST_UNMOUNT); /* never mounted, in a guest without it */
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_drive_in_use_is_looked_at),
        TEST(remains_of_a_helper_are_passed_on_once),
        TEST(a_helper_that_runs_on_is_passed_on_with_its_record),
        TEST(a_drive_that_is_held_is_not_missed),
        TEST(a_mount_that_was_not_answered_is_not_believed),
        TEST(an_unmount_removes_the_container_and_proves_it),
        TEST(a_disk_that_is_not_there_is_nobodys),
        TEST(a_mount_that_the_agent_has_forgotten_is_released),
        TEST(a_release_that_cannot_be_leaves_the_drive_as_it_was),
        TEST(a_disk_that_somebody_has_is_held_again),
        TEST(a_refused_container_holds_the_disk_at_its_second_try),
        TEST(holding_again_has_a_time_of_its_own),
        TEST(a_disk_that_cannot_be_held_again),
        TEST(a_container_that_cannot_be_removed_is_kept_on_the_share),
        TEST(a_drive_without_a_container_is_proved_free_all_the_same),
        TEST(what_containers_have_is_left_to_the_agent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
