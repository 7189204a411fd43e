/* SPDX-License-Identifier: Apache-2.0 */
/* drives_disk_test.c - who has the disk of a drive: the claim that crustd keeps, the holder of a
 * disk that cannot be claimed, volumes on it, and when it is free again. */
#include "tests/unit/reconciler/drive/drives_fixture.h"

/* ---- the claim: of Cloud Hypervisor, which opens the path and makes none ---- */

/* Somebody had the disk open when crustd came back. */
static void a_claim_that_was_lost_is_made_again(void **state)
{
    world.opens_path = true;
    bring_in();
    restart();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    assert_false(is_claimed());
    expect_message("others can open it: the disk cannot be had");
    attach(); /* the client is told so, too */
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_non_null(strstr(world.message, "others can open it"));
    expect_message("others can open it: the disk cannot be had");
    world.claim = DRIVE_CLAIM_OPEN;
    drives_sweep(world.drives);
    go_on();
    assert_true(is_claimed());
    expect_message("");
    detach();
    go_on();
    assert_false(is_claimed());
    expect_answer(3, STATUS_OK, "");
}

/* crustd was killed between the attach and its record, and the host has mounted the disk since. */
static void begin_attach_without_claim(void)
{
    world.opens_path = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    act(VMM_CALL);
    restart();
    attach();
    world.walked[0] = '\0';
}

static void nothing_is_attached_without_its_claim(void **state)
{
    begin_attach_without_claim();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_walked("look remove ");
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not get it: the disk cannot be had");
}

static void an_attach_waits_for_a_claim_that_heals(void **state)
{
    begin_attach_without_claim();
    world.storage_is_dead = true;
    go_on();
    expect_walked("look ");
    expect_answer(1, STATUS_UNAVAILABLE, "its storage has not answered");
    expect_row(DRIVE_CLAIMED, true, STATUS_UNAVAILABLE);
    drives_sweep(world.drives);
    go_on();
    expect_walked("");
    world.storage_is_dead = false;
    try_again();
    expect_walked("attach ask mount ");
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_true(is_claimed());
}

/* Its guest has lost it, and somebody else has the disk. */
static void nothing_is_mounted_again_without_its_claim(void **state)
{
    world.opens_path = true;
    bring_in();
    restart();
    world.mounted = false;
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_walked("look ask ");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    try_again();
    expect_walked("");
    world.claim = DRIVE_CLAIM_OPEN;
    try_again();
    expect_walked("mount ");
    expect_message("");
    assert_true(is_claimed());
}

/* ---- the holder of a disk that somebody else has ---- */

/* Searched for where the kernel does not name it, by who only reads as well. */
static void the_holder_of_a_disk_is_named(void **state)
{
    static const struct {
        enum drive_claim_outcome claim;
        bool has_holder, searched;
        const char *text;
    } cases[] = {
        {DRIVE_CLAIM_TAKEN, true, true, "/dev/disk-1 is open exclusively: sandbox-9 has the disk"},
        {DRIVE_CLAIM_TAKEN, false, true, "the disk cannot be had"},
        {DRIVE_CLAIM_IN_USE, true, false, "the disk cannot be had"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct reconciler_drive_attach asked = attach_of("data-1");

        asked.writable = false;
        world.searched = world.searches_for_anybody = false;
        world.claim = cases[i].claim;
        world.other_has_disk = cases[i].has_holder;
        assert_int_equal(begin_attach(&asked), STATUS_OK);
        go_on();
        expect_failed(STATUS_FAILED_PRECONDITION, cases[i].text);
        expect_message(cases[i].text);
        assert_int_equal(world.searched, cases[i].searched);
        assert_int_equal(world.searches_for_anybody, cases[i].searched);
    }
}

/* The VMM has forgotten the descriptor that it was given before a restart of crustd. */
static void a_disk_that_is_taken_at_an_attach_has_a_holder_too(void **state)
{
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    act(VMM_CALL);
    restart();
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
    world.vmm = HYPERVISOR_DRIVE_PARTIAL;
    world.vmm_fails = HYPERVISOR_NEEDS_DESCRIPTOR;
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

/* Blocked while a drive has its device, or its file, and no longer. */
static void a_volume_on_the_disk_is_decided_again(void **state)
{
    for (unsigned is_file = 0; is_file < 2; is_file++) {
        begin_anew();
        if (is_file)
            execute_sql(the_store(), "UPDATE devices SET kind = 'file', major = 0, minor = 0,"
                                     " diskseq = 0, file_device = 3, inode = 9");
        else
            world.disk = block_device;
        (void)take_queued_volume();
        bring_in();
        assert_true(take_queued_volume());
        assert_true(volume_is_shared());
        detach();
        go_on();
        assert_true(take_queued_volume());
        assert_false(volume_is_shared());
    }
}

/* ---- a detach is over when that very disk is free, whatever has become of its path ---- */

/* A drive on a block device, and a detach up to its last act. */
static void detach_to_the_end(void)
{
    begin_anew();
    bring_in();
    make_block_device();
    world.numbered = (struct observed_device){
        .kind = DEVICE_KIND_BLOCK, .name = "/dev/loop1", .major = 7, .minor = 1, .diskseq = 3};
    detach();
    step_until(VMM_CALL, HYPERVISOR_DETACH);
}

/* disk: that the path leads to now. held: why it is not known to be free; NULL: it is. */
static const struct {
    const char *what;
    enum drive_claim_outcome claim, by_name;
    bool storage_is_dead, number_is_gone, number_is_no_disk;
    struct store_drive_mount_disk disk;
    const char *held;
} free_disks[] = {
    {"another user has it", .claim = DRIVE_CLAIM_IN_USE, .disk = BLOCK_DEVICE,
     .held = "the disk cannot be had"},
    {"it may not be opened, so nothing is proved", .claim = DRIVE_CLAIM_FORBIDDEN,
     .disk = BLOCK_DEVICE, .held = "the disk cannot be had"},
    {"its storage does not answer", .storage_is_dead = true, .disk = BLOCK_DEVICE,
     .held = "its storage has not answered"},
    {"it became empty", .claim = DRIVE_CLAIM_UNSUITABLE, .disk = BLOCK_DEVICE},
    {"another disk at its path is mounted", .claim = DRIVE_CLAIM_IN_USE,
     .disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 2, .diskseq = 3}},
    {"its number has another disk", .claim = DRIVE_CLAIM_IN_USE,
     .disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 12}},
    {"it is gone, and another one at its path does not answer", .storage_is_dead = true,
     .number_is_gone = true,
     .disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 2, .diskseq = 3}},
    {"it is found by its number", .claim = DRIVE_CLAIM_MISSING, .by_name = DRIVE_CLAIM_IN_USE,
     .disk = {.kind = DEVICE_KIND_OTHER}, .held = "the numbered disk cannot be had"},
    {"no path leads to it", .by_name = DRIVE_CLAIM_MISSING, .number_is_no_disk = true,
     .disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 2, .diskseq = 3},
     .held = "7:1) is free cannot be seen: the numbered disk cannot be had"},
};

static void a_detach_waits_for_its_own_disk_to_be_free(void **state)
{
    for (size_t i = 0; i < array_length(free_disks); i++) {
        detach_to_the_end();
        world.claim = free_disks[i].claim;
        world.by_name = free_disks[i].by_name;
        world.storage_is_dead = free_disks[i].storage_is_dead;
        world.disk = free_disks[i].disk;
        world.numbered.diskseq = world.disk.diskseq ? world.disk.diskseq : 3;
        if (free_disks[i].number_is_gone)
            world.numbered.name[0] = '\0';
        if (free_disks[i].number_is_no_disk)
            world.numbered.kind = DEVICE_KIND_OTHER;
        go_on();
        if (free_disks[i].held) {
            expect_answer(2, STATUS_UNAVAILABLE, free_disks[i].held);
            expect_row(DRIVE_REMOVING, false, STATUS_UNAVAILABLE);
            world.claim = world.by_name = DRIVE_CLAIM_OPEN;
            world.storage_is_dead = false;
            if (free_disks[i].number_is_no_disk)
                world.numbered.name[0] = '\0'; /* the node does not have it any more */
        }
        detach(); /* at once, if an attempt has failed */
        go_on();
        expect_answer(3, STATUS_OK, "");
        expect_row(DRIVE_REMOVED, false, STATUS_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_claim_that_was_lost_is_made_again),
        DRIVES(nothing_is_attached_without_its_claim),
        DRIVES(an_attach_waits_for_a_claim_that_heals),
        DRIVES(nothing_is_mounted_again_without_its_claim),
        DRIVES(the_holder_of_a_disk_is_named),
        DRIVES(a_disk_that_is_taken_at_an_attach_has_a_holder_too),
        DRIVES(a_volume_on_the_disk_is_decided_again),
        DRIVES(a_detach_waits_for_its_own_disk_to_be_free),
    };

    return cmocka_run_group_tests_name("drives and their disks", tests, NULL, NULL);
}
