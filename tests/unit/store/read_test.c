/* SPDX-License-Identifier: Apache-2.0 */
/* read_test.c - what auditors see: the views' columns, and their rows as JSON. */
#include "tests/unit/store/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "store/read.h"
#include "tests/unit/reference.h"
#include "tests/unit/volume_rows.h"

/* ---- the contract -------------------------------------------------------------------------- */

/* docs/reference/audit-views.md has them in the same order. */
static void expect_columns(struct store *store, const char *view)
{
    struct reference page;
    char sql[256];
    int64_t columns;

    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM pragma_table_info('%s')", view);
    columns = number_of(store, sql);
    assert_true(columns > 0);
    reference_open(&page, "docs/reference/audit-views.md", view);
    for (int64_t i = 0; i < columns; i++) {
        assert_true(reference_next(&page));
        (void)snprintf(sql, sizeof(sql), "SELECT name FROM pragma_table_info('%s') WHERE cid = %d",
                       view, (int)i);
        assert_text_of(store, sql, page.cell[0]);
        reference_expect_words(&page, 1);
    }
    reference_expect_end(&page);
}

static void views_have_their_columns(void **state)
{
    static const char *const views[] = {
        "audit_volumes", "audit_sandboxes", "audit_devices", "audit_layers", "audit_mappings",
        "audit_resizes", "audit_cleanups",  "audit_journal", "audit_drives",
    };

    for (size_t i = 0; i < array_length(views); i++)
        expect_columns(store_of(state), views[i]);
    assert_int_equal(
        number_of(store_of(state), "SELECT count(*) FROM sqlite_schema WHERE type = 'view'"),
        array_length(views));
}

static void views_and_clock_format_time_alike(void **state)
{
    for (int64_t ms = 1767323045000; ms < 1767323047000; ms++) {
        char expected[CLOCK_TEXT_BYTES], sql[128];

        clock_text(ms, expected);
        (void)snprintf(sql, sizeof(sql),
                       "SELECT strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', %lld / 1000.0, 'unixepoch')",
                       (long long)ms);
        assert_text_of(store_of(state), sql, expected);
    }
}

/* ---- stalled ---- */

struct standing {
    const char *state, *reason;
    bool observed;
    int64_t stalled, pending; /* with a resize that is not done */
};

static int count_one(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                     uint64_t count)
{
    assert_true(*name[0] && *name[1]);
    *(int64_t *)userdata += (int64_t)count;
    return 0;
}

static int count_reason(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                        uint64_t count)
{
    assert_true(*name[0]);
    *(int64_t *)userdata += (int64_t)count;
    return 0;
}

static void expect_standing(struct store *store, int64_t volume_id, const struct standing *standing)
{
    struct store_reader *reader = store_get_reader(store);
    int64_t counted = 0, oldest_ms = 0;
    struct error error;

    assert_int_equal(store_set_observed(store, volume_id, standing->observed), 0);
    assert_int_equal(row_set_state(store, volume_id, state_from_name(standing->state),
                                   reason_from_name(standing->reason), NULL),
                     0);
    if (number_of(store, "SELECT stalled FROM audit_volumes") != standing->stalled)
        fail_msg("%s/%s", standing->state, standing->reason);
    assert_int_equal(store_each_group(reader, STORE_GROUP_STALLED, count_one, &counted, &error), 0);
    assert_int_equal(counted, standing->stalled);
    assert_int_equal(store_oldest_pending(reader, &oldest_ms, &error), 0);
    if ((oldest_ms != 0) != standing->pending)
        fail_msg("%s/%s: pending since %lld", standing->state, standing->reason,
                 (long long)oldest_ms);
}

static void stalled_is_one_notion(void **state)
{
    static const struct standing table[] = {
        {"unbound", "none", false, 0, 0},
        {"detached", "none", false, 0, 0},
        {"host_grown", "none", false, 0, 1},
        {"host_grown", "policy", true, 0, 0},
        {"blocked", "monitor_missing", false, 1, 1},
        {"blocked", "multiple_sandboxes", false, 1, 1},
        {"blocked", "no_device", true, 0, 0},
        {"block_grown", "none", false, 0, 1},
        {"block_grown", "agent_unsupported", false, 1, 1},
        {"block_grown", "agent_unsupported", true, 0, 0},
        {"unknown", "monitor_missing", false, 0, 1},
        {"shrunk", "none", false, 0, 1},
        {"in_sync", "none", false, 0, 0},
    };
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;

    assert_int_equal(row_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    for (size_t i = 0; i < array_length(table); i++)
        expect_standing(store, volume_id, &table[i]);
}

/* ---- resizable ---- */

struct answer {
    const char *resizable, *reason;
    bool observed;
    int64_t counted, journaled; /* in all */
};

static void expect_answer(struct store *store, int64_t volume_id, const struct answer *answer)
{
    const struct store_volume volume = get_volume(store, volume_id);
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .not_resizable = true};
    struct store_reader *reader = store_get_reader(store);
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(65536);
    char shown[2 * STORE_NAME_BYTES];
    int64_t counted = 0;
    struct error error;

    assert_int_equal(store_set_observed(store, volume_id, answer->observed), 0);
    assert_int_equal(store_set_resizable(store, &volume, answer->resizable,
                                         reason_from_name(answer->reason ? answer->reason : ""),
                                         NULL),
                     0);
    (void)snprintf(shown, sizeof(shown), "%s/%s", answer->resizable ? answer->resizable : "NULL",
                   answer->reason ? answer->reason : "NULL");
    assert_text_of(store,
                   "SELECT coalesce(resizable, 'NULL') || '/' || coalesce(resizable_reason, 'NULL')"
                   " FROM audit_volumes",
                   shown);
    assert_int_equal(
        store_each_group(reader, STORE_GROUP_NOT_RESIZABLE, count_reason, &counted, &error), 0);
    assert_int_equal(counted, answer->counted);
    assert_int_equal(store_read_json(reader, &query, &rows, &error), 0);
    assert_int_equal(strcmp(buffer_text(&rows), "[]") != 0, answer->counted);
    assert_int_equal(
        number_of(store, "SELECT count(*) FROM audit_journal WHERE kind = 'resizable_changed'"),
        answer->journaled);
}

static void resizable_is_counted_where_it_should_be(void **state)
{
    static const struct answer table[] = {
        {"unknown", "drives_not_read", false, 0, 0},
        {"yes", NULL, false, 0, 0},
        {"no", "monitor_missing", false, 1, 1},
        {"no", "monitor_missing", false, 1, 1}, /* an equal fact writes nothing */
        {"no", "monitor_missing", true, 0, 1},
        {"no", "policy", false, 0, 2},
        {"no", "read_only", false, 0, 3},
        {"no", "agent_unsupported", false, 1, 4},
        {"yes", NULL, false, 0, 5},
        {NULL, NULL, false, 0, 5},
    };
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    int before;

    for (size_t i = 0; i < array_length(table); i++)
        expect_answer(store, volume_id, &table[i]);
    assert_text_of(store,
                   "SELECT detail FROM audit_journal WHERE kind = 'resizable_changed' LIMIT 1",
                   "{\"from\":\"yes\",\"to\":\"no/monitor_missing\"}");
    before = written(store);
    expect_answer(store, volume_id, &table[array_length(table) - 1]);
    assert_int_equal(written(store), before);
}

/* A debt of a week that a pod comes to pay is as old as the pod's stay. */
static void a_resize_is_pending_since_its_binding(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct error error;
    int64_t oldest_ms = 0;

    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(row_set_state(store, bound.volume_id, STATE_HOST_GROWN, REASON_NONE, NULL), 0);
    assert_int_equal(sql_execute(&store->connection, "UPDATE resizes SET detected_at = 1000"), 0);
    assert_int_equal(sql_execute(&store->connection, "UPDATE mappings SET since = 5000"), 0);
    assert_int_equal(store_oldest_pending(store_get_reader(store), &oldest_ms, &error), 0);
    assert_int_equal(oldest_ms, 5000);
    assert_int_equal(sql_execute(&store->connection, "UPDATE resizes SET detected_at = 7000"), 0);
    assert_int_equal(store_oldest_pending(store_get_reader(store), &oldest_ms, &error), 0);
    assert_int_equal(oldest_ms, 7000);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Parsed; cJSON_Delete() it. */
static cJSON *read_rows(struct store_reader *reader, const struct store_query *query)
{
    struct buffer json = BUFFER_INIT(0);
    struct error error = {0};
    cJSON *rows = NULL;
    int r = store_read_json(reader, query, &json, &error);

    if (r < 0)
        fail_msg("%d %s", r, error.text);
    r = json_parse(json.data, json.length, JSON_LIMITS_QMP, &rows, &error);
    if (r < 0)
        fail_msg("%s: %s", error.text, json.data);
    buffer_done(&json);
    return rows;
}

static int count_rows(struct store_reader *reader, const struct store_query *query)
{
    cJSON *rows = read_rows(reader, query);
    int count = cJSON_GetArraySize(rows);

    cJSON_Delete(rows);
    return count;
}

static int take_pod(void *userdata, const struct store_usage_line *line)
{
    (void)snprintf(userdata, 64, "%s/%s/%s/%s", line->pv, line->namespace, line->claim, line->pod);
    return 0;
}

static void expect_names(struct store *store, const char *columns, const char *usage)
{
    struct store_reader *reader = store_get_reader(store);
    char text[64] = "";
    struct error error;

    assert_text_of(store,
                   "SELECT group_concat(ifnull(pod_namespace, '-') || '/' || ifnull(pod_name, '-')"
                   " || '/' || ifnull(claim, '-'), ' ') FROM audit_volumes",
                   columns);
    assert_int_equal(store_list_usage(reader, take_pod, text, &error), 0);
    assert_string_equal(text, usage);
}

/* The pod is the sandbox's, the claim is in the metadata if the driver copied it. */
static void a_volume_has_a_pod_and_a_claim(void **state)
{
    static const char with_claim[] = "{\"a\":\"csi.storage.k8s.io/pvc/name\","
                                     "\"csi.storage.k8s.io/pvc/namespace\":\"shop\","
                                     "\"csi.storage.k8s.io/pvc/name\":\"data\",\"b\":\"c\"}";
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry second = entry_of("key-2", VOLUME_PATH "2", 12);
    struct store_sandbox other = sandbox_of("sandbox-2", NULL);
    struct store_claim claim = {.path = VOLUME_PATH, .source = "bundle", .drive = -1};
    struct store_binding binding = {.source = "persist"};
    bool changed;

    entry.metadata = second.metadata = with_claim;
    (void)put_bound(store);
    expect_names(store, "default/pod/-", "pv-1/default//pod");
    (void)put_entry(store, &entry, true);
    expect_names(store, "default/pod/data", "pv-1/default/data/pod");
    /* A sandbox that only claims it is named, as long as it is the only one. */
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    expect_names(store, "shop/-/data", "pv-1/shop/data/");
    other.pod_name = "pod-2";
    other.pod_namespace = "shop";
    other.claims = 1;
    other.claim = &claim;
    binding.sandbox_ref = put_sandbox(store, &other, true);
    expect_names(store, "shop/pod-2/data", "pv-1/shop/data/");
    /* A PV that two pods use has no pod. */
    binding.volume_id = number_of(store, "SELECT volume_id FROM audit_volumes");
    assert_int_equal(store_open_binding(store, &binding), 0);
    expect_names(store, "shop/pod-2/data", "pv-1/shop/data/pod-2");
    binding.volume_id = put_entry(store, &second, true);
    other = sandbox_of("sandbox-3", NULL);
    other.pod_namespace = "shop";
    binding.sandbox_ref = put_sandbox(store, &other, true);
    assert_int_equal(store_open_binding(store, &binding), 0);
    expect_names(store, "shop/pod-2/data shop/pod/data", "pv-1/shop/data/");
}

static void put_named(struct store *store, const char *key, const char *pv)
{
    char path[128];
    struct store_entry entry = entry_of(key, path, 40);

    (void)snprintf(path, sizeof(path), "/volumes/%s", key);
    entry.pv = pv;
    (void)put_entry(store, &entry, true);
}

/* The ids of the volumes that a name may mean, in their order. */
static void expect_volumes(struct store *store, const char *name, const char *ids)
{
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = name};
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(1 << 20);
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error;
    char found[64] = "";
    const cJSON *row;

    assert_int_equal(store_read_json(store_get_reader(store), &query, &json, &error), 0);
    assert_int_equal(json_parse(buffer_text(&json), json.length, JSON_LIMITS_HTTP, &rows, NULL), 0);
    cJSON_ArrayForEach(row, rows)
    {
        uint64_t id = 0;

        assert_int_equal(json_number(row, "volume_id", &id), 0);
        (void)snprintf(found + strlen(found), sizeof(found) - strlen(found), " %d", (int)id);
    }
    if (strcmp(found, ids) != 0)
        fail_msg("\"%s\" is%s, not%s", name, found, ids);
}

/* PVs may be called 1, 2 and 3, and removed volumes keep their ids and names. */
static void a_name_that_is_another_volumes_id_is_both(void **state)
{
    struct store *store = store_of(state);
    int64_t removed;

    put_named(store, "key-1", "3");
    put_named(store, "key-2", "2");
    put_named(store, "key-3", "5");
    expect_volumes(store, "3", " 1 3");
    expect_volumes(store, "#3", " 3");
    expect_volumes(store, "2", " 2"); /* its name and its id */
    expect_volumes(store, "1", " 1");
    expect_volumes(store, "5", " 3");
    for (const char *const *name = (const char *const[]){"#", "#0", "#4", "3x", "4", "", NULL};
         *name; name++)
        expect_volumes(store, *name, "");

    /* A removed name is no reason to take the volume with this id instead. */
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    expect_volumes(store, "3", " 1 3");
    expect_volumes(store, "1", " 1");
    put_named(store, "key-1", "3"); /* the same PV again */
    expect_volumes(store, "3", " 3 4");
    expect_volumes(store, "#1", " 1");

    /* Of one PV the present volume is meant, even if the removed one has this very id. */
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-3", &removed), 0);
    expect_volumes(store, "3", " 4");
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-2", &removed), 0);
    put_named(store, "key-2", "2");
    expect_volumes(store, "2", " 5");
    expect_volumes(store, "5", " 3 5");
}

static void hostile_text_stays_json(void **state)
{
    struct store *store = store_of(state);
    struct store_query query = {.view = STORE_VIEW_VOLUMES};
    struct store_entry entry = entry_of("k\"ey\\\n\xff", "/p\x01'; DROP TABLE volumes", 11);

    entry.metadata = "{\"a\":\xff}"; /* as a damaged file might have it */
    entry.options = "[";
    (void)put_entry(store, &entry, true);
    assert_int_equal(count_rows(store_get_reader(store), &query), 1);
    query.volume = "/p\x01'; DROP TABLE volumes";
    assert_int_equal(count_rows(store_get_reader(store), &query), 1);
}

static void an_answer_has_a_bound(void **state)
{
    struct store *store = store_of(state);
    struct buffer json = BUFFER_INIT(64);
    struct error error = {0};

    (void)put_bound(store);
    assert_int_equal(buffer_append_text(&json, "before"), 0);
    assert_int_equal(
        store_read_json(store_get_reader(store), &(struct store_query){.id = 1}, &json, &error),
        -EMSGSIZE);
    assert_string_equal(json.data, "before");
    assert_int_equal(store_read_json(store_get_reader(store),
                                     &(struct store_query){.view = STORE_VIEW_DEVICES, .id = 1},
                                     &json, &error),
                     -EINVAL);
    assert_int_equal(
        store_read_json(store_get_reader(store),
                        &(struct store_query){.view = STORE_VIEW_JOURNAL, .volume = "x"}, &json,
                        &error),
        -EINVAL);
    buffer_done(&json);
}

/* ---- a reader of its own ------------------------------------------------------------------- */

/* As a daemon does that starts after a kill, while it reads the log of the one before. */
static void lock_for_a_moment(const char *path, int told)
{
    static const char lock[] = "PRAGMA locking_mode = EXCLUSIVE; UPDATE meta SET boot_id = 'x'";
    sqlite3 *db;

    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, lock, NULL, NULL, NULL) != SQLITE_OK || write(told, "", 1) != 1)
        _exit(1);
    usleep(300 * 1000);
    _exit(sqlite3_close(db) == SQLITE_OK ? 0 : 1);
}

static void a_reader_waits_for_a_locked_database(void **state)
{
    struct fixture *fixture = *state;
    struct store_reader *reader = NULL;
    struct error error;
    int ends[2], status;
    char byte;
    pid_t pid;

    store_close(fixture_open(fixture->path, "boot-1"));
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0)
        lock_for_a_moment(fixture->path, ends[1]);
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(store_reader_open(fixture->path, 0, &reader, &error), STORE_LOCKED);
    assert_int_equal(store_reader_open(fixture->path, 60000, &reader, &error), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    store_reader_free(reader);
    fd_close(ends[0]);
    fd_close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(views_have_their_columns),
        MODEL(stalled_is_one_notion),
        MODEL(resizable_is_counted_where_it_should_be),
        MODEL(a_resize_is_pending_since_its_binding),
        MODEL(views_and_clock_format_time_alike),
        MODEL(a_volume_has_a_pod_and_a_claim),
        MODEL(a_name_that_is_another_volumes_id_is_both),
        MODEL(hostile_text_stays_json),
        MODEL(an_answer_has_a_bound),
        FILES(a_reader_waits_for_a_locked_database),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
