/* SPDX-License-Identifier: Apache-2.0 */
/* drives_free_disk_test.c - a detach is over when that very disk is free, whatever has become of
 * its path. */
#include "tests/unit/reconciler/drive/drives_world.h"

/* A drive on a block device, and a detach up to its last act. */
static int set_up_row(void **state)
{
    (void)set_up(state);
    bring_in();
    make_block_device();
    world.numbered = (struct observed_device){
        .kind = DEVICE_KIND_BLOCK, .name = "/dev/loop1", .major = 7, .minor = 1, .diskseq = 11};
    detach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_DETACH);
    return 0;
}

static void expect_held(const char *text)
{
    go_on();
    expect_answer(2, STATUS_UNAVAILABLE, text);
    expect_row(DRIVE_REMOVING, false, STATUS_UNAVAILABLE);
}

static void expect_free(void)
{
    detach(); /* at once, if an attempt has failed */
    go_on();
    expect_row(DRIVE_REMOVED, false, STATUS_OK);
}

static void a_disk_with_another_user_is_not_free(void **state)
{
    (void)state;
    world.claim = DRIVE_CLAIM_IN_USE;
    expect_held("the disk cannot be had");
    world.claim = DRIVE_CLAIM_OPEN;
    expect_free();
}

/* Without the drop-in the check would prove nothing. */
static void a_disk_that_may_not_be_opened_is_not_free(void **state)
{
    (void)state;
    world.claim = DRIVE_CLAIM_FORBIDDEN;
    expect_held("the disk cannot be had");
    world.claim = DRIVE_CLAIM_OPEN;
    expect_free();
}

static void a_disk_whose_storage_does_not_answer_is_not_free(void **state)
{
    (void)state;
    world.storage_is_dead = true;
    expect_held("its storage has not answered");
    world.storage_is_dead = false;
    expect_free();
}

static void a_disk_that_became_empty_is_free(void **state)
{
    (void)state;
    world.claim = DRIVE_CLAIM_UNSUITABLE;
    expect_free();
}

/* It is mounted there, for example. */
static void users_of_another_disk_hold_nothing_up(void **state)
{
    (void)state;
    world.disk.minor = 2;
    world.claim = DRIVE_CLAIM_IN_USE;
    expect_free();
}

/* As disk 12, in the place of disk 11. */
static void a_number_may_have_another_disk(void **state)
{
    (void)state;
    world.disk.diskseq = world.numbered.diskseq = 12;
    world.claim = DRIVE_CLAIM_IN_USE;
    expect_free();
}

/* The path leads to somebody else's, which does not answer. */
static void a_disk_that_is_gone_waits_for_no_other(void **state)
{
    (void)state;
    world.disk.minor = 2;
    world.storage_is_dead = true;
    world.numbered.name[0] = '\0';
    expect_free();
}

static void a_disk_is_found_by_its_number(void **state)
{
    (void)state;
    world.disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_OTHER};
    world.claim = DRIVE_CLAIM_MISSING;
    world.by_name = DRIVE_CLAIM_IN_USE;
    expect_held("the numbered disk cannot be had");
    world.by_name = DRIVE_CLAIM_OPEN;
    expect_free();
}

static void a_disk_that_no_path_leads_to_is_not_free(void **state)
{
    (void)state;
    world.disk.minor = 2;
    world.numbered.kind = DEVICE_KIND_OTHER;
    world.by_name = DRIVE_CLAIM_MISSING;
    expect_held("7:1) is free cannot be seen: the numbered disk cannot be had");
    world.numbered.name[0] = '\0'; /* the node does not have it any more */
    expect_free();
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up_row, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_disk_with_another_user_is_not_free),
        ROW(a_disk_that_may_not_be_opened_is_not_free),
        ROW(a_disk_whose_storage_does_not_answer_is_not_free),
        ROW(a_disk_that_became_empty_is_free),
        ROW(users_of_another_disk_hold_nothing_up),
        ROW(a_number_may_have_another_disk),
        ROW(a_disk_that_is_gone_waits_for_no_other),
        ROW(a_disk_is_found_by_its_number),
        ROW(a_disk_that_no_path_leads_to_is_not_free),
    };

    return cmocka_run_group_tests_name("drives and free disks", tests, NULL, NULL);
}
