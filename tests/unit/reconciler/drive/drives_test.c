/* SPDX-License-Identifier: Apache-2.0 */
/* drives_test.c - drives brought in and taken out again: the order of the acts, what
 * clients are told, and what the store and the daemon do meanwhile. */
#include "tests/unit/reconciler/drive/drives_world.h"

#include "reconciler/drive/drive_work.h"

static void attach_is_answered_once_the_drive_is_mounted(void **state)
{
    (void)state;
    attach();
    for (unsigned i = 0; i < 20 && !world.mounted; i++) {
        assert_int_equal(world.answers, 0);
        assert_true(step());
    }
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("look ask attach mount ");
    assert_true(world.searched);
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* So of two drives of one file that are attached at the same time, at least one finds the other. */
static void the_claim_is_recorded_before_other_users_are_searched_for(void **state)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    (void)state;
    attach();
    while (!world.search)
        assert_true(step());
    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    assert_true(row.has_disk);
    expect_walked("look ask ");
    go_on();
    expect_answer(1, STATUS_OK, "");
    expect_walked("attach mount ");
}

static void detach_is_answered_once_the_disk_is_free(void **state)
{
    (void)state;
    bring_in();
    world.walked[0] = '\0';
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_REMOVED);
    expect_walked("unmount remove ");
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    detach(); /* again: it is not there */
    go_on();
    expect_answer(3, STATUS_OK, "");
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
    expect_answer(2, STATUS_OK, "");
    attach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    expect_walked("look ask attach mount look ask ");
    other.writable = false;
    other.options = 0;
    assert_int_equal(begin_attach(&other), STATUS_ALREADY_EXISTS);
    assert_int_equal(begin_attach(&place), STATUS_ALREADY_EXISTS);
    nowhere.sandbox_id = "sandbox-9";
    assert_int_equal(begin_attach(&nowhere), STATUS_NOT_FOUND);
    assert_non_null(strstr(world.error, "sandbox-9"));
}

static void a_drive_detached_meanwhile_is_not_attached(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    attach();
    (void)step();
    detach();
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    go_on();
    assert_int_equal(world.answers, 2);
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
    assert_int_equal(world.answers, 2);
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

/* A container whose creation is cut off could keep the disk mounted for good. */
static void a_detach_waits_for_a_container(void **state)
{
    (void)state;
    world.has_container = true;
    attach();
    step_until(GUEST_CALL, DRIVE_GUEST_MOUNT);
    act(GUEST_CALL);
    detach();
    pass_while_due();
    assert_int_equal(world.guest_call->act, DRIVE_GUEST_MOUNT);
    finish(GUEST_CALL);
    go_on();
    assert_int_equal(world.answers, 2);
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

/* ---- slots ---- */

static struct drive_work *add_other(int64_t drive_ref, const char *sandbox_id)
{
    struct drive_work *work = drive_work_add(world.drives, drive_ref, sandbox_id);

    assert_non_null(work);
    work->due = false;
    work->row.drive_ref = drive_ref;
    work->row.wanted = true;
    return work;
}

/* As many as there may be walk over their file systems. */
static unsigned begin_walks(const char *sandbox_id)
{
    static unsigned others;

    for (unsigned count = 0;; count++) {
        struct drive_work *work = add_other(1000 + others++, sandbox_id);

        work->act = DRIVE_MOUNT;
        if (!drives_have_slot(world.drives, work))
            return count;
        work->step = DRIVE_RUNNING;
    }
}

static void a_detach_waits_for_no_other_drives_mount(void **state)
{
    (void)state;
    bring_in();
    assert_true(begin_walks("sandbox-8") > 1);
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

static void one_sandbox_does_not_take_all_slots(void **state)
{
    (void)state;
    assert_true(begin_walks("sandbox-9") > 1);
    attach();
    go_on();
    expect_answer(1, STATUS_OK, "");
}

static void a_drive_whose_act_has_ended_lets_others_go_first(void **state)
{
    const struct drive_work *work;

    (void)state;
    attach();
    pass_while_due();
    work = world.drives->works;
    (void)add_other(1000, "sandbox-9");
    (void)step();
    assert_ptr_equal(world.drives->works->next, work);
    assert_null(work->next);
    go_on();
    expect_answer(1, STATUS_OK, "");
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
    expect_answer(1, STATUS_UNAVAILABLE, "it is full");
    expect_row(DRIVE_SEEN, true, STATUS_OK);
    execute_sql(the_store(), "PRAGMA query_only = 0");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
    expect_walked("look ask attach mount look ask ");
}

static void stop_ends_acts_and_answers_clients(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    assert_false(drives_are_idle(world.drives));
    world.node.context.stopping = true;
    drives_stop(world.drives);
    expect_answer(1, STATUS_UNAVAILABLE, "being stopped");
    assert_true(drives_are_idle(world.drives));
    assert_false(drives_are_due(world.drives));
}

static void another_store_has_no_drives(void **state)
{
    (void)state;
    attach();
    (void)step();
    drives_reset(world.drives);
    expect_answer(1, STATUS_UNAVAILABLE, "database was replaced");
    go_on();
    expect_row(DRIVE_READY, true, STATUS_OK);
}

static void a_client_that_gives_up_changes_nothing(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    assert_int_equal(drives_attach(world.drives, &asked, on_answer, NULL, &wait, &error),
                     STATUS_OK);
    assert_null(reconciler_drive_cancel(wait));
    go_on();
    assert_int_equal(world.answers, 0);
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* What nobody waited for is synced before somebody is told of it. */
static void later_answers_are_synced_too(void **state)
{
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    bring_in();
    assert_int_equal(drives_detach(world.drives, "data-1", on_answer, NULL, &wait, &error),
                     STATUS_OK);
    assert_null(reconciler_drive_cancel(wait));
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
    assert_true(the_store()->unsynced);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_false(the_store()->unsynced);
}

/* Other passes of the reconciler cost nothing, however many clients wait. */
static void clients_are_looked_at_only_if_something_happened(void **state)
{
    (void)state;
    bring_in();
    attach();
    assert_false(drive_waits_are_over(world.drives));
    assert_int_equal(drives_go_on(world.drives), 0);
    assert_int_equal(world.answers, 1);
    go_on();
    expect_answer(2, STATUS_OK, "");
}

static void drives_can_be_detached_while_drives_are_off(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    bring_in();
    world.node.config.drives.enabled = false;
    assert_int_equal(begin_attach(&asked), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(world.error, "drives.enabled"));
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
}

static void nothing_is_promised_before_the_node_is_known(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    world.node.context.synced = false;
    assert_int_equal(begin_attach(&asked), STATUS_UNAVAILABLE);
    assert_false(drives_are_due(world.drives));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(attach_is_answered_once_the_drive_is_mounted),
        DRIVES(the_claim_is_recorded_before_other_users_are_searched_for),
        DRIVES(detach_is_answered_once_the_disk_is_free),
        DRIVES(equal_calls_join_and_others_are_refused),
        DRIVES(a_drive_detached_meanwhile_is_not_attached),
        DRIVES(a_detach_overtakes_a_mount),
        DRIVES(a_detach_waits_for_a_container),
        DRIVES(a_disk_that_the_vmm_opens_stays_claimed),
        DRIVES(a_detach_waits_for_no_other_drives_mount),
        DRIVES(one_sandbox_does_not_take_all_slots),
        DRIVES(a_drive_whose_act_has_ended_lets_others_go_first),
        DRIVES(a_pass_that_is_rolled_back_has_not_happened),
        DRIVES(stop_ends_acts_and_answers_clients),
        DRIVES(another_store_has_no_drives),
        DRIVES(a_client_that_gives_up_changes_nothing),
        DRIVES(later_answers_are_synced_too),
        DRIVES(clients_are_looked_at_only_if_something_happened),
        DRIVES(drives_can_be_detached_while_drives_are_off),
        DRIVES(nothing_is_promised_before_the_node_is_known),
    };

    return cmocka_run_group_tests_name("drives", tests, NULL, NULL);
}
