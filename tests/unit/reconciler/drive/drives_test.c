/* SPDX-License-Identifier: Apache-2.0 */
/* drives_test.c - drives brought in and taken out again: the order of the acts, what clients are
 * told, and what becomes of it when crustd, the VM or an act ends in the middle. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include "reconciler/drive/drive_work.h"

static void bring_in(void)
{
    attach();
    go_on();
    expect_told(world.told, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_READY);
    assert_true(world.mounted);
}

static void a_drive_is_mounted_before_its_client_is_told(void **state)
{
    (void)state;
    attach();
    for (unsigned i = 0; i < 20 && !world.mounted; i++) {
        assert_int_equal(world.told, 0);
        assert_true(step());
    }
    go_on();
    expect_told(1, STATUS_OK, "");
    expect_walked("look attach ask mount ");
    assert_true(world.searched);
    expect_row(DRIVE_READY, true, STATUS_OK);
}

static void a_drive_is_free_before_its_client_is_told(void **state)
{
    (void)state;
    bring_in();
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_told(2, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_REMOVED);
    expect_walked("unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    detach(); /* again: it is not there */
    go_on();
    expect_told(3, STATUS_OK, "");
    expect_walked("");
    bring_in(); /* a new life */
}

static void equal_calls_join_and_others_are_refused(void **state)
{
    struct reconciler_drive_attach other = attach_of("data-1"), place = attach_of("data-2"),
                                   nowhere = attach_of("data-3");

    (void)state;
    attach();
    attach();
    go_on();
    expect_told(2, STATUS_OK, "");
    attach();
    go_on();
    expect_told(3, STATUS_OK, "");
    expect_walked("look attach ask mount ");
    other.writable = false;
    other.options = 0;
    assert_int_equal(begin_attach(&other), STATUS_ALREADY_EXISTS);
    assert_int_equal(begin_attach(&place), STATUS_ALREADY_EXISTS);
    nowhere.sandbox_id = "sandbox-9";
    assert_int_equal(begin_attach(&nowhere), STATUS_NOT_FOUND);
    assert_non_null(strstr(world.error, "sandbox-9"));
}

static void what_is_detached_meanwhile_is_not_attached(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    attach();
    (void)step();
    detach();
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    go_on();
    assert_int_equal(world.told, 2);
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
}

/* The guest would walk for long; a detach does not wait for that. */
static void a_detach_overtakes_a_mount(void **state)
{
    (void)state;
    attach();
    while (!world.guest_call || world.guest_call->act != DRIVE_GUEST_MOUNT)
        assert_true(step());
    act(GUEST_CALL);
    detach();
    pass_while_due();
    assert_int_equal(world.guest_call->act, DRIVE_GUEST_UNMOUNT);
    go_on();
    assert_int_equal(world.told, 2);
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* Of Cloud Hypervisor: nobody else keeps others from the disk. */
static void a_disk_that_the_vmm_opens_stays_claimed(void **state)
{
    (void)state;
    world.opens_path = true;
    bring_in();
    assert_true(is_claimed());
    drives_roll_back(world.drives, "it is full");
    assert_true(is_claimed());
    go_on();
    assert_true(is_claimed());
    restart();
    assert_false(is_claimed());
    go_on();
    assert_true(is_claimed());
    detach();
    while (world.vmm != HYPERVISOR_DRIVE_ABSENT) {
        assert_true(is_claimed());
        assert_true(step());
    }
    go_on();
    assert_int_equal(world.state, DRIVE_REMOVED);
    assert_false(is_claimed());
}

/* ---- failures ---- */

static void expect_failed(enum status_code code, const char *text)
{
    expect_told(1, code, text);
    expect_row(DRIVE_FAILED, false, code);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    assert_false(world.mounted);
}

static void a_disk_that_cannot_be_had_fails_the_attach(void **state)
{
    static const enum status_code codes[] = {
        [DRIVE_CLAIM_OUTSIDE] = STATUS_PERMISSION_DENIED,
        [DRIVE_CLAIM_MISSING] = STATUS_NOT_FOUND,
        [DRIVE_CLAIM_UNSUITABLE] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_READ_ONLY] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_IN_USE] = STATUS_FAILED_PRECONDITION,
        [DRIVE_CLAIM_FORBIDDEN] = STATUS_FAILED_PRECONDITION,
    };

    (void)state;
    for (enum drive_claim_outcome i = DRIVE_CLAIM_OUTSIDE; i < array_length(codes); i++) {
        world.claim = i;
        world.told = 0;
        attach();
        go_on();
        expect_failed(codes[i], "the disk cannot be had");
    }
}

static void a_confidential_guest_gets_no_disk(void **state)
{
    (void)state;
    world.confidential = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "confidential");
    expect_walked("look ");
}

/* Nothing was brought into it, and nobody can ask it whether that is so. */
static void a_vm_without_a_monitor_fails_the_attach(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_MONITOR_MISSING;
    attach();
    assert_true(step());
    expect_failed(STATUS_FAILED_PRECONDITION, "the VMM does not");
    expect_walked("look ");
    assert_true(drives_are_idle(world.drives));
}

/* Its record was lost: what is mounted is not taken from under the guest. */
static void a_disk_that_is_not_on_record_is_unmounted_first(void **state)
{
    (void)state;
    for (unsigned detached = 0; detached < 2; detached++) {
        world.vmm = HYPERVISOR_DRIVE_PRESENT;
        world.mounted = true;
        world.told = 0;
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
    world.told = 0;
    attach();
    go_on();
    expect_told(1, STATUS_OK, "");
}

static void a_disk_that_is_not_on_record_stays_while_it_is_used(void **state)
{
    (void)state;
    world.vmm = HYPERVISOR_DRIVE_PRESENT;
    world.mounted = world.busy = true;
    attach();
    go_on();
    expect_walked("look unmount ask ");
    expect_told(1, STATUS_FAILED_PRECONDITION, "77 (cat) has it");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
    restart();
    go_on();
    expect_walked("look unmount ask ");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
}

static void a_disk_that_another_vm_has_is_not_attached(void **state)
{
    (void)state;
    world.other_has_disk = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "sandbox-9 has the disk");
    expect_walked("look ");
}

static void step_until(enum world_call call, int kind)
{
    for (unsigned i = 0; i < 20; i++) {
        pass_while_due();
        if (call == GUEST_CALL && world.guest_call && (int)world.guest_call->act == kind)
            return;
        if (call == VMM_CALL && world.vmm_call && (int)world.vmm_call->act == kind)
            return;
        assert_true(step());
    }
    fail_msg("no such act; walked %s", world.walked);
}

static void a_disk_that_another_vm_took_while_crustd_was_down_is_given_back(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    act(VMM_CALL);
    restart();
    world.other_has_disk = true;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "sandbox-9 has the disk");
    expect_walked("look attach look remove ");
}

static void a_mount_that_fails_is_unwound(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_INVALID_ARGUMENT;
    go_on();
    expect_failed(STATUS_INVALID_ARGUMENT, "the guest does not");
    expect_walked("look attach ask mount unmount remove ");
}

/* Nobody was asked to mount it, so it can be taken back although nobody answers. */
static void a_guest_without_an_agent_gives_the_disk_back(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_LOOK);
    world.guest_fails = STATUS_UNIMPLEMENTED;
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_walked("look attach ask remove ");
}

static void an_attach_that_cannot_be_unmounted_is_answered(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    (void)step();
    step_until(GUEST_CALL, DRIVE_GUEST_UNMOUNT);
    world.guest_fails = STATUS_UNAVAILABLE;
    go_on();
    expect_told(1, STATUS_UNAVAILABLE, "the guest does not");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
}

/* The reason of the attach stays on record, whatever stands in the way of taking it out. */
static void what_cannot_be_unwound_is_tried_again(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    world.guest_fails = STATUS_FAILED_PRECONDITION;
    (void)step();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    world.vmm_fails = HYPERVISOR_DRIVE_PENDING;
    go_on();
    expect_told(1, STATUS_UNAVAILABLE, "the VMM does not");
    expect_row(DRIVE_REMOVING, false, STATUS_FAILED_PRECONDITION);
    attach(); /* the same: it joins, and hears what the attach came to */
    go_on();
    expect_told(2, STATUS_FAILED_PRECONDITION, "the guest does not");
    expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
}

static void what_may_heal_is_told_and_tried_again(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    attach();
    go_on();
    expect_told(1, STATUS_UNAVAILABLE, "the VMM does not");
    expect_row(DRIVE_REQUESTED, true, STATUS_UNAVAILABLE);
    drives_retry(world.drives);
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    attach();
    go_on();
    expect_told(2, STATUS_OK, "");
}

/* Another client of the monitor is soon done. */
static void a_busy_monitor_is_waited_for(void **state)
{
    (void)state;
    attach();
    for (unsigned i = 0; i < 4; i++) {
        world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
        go_on();
        assert_int_equal(world.told, 0);
        drives_retry(world.drives);
    }
    world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
    go_on();
    expect_told(1, STATUS_UNAVAILABLE, "the VMM does not");
}

/* Sandboxes are observed at each sweep. */
static void news_of_a_sandbox_are_no_reason_to_try_sooner(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_UNREACHABLE;
    attach();
    go_on();
    drives_note_sandbox(world.drives, "sandbox-1");
    go_on();
    expect_walked("look ");
    end_vm();
    go_on();
    expect_row(DRIVE_FAILED, true, STATUS_NOT_FOUND);
}

static void attempts_become_rarer_though_the_guest_is_looked_at(void **state)
{
    const struct drive_work *work = NULL;

    (void)state;
    attach();
    for (unsigned i = 1; i < 6; i++) {
        step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
        world.guest_fails = STATUS_UNAVAILABLE;
        (void)step();
        work = world.drives->works;
        assert_int_equal(work->failures, i);
        drives_retry(world.drives);
    }
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_int_equal(work->failures, 0);
}

static void an_attempt_is_due_after_a_while(void **state)
{
    (void)state;
    world.vmm_fails = HYPERVISOR_DRIVE_BUSY;
    attach();
    go_on();
    while (!drives_are_due(world.drives))
        loop_run_once(&world.node.loop);
    go_on();
    expect_told(1, STATUS_OK, "");
}

static void a_disk_in_use_in_the_guest_stays(void **state)
{
    (void)state;
    bring_in();
    world.busy = true;
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_told(2, STATUS_FAILED_PRECONDITION, "77 (cat)");
    expect_walked("unmount ask ");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    assert_true(world.mounted);
    bring_in(); /* it is there still */
    expect_walked("");
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
    expect_told(2, STATUS_FAILED_PRECONDITION, "77 (cat)");
    expect_row(DRIVE_UNMOUNTING, false, STATUS_FAILED_PRECONDITION);
    detach();
    go_on();
    expect_told(3, STATUS_OK, "");
    expect_walked("unmount ask unmount remove ");
}

static void a_disk_that_is_not_free_is_not_removed(void **state)
{
    (void)state;
    world.node.config.drives.host_prefixes.count = 2;
    bring_in();
    execute_sql(the_store(), "UPDATE drive_mounts SET kind = 'block', major = 7, minor = 1");
    detach();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_told(2, STATUS_UNAVAILABLE, "the disk cannot be had");
    expect_row(DRIVE_REMOVING, false, STATUS_UNAVAILABLE);
    world.claim = DRIVE_CLAIM_OPEN;
    detach();
    go_on();
    expect_told(3, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* ---- ends ---- */

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
    expect_told(2, STATUS_NOT_FOUND, "the VM ended");
}

static void a_lost_drive_says_whether_it_was_unmounted(void **state)
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
    expect_told(3, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_LOST);
    assert_text_of(the_store(),
                   "SELECT message LIKE '%had confirmed%' FROM drive_mounts"
                   " ORDER BY drive_ref DESC",
                   "1");
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

/* ---- the store, the daemon ---- */

static void a_pass_that_is_rolled_back_has_not_happened(void **state)
{
    (void)state;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    act(GUEST_CALL);
    execute_sql(the_store(), "PRAGMA query_only = 1");
    finish(GUEST_CALL);
    assert_false(pass());
    expect_told(1, STATUS_UNAVAILABLE, "it is full");
    expect_row(DRIVE_SEEN, true, STATUS_OK);
    execute_sql(the_store(), "PRAGMA query_only = 0");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    expect_walked("look attach ask mount look ask ");
}

static void a_stop_ends_acts_and_tells_clients(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    assert_false(drives_are_idle(world.drives));
    world.node.context.stopping = true;
    drives_stop(world.drives);
    expect_told(1, STATUS_UNAVAILABLE, "being stopped");
    assert_true(drives_are_idle(world.drives));
    assert_false(drives_are_due(world.drives));
}

static void another_store_has_no_drives(void **state)
{
    (void)state;
    attach();
    (void)step();
    drives_reset(world.drives);
    expect_told(1, STATUS_UNAVAILABLE, "another");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
}

static void a_client_that_gives_up_changes_nothing(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    assert_int_equal(drives_attach(world.drives, &asked, on_told, NULL, &wait, &error), STATUS_OK);
    assert_null(reconciler_drive_cancel(wait));
    go_on();
    assert_int_equal(world.told, 0);
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* What nobody waited for is synced before somebody is told of it. */
static void what_is_told_later_is_synced_too(void **state)
{
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    bring_in();
    assert_int_equal(drives_detach(world.drives, "data-1", on_told, NULL, &wait, &error),
                     STATUS_OK);
    assert_null(reconciler_drive_cancel(wait));
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_true(the_store()->unsynced);
    detach();
    go_on();
    expect_told(2, STATUS_OK, "");
    assert_false(the_store()->unsynced);
}

static void what_is_switched_off_can_still_be_detached(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    bring_in();
    world.node.config.drives.enabled = false;
    assert_int_equal(begin_attach(&asked), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(world.error, "drives.enabled"));
    detach();
    go_on();
    expect_told(2, STATUS_OK, "");
}

static void nothing_is_promised_before_the_node_is_known(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    world.node.context.synced = false;
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    assert_false(drives_are_due(world.drives));
}

/* ---- limits, and reading ---- */

static void limits_are_set_and_recorded(void **state)
{
    struct drive_limits limits = {.bandwidth = {.size = 1000, .refill_ms = 100}};
    struct drive_wait *wait;
    struct error error = {0};
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    (void)state;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_told, NULL, &wait, &error),
                     STATUS_NOT_FOUND);
    bring_in();
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_told, NULL, &wait, &error),
                     STATUS_OK);
    go_on();
    expect_told(2, STATUS_OK, "");
    assert_false(the_store()->unsynced);
    assert_int_equal(world.limits.bandwidth.size, 1000);
    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    assert_memory_equal(&row.request.limits, &limits, sizeof(limits));
    world.vmm_fails = HYPERVISOR_DRIVE_REFUSED;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_told, NULL, &wait, &error),
                     STATUS_OK);
    go_on();
    expect_told(3, STATUS_FAILED_PRECONDITION, "the VMM does not");
    expect_row(DRIVE_READY, true, STATUS_OK);
    limits.operations.one_time_burst = 5;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_told, NULL, &wait, &error),
                     STATUS_INVALID_ARGUMENT);
}

static void grow_disk(uint64_t bytes)
{
    execute_sql(the_store(), "UPDATE drive_mounts SET kind = 'block', major = 7, minor = 1");
    drives_retry(world.drives);
    go_on(); /* so much is known of the disk now */
    world.walked[0] = '\0';
    world.disk_bytes = bytes;
    drives_note_device(world.drives, 7, 1);
}

static void a_disk_that_grows_is_grown_in_the_guest(void **state)
{
    (void)state;
    bring_in();
    grow_disk(2 * GIB);
    go_on();
    expect_walked("resize grow ");
    assert_int_equal(world.guest_bytes, 2 * GIB);
    assert_int_equal(number_of(the_store(), "SELECT size_bytes FROM drive_mounts"), 2 * GIB);
    drives_sweep(world.drives);
    go_on();
    expect_walked("");
    world.disk_bytes = 3 * GIB; /* without an event */
    drives_sweep(world.drives);
    pass_while_due();
    world.vmm_fails = HYPERVISOR_DRIVE_REFUSED;
    go_on();
    expect_walked("resize ");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    drives_retry(world.drives);
    pass_while_due();
    act(VMM_CALL);
    finish(VMM_CALL);
    pass_while_due();
    detach(); /* a drive that is to go is not grown */
    go_on();
    expect_told(2, STATUS_OK, "");
}

static void nothing_grows_unless_it_may(void **state)
{
    (void)state;
    bring_in();
    world.node.config.resize.mode = RESIZE_OBSERVE;
    grow_disk(2 * GIB);
    go_on();
    expect_walked("");
}

static void some_vmms_are_refused(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    world.traits_of_vmm.obstacle = "it cannot be done";
    assert_int_equal(begin_attach(&asked), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(world.error, "it cannot be done"));
    world.traits_of_vmm = (struct hypervisor_drive_traits){.guest_rescans = true};
    assert_int_equal(begin_attach(&asked), STATUS_FAILED_PRECONDITION);
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 0);
}

static int note_drive(void *userdata, const struct reconciler_drive *drive)
{
    assert_string_equal(drive->drive_id, "data-1");
    assert_string_equal(drive->options, "[\"noatime\"]");
    assert_int_equal(strlen(drive->serial), DRIVE_SERIAL_CHARS);
    ++*(unsigned *)userdata;
    return 0;
}

static void drives_are_listed(void **state)
{
    unsigned count = 0;
    struct error error = {0};

    (void)state;
    bring_in();
    assert_int_equal(drives_get(world.drives, "data-1", note_drive, &count, &error), STATUS_OK);
    assert_int_equal(drives_get(world.drives, "data-2", note_drive, &count, &error),
                     STATUS_NOT_FOUND);
    assert_int_equal(drives_each(world.drives, NULL, note_drive, &count, &error), STATUS_OK);
    assert_int_equal(drives_each(world.drives, "sandbox-1", note_drive, &count, &error), STATUS_OK);
    assert_int_equal(drives_each(world.drives, "sandbox-9", note_drive, &count, &error), STATUS_OK);
    assert_int_equal(count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_drive_is_mounted_before_its_client_is_told),
        DRIVES(a_drive_is_free_before_its_client_is_told),
        DRIVES(equal_calls_join_and_others_are_refused),
        DRIVES(what_is_detached_meanwhile_is_not_attached),
        DRIVES(a_detach_overtakes_a_mount),
        DRIVES(a_disk_that_the_vmm_opens_stays_claimed),
        DRIVES(a_disk_that_cannot_be_had_fails_the_attach),
        DRIVES(a_confidential_guest_gets_no_disk),
        DRIVES(a_vm_without_a_monitor_fails_the_attach),
        DRIVES(a_disk_that_is_not_on_record_is_unmounted_first),
        DRIVES(a_disk_that_is_not_on_record_stays_while_it_is_used),
        DRIVES(a_disk_that_another_vm_has_is_not_attached),
        DRIVES(a_disk_that_another_vm_took_while_crustd_was_down_is_given_back),
        DRIVES(a_mount_that_fails_is_unwound),
        DRIVES(a_guest_without_an_agent_gives_the_disk_back),
        DRIVES(an_attach_that_cannot_be_unmounted_is_answered),
        DRIVES(what_cannot_be_unwound_is_tried_again),
        DRIVES(what_may_heal_is_told_and_tried_again),
        DRIVES(a_busy_monitor_is_waited_for),
        DRIVES(news_of_a_sandbox_are_no_reason_to_try_sooner),
        DRIVES(attempts_become_rarer_though_the_guest_is_looked_at),
        DRIVES(an_attempt_is_due_after_a_while),
        DRIVES(a_disk_in_use_in_the_guest_stays),
        DRIVES(a_disk_that_only_a_namespace_has_goes_on_its_way_out),
        DRIVES(a_disk_that_is_not_free_is_not_removed),
        DRIVES(crustd_may_end_anywhere_in_an_attach),
        DRIVES(crustd_may_end_anywhere_in_a_detach),
        DRIVES(a_vm_may_end_anywhere),
        DRIVES(a_drive_that_waits_for_its_turn_ends_with_its_vm),
        DRIVES(a_lost_drive_says_whether_it_was_unmounted),
        DRIVES(a_disk_that_somebody_took_from_the_vm_is_lost),
        DRIVES(a_pass_that_is_rolled_back_has_not_happened),
        DRIVES(a_stop_ends_acts_and_tells_clients),
        DRIVES(another_store_has_no_drives),
        DRIVES(a_client_that_gives_up_changes_nothing),
        DRIVES(what_is_told_later_is_synced_too),
        DRIVES(what_is_switched_off_can_still_be_detached),
        DRIVES(nothing_is_promised_before_the_node_is_known),
        DRIVES(limits_are_set_and_recorded),
        DRIVES(a_disk_that_grows_is_grown_in_the_guest),
        DRIVES(nothing_grows_unless_it_may),
        DRIVES(some_vmms_are_refused),
        DRIVES(drives_are_listed),
    };

    return cmocka_run_group_tests_name("drives", tests, NULL, NULL);
}
