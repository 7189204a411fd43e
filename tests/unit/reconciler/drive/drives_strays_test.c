/* SPDX-License-Identifier: Apache-2.0 */
/* drives_strays_test.c - a detach of a drive that is not on record: the VMs are asked whether they
 * have it, and a stray is taken out like any other drive. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

/* The database was lost, and a VM has the drive. */
static void begin_stray(void)
{
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    world.mounted = true;
    world.host_path = "/dev/block/7:1";
    world.disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1};
}

/* What a VM has of it may be only a part. Each is asked once: after that nothing is unknown. */
static void a_stray_is_unmounted_and_taken_out(void **state)
{
    for (unsigned is_part = 0; is_part < 2; is_part++) {
        begin_anew();
        begin_stray();
        if (is_part)
            world.vmm = HYPERVISOR_DRIVE_PARTIAL;
        world.mounted = !is_part;
        detach();
        detach();
        pass_while_due();
        assert_false(drives_are_idle(world.drives));
        go_on();
        expect_answer(2, STATUS_OK, "");
        expect_walked(is_part ? "list look remove " : "list look unmount remove ");
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
        detach();
        (void)detach_drive("data-2");
        go_on();
        expect_answer(4, STATUS_OK, "");
        expect_walked("");
        assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 1);
    }
}

/* It may share the disk with the drive from the moment that this is on record. */
static void a_volume_on_the_disk_of_a_stray_is_decided_again(void **state)
{
    begin_stray();
    world.disk.diskseq = 3;
    world.disk_bytes = GIB; /* observed */
    detach();
    pass_while_due();
    (void)take_queued_volume();
    act(VMM_CALL);
    finish(VMM_CALL);
    assert_true(pass());
    assert_true(take_queued_volume());
    assert_true(volume_is_shared());
    go_on();
    assert_true(take_queued_volume());
    assert_false(volume_is_shared());
}

/* By another serial the guest would not find it, and call it unmounted. The same where an attach of
 * its id has found it. */
static void a_stray_is_taken_out_by_its_vmms_own_serial(void **state)
{
    for (unsigned is_in_the_way = 0; is_in_the_way < 2; is_in_the_way++) {
        begin_anew();
        begin_stray();
        world.opens_path = world.makes_serial = world.hides_serial = true;
        if (is_in_the_way) {
            world.host_path = "/dev/disk-1";
            attach();
        } else {
            detach();
        }
        go_on();
        expect_answer(1, STATUS_UNAVAILABLE, "serial");
        assert_true(world.mounted);
        world.hides_serial = false;
        if (!is_in_the_way)
            detach();
        try_again();
        assert_false(world.mounted);
        assert_string_equal(world.asked_serial, VMM_SERIAL);
    }
}

static void crustd_may_end_while_a_stray_is_taken_out(void **state)
{
    for (unsigned i = 0; i < 4; i++) {
        begin_anew();
        begin_stray();
        detach();
        for (unsigned acts = 0; acts < i; acts++)
            (void)step();
        pass_while_due();
        act(running_call());
        restart();
        detach();
        go_on();
        expect_answer(world.answers, STATUS_OK, "");
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    }
}

static void nothing_was_attached_without_a_monitor(void **state)
{
    world.vmm_fails = HYPERVISOR_BUSY;
    detach();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "sandbox sandbox-1 may have it: the VMM");
    world.vmm_fails = HYPERVISOR_MONITOR_MISSING;
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    world.traits_of_vmm.obstacle = "it cannot be done";
    restart();
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("list list ");
}

/* But a drive whose row has ended may be one. */
static void a_drive_on_record_is_not_a_stray(void **state)
{
    bring_in();
    (void)detach_drive("data-2");
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_READY, true, STATUS_OK);
    detach();
    go_on();
    expect_walked("list unmount remove ");
    detach();
    go_on();
    expect_answer(4, STATUS_OK, "");
    expect_walked("");
    restart();
    begin_stray();
    (void)detach_drive("data-2"); /* for this client's sake it is found */
    go_on();
    detach();
    go_on();
    expect_answer(6, STATUS_OK, "");
    expect_walked("list look unmount remove ");
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
}

/* One has it, and another one cannot be asked. */
static void a_stray_that_is_found_needs_no_other_answer(void **state)
{
    start_vm("another-0", 200);
    begin_stray();
    detach();
    pass_while_due();
    (void)step();
    (void)step();
    world.vmm_fails = HYPERVISOR_UNREACHABLE;
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("list look list unmount remove ");
}

static void a_vm_that_ended_has_no_stray(void **state)
{
    begin_stray();
    (void)detach_drive("data-2");
    go_on();
    end_vm();
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("list ");
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 0);
}

/* And not with its client. */
static void the_list_ends_with_the_daemon(void **state)
{
    struct drive_wait *wait = detach_drive("data-1");

    pass_while_due();
    assert_null(reconciler_drive_cancel(wait));
    detach();
    pass_while_due();
    assert_int_equal(running_call(), VMM_CALL);
    drives_stop(world.drives);
    assert_int_equal(running_call(), NO_CALL);
    assert_true(drives_are_idle(world.drives));
    expect_answer(1, STATUS_UNAVAILABLE, "being stopped");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_stray_is_unmounted_and_taken_out),
        DRIVES(a_volume_on_the_disk_of_a_stray_is_decided_again),
        DRIVES(a_stray_is_taken_out_by_its_vmms_own_serial),
        DRIVES(crustd_may_end_while_a_stray_is_taken_out),
        DRIVES(nothing_was_attached_without_a_monitor),
        DRIVES(a_drive_on_record_is_not_a_stray),
        DRIVES(a_stray_that_is_found_needs_no_other_answer),
        DRIVES(a_vm_that_ended_has_no_stray),
        DRIVES(the_list_ends_with_the_daemon),
    };

    return cmocka_run_group_tests_name("drives_strays", tests, NULL, NULL);
}
