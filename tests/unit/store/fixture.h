/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.h - a scratch directory, a store, and facts to put into it. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_internal.h"
#include "tests/unit/scratch.h"
#include "tests/unit/volume_rows.h"

#define VOLUME_PATH "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-1/mount"
#define GIB         (UINT64_C(1) << 30)
#define DAY_MS      (INT64_C(24) * 3600 * 1000)

struct fixture {
    char directory[SCRATCH_BYTES];
    char path[80];
    struct store *store;
};

static inline struct store *fixture_open(const char *path, const char *boot_id)
{
    struct store_options options = {
        .path = path, .boot_id = boot_id, .keep_days = 90, .max_rows = 100000};
    struct store *store = NULL;
    struct error error = {0};
    int r = store_open(&options, &store, &error);

    if (r != STORE_OPENED)
        fail_msg("store_open: %d %s", r, error.text);
    return store;
}

/* Within a transaction: so much later, by all clocks. */
static inline void pass_time(struct store *store, int64_t milliseconds)
{
    store->now_ms += milliseconds;
    store->uptime_ms += milliseconds;
}

/* Some sweeps; in how many steps. */
static inline int trim_in_sweeps(struct store *store, unsigned sweeps)
{
    int steps = 0, r;

    while (sweeps--) {
        bool by_age = true;

        do {
            r = store_trim(store, by_age);
            assert_true(r >= 0);
            by_age = false;
            steps++;
        } while (r == STORE_TRIM_MORE);
    }
    return steps;
}

/* A day has some sweeps, and takes a tenth of what is too old. */
static inline void trim_for_days(struct store *store, unsigned days)
{
    while (days--) {
        (void)trim_in_sweeps(store, 3);
        pass_time(store, DAY_MS);
    }
}

/* A directory without a database. */
static inline int fixture_directory(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    (void)snprintf(fixture->path, sizeof(fixture->path), "%s/crustd.db", fixture->directory);
    *state = fixture;
    return 0;
}

/* A store in memory, inside a transaction. */
static inline int fixture_memory(void **state)
{
    (void)fixture_directory(state);
    ((struct fixture *)*state)->store = fixture_open(NULL, "boot-1");
    assert_int_equal(store_begin(((struct fixture *)*state)->store), 0);
    return 0;
}

/* Whether what the test wrote is a whole database: 0, or -1 with the first complaint printed. */
static inline int fixture_check(struct store *store)
{
    sqlite3_stmt *check = NULL;
    sqlite3 *db = store->connection.db;
    int r = sqlite3_prepare_v2(db, "PRAGMA quick_check", -1, &check, NULL);

    if (r == SQLITE_OK && sqlite3_step(check) == SQLITE_ROW &&
        strcmp((const char *)sqlite3_column_text(check, 0), "ok") != 0) {
        print_error("the test wrote what the schema forbids: %s\n", sqlite3_column_text(check, 0));
        r = SQLITE_CONSTRAINT;
    }
    sqlite3_finalize(check);
    return r == SQLITE_CONSTRAINT ? -1 : 0;
}

static inline int fixture_done(void **state)
{
    struct fixture *fixture = *state;
    int r, checked = fixture->store ? fixture_check(fixture->store) : 0;

    store_close(fixture->store);
    r = scratch_directory_remove(fixture->directory);
    free(fixture);
    return r < 0 ? r : checked;
}

static inline struct store *store_of(void **state)
{
    return ((struct fixture *)*state)->store;
}

#define MODEL(test) cmocka_unit_test_setup_teardown(test, fixture_memory, fixture_done)
#define FILES(test) cmocka_unit_test_setup_teardown(test, fixture_directory, fixture_done)

/* ---- facts --------------------------------------------------------------------------------- */

static inline struct store_entry entry_of(const char *key, const char *target_path, uint64_t inode)
{
    return (struct store_entry){.layout = LAYOUT_KATA,
                                .key = key,
                                .target_path = target_path,
                                .directory_device = 1,
                                .directory_inode = inode,
                                .directory_born_ns = 7,
                                .mount_info_sha256 = "aa",
                                .volume_type = "block",
                                .device = "/dev/disk",
                                .fs_type = "ext4",
                                .options = "[\"rw\"]",
                                .metadata = "{\"a\":\"b\"}",
                                .grows_file_system = true,
                                .pv = "pv-1",
                                .pod_uid = "u1",
                                .driver = "driver",
                                .volume_handle = "handle",
                                .sandboxes = 1,
                                .sandbox = {"sandbox-1"}};
}

#define CLAIM_PATH "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-block/u1"

/* A raw block claim, as the reconciler makes it of a container's device. */
static inline struct store_entry claim_of(const char *key, const char *target_path)
{
    return (struct store_entry){.layout = LAYOUT_NONE,
                                .key = key,
                                .target_path = target_path,
                                .device = target_path,
                                .pv = "pv-block",
                                .pod_uid = "u1"};
}

static inline int64_t put_entry(struct store *store, const struct store_entry *entry, bool changes)
{
    int64_t volume_id = 0;
    bool changed = !changes;

    assert_int_equal(row_put_entry(store, entry, &volume_id, &changed), 0);
    assert_int_equal(changed, changes);
    return volume_id;
}

static inline struct store_device device_of(uint32_t minor, uint64_t size)
{
    return (struct store_device){.kind = DEVICE_KIND_BLOCK,
                                 .name = "/dev/loop1",
                                 .major = 7,
                                 .minor = minor,
                                 .diskseq = 3,
                                 .size_bytes = size,
                                 .now_ns = 50};
}

static inline int64_t put_device(struct store *store, const struct store_device *device,
                                 bool changes)
{
    int64_t device_id = 0;
    bool changed = !changes;

    assert_int_equal(store_put_device(store, device, &device_id, &changed), 0);
    assert_int_equal(changed, changes);
    return device_id;
}

static inline struct store_sandbox sandbox_of(const char *sandbox_id,
                                              const struct store_drive *drive)
{
    return (struct store_sandbox){.sandbox_id = sandbox_id,
                                  .runtime = RUNTIME_KATA_GO,
                                  .hypervisor = HYPERVISOR_QEMU,
                                  .vmm_pid = 100,
                                  .vmm_start_ns = 40,
                                  .control_socket = "/run/vc/vm/s/extra-monitor.sock",
                                  .agent_address = "vsock://3:1024",
                                  .pod_namespace = "default",
                                  .pod_name = "pod",
                                  .drives = drive ? 1 : 0,
                                  .drive = drive};
}

static inline int64_t put_sandbox(struct store *store, const struct store_sandbox *sandbox,
                                  bool changes)
{
    int64_t sandbox_ref = 0;
    bool changed = !changes;

    assert_int_equal(store_put_sandbox(store, sandbox, &sandbox_ref, &changed), 0);
    assert_int_equal(changed, changes);
    return sandbox_ref;
}

static const struct store_drive fixture_drive = {.mount_source = "/dev/disk",
                                                 .file = "/dev/loop1",
                                                 .major = 7,
                                                 .minor = 1,
                                                 .drive_id = "drive-1",
                                                 .guest_path = "/dev/vda"};

/* One volume on one device in one sandbox. */
struct bound {
    int64_t volume_id, device_id, sandbox_ref;
};

static inline struct bound put_bound(struct store *store)
{
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_device device = device_of(1, GIB);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    struct bound bound;
    bool changed;

    bound.volume_id = put_entry(store, &entry, true);
    bound.device_id = put_device(store, &device, true);
    bound.sandbox_ref = put_sandbox(store, &sandbox, true);
    assert_int_equal(store_set_volume_device(store, bound.volume_id, bound.device_id, &changed), 0);
    assert_int_equal(
        store_open_binding(store, &(struct store_binding){.volume_id = bound.volume_id,
                                                          .sandbox_ref = bound.sandbox_ref,
                                                          .device_id = bound.device_id,
                                                          .drive_id = "drive-1",
                                                          .source = "sandbox-file",
                                                          .device_bytes = GIB,
                                                          .guest_synced_bytes = GIB,
                                                          .record = 1}),
        0);
    assert_int_equal(store_put_hypervisor_result(
                         store, &(struct store_hypervisor_result){.volume_id = bound.volume_id,
                                                                  .bytes = GIB,
                                                                  .record = 1,
                                                                  .list = STORE_LIST_HAS}),
                     0);
    return bound;
}

static inline struct store_volume get_volume(struct store *store, int64_t volume_id)
{
    struct store_volume volume;

    assert_int_equal(store_get_volume(store, volume_id, &volume), 0);
    return volume;
}

/* ---- looking inside ------------------------------------------------------------------------ */

static inline int64_t number_of(struct store *store, const char *sql)
{
    int64_t number = -1;

    assert_int_equal(sql_pragma_number(&store->connection, sql, &number), 0);
    return number;
}

static inline void assert_text_of(struct store *store, const char *sql, const char *expected)
{
    sqlite3_stmt *statement = NULL;
    const char *text;

    assert_int_equal(sqlite3_prepare_v2(store->connection.db, sql, -1, &statement, NULL), 0);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    text = (const char *)sqlite3_column_text(statement, 0);
    if (expected)
        assert_string_equal(text ? text : "(null)", expected);
    else
        assert_null(text);
    (void)sqlite3_finalize(statement);
}

static inline int64_t lines_of(struct store *store, const char *kind)
{
    char sql[128];

    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM journal WHERE kind = '%s'", kind);
    return number_of(store, sql);
}

static inline void execute_sql(struct store *store, const char *sql)
{
    assert_int_equal(sqlite3_exec(store->connection.db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* From here on the database fails whatever is written. */
static inline void fail_writes(struct store *store)
{
    execute_sql(store, "PRAGMA query_only = 1");
}

/* SQLite's own count of rows written by this connection. */
static inline int written(const struct store *store)
{
    return sqlite3_total_changes(store->connection.db);
}
