/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_record_test.c - who has a disk on record, and the devices that share data with it. */
#include "tests/unit/reconciler/drive/in_use_scenery.h"

/* ---- related devices ------------------------------------------------------------------------ */

/* A number that no process of this machine has open. */
static const struct store_drive_mount_disk recorded = {
    .kind = DEVICE_KIND_BLOCK, .major = 4001, .minor = 1, .diskseq = 3};

__attribute__((format(printf, 3, 4))) static void
put_number(const struct search_fixture *fixture, const char *text, const char *format, ...)
{
    char name[64], path[256], *slash;
    va_list arguments;
    FILE *file;

    va_start(arguments, format);
    (void)vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    (void)snprintf(path, sizeof(path), "%s/dev/block/%s", fixture->directory, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    *slash = '/';
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A sysfs of the test's own, with one disk. */
static void make_sysfs(struct search_fixture *fixture)
{
    char path[128];

    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/dev%s", fixture->directory, i ? "/block" : "");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    fd_close(fixture->context.sysfs);
    fixture->context.sysfs = open(fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fixture->context.sysfs >= 0);
    put_number(fixture, "2048\n", "4001:1/size");
}

static void add_partitions(const struct search_fixture *fixture, unsigned first, unsigned last)
{
    char text[32];

    for (unsigned i = first; i <= last; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number(fixture, "1\n", "4001:1/p%u/partition", i);
        put_number(fixture, text, "4001:1/p%u/dev", i);
    }
}

static void expect_unknown(struct search_fixture *fixture)
{
    search(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_UNKNOWN);
    assert_non_null(strstr(fixture->reply.error.text, "more partitions or lower devices"));
}

static void a_partition_that_is_left_out_may_have_a_user(void **state)
{
    struct search_fixture *fixture = *state;

    make_sysfs(fixture);
    add_partitions(fixture, 1, 256); /* as many as there can be */
    expect_free(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    add_partitions(fixture, 257, 400);
    expect_unknown(fixture);
}

static void names_that_are_not_read_may_be_partitions(void **state)
{
    struct search_fixture *fixture = *state;

    make_sysfs(fixture);
    for (unsigned i = 0; i < 600; i++)
        put_number(fixture, "1\n", "4001:1/attribute%u", i);
    expect_unknown(fixture);
}

static void a_lower_device_that_is_left_out_may_have_a_user(void **state)
{
    struct search_fixture *fixture = *state;
    char text[32];

    make_sysfs(fixture);
    put_number(fixture, "x\n", "4001:1/slaves/x"); /* no device */
    expect_free(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    for (unsigned i = 0; i < OBSERVE_LAYERS; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number(fixture, "2048\n", "4002:%u/size", i);
        put_number(fixture, text, "4001:1/slaves/disk%u/dev", i);
    }
    expect_unknown(fixture);
}

/* ---- on record ------------------------------------------------------------------------------ */

/* Returns its volume_id. */
static int64_t bind_volume(struct store *store)
{
    struct store_device device = device_of(1, GIB);
    struct bound bound = put_bound(store);

    device.major = recorded.major;
    assert_int_equal(
        store_open_binding(store,
                           &(struct store_binding){.volume_id = bound.volume_id,
                                                   .sandbox_ref = bound.sandbox_ref,
                                                   .device_id = put_device(store, &device, true),
                                                   .source = "persist",
                                                   .record = 1}),
        0);
    return bound.volume_id;
}

static void a_volume_of_a_live_sandbox_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = recorded;
    struct drive_in_use_request request = {.disk = &disk, .writable = false};
    bool changed;

    (void)bind_volume(fixture->context.store);
    expect_used(fixture, &request, "sandbox-1 has the disk as volume " VOLUME_PATH, "writable");
    disk.diskseq = 0; /* not known */
    expect_used(fixture, &request, "sandbox-1", "writable");
    disk.diskseq = 4; /* another disk of the same number */
    expect_free(fixture, &request);
    disk.diskseq = 3;
    assert_int_equal(store_end_sandbox(fixture->context.store, "sandbox-1", &changed), 0);
    expect_free(fixture, &request);
}

/* Whatever it has the disk for: it is named before the volume. */
static void an_orphan_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive open = {.major = recorded.major, .minor = recorded.minor};
    struct drive_in_use_request request = {.disk = &recorded, .writable = true};
    bool changed;

    (void)bind_volume(fixture->context.store);
    assert_int_equal(
        store_set_orphaned(fixture->context.store, "sandbox-1", true, &open, 1, &changed), 0);
    search(fixture, &request);
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_ORPHAN);
    assert_non_null(strstr(fixture->reply.error.text, "orphaned sandbox sandbox-1"));
}

static void a_read_only_volume_does_not_hinder_a_reader(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = recorded;
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;
    int64_t volume_id;

    (void)bind_volume(fixture->context.store);
    entry.options = "[\"ro\",\"noatime\"]";
    entry.mount_info_sha256 = "bb";
    assert_int_equal(store_put_entry(fixture->context.store, &entry, &volume_id, &changed), 0);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = false});
    expect_used(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true}, "volume",
                "read-only");
}

/* The runtime brings it into a VM as soon as a container uses it, and asks nobody. */
static void a_staged_volume_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store *store = fixture->context.store;
    struct drive_in_use_request request = {.disk = &recorded, .writable = false};
    struct store_device device = device_of(1, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;
    int64_t volume_id;

    device.major = recorded.major;
    assert_int_equal(store_put_entry(store, &entry, &volume_id, &changed), 0);
    expect_free(fixture, &request);
    assert_int_equal(
        store_set_volume_device(store, volume_id, put_device(store, &device, true), &changed), 0);
    expect_used(fixture, &request, "staged as volume " VOLUME_PATH, "writable");
    entry.options = "[\"ro\"]";
    entry.mount_info_sha256 = "bb";
    assert_int_equal(store_put_entry(store, &entry, &volume_id, &changed), 0);
    expect_free(fixture, &request);
    request.writable = true;
    expect_used(fixture, &request, "staged as volume " VOLUME_PATH, "read-only");
    assert_int_equal(store_remove_entry(store, entry.layout, entry.key, &volume_id), 0);
    expect_free(fixture, &request);
}

/* Its sandbox has another disk, and keeps that. */
static void a_volume_that_is_staged_anew_has_its_new_disk_as_well(void **state)
{
    struct search_fixture *fixture = *state;
    struct store *store = fixture->context.store;
    struct store_drive_mount_disk disk = recorded;
    struct drive_in_use_request request = {.disk = &disk, .writable = true};
    struct store_device device = device_of(2, GIB);
    int64_t volume_id = bind_volume(store), device_id;
    bool changed;

    device.major = recorded.major;
    device_id = put_device(store, &device, true);
    disk.minor = device.minor;
    disk.diskseq = device.diskseq;
    expect_free(fixture, &request);
    assert_int_equal(store_set_volume_device(store, volume_id, device_id, &changed), 0);
    expect_used(fixture, &request, "staged as volume", "writable");
    disk = recorded;
    expect_used(fixture, &request, "sandbox-1", "writable");
}

static void another_drive_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = {
        .kind = DEVICE_KIND_FILE, .file_device = 1, .inode = UINT64_C(1) << 63};
    struct store_drive_mount_request asked = {.drive_id = "data-1",
                                              .sandbox_id = "sandbox-1",
                                              .host_path = "/srv/disk.img",
                                              .vm_path = "/data",
                                              .fs_type = "ext4",
                                              .writable = true};
    int64_t drive_ref;

    (void)put_bound(fixture->context.store);
    assert_int_equal(
        store_add_drive_mount(fixture->context.store, &asked, "crust-abcdefghijklmn", &drive_ref),
        0);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true});
    assert_int_equal(store_set_drive_mount_disk(fixture->context.store, drive_ref, &disk), 0);
    expect_used(
        fixture,
        &(struct drive_in_use_request){.disk = &disk, .drive_id = "data-2", .writable = true},
        "sandbox-1 has the disk as drive data-1", "writable");
    expect_free(fixture, &(struct drive_in_use_request){
                             .disk = &disk, .drive_id = "data-1", .writable = true});
    expect_used(fixture,
                &(struct drive_in_use_request){
                    .disk = &recorded, .backing = &disk, .drive_id = "data-2", .writable = true},
                "sandbox-1 has the disk as drive data-1", "writable");
}

static void freed_search_calls_nobody_back(void **state)
{
    struct search_fixture *fixture = *state;
    struct drive_in_use_call *call;

    assert_int_equal(
        drive_in_use_call_new(&fixture->context,
                              &(struct drive_in_use_request){.disk = &recorded, .writable = true},
                              on_done, fixture, &call),
        0);
    assert_null(drive_in_use_call_free(call));
    assert_null(drive_in_use_call_free(NULL));
    loop_timer_stop(&fixture->watchdog);
    loop_run(&fixture->loop); /* nothing is left to do */
    assert_int_equal(fixture->done, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEARCH(a_partition_that_is_left_out_may_have_a_user),
        SEARCH(names_that_are_not_read_may_be_partitions),
        SEARCH(a_lower_device_that_is_left_out_may_have_a_user),
        SEARCH(a_volume_of_a_live_sandbox_has_the_disk),
        SEARCH(an_orphan_has_the_disk),
        SEARCH(a_read_only_volume_does_not_hinder_a_reader),
        SEARCH(a_staged_volume_has_the_disk),
        SEARCH(a_volume_that_is_staged_anew_has_its_new_disk_as_well),
        SEARCH(another_drive_has_the_disk),
        SEARCH(freed_search_calls_nobody_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
