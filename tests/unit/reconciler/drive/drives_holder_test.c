/* SPDX-License-Identifier: Apache-2.0 */
/* drives_holder_test.c - the client of a disk that somebody else has is told who that is. */
#include "tests/unit/reconciler/drive/drives_world.h"

static void expect_on_record(const char *text)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    assert_non_null(strstr(row.message, text));
}

static void the_holder_of_a_disk_is_searched_for(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    asked.writable = false;
    world.claim = DRIVE_CLAIM_TAKEN;
    world.other_has_disk = true;
    assert_int_equal(begin_attach(&asked), STATUS_OK);
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION,
                  "/dev/disk-1 is open exclusively: sandbox-9 has the disk");
    expect_on_record("sandbox-9 has the disk");
    assert_true(world.searches_for_anybody);
}

static void a_holder_that_is_not_found_has_no_name(void **state)
{
    (void)state;
    world.claim = DRIVE_CLAIM_TAKEN;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "the disk cannot be had");
    assert_true(world.searched);
}

static void a_holder_with_a_name_is_not_searched_for(void **state)
{
    (void)state;
    world.claim = DRIVE_CLAIM_IN_USE;
    attach();
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION, "the disk cannot be had");
    assert_false(world.searched);
}

/* The VMM has forgotten the descriptor that it was given before a restart of crustd. */
static void a_disk_that_is_taken_at_an_attach_has_a_holder_too(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    act(VMM_CALL);
    restart();
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    world.vmm_fails = HYPERVISOR_DRIVE_NEEDS_DESCRIPTOR;
    world.claim = DRIVE_CLAIM_TAKEN;
    finish(VMM_CALL);
    pass_while_due();
    assert_non_null(world.search);
    world.other_has_disk = true;
    go_on();
    expect_failed(STATUS_FAILED_PRECONDITION,
                  "/dev/disk-1 is open exclusively: sandbox-9 has the disk");
    expect_walked("look ask attach look remove ");
}

static void start_second_vm(void)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-2", NULL);

    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    assert_int_equal(store_commit(the_store()), 0);
}

/* crustd has claimed the disk for another drive, and nothing of that is on record yet. */
static void crustds_own_claim_has_a_name(void **state)
{
    struct reconciler_drive_attach other = attach_of("data-2");

    (void)state;
    start_second_vm();
    other.sandbox_id = "sandbox-2";
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 11};
    attach();
    while (!world.traits)
        assert_true(step());
    finish(TRAITS_CALL);
    open_disks();
    world.claim = DRIVE_CLAIM_TAKEN;
    assert_int_equal(begin_attach(&other), STATUS_OK);
    while (!world.answers)
        assert_true(step());
    expect_answer(
        1, STATUS_FAILED_PRECONDITION,
        "/dev/disk-1 is open exclusively: sandbox sandbox-1 has the disk as drive data-1, "
        "writable");
    go_on();
    expect_answer(2, STATUS_OK, "");
    expect_row(DRIVE_READY, true, STATUS_OK);
}

/* The volume is blocked while a drive has its device, and no longer. */
static void a_volume_on_the_disk_is_decided_again(void **state)
{
    struct store *store = world.node.context.store;

    (void)state;
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 3};
    (void)take_queued_volume();
    bring_in();
    assert_true(take_queued_volume());
    assert_true(get_volume(store, world.node.bound.volume_id).shared_drive);
    detach();
    go_on();
    assert_true(take_queued_volume());
    assert_false(get_volume(store, world.node.bound.volume_id).shared_drive);
}

static void a_volume_on_the_file_is_decided_again(void **state)
{
    struct store *store = world.node.context.store;

    (void)state;
    execute_sql(store, "UPDATE devices SET kind = 'file', major = 0, minor = 0, diskseq = 0,"
                       " file_device = 3, inode = 9");
    (void)take_queued_volume();
    bring_in();
    assert_true(take_queued_volume());
    assert_true(get_volume(store, world.node.bound.volume_id).shared_drive);
    detach();
    go_on();
    assert_true(take_queued_volume());
    assert_false(get_volume(store, world.node.bound.volume_id).shared_drive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(the_holder_of_a_disk_is_searched_for),
        DRIVES(a_holder_that_is_not_found_has_no_name),
        DRIVES(a_holder_with_a_name_is_not_searched_for),
        DRIVES(a_disk_that_is_taken_at_an_attach_has_a_holder_too),
        DRIVES(crustds_own_claim_has_a_name),
        DRIVES(a_volume_on_the_disk_is_decided_again),
        DRIVES(a_volume_on_the_file_is_decided_again),
    };

    return cmocka_run_group_tests_name("drives and who has their disk", tests, NULL, NULL);
}
