/* SPDX-License-Identifier: Apache-2.0 */
/* drives_ready_test.c - limits, growth and lists of drives that are there, and VMMs that take
 * none. */
#include "tests/unit/reconciler/drive/drives_world.h"

static void limits_are_set_and_recorded(void **state)
{
    struct drive_limits limits = {.bandwidth = {.size = 1000, .refill_ms = 100}};
    struct drive_wait *wait;
    struct error error = {0};
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    (void)state;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_answer, NULL, &wait, &error),
                     STATUS_NOT_FOUND);
    bring_in();
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_answer, NULL, &wait, &error),
                     STATUS_OK);
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_false(the_store()->unsynced);
    assert_int_equal(world.limits.bandwidth.size, 1000);
    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    assert_memory_equal(&row.request.limits, &limits, sizeof(limits));
    world.vmm_fails = HYPERVISOR_DRIVE_REFUSED;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_answer, NULL, &wait, &error),
                     STATUS_OK);
    go_on();
    expect_answer(3, STATUS_FAILED_PRECONDITION, "the VMM does not");
    expect_row(DRIVE_READY, true, STATUS_OK);
    limits.operations.one_time_burst = 5;
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_answer, NULL, &wait, &error),
                     STATUS_INVALID_ARGUMENT);
}

static void grow_disk(uint64_t bytes)
{
    make_block_device();
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
    expect_answer(2, STATUS_OK, "");
}

static void a_disk_that_grows_before_its_mount_is_mounted_and_grown(void **state)
{
    (void)state;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    make_block_device();
    world.disk_bytes = 2 * GIB;
    world.walked[0] = '\0';
    go_on();
    expect_walked("attach resize mount grow ");
    assert_int_equal(world.mount_bytes, 2 * GIB);
    assert_int_equal(world.guest_bytes, 2 * GIB);
    expect_answer(1, STATUS_OK, "");
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

static void no_vmm_is_told_of_growth_against_the_configuration(void **state)
{
    (void)state;
    world.kind = HYPERVISOR_FIRECRACKER;
    execute_sql(the_store(), "UPDATE sandboxes SET hypervisor = 'firecracker'");
    bring_in();
    grow_disk(2 * GIB);
    go_on();
    expect_walked("");
    world.node.config.resize.firecracker = true;
    drives_sweep(world.drives);
    go_on();
    expect_walked("resize grow ");
}

static void limits_that_were_changed_do_not_make_it_another_drive(void **state)
{
    const struct drive_limits limits = {.bandwidth = {.size = 1000, .refill_ms = 100}};
    struct drive_wait *wait;
    struct error error = {0};

    (void)state;
    bring_in();
    assert_int_equal(drives_limit(world.drives, "data-1", &limits, on_answer, NULL, &wait, &error),
                     STATUS_OK);
    go_on();
    attach();
    go_on();
    expect_answer(3, STATUS_OK, "");
    assert_int_equal(world.limits.bandwidth.size, 1000);
}

/* Somebody has unmounted it in the guest, or taken it out of the VM. */
static void a_drive_that_is_asked_for_again_is_looked_at(void **state)
{
    (void)state;
    bring_in();
    world.walked[0] = '\0';
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

static void some_vmms_are_refused(void **state)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    (void)state;
    world.traits_of_vmm.obstacle = "it cannot be done";
    assert_int_equal(begin_attach(&asked), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(world.error, "it cannot be done"));
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM drive_mounts"), 0);
}

static void expect_message(const char *pattern)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    assert_int_equal(row.state, DRIVE_READY);
    assert_int_equal(row.status, STATUS_OK);
    if (pattern[0] ? !strstr(row.message, pattern) : row.message[0] != '\0')
        fail_msg("the message is %s", row.message);
}

/* Of Cloud Hypervisor: somebody had the disk open when crustd came back. */
static void a_claim_that_was_lost_is_made_again(void **state)
{
    (void)state;
    world.opens_path = true;
    bring_in();
    restart();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    assert_false(is_claimed());
    expect_message("others can open it: the disk cannot be had");
    drives_sweep(world.drives);
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
    world.walked[0] = '\0';
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
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
    act(VMM_CALL);
    restart();
    attach();
    world.walked[0] = '\0';
}

static void nothing_is_attached_without_its_claim(void **state)
{
    (void)state;
    begin_attach_without_claim();
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_walked("look remove ");
    expect_failed(STATUS_FAILED_PRECONDITION, "the guest does not get it: the disk cannot be had");
}

static void an_attach_waits_for_a_claim_that_heals(void **state)
{
    (void)state;
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
    drives_retry(world.drives);
    go_on();
    expect_walked("attach ask mount ");
    expect_row(DRIVE_READY, true, STATUS_OK);
    assert_true(is_claimed());
}

/* Its guest has lost it, and somebody else has the disk. */
static void nothing_is_mounted_again_without_its_claim(void **state)
{
    (void)state;
    world.opens_path = true;
    bring_in();
    world.walked[0] = '\0';
    restart();
    world.mounted = false;
    world.claim = DRIVE_CLAIM_IN_USE;
    go_on();
    expect_walked("look ask ");
    expect_row(DRIVE_READY, true, STATUS_FAILED_PRECONDITION);
    drives_retry(world.drives);
    go_on();
    expect_walked("");
    world.claim = DRIVE_CLAIM_OPEN;
    drives_retry(world.drives);
    go_on();
    expect_walked("mount ");
    expect_message("");
    assert_true(is_claimed());
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

static const char *recorded_serial(void)
{
    static char serial[DRIVE_SERIAL_CHARS + 1];
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    strcpy(serial, row.serial);
    return serial;
}

/* Of Firecracker: the guest is asked for the serial that the VMM has made, also after a restart. */
static void a_serial_of_the_vmms_own_is_recorded(void **state)
{
    (void)state;
    world.opens_path = true;
    world.makes_serial = true;
    bring_in();
    assert_string_equal(recorded_serial(), VMM_SERIAL);
    restart();
    go_on();
    assert_string_equal(recorded_serial(), VMM_SERIAL);
    detach();
    go_on();
    expect_answer(2, STATUS_OK, "");
    assert_string_equal(world.asked_serial, VMM_SERIAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(limits_are_set_and_recorded),
        DRIVES(a_disk_that_grows_is_grown_in_the_guest),
        DRIVES(a_disk_that_grows_before_its_mount_is_mounted_and_grown),
        DRIVES(nothing_grows_unless_it_may),
        DRIVES(no_vmm_is_told_of_growth_against_the_configuration),
        DRIVES(limits_that_were_changed_do_not_make_it_another_drive),
        DRIVES(a_drive_that_is_asked_for_again_is_looked_at),
        DRIVES(some_vmms_are_refused),
        DRIVES(a_claim_that_was_lost_is_made_again),
        DRIVES(nothing_is_attached_without_its_claim),
        DRIVES(an_attach_waits_for_a_claim_that_heals),
        DRIVES(nothing_is_mounted_again_without_its_claim),
        DRIVES(drives_are_listed),
        DRIVES(a_serial_of_the_vmms_own_is_recorded),
    };

    return cmocka_run_group_tests_name("drives_ready", tests, NULL, NULL);
}
