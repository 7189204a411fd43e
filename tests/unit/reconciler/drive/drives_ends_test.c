/* SPDX-License-Identifier: Apache-2.0 */
/* drives_ends_test.c - what becomes of a drive when its VM ends: in the middle of an act, without
 * an unmount, or with a process that outlives its sandbox. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include "lib/process.h"

/* The VM ends at the n-th act, before that has an effect or after. */
static void end_vm_at_act(unsigned number, bool after)
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
            end_vm();
        else
            finish(call);
    }
    fail_msg("it does not end: %s", world.walked);
}

static void a_vm_may_end_anywhere(void **state)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    for (unsigned i = 0; i < 20; i++) {
        attach();
        end_vm_at_act(i / 2, i & 1);
        if (i / 2 > 5) {
            detach();
            end_vm_at_act((i / 2) - 6, i & 1);
        }
        go_on();
        assert_int_equal(store_get_drive_mount(the_store(), "data-1", 0, &row), STORE_FOUND);
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
            start_vm("sandbox-1", 0);
    }
}

/* One act at a time talks to a VMM. */
static void a_drive_that_waits_for_its_turn_ends_with_its_vm(void **state)
{
    struct reconciler_drive_attach other = attach_of("data-2");

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

/* ---- what is lost ---- */

/* Whether the guest had confirmed the unmount. It has not where somebody has taken a part of it. */
static void lost_drive_records_whether_it_was_unmounted(void **state)
{
    bring_in();
    detach();
    step_until(VMM_CALL, HYPERVISOR_DETACH);
    end_vm();
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_LOST);
    expect_message("had confirmed");
    for (unsigned detached = 0; detached < 2; detached++) {
        start_vm("sandbox-1", 0);
        bring_in();
        world.vmm = HYPERVISOR_DRIVE_PARTIAL;
        world.mounted = false;
        restart();
        if (detached)
            detach();
        step_until(VMM_CALL, HYPERVISOR_DETACH);
        expect_row(DRIVE_UNMOUNTING, !detached, STATUS_OK);
        end_vm();
        go_on();
        expect_message("the VM ended before");
    }
}

/* All of it, or a part; whether the VMM tells the truth is seen at its open files. */
static void a_disk_that_somebody_took_from_the_vm_is_lost(void **state)
{
    for (unsigned is_part = 0; is_part < 2; is_part++) {
        bring_in();
        world.vmm = is_part ? HYPERVISOR_DRIVE_PARTIAL : HYPERVISOR_DRIVE_ABSENT;
        world.mounted = false;
        restart();
        go_on();
        expect_row(DRIVE_LOST, true, STATUS_OK);
    }
    bring_in();
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.mounted = false;
    world.vmm_holds_disk = true;
    restart();
    go_on();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(4, STATUS_UNAVAILABLE, "may have the disk open");
    world.vmm_holds_disk = false;
    try_again();
    expect_row(DRIVE_LOST, false, STATUS_OK);
}

/* ---- a VM whose sandbox has ended, while its process has not ---- */

static pid_t vmm;

static void end_vmm(void)
{
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
    vmm = 0;
}

static int set_up_vmm(void **state)
{
    struct process process;
    char sql[128];

    (void)set_up(state);
    vmm = fork();
    if (vmm == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(process_read(vmm, &process), 0);
    (void)snprintf(sql, sizeof(sql), "UPDATE sandboxes SET vmm_pid = %d, vmm_start_ns = %llu",
                   (int)vmm, (unsigned long long)process.start_ns);
    execute_sql(the_store(), sql);
    return 0;
}

static int tear_down_vmm(void **state)
{
    if (vmm)
        end_vmm();
    return tear_down(state);
}

/* Its files are gone, and it has the disk. */
static void end_sandbox_alone(void)
{
    enum hypervisor_drive_state in_vmm = world.vmm;

    end_vm();
    world.vmm = in_vmm;
    go_on();
}

/* Of Cloud Hypervisor, whose claim is crustd's own. The process may still write to the disk, so a
 * volume on that is blocked. */
static void a_drive_is_not_lost_before_its_vmm_has_ended(void **state)
{
    char text[32];

    world.opens_path = true;
    world.disk = block_device;
    bring_in();
    (void)snprintf(text, sizeof(text), "process %d,", (int)vmm);
    end_sandbox_alone();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(2, STATUS_UNAVAILABLE, text);
    expect_row(DRIVE_READY, false, STATUS_UNAVAILABLE);
    assert_true(is_claimed() && volume_is_shared());
    end_vmm();
    try_again();
    expect_row(DRIVE_LOST, false, STATUS_OK);
    assert_false(is_claimed() || volume_is_shared());
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("");
}

/* It may have been given the disk, although nobody has heard so; before that it has nothing. */
static void an_attach_does_not_fail_before_the_vmm_has_ended(void **state)
{
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    act(VMM_CALL);
    end_sandbox_alone();
    expect_answer(1, STATUS_UNAVAILABLE, "has not ended");
    expect_row(DRIVE_CLAIMED, true, STATUS_UNAVAILABLE);
    end_vmm();
    try_again();
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

static void a_drive_whose_vmm_was_given_nothing_ends_at_once(void **state)
{
    attach();
    pass_while_due();
    end_sandbox_alone();
    expect_answer(1, STATUS_NOT_FOUND, "the VM ended");
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

/* Its number has been given to another one. */
static void another_process_is_not_the_vmm(void **state)
{
    bring_in();
    execute_sql(the_store(), "UPDATE sandboxes SET vmm_start_ns = vmm_start_ns - 1");
    end_sandbox_alone();
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

#define ENDED(test) cmocka_unit_test_setup_teardown(test, set_up_vmm, tear_down_vmm)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_vm_may_end_anywhere),
        DRIVES(a_drive_that_waits_for_its_turn_ends_with_its_vm),
        DRIVES(lost_drive_records_whether_it_was_unmounted),
        DRIVES(a_disk_that_somebody_took_from_the_vm_is_lost),
        ENDED(a_drive_is_not_lost_before_its_vmm_has_ended),
        ENDED(an_attach_does_not_fail_before_the_vmm_has_ended),
        ENDED(a_drive_whose_vmm_was_given_nothing_ends_at_once),
        ENDED(another_process_is_not_the_vmm),
    };

    return cmocka_run_group_tests_name("drives_ends", tests, NULL, NULL);
}
