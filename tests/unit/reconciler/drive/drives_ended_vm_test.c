/* SPDX-License-Identifier: Apache-2.0 */
/* drives_ended_vm_test.c - drives of a VM whose sandbox has ended, while its process has not. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include <signal.h>
#include <sys/wait.h>

#include "lib/process.h"
#include "reconciler/drive/drive_work.h"

static pid_t vmm;

static void start_vmm(void)
{
    vmm = fork();
    if (vmm == 0) {
        (void)pause();
        _exit(0);
    }
    assert_true(vmm > 0);
}

static void end_vmm(void)
{
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
    vmm = 0;
}

/* The sandbox of a VMM that is a process. */
static int set_up_vmm(void **state)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    struct process process;

    (void)set_up(state);
    start_vmm();
    assert_int_equal(process_read(vmm, &process), 0);
    sandbox.vmm_pid = vmm;
    sandbox.vmm_start_ns = process.start_ns;
    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    assert_int_equal(store_commit(the_store()), 0);
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
}

static void a_drive_is_not_lost_before_its_vmm_has_ended(void **state)
{
    char text[32];

    (void)state;
    bring_in();
    (void)snprintf(text, sizeof(text), "process %d,", (int)vmm);
    end_sandbox_alone();
    go_on();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    detach();
    go_on();
    expect_answer(2, STATUS_UNAVAILABLE, text);
    expect_row(DRIVE_READY, false, STATUS_UNAVAILABLE);
    end_vmm();
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_LOST, false, STATUS_OK);
    detach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("look ask attach mount ");
}

/* Each change of the sandbox would be an attempt otherwise. */
static void the_process_is_looked_for_at_a_bounded_rate(void **state)
{
    (void)state;
    bring_in();
    end_sandbox_alone();
    go_on();
    end_vmm();
    drives_note_sandbox(world.drives, "sandbox-1");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    while (!drives_are_due(world.drives))
        loop_run_once(&world.node.loop);
    go_on();
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

/* How long a guest did not answer says nothing of how soon a process ends. */
static void the_process_is_looked_for_soon_after_other_failures(void **state)
{
    struct drive_work *work;

    (void)state;
    bring_in();
    work = world.drives->works;
    work->failures = 20;
    end_sandbox_alone();
    go_on();
    expect_row(DRIVE_READY, true, STATUS_UNAVAILABLE);
    assert_int_equal(work->failures, 1);
}

/* It may have been given the disk, although nobody has heard so. */
static void an_attach_does_not_fail_before_the_vmm_has_ended(void **state)
{
    (void)state;
    attach();
    while (!world.vmm_call || world.vmm_call->act != HYPERVISOR_DRIVE_ATTACH)
        assert_true(step());
    act(VMM_CALL);
    end_sandbox_alone();
    go_on();
    expect_answer(1, STATUS_UNAVAILABLE, "has not ended");
    expect_row(DRIVE_CLAIMED, true, STATUS_UNAVAILABLE);
    end_vmm();
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

static void a_drive_whose_vmm_was_given_nothing_ends_at_once(void **state)
{
    (void)state;
    attach();
    pass_while_due();
    end_sandbox_alone();
    go_on();
    expect_answer(1, STATUS_NOT_FOUND, "the VM ended");
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

/* Of Cloud Hypervisor: the claim is crustd's own. */
static void the_claim_is_kept_until_the_vmm_has_ended(void **state)
{
    (void)state;
    world.opens_path = true;
    bring_in();
    end_sandbox_alone();
    go_on();
    assert_true(is_claimed());
    end_vmm();
    drives_retry(world.drives);
    go_on();
    assert_false(is_claimed());
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

/* Its number has been given to another one. */
static void another_process_is_not_the_vmm(void **state)
{
    (void)state;
    bring_in();
    execute_sql(the_store(), "UPDATE sandboxes SET vmm_start_ns = vmm_start_ns - 1");
    end_sandbox_alone();
    go_on();
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

/* Its process may still write to the disk. */
static void a_volume_on_the_disk_is_blocked_until_the_vmm_has_ended(void **state)
{
    int64_t volume_id = world.node.bound.volume_id;

    (void)state;
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 3};
    bring_in();
    end_sandbox_alone();
    go_on();
    assert_true(get_volume(the_store(), volume_id).shared_drive);
    end_vmm();
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_LOST, true, STATUS_OK);
    assert_false(get_volume(the_store(), volume_id).shared_drive);
}

#define ENDED(test) cmocka_unit_test_setup_teardown(test, set_up_vmm, tear_down_vmm)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENDED(a_drive_is_not_lost_before_its_vmm_has_ended),
        ENDED(the_process_is_looked_for_at_a_bounded_rate),
        ENDED(the_process_is_looked_for_soon_after_other_failures),
        ENDED(an_attach_does_not_fail_before_the_vmm_has_ended),
        ENDED(a_drive_whose_vmm_was_given_nothing_ends_at_once),
        ENDED(the_claim_is_kept_until_the_vmm_has_ended),
        ENDED(another_process_is_not_the_vmm),
        ENDED(a_volume_on_the_disk_is_blocked_until_the_vmm_has_ended),
    };

    return cmocka_run_group_tests_name("drives of a VM that has ended", tests, NULL, NULL);
}
