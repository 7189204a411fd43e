/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_record_test.c - who has a disk on record, and the devices that share data with it. */
#include "tests/unit/reconciler/drive/in_use_scenery.h"
#include "tests/unit/volume_rows.h"

/* ---- related devices ------------------------------------------------------------------------ */

/* A number that no process of this machine has open. */
static const struct store_drive_mount_disk recorded = {
    .kind = DEVICE_KIND_BLOCK, .major = 4001, .minor = 1, .diskseq = 3};

__attribute__((format(printf, 2, 3))) static void put_number(const char *text, const char *format,
                                                             ...)
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
static void make_sysfs(void)
{
    char path[128];

    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/dev%s", fixture->directory, i ? "/block" : "");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    fixture->disk = recorded;
    fd_close(fixture->context.sysfs);
    fixture->context.sysfs = open(fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fixture->context.sysfs >= 0);
    put_number("2048\n", "4001:1/size");
}

static void add_partitions(unsigned first, unsigned last)
{
    char text[32];

    for (unsigned i = first; i <= last; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number("1\n", "4001:1/p%u/partition", i);
        put_number(text, "4001:1/p%u/dev", i);
    }
}

static void expect_unknown(void)
{
    expect_outcome(DRIVE_IN_USE_UNKNOWN, "more partitions or lower devices");
}

static void a_partition_that_is_left_out_may_have_a_user(void **state)
{
    make_sysfs();
    add_partitions(1, 256); /* as many as there can be */
    expect_free();
    add_partitions(257, 400);
    expect_unknown();
}

static void names_that_are_not_read_may_be_partitions(void **state)
{
    make_sysfs();
    for (unsigned i = 0; i < 600; i++)
        put_number("1\n", "4001:1/attribute%u", i);
    expect_unknown();
}

static void a_lower_device_that_is_left_out_may_have_a_user(void **state)
{
    char text[32];

    make_sysfs();
    put_number("x\n", "4001:1/slaves/x"); /* no device */
    expect_free();
    for (unsigned i = 0; i < OBSERVE_LAYERS; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number("2048\n", "4002:%u/size", i);
        put_number(text, "4001:1/slaves/disk%u/dev", i);
    }
    expect_unknown();
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
    bool changed;

    (void)bind_volume(fixture->context.store);
    fixture->disk = recorded;
    fixture->request.writable = false;
    expect_used("sandbox-1 has the disk as volume " VOLUME_PATH, "writable");
    fixture->disk.diskseq = 0; /* not known */
    expect_used("sandbox-1", "writable");
    fixture->disk.diskseq = 4; /* another disk of the same number */
    expect_free();
    fixture->disk.diskseq = 3;
    assert_int_equal(store_end_sandbox(fixture->context.store, "sandbox-1", &changed), 0);
    expect_free();
}

/* Whatever it has the disk for: it is named before the volume. */
static void an_orphan_has_the_disk(void **state)
{
    struct store_drive open = {.major = recorded.major, .minor = recorded.minor};
    bool changed;

    (void)bind_volume(fixture->context.store);
    fixture->disk = recorded;
    assert_int_equal(
        store_set_orphaned(fixture->context.store, "sandbox-1", true, &open, 1, &changed), 0);
    expect_outcome(DRIVE_IN_USE_BY_ORPHAN, "orphaned sandbox sandbox-1");
}

static void a_read_only_volume_does_not_hinder_a_reader(void **state)
{
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;
    int64_t volume_id;

    (void)bind_volume(fixture->context.store);
    entry.options = "[\"ro\",\"noatime\"]";
    entry.mount_info_sha256 = "bb";
    assert_int_equal(row_put_entry(fixture->context.store, &entry, &volume_id, &changed), 0);
    fixture->disk = recorded;
    expect_used("volume", "read-only");
    fixture->request.writable = false;
    expect_free();
}

/* The runtime brings it into a VM as soon as a container uses it, and asks nobody. */
static void a_staged_volume_has_the_disk(void **state)
{
    struct store *store = fixture->context.store;
    struct store_device device = device_of(1, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;
    int64_t volume_id;

    device.major = recorded.major;
    fixture->disk = recorded;
    fixture->request.writable = false;
    assert_int_equal(row_put_entry(store, &entry, &volume_id, &changed), 0);
    expect_free();
    assert_int_equal(
        store_set_volume_device(store, volume_id, put_device(store, &device, true), &changed), 0);
    expect_used("staged as volume " VOLUME_PATH, "writable");
    entry.options = "[\"ro\"]";
    entry.mount_info_sha256 = "bb";
    assert_int_equal(row_put_entry(store, &entry, &volume_id, &changed), 0);
    expect_free();
    fixture->request.writable = true;
    expect_used("staged as volume " VOLUME_PATH, "read-only");
    assert_int_equal(store_remove_entry(store, entry.layout, entry.key, &volume_id), 0);
    expect_free();
}

/* Its sandbox has another disk, and keeps that. */
static void a_volume_that_is_staged_anew_has_its_new_disk_as_well(void **state)
{
    struct store *store = fixture->context.store;
    struct store_device device = device_of(2, GIB);
    int64_t volume_id = bind_volume(store), device_id;
    bool changed;

    device.major = recorded.major;
    device_id = put_device(store, &device, true);
    fixture->disk = recorded;
    fixture->disk.minor = device.minor;
    fixture->disk.diskseq = device.diskseq;
    expect_free();
    assert_int_equal(store_set_volume_device(store, volume_id, device_id, &changed), 0);
    expect_used("staged as volume", "writable");
    fixture->disk = recorded;
    expect_used("sandbox-1", "writable");
}

/* As its disk, or as what its loop device stands on. */
static void another_drive_has_the_disk(void **state)
{
    static const char holder[] = "sandbox-1 has the disk as drive data-1";
    struct store_drive_mount_request asked = {.drive_id = "data-1",
                                              .sandbox_id = "sandbox-1",
                                              .host_path = "/srv/disk.img",
                                              .vm_path = "/data",
                                              .fs_type = "ext4",
                                              .writable = true};
    struct store *store = fixture->context.store;
    int64_t drive_ref;

    (void)put_bound(store);
    assert_int_equal(store_add_drive_mount(store, &asked, "crust-abcdefghijklmn", &drive_ref), 0);
    expect_free();
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &fixture->disk), 0);
    fixture->request.drive_id = "data-1";
    expect_free();
    fixture->request.drive_id = "data-2";
    expect_used(holder, "writable");
    fixture->backing = fixture->disk;
    fixture->request.backing = &fixture->backing;
    fixture->disk = recorded;
    expect_used(holder, "writable");
}

static void freed_search_calls_nobody_back(void **state)
{
    drive_in_use_start(&fixture->call, &fixture->context, &fixture->request, on_done);
    drive_in_use_stop(&fixture->call);
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
