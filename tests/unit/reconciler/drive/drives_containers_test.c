/* SPDX-License-Identifier: Apache-2.0 */
/* drives_containers_test.c - drives that containers have as well: none is ready without them, and
 * one that is restarted gets it again. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include "reconciler/drive/drive_work.h"

static void attach_with_container(void)
{
    static const struct reconciler_drive_container container = {"c1", "/in", "", false};
    struct reconciler_drive_attach asked = attach_of("data-1");

    asked.containers = 1;
    asked.container = &container;
    assert_int_equal(begin_attach(&asked), STATUS_OK);
}

static void bring_in_with_container(void)
{
    attach_with_container();
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_row(DRIVE_READY, true, STATUS_OK);
    world.walked[0] = '\0';
}

static void the_sandbox_changes(void)
{
    drives_note_sandbox(world.drives, "sandbox-1");
    go_on();
}

static void a_container_that_was_restarted_gets_the_drive_again(void **state)
{
    (void)state;
    bring_in_with_container();
    the_sandbox_changes();
    expect_walked("mount ");
    expect_row(DRIVE_READY, true, STATUS_OK);
    world.lacks_container = true;
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    assert_int_equal(number_of(the_store(), "SELECT message LIKE 'container c1:%' FROM"
                                            " drive_mounts"),
                     1);
    world.lacks_container = false;
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_int_equal(number_of(the_store(), "SELECT coalesce(message, '') = '' FROM drive_mounts"),
                     1);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
}

/* Whatever it says. */
static void a_refusal_is_forgotten_when_the_containers_have_the_drive(void **state)
{
    (void)state;
    bring_in_with_container();
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_int_equal(number_of(the_store(), "SELECT coalesce(message, '') = '' FROM drive_mounts"),
                     1);
}

/* Of Cloud Hypervisor: to enter them mounts the drive where the guest has lost it. */
static void no_container_is_entered_without_the_claim(void **state)
{
    (void)state;
    world.opens_path = true;
    bring_in_with_container();
    restart();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    the_sandbox_changes();
    expect_walked("look ask ");
    expect_row(DRIVE_READY, true, STATUS_OK);
    world.claim = DRIVE_CLAIM_OPEN;
    drives_sweep(world.drives);
    go_on();
    expect_walked("mount ");
}

/* It is in its place already, and perhaps in no container. */
static void a_mount_that_was_cut_off_is_undone_without_the_claim(void **state)
{
    (void)state;
    world.opens_path = true;
    attach_with_container();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    act(GUEST_CALL);
    restart();
    world.walked[0] = '\0';
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_walked("look ask unmount remove ");
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
}

/* What a guest has that did not answer is not known. */
static void a_growth_that_fails_keeps_no_container_from_the_drive(void **state)
{
    (void)state;
    bring_in_with_container();
    make_block_device();
    drives_retry(world.drives);
    go_on();
    world.walked[0] = '\0';
    world.disk_bytes = 2 * GIB;
    drives_note_device(world.drives, 7, 1);
    step_until(GUEST_CALL, DRIVE_GUEST_GROW);
    world.guest_fails = STATUS_UNAVAILABLE;
    go_on();
    expect_walked("resize grow ");
    world.drives->works->next_ns += 3600 * NSEC_PER_SEC;
    the_sandbox_changes();
    expect_walked("mount ");
    assert_int_equal(world.mount_bytes, 2 * GIB);
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    drives_retry(world.drives);
    the_sandbox_changes();
    expect_walked("mount grow ");
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* After a restart of crustd too. */
static void a_new_daemon_asks_at_once(void **state)
{
    (void)state;
    bring_in_with_container();
    restart();
    go_on();
    expect_walked("look ask mount ");
    expect_row(DRIVE_READY, true, STATUS_OK);
}

static void other_drives_are_left_alone(void **state)
{
    (void)state;
    bring_in();
    world.walked[0] = '\0';
    the_sandbox_changes();
    expect_walked("");
}

static void no_drive_is_ready_without_its_containers(void **state)
{
    (void)state;
    world.lacks_container = true;
    attach_with_container();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "container c1: it does not run");
}

/* crustd was killed when the drive was in its place, and perhaps in no container. */
static void a_mount_that_was_cut_off_is_done_again(void **state)
{
    (void)state;
    attach_with_container();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    act(GUEST_CALL);
    assert_true(world.mounted);
    restart();
    world.walked[0] = '\0';
    world.lacks_container = true;
    go_on();
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
    expect_walked("look ask mount unmount remove ");
}

static void a_guest_that_is_silent_changes_nothing(void **state)
{
    (void)state;
    bring_in_with_container();
    world.guest_fails = STATUS_UNAVAILABLE;
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_OK);
    world.walked[0] = '\0';
    the_sandbox_changes();
    expect_walked("mount "); /* it is not looked for: it is known to be there */
}

static void a_detach_does_not_wait_for_containers(void **state)
{
    (void)state;
    bring_in_with_container();
    drives_note_sandbox(world.drives, "sandbox-1");
    pass_while_due();
    assert_non_null(world.guest_call);
    assert_int_equal(world.guest_call->act, DRIVE_GUEST_MOUNT);
    detach();
    pass_while_due();
    assert_int_equal(world.guest_call->act, DRIVE_GUEST_UNMOUNT);
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_container_that_was_restarted_gets_the_drive_again),
        DRIVES(a_refusal_is_forgotten_when_the_containers_have_the_drive),
        DRIVES(no_container_is_entered_without_the_claim),
        DRIVES(a_mount_that_was_cut_off_is_undone_without_the_claim),
        DRIVES(a_growth_that_fails_keeps_no_container_from_the_drive),
        DRIVES(a_new_daemon_asks_at_once),
        DRIVES(other_drives_are_left_alone),
        DRIVES(no_drive_is_ready_without_its_containers),
        DRIVES(a_mount_that_was_cut_off_is_done_again),
        DRIVES(a_guest_that_is_silent_changes_nothing),
        DRIVES(a_detach_does_not_wait_for_containers),
    };

    return cmocka_run_group_tests_name("drives_containers", tests, NULL, NULL);
}
