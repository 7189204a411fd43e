/* SPDX-License-Identifier: Apache-2.0 */
/* workload.c - see workload.h. */
#include "tests/power-loss/workload.h"

#include "store/cleanups.h"
#include "tests/power-loss/disk.h"
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

enum { MOST_COMMITS = 100000, ROWS_KEPT = 400 };

/* ---- what the database holds ----------------------------------------------------------------- */

static void add_bytes(uint64_t *hash, const void *bytes, size_t length) /* FNV-1a */
{
    for (size_t i = 0; i < length; i++)
        *hash = (*hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static int add_rows(struct sql_connection *connection, const char *sql, int64_t lines,
                    uint64_t *hash)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(connection->db, sql, -1, &statement, NULL);

    if (code == SQLITE_OK && sqlite3_bind_parameter_count(statement))
        code = sqlite3_bind_int64(statement, 1, lines);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            int type = sqlite3_column_type(statement, i);
            const unsigned char *text = sqlite3_column_text(statement, i);

            add_bytes(hash, &type, sizeof(type));
            if (text)
                add_bytes(hash, text, (size_t)sqlite3_column_bytes(statement, i) + 1);
        }
        code = SQLITE_OK;
    }
    (void)sqlite3_finalize(statement);
    return code == SQLITE_DONE ? 0 : sql_failed(connection, code);
}

static int read_all(struct sql_connection *connection, uint64_t *ret_hash)
{
    static const char tables[] = "SELECT 'SELECT * FROM ' || name FROM sqlite_schema WHERE"
                                 " type = 'table' ORDER BY name";
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(connection->db, tables, -1, &statement, NULL);
    int r = code == SQLITE_OK ? 0 : sql_failed(connection, code);

    while (r == 0 && (code = sqlite3_step(statement)) == SQLITE_ROW)
        r = add_rows(connection, (const char *)sqlite3_column_text(statement, 0), 0, ret_hash);
    if (r == 0 && code != SQLITE_DONE)
        r = sql_failed(connection, code);
    (void)sqlite3_finalize(statement);
    return r;
}

int workload_read_content(struct sql_connection *connection, int64_t lines,
                          struct workload_content *ret_content)
{
    static const char *const lasting[] = {
        "SELECT volume_id, target_path, layout, key, pv, status FROM audit_volumes ORDER BY 1",
        "SELECT * FROM audit_resizes ORDER BY resize_id",
        "SELECT * FROM cleanups ORDER BY cleanup_id",
        "SELECT cleanup_id, volume_id, key, name, step, fingerprint FROM trash ORDER BY 1",
        "SELECT * FROM journal WHERE seq <= ?1 ORDER BY seq",
    };
    struct workload_content content = {.all = UINT64_C(0xcbf29ce484222325), .history = 1};
    int r =
        sql_pragma_number(connection, "SELECT coalesce(max(seq), 0) FROM journal", &content.lines);

    if (r == 0)
        r = read_all(connection, &content.all);
    if (lines)
        content.lines = lines;
    for (size_t i = 0; r == 0 && i < array_length(lasting); i++)
        r = add_rows(connection, lasting[i], content.lines, &content.history);
    if (content.lines == 0)
        content.all = 0;
    *ret_content = content;
    return r;
}

/* ---- on record ------------------------------------------------------------------------------- */

struct run {
    struct workload *workload;
    const char *path;
    struct store *store;
    unsigned boot;
    int64_t now_ns;
};

static void note_commit(struct run *run)
{
    struct workload *workload = run->workload;
    struct workload_commit *commit = &workload->commit[workload->commits++];

    assert_true(workload->commits < MOST_COMMITS);
    commit->operations = disk_operations();
    assert_int_equal(workload_read_content(&run->store->connection, 0, &commit->content), 0);
}

/* Closing commits, too. */
static void note_end(struct run *run)
{
    struct workload *workload = run->workload;
    struct workload_commit *commit = &workload->commit[workload->commits++];
    struct sql_connection connection = {0};

    commit->operations = disk_operations();
    assert_int_equal(sql_open(&connection, run->path, SQLITE_OPEN_READONLY), 0);
    assert_int_equal(workload_read_content(&connection, 0, &commit->content), 0);
    sql_close(&connection);
}

static void note_promise(struct run *run)
{
    struct workload *workload = run->workload;

    assert_true(workload->promises < MOST_COMMITS);
    workload->promise[workload->promises++] =
        (struct workload_promise){.operations = disk_operations(), .commit = workload->commits - 1};
}

void workload_bounds(const struct workload *workload, size_t operations, int killed,
                     long *ret_least, long *ret_most)
{
    size_t made = 0, given = 0;

    while (made < workload->commits && workload->commit[made].operations <= operations)
        made++;
    while (given < workload->promises && workload->promise[given].operations <= operations)
        given++;
    *ret_least = given ? (long)workload->promise[given - 1].commit : -1;
    if (killed)
        *ret_least = (long)made - 1;
    *ret_most = made < workload->commits ? (long)made : (long)made - 1;
}

/* ---- transactions ---------------------------------------------------------------------------- */

static void begin(struct run *run)
{
    assert_int_equal(store_begin(run->store), 0);
}

/* Waits for no disk. */
static void commit(struct run *run)
{
    assert_int_equal(store_commit(run->store), 0);
    note_commit(run);
}

static void commit_durable(struct run *run)
{
    assert_int_equal(store_commit_durable(run->store), 0);
    note_commit(run);
    note_promise(run);
}

/* As the calls of clients that are answered together. */
static void commit_and_sync(struct run *run)
{
    commit(run);
    assert_int_equal(store_sync(run->store), 0);
    note_promise(run);
}

static void start_daemon(struct run *run)
{
    char boot[32];
    struct store_options options = {
        .path = run->path, .boot_id = boot, .keep_days = 90, .max_rows = ROWS_KEPT};
    struct error error = {0};

    (void)snprintf(boot, sizeof(boot), "boot-%u", run->boot);
    if (store_open(&options, &run->store, &error) != STORE_OPENED)
        fail_msg("store_open: %s", error.text);
    note_commit(run);
}

static void end_daemon(struct run *run)
{
    store_close(run->store);
    run->store = NULL;
    note_end(run);
}

/* ---- one volume ------------------------------------------------------------------------------ */

struct one {
    struct run *run;
    char key[32], path[128], sandbox_id[80], handle[32];
    struct store_entry entry;
    struct bound bound;
};

static void stage(struct one *one)
{
    begin(one->run);
    one->bound.volume_id = put_entry(one->run->store, &one->entry, true);
    assert_int_equal(
        store_journal(one->run->store, "volume_staged", one->bound.volume_id, NULL, NULL, NULL), 0);
    commit_and_sync(one->run);
}

static void put_drive(struct one *one, uint32_t minor)
{
    struct store_drive drive = fixture_drive;
    struct store_sandbox sandbox = sandbox_of(one->sandbox_id, &drive);

    drive.minor = minor;
    sandbox.vmm_pid = (pid_t)(1000 + minor);
    one->bound.sandbox_ref = put_sandbox(one->run->store, &sandbox, true);
}

static void bind_volume(struct one *one, uint32_t minor)
{
    struct store *store = one->run->store;
    struct store_device device = device_of(minor, GIB);
    bool changed;

    begin(one->run);
    one->bound.device_id = put_device(store, &device, true);
    assert_int_equal(
        store_set_volume_device(store, one->bound.volume_id, one->bound.device_id, &changed), 0);
    put_drive(one, minor);
    assert_int_equal(
        store_open_binding(store, &(struct store_binding){.volume_id = one->bound.volume_id,
                                                          .sandbox_ref = one->bound.sandbox_ref,
                                                          .device_id = one->bound.device_id,
                                                          .drive_id = "drive-1",
                                                          .source = "sandbox-file",
                                                          .device_bytes = GIB,
                                                          .record = 1}),
        0);
    commit(one->run);
}

static void answer(struct one *one, uint64_t bytes)
{
    struct store *store = one->run->store;
    int64_t volume_id = one->bound.volume_id;

    begin(one->run);
    assert_int_equal(store_put_hypervisor_result(
                         store, &(struct store_hypervisor_result){.volume_id = volume_id,
                                                                  .bytes = bytes,
                                                                  .record = 1,
                                                                  .told = true,
                                                                  .list = STORE_LIST_HAS}),
                     0);
    assert_int_equal(row_set_state(store, volume_id, STATE_BLOCK_GROWN, REASON_NONE, NULL), 0);
    assert_int_equal(row_intend(store, volume_id, "grow_guest", bytes), 0);
    commit(one->run);
    begin(one->run);
    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .synced_bytes = bytes,
                                                                   .guest_bytes = bytes - 4096}),
        0);
    assert_int_equal(row_set_state(store, volume_id, STATE_IN_SYNC, REASON_NONE, NULL), 0);
    commit(one->run);
}

/* The device grows. owed: a client has asked for it and is answered before anybody is told. */
static void resize(struct one *one, uint32_t minor, uint64_t bytes, bool owed)
{
    struct store *store = one->run->store;
    struct store_device device = device_of(minor, bytes);

    begin(one->run);
    (void)put_device(store, &device, true);
    assert_int_equal(store_note_size(store, one->bound.volume_id, bytes), 0);
    assert_int_equal(row_open_resize(store, one->bound.volume_id, GIB, bytes), 0);
    assert_int_equal(
        row_set_state(store, one->bound.volume_id, STATE_HOST_GROWN, REASON_NONE, NULL), 0);
    if (owed) {
        commit_and_sync(one->run);
        begin(one->run);
    }
    assert_int_equal(row_intend(store, one->bound.volume_id, "resize_hypervisor", bytes), 0);
    commit(one->run);
    answer(one, bytes);
}

static void end_sandbox(struct one *one)
{
    bool changed = false;

    begin(one->run);
    assert_int_equal(store_end_sandbox(one->run->store, one->sandbox_id, &changed), 0);
    assert_true(changed);
    commit(one->run);
}

static void unstage(struct one *one)
{
    int64_t volume_id = 0;

    begin(one->run);
    assert_int_equal(store_remove_entry(one->run->store, LAYOUT_KATA, one->key, &volume_id), 0);
    assert_int_equal(store_journal(one->run->store, "volume_unstaged", volume_id, NULL, NULL, NULL),
                     0);
    commit_and_sync(one->run);
}

static int take_last(void *userdata, int64_t id)
{
    *(int64_t *)userdata = id;
    return 0;
}

static void set_step(struct run *run, int64_t cleanup_id, enum store_trash_step step)
{
    assert_int_equal(store_set_trash_step(run->store, cleanup_id, step, (uint64_t)++run->now_ns),
                     0);
}

/* Its driver left the metadata behind. */
static void clean_up(struct one *one, bool expires)
{
    struct run *run = one->run;
    const struct store_cleanup_intent intent = {.reason = STALE_REASON_SANDBOX_ENDED,
                                                .evidence = "{\"sandboxes\":[]}",
                                                .fingerprint = one->key,
                                                .directory = "/run/.crust-trash",
                                                .now_ns = (uint64_t)++run->now_ns};
    int64_t entry_id = 0, cleanup_id = 0;

    begin(run);
    assert_int_equal(store_each_entry_id(run->store, one->bound.volume_id, take_last, &entry_id),
                     0);
    assert_int_equal(store_intend_cleanup(run->store, entry_id, &intent, &cleanup_id), 0);
    commit_durable(run);
    begin(run);
    set_step(run, cleanup_id, STORE_TRASH_MOVED);
    commit(run);
    begin(run);
    assert_int_equal(store_finish_cleanup(run->store, cleanup_id, CLEANUP_REMOVED,
                                          STALE_REASON_NONE, (uint64_t)++run->now_ns),
                     0);
    commit(run);
    if (!expires)
        return;
    begin(run);
    set_step(run, cleanup_id, STORE_TRASH_DELETING);
    commit_durable(run);
    begin(run);
    assert_int_equal(store_forget_trash(run->store, cleanup_id), 0);
    commit(run);
}

static void live(struct run *run, unsigned number)
{
    struct one one = {.run = run};
    uint32_t minor = number + 1;

    (void)snprintf(one.key, sizeof(one.key), "key-%u", number);
    (void)snprintf(one.path, sizeof(one.path),
                   "/var/lib/kubelet/pods/u%u/volumes/kubernetes.io~csi/pv-%u/mount", number,
                   number);
    (void)snprintf(one.sandbox_id, sizeof(one.sandbox_id), "sandbox-%u", number);
    one.entry = entry_of(one.key, one.path, number + 1);
    one.entry.sandbox[0] = one.sandbox_id;
    stage(&one);
    bind_volume(&one, minor);
    resize(&one, minor, 2 * GIB, number % 4 == 0);
    if (number % 4 == 3)
        return; /* stays */
    end_sandbox(&one);
    if (number % 4 == 0)
        unstage(&one);
    else
        clean_up(&one, number % 4 == 1);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What a daemon does between the passes. */
static void keep_house(struct run *run)
{
    begin(run);
    assert_true(store_trim(run->store, true) >= 0);
    commit(run);
    assert_int_equal(store_idle(run->store), 0);
    note_commit(run);
}

/* Killed, that is: its descriptors close without a checkpoint. The next one is of the same boot. */
static void kill_daemon(struct run *run)
{
    (void)sqlite3_db_config(run->store->connection.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    end_daemon(run);
}

void workload_run(const char *path, unsigned volumes, struct workload *ret_workload)
{
    struct run run = {.workload = ret_workload, .path = path};

    *ret_workload = (struct workload){
        .commit = calloc(MOST_COMMITS, sizeof(struct workload_commit)),
        .promise = calloc(MOST_COMMITS, sizeof(struct workload_promise)),
    };
    assert_non_null(ret_workload->commit);
    assert_non_null(ret_workload->promise);
    start_daemon(&run);
    for (unsigned number = 0; number < volumes; number++) {
        live(&run, number);
        keep_house(&run);
        if (number % 16 == 7) {
            kill_daemon(&run);
            start_daemon(&run);
        } else if (number % 16 == 15) {
            end_daemon(&run);
            run.boot++;
            start_daemon(&run);
        }
    }
    end_daemon(&run);
}

void workload_done(struct workload *workload)
{
    free(workload->commit);
    free(workload->promise);
}
