/* SPDX-License-Identifier: Apache-2.0 */
/* drives_leaving_test.c - drives on their way out: what holds them, and disks that are not on
 * record. */
#include "tests/unit/reconciler/drive/drives_world.h"

static void a_disk_in_use_in_the_guest_stays(void **state)
{
    (void)state;
    bring_in();
    world.busy = true;
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_answer(2, STATUS_FAILED_PRECONDITION, "77 (cat)");
    expect_walked("unmount ask ");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    assert_true(world.mounted);
    bring_in(); /* it is there still */
    expect_walked("look ask ");
    restart();
    bring_in();
    world.busy = false;
    detach();
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* It is unmounted, and a namespace in the guest has it still: that goes on. */
static void a_disk_that_only_a_namespace_has_goes_on_its_way_out(void **state)
{
    (void)state;
    bring_in();
    world.walked[0] = '\0';
    detach();
    step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    world.mounted = false;
    go_on();
    expect_answer(2, STATUS_FAILED_PRECONDITION, "77 (cat)");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("unmount ask unmount remove ");
}

/* Nor does it count as an attach that failed, although it never was ready. */
static void a_drive_that_a_namespace_had_ends_as_removed(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    detach();
    step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    world.mounted = false;
    go_on();
    expect_row(DRIVE_UNMOUNTING, false, STATUS_UNAVAILABLE);
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void a_disk_that_is_not_free_is_not_removed(void **state)
{
    (void)state;
    world.node.config.drives.host_prefixes.count = 2;
    bring_in();
    make_block_device();
    world.disk_bytes = GIB; /* the node has it */
    detach();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_answer(2, STATUS_UNAVAILABLE, "the disk cannot be had");
    expect_row(DRIVE_REMOVING, false, STATUS_UNAVAILABLE);
    world.claim = DRIVE_CLAIM_OPEN;
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* Its record was lost: what is mounted is not taken from under the guest. */
static void a_disk_that_is_not_on_record_is_unmounted_first(void **state)
{
    (void)state;
    for (unsigned detached = 0; detached < 2; detached++) {
        world.vmm = HYPERVISOR_DRIVE_PRESENT;
        world.mounted = true;
        world.answers = 0;
        attach();
        pass_while_due();
        if (detached)
            detach();
        go_on();
        expect_walked("look unmount remove ");
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
        if (!detached)
            expect_failed(STATUS_FAILED_PRECONDITION, "not on record");
        else
            expect_row(DRIVE_REMOVED, false, STATUS_OK);
    }
    world.answers = 0;
    attach();
    go_on();
    expect_answer(1, STATUS_OK, "");
}

static void a_disk_that_is_not_on_record_stays_while_it_is_used(void **state)
{
    (void)state;
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    world.mounted = world.busy = true;
    attach();
    go_on();
    expect_walked("look unmount ask ");
    expect_answer(1, STATUS_FAILED_PRECONDITION, "77 (cat) has it");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
    restart();
    go_on();
    expect_walked("look unmount ask ");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_disk_in_use_in_the_guest_stays),
        DRIVES(a_disk_that_only_a_namespace_has_goes_on_its_way_out),
        DRIVES(a_drive_that_a_namespace_had_ends_as_removed),
        DRIVES(a_disk_that_is_not_free_is_not_removed),
        DRIVES(a_disk_that_is_not_on_record_is_unmounted_first),
        DRIVES(a_disk_that_is_not_on_record_stays_while_it_is_used),
    };

    return cmocka_run_group_tests_name("drives_leaving", tests, NULL, NULL);
}
