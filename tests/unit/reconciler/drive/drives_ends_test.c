/* SPDX-License-Identifier: Apache-2.0 */
/* drives_ends_test.c - what becomes of a drive when crustd or the VM ends in the middle. */
#include "tests/unit/reconciler/drive/drives_world.h"

/* What happens at the n-th act, before it has an effect or after. */
static void at_act(unsigned number, bool after, void (*happens)(void))
{
    for (unsigned i = 0; i < 40; i++) {
        enum world_call call;

        pass_while_due();
        call = running_call();
        if (call == NO_CALL)
            return;
        if (i != number || after)
            act(call);
        if (i == number)
            happens();
        else
            finish(call);
    }
    fail_msg("it does not end: %s", world.walked);
}

static void crustd_may_end_anywhere_in_an_attach(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        attach();
        at_act(i / 2, i & 1, restart);
        go_on();
        expect_row(DRIVE_READY, true, STATUS_OK);
        assert_true(world.mounted);
        detach();
        go_on();
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
    }
}

static void crustd_may_end_anywhere_in_a_detach(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        bring_in();
        detach();
        at_act(i / 2, i & 1, restart);
        go_on();
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    }
}

static void start_vm(void)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);

    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    assert_int_equal(store_commit(the_store()), 0);
}

static void a_vm_may_end_anywhere(void **state)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        attach();
        at_act(i / 2, i & 1, end_vm);
        if (i / 2 > 5) {
            detach();
            at_act((i / 2) - 6, i & 1, end_vm);
        }
        go_on();
        assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
        if (row.state != DRIVE_REMOVED)
            assert_int_equal(row.sandbox_is_alive, row.state == DRIVE_READY);
        if (row.state == DRIVE_LOST)
            assert_non_null(strstr(row.message, "the VM ended"));
        if (row.state == DRIVE_READY) {
            end_vm();
            go_on();
        }
        store_drive_mount_done(&row);
        if (i < 19 && row.state != DRIVE_REMOVED)
            start_vm();
    }
}

/* One act at a time talks to a VMM. */
static void a_drive_that_waits_for_its_turn_ends_with_its_vm(void **state)
{
    struct reconciler_drive_attach other = attach_of("data-2");

    (void)state;
    other.vm_path = "/data-2";
    attach();
    assert_int_equal(begin_attach(&other), STATUS_OK);
    pass_while_due();
    assert_int_equal(running_call(), VMM_CALL);
    end_vm();
    pass_while_due();
    assert_int_equal(running_call(), NO_CALL);
    expect_answer(2, STATUS_NOT_FOUND, "the VM ended");
}

static void lost_drive_records_whether_it_was_unmounted(void **state)
{
    (void)state;
    bring_in();
    end_vm();
    go_on();
    assert_text_of(the_store(), "SELECT message LIKE 'the VM ended before%' FROM drive_mounts",
                   "1");
    expect_row(DRIVE_LOST, true, STATUS_OK);
    start_vm();
    bring_in();
    detach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    end_vm();
    go_on();
    expect_answer(3, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_LOST);
    assert_text_of(the_store(),
                   "SELECT message LIKE '%had confirmed%' FROM drive_mounts"
                   " ORDER BY drive_ref DESC",
                   "1");
}

/* Nobody has confirmed that it was unmounted. */
static void what_somebody_left_of_a_disk_was_not_unmounted(void **state)
{
    (void)state;
    for (unsigned detached = 0; detached < 2; detached++) {
        bring_in();
        world.vmm = HYPERVISOR_DRIVE_PARTIAL;
        world.mounted = false;
        restart();
        if (detached)
            detach();
        step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
        expect_row(DRIVE_UNMOUNTING, !detached, STATUS_OK);
        end_vm();
        go_on();
        assert_text_of(the_store(),
                       "SELECT message LIKE 'the VM ended before%' FROM drive_mounts"
                       " ORDER BY drive_ref DESC",
                       "1");
        start_vm();
    }
    bring_in();
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    world.mounted = false;
    restart();
    go_on();
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

static void a_disk_that_somebody_took_from_the_vm_is_lost(void **state)
{
    (void)state;
    bring_in();
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.mounted = false;
    restart();
    go_on();
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

/* It says that it does not have the drive. */
static void a_disk_that_the_vmm_keeps_open_is_not_given_away(void **state)
{
    (void)state;
    bring_in();
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.mounted = false;
    world.vmm_holds_disk = true;
    restart();
    go_on();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(2, STATUS_UNAVAILABLE, "may have the disk open");
    world.vmm_holds_disk = false;
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_LOST, false, STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(crustd_may_end_anywhere_in_an_attach),
        DRIVES(crustd_may_end_anywhere_in_a_detach),
        DRIVES(a_vm_may_end_anywhere),
        DRIVES(a_drive_that_waits_for_its_turn_ends_with_its_vm),
        DRIVES(lost_drive_records_whether_it_was_unmounted),
        DRIVES(what_somebody_left_of_a_disk_was_not_unmounted),
        DRIVES(a_disk_that_somebody_took_from_the_vm_is_lost),
        DRIVES(a_disk_that_the_vmm_keeps_open_is_not_given_away),
    };

    return cmocka_run_group_tests_name("drives_ends", tests, NULL, NULL);
}
