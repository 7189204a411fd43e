/* SPDX-License-Identifier: Apache-2.0 */
/* drives_test.c - what clients of drives are told, and when; and drives that are there: limits,
 * growth, and their containers. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

/* ---- clients ---- */

/* So of two drives of one file that are attached at the same time, at least one finds the other. */
static void the_claim_is_recorded_before_other_users_are_searched_for(void **state)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    attach();
    attach(); /* an equal call joins */
    while (!world.search)
        assert_true(step());
    assert_int_equal(store_get_drive_mount(the_store(), "data-1", 0, &row), STORE_FOUND);
    assert_true(row.has_disk);
    expect_walked("look ask ");
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("attach mount ");
}

/* is_first: attached anew. The others: whether that is the drive that they ask for. */
#define IN_C1                                                                                      \
    {                                                                                              \
        "c1", "/in", "a", false                                                                    \
    }
static const struct request {
    const char *what;
    struct reconciler_drive_container container;
    bool is_first, is_another, has_fs_group;
    uint32_t fs_group;
    enum drive_group_policy policy;
    enum drive_fsck fsck;
    uint64_t operations;
} requests[] = {
    {"without a group", IN_C1, .is_first = true, .fs_group = 7},
    {"a group that does not count", IN_C1, .fs_group = 8},
    {"limits", IN_C1, .operations = 9},
    {"root's group", IN_C1, .is_another = true, .has_fs_group = true},
    {"a check", IN_C1, .is_another = true, .fsck = DRIVE_FSCK_PREEN},
    {"a container that only reads", {"c1", "/in", "a", true}, .is_another = true},
    {"another place in it", {"c1", "/on", "a", false}, .is_another = true},
    {"another directory", {"c1", "/in", "b", false}, .is_another = true},
    {"another container", {"c2", "/in", "a", false}, .is_another = true},
    {"with a group", IN_C1, .is_first = true, .has_fs_group = true, .fs_group = 7},
    {"the same", IN_C1, .has_fs_group = true, .fs_group = 7, .operations = 9},
    {"another group", IN_C1, .is_another = true, .has_fs_group = true, .fs_group = 8},
    {"another policy", IN_C1, .is_another = true, .has_fs_group = true, .fs_group = 7,
     .policy = DRIVE_GROUP_ON_ROOT_MISMATCH},
};

static void some_parameters_make_it_another_drive(void **state)
{
    for (size_t i = 0; i < array_length(requests); i++) {
        const struct request *given = &requests[i];
        struct reconciler_drive_attach asked = attach_of("data-1");

        print_message("%s\n", given->what);
        if (given->is_first)
            begin_anew();
        asked.containers = 1;
        asked.container = &given->container;
        asked.has_fs_group = given->has_fs_group;
        asked.fs_group = given->fs_group;
        asked.fs_group_policy = given->policy;
        asked.fsck = given->fsck;
        if (given->operations)
            asked.limits.operations =
                (struct drive_bucket){.size = given->operations, .refill_ms = 100};
        assert_int_equal(begin_attach(&asked),
                         given->is_another ? STATUS_ALREADY_EXISTS : STATUS_OK);
        assert_non_null(strstr(world.error, given->is_another ? "other parameters" : ""));
        go_on();
        assert_int_equal(world.code, STATUS_OK);
        assert_int_equal(number_of(the_store(), "SELECT operations_size FROM drive_mounts"), 0);
    }
}

static void a_drive_detached_meanwhile_is_not_attached(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    attach();
    (void)step();
    detach();
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    go_on();
    assert_int_equal(world.answers, 2);
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
}

/* The guest would walk for long. But a container whose creation is cut off could keep the disk
 * mounted for good. */
static void a_detach_overtakes_a_mount_but_not_a_container(void **state)
{
    for (unsigned has_container = 0; has_container < 2; has_container++) {
        world.has_container = has_container;
        world.answers = 0;
        attach();
        step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
        act(GUEST_CALL);
        detach();
        pass_while_due();
        assert_int_equal(world.guest_call->act,
                         has_container ? DRIVE_CLIENT_MOUNT : DRIVE_CLIENT_UNMOUNT);
        if (has_container)
            finish(GUEST_CALL);
        go_on();
        assert_int_equal(world.answers, 2);
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
    }
}

/* As many drives of other VMs as there may be walk over their file systems. */
static unsigned begin_walks(const char *sandbox_id)
{
    static int64_t others = 1000;

    for (unsigned count = 0;; count++) {
        struct drive_work *work = drive_work_add(world.drives, others++, sandbox_id);

        assert_non_null(work);
        work->due = false;
        work->row.wanted = true;
        work->act = DRIVE_MOUNT;
        if (!drives_have_slot(world.drives, work))
            return count;
        work->step = DRIVE_RUNNING;
    }
}

/* One sandbox does not take all slots. */
static void a_detach_waits_for_no_other_drives_mount(void **state)
{
    assert_true(begin_walks("sandbox-8") > 1);
    bring_in();
    assert_true(begin_walks("sandbox-9") > 1);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    attach();
    go_on();
    assert_int_equal(world.answers, 2);
    world.drives->works->step = DRIVE_IDLE; /* one of the walks is over */
    drives_give_slots(world.drives);
    go_on();
    expect_answer(3, STATUS_OK, "");
}

static void a_pass_that_is_rolled_back_has_not_happened(void **state)
{
    world.opens_path = true;
    attach();
    step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
    act(GUEST_CALL);
    execute_sql(the_store(), "PRAGMA query_only = 1");
    finish(GUEST_CALL);
    assert_false(pass());
    expect_answer(1, STATUS_UNAVAILABLE, "it is full");
    expect_row(DRIVE_SEEN, true, STATUS_OK);
    assert_true(is_claimed());
    execute_sql(the_store(), "PRAGMA query_only = 0");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    expect_walked("look ask attach mount look ask ");
}

static void stop_ends_acts_and_answers_clients(void **state)
{
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    assert_false(drives_are_idle(world.drives));
    world.node.context.stopping = true;
    drives_stop(world.drives);
    expect_answer(1, STATUS_UNAVAILABLE, "being stopped");
    assert_true(drives_are_idle(world.drives));
    assert_false(drives_are_due(world.drives));
}

/* What nobody waited for is synced before somebody is told of it. */
static void a_client_that_gives_up_changes_nothing(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");
    struct drive_wait *wait;
    struct error error = {0};

    assert_int_equal(reconciler_attach_drive(&(struct reconciler){.drives = world.drives}, &asked,
                                             on_answer, NULL, &wait, &error),
                     STATUS_OK);
    assert_null(reconciler_drive_cancel(wait));
    go_on();
    assert_int_equal(world.answers, 0);
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_null(reconciler_drive_cancel(detach_drive("data-1")));
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_true(the_store()->unsynced);
    detach();
    go_on();
    expect_answer(1, STATUS_OK, "");
    assert_false(the_store()->unsynced);
}

static void nothing_is_promised_before_the_node_is_known(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    world.node.context.synced = false;
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    assert_false(drives_are_due(world.drives));
}

/* ---- limits, and growth ---- */

/* Nor do they make it another drive. */
static void limits_that_the_vmm_refuses_are_not_recorded(void **state)
{
    struct drive_limits limits = {.bandwidth = {.size = 1000, .refill_ms = 100}};
    struct drive_wait *wait;
    struct error error = {0};

    bring_in();
    for (unsigned i = 0; i < 2; i++) {
        world.vmm_fails = i ? HYPERVISOR_REFUSED : HYPERVISOR_DONE;
        assert_int_equal(reconciler_limit_drive(&(struct reconciler){.drives = world.drives},
                                                "data-1", &limits, on_answer, NULL, &wait, &error),
                         STATUS_OK);
        limits.bandwidth.size = 2000;
        go_on();
        expect_row(DRIVE_READY, true, STATUS_OK);
        assert_int_equal(number_of(the_store(), "SELECT bandwidth_size FROM drive_mounts"), 1000);
    }
    expect_answer(3, STATUS_FAILED_PRECONDITION, "the VMM does not");
    attach();
    go_on();
    expect_answer(4, STATUS_OK, "");
    assert_int_equal(world.limits.bandwidth.size, 1000);
}

/* When a drive is attached and when its limits are changed, of bytes and of operations. */
static void only_cloud_hypervisor_has_a_one_time_burst(void **state)
{
    const struct drive_bucket bucket = {.size = 1, .refill_ms = 100, .one_time_burst = 1};
    const struct drive_limits limits[] = {{.bandwidth = bucket}, {.operations = bucket}};

    for (unsigned i = 0; i < 2 * array_length(limits); i++) {
        const bool has_burst = i % 2;
        const enum status_code expected = has_burst ? STATUS_OK : STATUS_INVALID_ARGUMENT;
        struct reconciler_drive_attach asked = attach_of("data-1");
        struct drive_wait *wait;
        struct error error = {0};

        begin_anew();
        if (has_burst) {
            world.kind = HYPERVISOR_CLOUD_HYPERVISOR;
            execute_sql(the_store(), "UPDATE sandboxes SET hypervisor = 'cloud-hypervisor'");
        }
        asked.limits = limits[i / 2];
        assert_int_equal(begin_attach(&asked), expected);
        assert_non_null(strstr(world.error, has_burst ? "" : "QEMU has no one-time burst"));
        go_on();
        if (!has_burst)
            bring_in();
        assert_int_equal(reconciler_limit_drive(&(struct reconciler){.drives = world.drives},
                                                "data-1", &asked.limits, on_answer, NULL, &wait,
                                                &error),
                         expected);
        go_on();
        assert_int_equal(world.code, STATUS_OK);
    }
}

static void grow_disk(uint64_t bytes)
{
    make_block_device();
    try_again(); /* so much is known of the disk now */
    world.walked[0] = '\0';
    world.disk_bytes = bytes;
    drives_note_device(world.drives, 7, 1);
}

static void a_disk_that_grows_is_grown_in_the_guest(void **state)
{
    bring_in();
    grow_disk(2 * GIB);
    go_on();
    expect_walked("resize grow ");
    assert_int_equal(world.guest_bytes, 2 * GIB);
    drives_sweep(world.drives);
    go_on();
    expect_walked("");
    world.disk_bytes = 3 * GIB; /* without an event */
    drives_sweep(world.drives);
    pass_while_due();
    world.vmm_fails = HYPERVISOR_REFUSED;
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
    expect_answer(2, STATUS_OK, "");
}

static void a_disk_that_grows_before_its_mount_is_mounted_and_grown(void **state)
{
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    make_block_device();
    world.disk_bytes = 2 * GIB;
    world.walked[0] = '\0';
    go_on();
    expect_walked("attach resize mount grow ");
    assert_int_equal(world.mount_bytes, 2 * GIB);
    assert_int_equal(world.guest_bytes, 2 * GIB);
    expect_answer(1, STATUS_OK, "");
}

/* By the mode, or of this kind of VMM. */
static void nothing_grows_unless_it_may(void **state)
{
    world.kind = HYPERVISOR_FIRECRACKER;
    execute_sql(the_store(), "UPDATE sandboxes SET hypervisor = 'firecracker'");
    bring_in();
    grow_disk(2 * GIB);
    go_on();
    world.node.config.resize.firecracker = true;
    world.node.config.resize.mode = RESIZE_OBSERVE;
    drives_sweep(world.drives);
    go_on();
    expect_walked("");
    world.node.config.resize.mode = RESIZE_GROW;
    drives_sweep(world.drives);
    go_on();
    expect_walked("resize grow ");
}

/* Somebody has unmounted it in the guest, or taken it out of the VM. */
static void a_drive_that_is_asked_for_again_is_looked_at(void **state)
{
    bring_in();
    world.mounted = false;
    attach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_walked("look ask mount ");
    assert_true(world.mounted);
    world.mounted = false;
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    attach();
    go_on();
    expect_answer(3, STATUS_FAILED_PRECONDITION, "another client removed the disk");
    expect_row(DRIVE_LOST, true, STATUS_OK);
}

/* ---- containers ---- */

static enum status_code attach_with_container(const char *path)
{
    const struct reconciler_drive_container container = {"c1", path, "", false};
    struct reconciler_drive_attach asked = attach_of("data-1");

    asked.containers = 1;
    asked.container = &container;
    return begin_attach(&asked);
}

static void bring_in_with_container(void)
{
    assert_int_equal(attach_with_container("/in"), STATUS_OK);
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

/* Of Cloud Hypervisor: to enter them mounts the drive where the guest has lost it. */
static void no_container_is_entered_without_the_claim(void **state)
{
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

/* crustd was killed when the drive was in its place, and perhaps in no container. Without the claim
 * that is undone, and also if a container cannot have it. */
static void a_mount_that_was_cut_off_is_done_again_or_undone(void **state)
{
    for (unsigned lacks_claim = 0; lacks_claim < 2; lacks_claim++) {
        begin_anew();
        world.opens_path = lacks_claim;
        assert_int_equal(attach_with_container("/in"), STATUS_OK);
        step_until(GUEST_CALL, DRIVE_CLIENT_MOUNT);
        act(GUEST_CALL);
        assert_true(world.mounted);
        restart();
        world.walked[0] = '\0';
        world.claim = lacks_claim ? DRIVE_CLAIM_IN_USE : DRIVE_CLAIM_OPEN;
        world.lacks_container = !lacks_claim;
        go_on();
        expect_walked(lacks_claim ? "look ask unmount remove " : "look ask mount unmount remove ");
        expect_row(DRIVE_FAILED, false, STATUS_FAILED_PRECONDITION);
    }
}

/* What a guest has that did not answer is not known. */
static void a_growth_that_fails_keeps_no_container_from_the_drive(void **state)
{
    bring_in_with_container();
    grow_disk(2 * GIB);
    step_until(GUEST_CALL, DRIVE_CLIENT_GROW);
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

/* A silent guest is asked again, and the drive is not looked for: it is known to be there. */
static void containers_get_the_drive_again(void **state)
{
    bring_in_with_container();
    assert_int_equal(attach_with_container("/other"), STATUS_ALREADY_EXISTS);
    restart();
    go_on();
    expect_walked("look ask mount ");
    world.guest_fails = STATUS_UNAVAILABLE;
    the_sandbox_changes();
    expect_row(DRIVE_READY, true, STATUS_OK);
    the_sandbox_changes();
    expect_walked("mount mount ");
    drives_note_sandbox(world.drives, "sandbox-1");
    pass_while_due();
    assert_int_equal(world.guest_call->act, DRIVE_CLIENT_MOUNT);
    detach(); /* waits for none of it */
    pass_while_due();
    assert_int_equal(world.guest_call->act, DRIVE_CLIENT_UNMOUNT);
    go_on();
    expect_answer(2, STATUS_OK, "");
    bring_in();
    the_sandbox_changes();
    expect_walked(""); /* this one is in no container */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(the_claim_is_recorded_before_other_users_are_searched_for),
        DRIVES(some_parameters_make_it_another_drive),
        DRIVES(a_drive_detached_meanwhile_is_not_attached),
        DRIVES(a_detach_overtakes_a_mount_but_not_a_container),
        DRIVES(a_detach_waits_for_no_other_drives_mount),
        DRIVES(a_pass_that_is_rolled_back_has_not_happened),
        DRIVES(stop_ends_acts_and_answers_clients),
        DRIVES(a_client_that_gives_up_changes_nothing),
        DRIVES(nothing_is_promised_before_the_node_is_known),
        DRIVES(limits_that_the_vmm_refuses_are_not_recorded),
        DRIVES(only_cloud_hypervisor_has_a_one_time_burst),
        DRIVES(a_disk_that_grows_is_grown_in_the_guest),
        DRIVES(a_disk_that_grows_before_its_mount_is_mounted_and_grown),
        DRIVES(nothing_grows_unless_it_may),
        DRIVES(a_drive_that_is_asked_for_again_is_looked_at),
        DRIVES(no_container_is_entered_without_the_claim),
        DRIVES(a_mount_that_was_cut_off_is_done_again_or_undone),
        DRIVES(a_growth_that_fails_keeps_no_container_from_the_drive),
        DRIVES(containers_get_the_drive_again),
    };

    return cmocka_run_group_tests_name("drives", tests, NULL, NULL);
}
