/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mounts_test.c - drive mounts on record: asked for once, journaled, kept until history ends.
 */
#include "tests/unit/store/fixture.h"

#define SERIAL "crust-abcdefghijklmn"

static struct store_drive_mount_request request_of(const char *drive_id, const char *vm_path)
{
    static char options[] = "[\"noatime\"]";
    struct store_drive_mount_request request = {
        .sandbox_id = "sandbox-1",
        .host_path = "/dev/loop7",
        .fs_type = "ext4",
        .options = options,
        .writable = true,
        .fsck = DRIVE_FSCK_PREEN,
        .has_fs_group = true,
        .fs_group = 0,
        .fs_group_policy = DRIVE_GROUP_ON_ROOT_MISMATCH,
        .limits = {.bandwidth = {.size = 1000, .refill_ms = 100}, .operations = {0}},
    };

    (void)snprintf(request.drive_id, sizeof(request.drive_id), "%s", drive_id);
    (void)snprintf(request.vm_path, sizeof(request.vm_path), "%s", vm_path);
    return request;
}

static int64_t add(struct store *store, const char *drive_id, const char *vm_path)
{
    struct store_drive_mount_request request = request_of(drive_id, vm_path);
    int64_t drive_ref = 0;

    assert_int_equal(store_add_drive_mount(store, &request, SERIAL, &drive_ref), 0);
    assert_true(drive_ref > 0);
    return drive_ref;
}

static void expect_refused(struct store *store, const char *drive_id, const char *vm_path,
                           enum store_drive_mount_added added)
{
    struct store_drive_mount_request request = request_of(drive_id, vm_path);
    int64_t drive_ref = -1;

    assert_int_equal(store_add_drive_mount(store, &request, SERIAL, &drive_ref), added);
    assert_int_equal(drive_ref, -1);
}

static void a_request_is_read_back(void **state)
{
    struct store *store = store_of(state);
    cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};
    struct store_drive_mount_request asked = request_of("data-1", "/data");

    (void)put_bound(store);
    (void)add(store, "data-1", "/data");
    assert_int_equal(store_get_drive_mount(store, "data-1", 0, &drive), STORE_FOUND);
    assert_true(drive.request.has_fs_group);
    assert_int_equal(drive.request.fs_group, 0);
    assert_memory_equal(&drive.request.limits, &asked.limits, sizeof(asked.limits));
}

static void an_id_and_a_place_are_taken_until_the_drive_has_ended(void **state)
{
    struct store *store = store_of(state);
    int64_t first;

    expect_refused(store, "data-1", "/data", STORE_DRIVE_MOUNT_NO_SANDBOX);
    (void)put_bound(store);
    first = add(store, "data-1", "/data");
    expect_refused(store, "data-1", "/other", STORE_DRIVE_MOUNT_ID_TAKEN);
    expect_refused(store, "data-2", "/data", STORE_DRIVE_MOUNT_PATH_TAKEN);
    assert_int_equal(store_set_drive_mount_state(store, first, DRIVE_FAILED,
                                                 STATUS_FAILED_PRECONDITION, "in use"),
                     0);
    assert_true(add(store, "data-1", "/data") > first);
}

static int count_one(void *userdata, const struct store_drive_mount *drive)
{
    assert_int_not_equal(drive->state, DRIVE_REMOVED);
    return (++*(unsigned *)userdata, 0);
}

static void there_are_so_many_and_no_more(void **state)
{
    struct store *store = store_of(state);
    unsigned count = 0;
    char name[32], place[32];

    (void)put_bound(store);
    for (unsigned i = 0; i < STORE_DRIVE_MOUNTS; i++) {
        (void)snprintf(name, sizeof(name), "data-%u", i);
        (void)snprintf(place, sizeof(place), "/data/%u", i);
        (void)add(store, name, place);
    }
    expect_refused(store, "one-more", "/one-more", STORE_DRIVE_MOUNT_TOO_MANY);
    assert_int_equal(store_each_drive_mount(store, count_one, &count), 0);
    assert_int_equal(count, STORE_DRIVE_MOUNTS);
}

/* A whole life; an end is for good, and an equal state writes nothing. */
static void each_state_is_journaled_once(void **state)
{
    static const enum drive_state way[] = {DRIVE_CLAIMED,  DRIVE_ATTACHED,   DRIVE_READY,
                                           DRIVE_READY,    DRIVE_UNMOUNTING, DRIVE_UNMOUNTED,
                                           DRIVE_REMOVING, DRIVE_REMOVED,    DRIVE_READY};
    const struct store_drive_mount_disk disk = {
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 7, .diskseq = 3, .size_bytes = GIB};
    struct store *store = store_of(state);
    cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};
    int64_t drive_ref;

    (void)put_bound(store);
    drive_ref = add(store, "data-1", "/data");
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &disk), 0);
    assert_int_equal(store_set_drive_mount_guest_device(store, drive_ref, "/dev/sda"), 0);
    for (size_t i = 0; i < array_length(way); i++) {
        if (way[i] == DRIVE_UNMOUNTING)
            assert_int_equal(store_set_drive_mount_wanted(store, drive_ref, false), 0);
        assert_int_equal(store_set_drive_mount_state(store, drive_ref, way[i], STATUS_OK, ""), 0);
    }
    assert_int_equal(store_set_drive_mount_wanted(store, drive_ref, false), 0);
    assert_text_of(store,
                   "SELECT group_concat(coalesce(json_extract(detail, '$.state'), kind)) FROM"
                   " (SELECT * FROM journal WHERE kind LIKE 'drive%' ORDER BY seq)",
                   "requested,claimed,attached,ready,ready,unmounting,unmounted,removing,removed");
    assert_text_of(store,
                   "SELECT sandbox_id || ' ' || device || ' ' || json_extract(detail, '$.vm_path')"
                   " FROM journal WHERE kind = 'drive_unwanted'",
                   "sandbox-1 /dev/loop7 /data");
    assert_int_equal(store_get_drive_mount(store, "data-1", 0, &drive), STORE_FOUND);
    assert_int_equal(drive.state, DRIVE_REMOVED);
    assert_false(drive.wanted);
    assert_true(drive.ready_ms > 0 && drive.ended_ms > 0);
    assert_memory_equal(&drive.disk, &disk, sizeof(disk));
    assert_text_of(store, "SELECT state || major || ':' || minor || guest_device FROM audit_drives",
                   "removed7:7/dev/sda");
}

/* What has ended is history; what has not stays, and with it its sandbox. */
static void history_takes_ended_drives_alone(void **state)
{
    struct store *store = store_of(state);
    int64_t ended;
    bool changed;

    (void)put_bound(store);
    ended = add(store, "data-1", "/data");
    (void)add(store, "data-2", "/other");
    assert_int_equal(store_set_drive_mount_state(store, ended, DRIVE_LOST, STATUS_OK, "gone"), 0);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    pass_time(store, INT64_C(91) * 24 * 3600 * 1000);
    trim_for_days(store, 20);
    assert_text_of(store, "SELECT group_concat(drive_id) FROM audit_drives", "data-2");
    assert_int_equal(number_of(store, "SELECT count(*) FROM sandboxes"), 1);
}

static void a_refused_detach_is_taken_back(void **state)
{
    struct store *store = store_of(state);
    cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};
    int64_t drive_ref;

    (void)put_bound(store);
    drive_ref = add(store, "data-1", "/data");
    assert_int_equal(store_set_drive_mount_wanted(store, drive_ref, false), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(store_set_drive_mount_wanted(store, drive_ref, true), 0);
    assert_int_equal(lines_of(store, "drive_wanted_again"), 1);
    assert_int_equal(store_get_drive_mount(store, NULL, drive_ref, &drive), STORE_FOUND);
    assert_true(drive.wanted);
    store_drive_mount_done(&drive);
    assert_int_equal(store_get_drive_mount(store, NULL, drive_ref + 1, &drive), STORE_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_request_is_read_back),
        MODEL(an_id_and_a_place_are_taken_until_the_drive_has_ended),
        MODEL(there_are_so_many_and_no_more),
        MODEL(each_state_is_journaled_once),
        MODEL(a_refused_detach_is_taken_back),
        MODEL(history_takes_ended_drives_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
