/* SPDX-License-Identifier: Apache-2.0 */
/* drives_strays_test.c - a detach of a drive that is not on record: the VMs are asked whether they
 * have it, and a stray is taken out like any other drive. */
#include "tests/unit/reconciler/drive/drives_world.h"

/* The database was lost, and a VM has the drive. */
static void begin_stray(void)
{
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    world.mounted = true;
    world.host_path = "/dev/block/7:1";
    world.disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1};
}

static void detach_other(const char *drive_id)
{
    struct drive_wait *wait;
    struct error error = {0};

    assert_int_equal(drives_detach(world.drives, drive_id, on_answer, NULL, &wait, &error),
                     STATUS_OK);
}

static void vms_are_asked_once(void **state)
{
    (void)state;
    detach();
    pass_while_due();
    assert_int_equal(world.answers, 0);
    assert_false(drives_are_idle(world.drives));
    go_on();
    expect_answer(1, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_REMOVED);
    expect_walked("list ");
    detach_other("data-2");
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("");
    drives_reset(world.drives); /* another database */
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("list ");
}

static void a_stray_is_unmounted_and_taken_out(void **state)
{
    (void)state;
    begin_stray();
    detach();
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("list look unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("");
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 1);
}

/* It may share the disk with the drive from the moment that this is on record. */
static void a_volume_on_the_disk_of_a_stray_is_decided_again(void **state)
{
    (void)state;
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
    assert_true(get_volume(the_store(), world.node.bound.volume_id).shared_drive);
    go_on();
    assert_true(take_queued_volume());
    assert_false(get_volume(the_store(), world.node.bound.volume_id).shared_drive);
}

/* By another serial the guest would not find it, and call it unmounted. */
static void a_stray_is_taken_out_by_its_vmms_own_serial(void **state)
{
    (void)state;
    begin_stray();
    world.opens_path = world.makes_serial = world.hides_serial = true;
    detach();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "serial");
    expect_walked("list ");
    assert_true(world.mounted);
    world.hides_serial = false;
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("list look unmount remove ");
    assert_string_equal(world.asked_serial, VMM_SERIAL);
}

/* The same, where an attach of its id has found it. */
static void a_stray_in_the_way_keeps_its_vmms_own_serial(void **state)
{
    (void)state;
    begin_stray();
    world.host_path = "/dev/disk-1";
    world.opens_path = world.makes_serial = world.hides_serial = true;
    attach();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "serial");
    assert_true(world.mounted);
    world.hides_serial = false;
    drives_retry(world.drives);
    go_on();
    assert_false(world.mounted);
    assert_string_equal(world.asked_serial, VMM_SERIAL);
}

static void crustd_may_end_while_a_stray_is_taken_out(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
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
        execute_sql(the_store(), "DELETE FROM drive_mounts");
        restart();
    }
}

static void a_stray_stays_while_it_is_used(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    begin_stray();
    world.busy = true;
    detach();
    go_on();
    expect_answer(1, STATUS_FAILED_PRECONDITION, "77 (cat) has it");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_UNAVAILABLE);
    assert_true(world.mounted);
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    assert_non_null(strstr(world.error, "not on record"));
    world.busy = false;
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void what_is_left_of_a_stray_is_taken_out(void **state)
{
    (void)state;
    begin_stray();
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    world.mounted = false;
    detach();
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("list look remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void a_vm_that_cannot_be_asked_may_have_it(void **state)
{
    static const enum hypervisor_drive_outcome outcomes[] = {HYPERVISOR_DRIVE_BUSY,
                                                             HYPERVISOR_DRIVE_UNREACHABLE};

    (void)state;
    for (unsigned i = 0; i < array_length(outcomes); i++) {
        world.vmm_fails = outcomes[i];
        detach();
        go_on();
        expect_answer(i + 1, STATUS_UNAVAILABLE, "sandbox sandbox-1 has it is not known: the VMM");
    }
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("list list list ");
}

static void nothing_was_attached_without_a_monitor(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_MONITOR_MISSING;
    detach();
    go_on();
    expect_answer(1, STATUS_OK, "");
    world.traits_of_vmm.obstacle = "it cannot be done";
    restart();
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("list ");
}

static void a_drive_on_record_is_not_a_stray(void **state)
{
    (void)state;
    bring_in();
    detach_other("data-2");
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_READY, true, STATUS_OK);
    detach();
    go_on();
    expect_walked("look ask attach mount list unmount remove ");
    detach();
    go_on();
    expect_answer(4, STATUS_OK, "");
    expect_walked("");
}

/* Found before, for another client's sake: its row of an older life ended. */
static void a_stray_is_found_although_its_id_was_on_record_once(void **state)
{
    (void)state;
    bring_in();
    detach();
    go_on();
    begin_stray();
    detach_other("data-2");
    go_on();
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_answer(4, STATUS_OK, "");
    expect_walked("look unmount remove ");
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
}

static void clients_share_a_stray(void **state)
{
    (void)state;
    begin_stray();
    detach();
    detach();
    go_on();
    assert_int_equal(world.answers, 2);
    expect_answer(2, STATUS_OK, "");
    expect_walked("list look unmount remove ");
}

static void start_vms(unsigned from, unsigned to)
{
    assert_int_equal(store_begin(the_store()), 0);
    for (unsigned i = from; i < to; i++) {
        char sandbox_id[] = "another-0";
        struct store_sandbox sandbox = sandbox_of(sandbox_id, NULL);

        sandbox_id[sizeof(sandbox_id) - 2] = (char)('0' + i);
        sandbox.vmm_pid += (pid_t)i + 1;
        (void)put_sandbox(the_store(), &sandbox, true);
    }
    assert_int_equal(store_commit(the_store()), 0);
}

static unsigned count_calls(void)
{
    unsigned count = 0;

    for (const struct hypervisor_drive_call *call = world.vmm_call; call; call = call->next)
        count++;
    return count;
}

static void a_few_vms_are_asked_at_once(void **state)
{
    (void)state;
    start_vms(0, 5);
    detach();
    pass_while_due();
    assert_int_equal(count_calls(), 4);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(world.answers, 0);
        assert_true(step());
    }
    expect_answer(1, STATUS_OK, "");
    expect_walked("list list list list list list ");
    start_vms(5, 7);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("list list ");
}

/* A monitor serves one client at a time. */
static void a_vm_is_asked_one_thing_at_a_time(void **state)
{
    (void)state;
    attach();
    pass_while_due();
    detach_other("data-2");
    pass_while_due();
    assert_int_equal(count_calls(), 1);
    go_on();
    assert_int_equal(world.answers, 2);
    expect_row(DRIVE_READY, true, STATUS_OK);
    start_vms(0, 1);
    restart();
    detach_other("data-2");
    pass_while_due(); /* the drive is looked at first */
    assert_int_equal(count_calls(), 2);
    go_on();
    expect_answer(3, STATUS_OK, "");
}

/* One has it, and another one cannot be asked. */
static void a_stray_that_is_found_needs_no_other_answer(void **state)
{
    (void)state;
    start_vms(0, 1);
    begin_stray();
    detach();
    pass_while_due();
    assert_int_equal(count_calls(), 2);
    (void)step();
    (void)step();
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("list look list unmount remove ");
}

static void a_vm_that_ended_has_no_stray(void **state)
{
    (void)state;
    begin_stray();
    detach_other("data-2");
    go_on();
    end_vm();
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("list ");
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 0);
}

static void the_list_ends_with_the_daemon(void **state)
{
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    assert_int_equal(drives_detach(world.drives, "data-1", on_answer, NULL, &wait, &error),
                     STATUS_OK);
    pass_while_due();
    assert_int_equal(running_call(), VMM_CALL);
    assert_null(reconciler_drive_cancel(wait)); /* its client is gone: the list goes on */
    go_on();
    drives_reset(world.drives);
    detach();
    pass_while_due();
    drives_stop(world.drives);
    assert_int_equal(running_call(), NO_CALL);
    assert_true(drives_are_idle(world.drives));
    expect_answer(1, STATUS_UNAVAILABLE, "being stopped");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(vms_are_asked_once),
        DRIVES(a_stray_is_unmounted_and_taken_out),
        DRIVES(a_volume_on_the_disk_of_a_stray_is_decided_again),
        DRIVES(a_stray_is_taken_out_by_its_vmms_own_serial),
        DRIVES(a_stray_in_the_way_keeps_its_vmms_own_serial),
        DRIVES(crustd_may_end_while_a_stray_is_taken_out),
        DRIVES(a_stray_stays_while_it_is_used),
        DRIVES(what_is_left_of_a_stray_is_taken_out),
        DRIVES(a_vm_that_cannot_be_asked_may_have_it),
        DRIVES(nothing_was_attached_without_a_monitor),
        DRIVES(a_drive_on_record_is_not_a_stray),
        DRIVES(a_stray_is_found_although_its_id_was_on_record_once),
        DRIVES(clients_share_a_stray),
        DRIVES(a_few_vms_are_asked_at_once),
        DRIVES(a_vm_is_asked_one_thing_at_a_time),
        DRIVES(a_stray_that_is_found_needs_no_other_answer),
        DRIVES(a_vm_that_ended_has_no_stray),
        DRIVES(the_list_ends_with_the_daemon),
    };

    return cmocka_run_group_tests_name("drives_strays", tests, NULL, NULL);
}
