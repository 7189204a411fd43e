/* SPDX-License-Identifier: Apache-2.0 */
/* entries_test.c - metadata directories in, volumes out. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

static void an_equal_entry_writes_nothing(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &entry, true);
    int before = written(store);

    assert_int_equal(put_entry(store, &entry, false), volume_id);
    entry.target_path = NULL; /* its name is a hash now: the path stays known */
    assert_int_equal(put_entry(store, &entry, false), volume_id);
    assert_int_equal(written(store), before);
    assert_int_equal(lines_of(store, "volume_added"), 1);
}

static void a_changed_entry_is_the_same_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &entry, true);

    entry.device = "/dev/other";
    entry.policy = POLICY_NEVER;
    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    assert_int_equal(put_entry(store, &entry, true), volume_id);
    assert_string_equal(get_volume(store, volume_id).device_path, "/dev/other");
    assert_int_equal(get_volume(store, volume_id).policy, POLICY_NEVER);
    assert_int_equal(named_sandboxes(store, volume_id), 2);
    entry.sandbox[0] = "sandbox-2";
    entry.sandboxes = 1;
    (void)put_entry(store, &entry, true);
    assert_int_equal(named_sandboxes(store, volume_id), 1);
    assert_int_equal(lines_of(store, "volume_changed"), 2);
}

static void an_invalid_entry_keeps_its_last_good_columns(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &entry, true);
    struct store_entry broken = {
        .key = "key-1", .target_path = VOLUME_PATH, .problem = "line 1: no device"};
    int before;

    assert_int_equal(put_entry(store, &broken, true), volume_id);
    before = written(store);
    assert_int_equal(put_entry(store, &broken, false), volume_id);
    assert_int_equal(written(store), before);
    assert_int_equal(get_volume(store, volume_id).status, STORE_INVALID);
    assert_string_equal(get_volume(store, volume_id).device_path, "/dev/disk");
    assert_text_of(store, "SELECT problem FROM audit_volumes", "line 1: no device");
    assert_int_equal(lines_of(store, "volume_invalid"), 1);

    assert_int_equal(put_entry(store, &entry, true), volume_id);
    assert_int_equal(get_volume(store, volume_id).status, STORE_PRESENT);
    assert_text_of(store, "SELECT problem FROM audit_volumes", NULL);
}

static void a_name_that_never_read_well_takes_its_first_identity(void **state)
{
    struct store *store = store_of(state);
    struct store_entry broken = {.key = "key-1", .problem = "the name is not base64url"};
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &broken, true);

    assert_text_of(store, "SELECT target_path FROM audit_volumes", NULL);
    assert_text_of(store, "SELECT status FROM audit_volumes", "invalid");
    broken.pv = "pv-1"; /* its path was learned */
    broken.pod_uid = "uid-1";
    assert_int_equal(put_entry(store, &broken, true), volume_id);
    assert_text_of(store, "SELECT pv || ' ' || pod_uid FROM audit_volumes", "pv-1 uid-1");
    (void)put_entry(store, &broken, false);
    assert_int_equal(put_entry(store, &entry, true), volume_id);
    assert_string_equal(get_volume(store, volume_id).target_path, VOLUME_PATH);
}

static void two_layouts_of_one_path_are_one_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry crust = entry_of("sha-1", VOLUME_PATH, 12);
    int64_t volume_id, removed;
    int before;

    crust.layout = LAYOUT_CRUST;
    crust.device = "/dev/crust";
    crust.policy = POLICY_OBSERVE;
    volume_id = put_entry(store, &crust, true);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "crust");
    assert_int_equal(put_entry(store, &kata, true), volume_id);
    before = written(store);
    (void)put_entry(store, &crust, false);
    (void)put_entry(store, &kata, false);
    assert_int_equal(written(store), before);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "both");
    assert_text_of(store, "SELECT key FROM audit_volumes", "key-1");
    assert_int_equal(get_volume(store, volume_id).policy, POLICY_OBSERVE);
    assert_int_equal(named_sandboxes(store, volume_id), 2);

    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, volume_id);
    assert_text_of(store, "SELECT layout || key || device || status FROM audit_volumes",
                   "crustsha-1/dev/crustpresent");
    assert_int_equal(store_remove_entry(store, LAYOUT_CRUST, "sha-1", &removed), 0);
    assert_text_of(store, "SELECT layout || key || device || status FROM audit_volumes",
                   "crustsha-1/dev/crustremoved");
}

static void staged_again_is_a_new_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t first = put_entry(store, &entry, true), second, third, removed;

    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, first);
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, 0);
    second = put_entry(store, &entry, true);
    assert_int_not_equal(second, first);
    entry.directory_inode = 99; /* replaced between two looks */
    third = put_entry(store, &entry, true);
    assert_int_not_equal(third, second);
    entry.directory_born_ns = 8;
    assert_int_not_equal(put_entry(store, &entry, true), third);
    assert_int_equal(get_volume(store, second).status, STORE_REMOVED);
    assert_int_equal(lines_of(store, "volume_removed"), 3);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_volumes"), 4);
    assert_int_equal(
        number_of(store, "SELECT count(*) FROM audit_volumes WHERE removed_at IS NULL"), 1);
}

/* Its VMM may hang: what has the device stays visible. */
static void a_volume_that_is_removed_in_use_stays_until_its_sandbox_ends(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int64_t removed;
    bool changed;

    assert_int_equal(store_find_unstaged(store, bound.volume_id, sandbox_id), 0);
    assert_string_equal(sandbox_id, "");
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(store_find_unstaged(store, bound.volume_id, sandbox_id), 0);
    assert_string_equal(sandbox_id, "sandbox-1");
    assert_text_of(store, "SELECT sandbox_id FROM audit_journal WHERE kind = 'volume_removed'",
                   "sandbox-1");
    assert_text_of(store, "SELECT reason FROM audit_volumes", "unstaged");
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_text_of(store, "SELECT reason FROM audit_volumes", "none");
    assert_int_equal(store_find_unstaged(store, bound.volume_id, sandbox_id), 0);
    assert_string_equal(sandbox_id, "");
}

static void a_removed_volume_has_nothing_open(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_volume volume;
    uint64_t next;
    int64_t removed;

    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_set_attempts(store, bound.volume_id, 2, 77, 1000), 0);
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.status, STORE_REMOVED);
    assert_int_equal(volume.binding_id, 0);
    assert_int_equal(volume.resize_id, 0);
    assert_int_equal(volume.state, STATE_UNMANAGED);
    assert_string_equal(volume.device_path, "/dev/disk");
    assert_int_equal(store_next_attempt(store, 0, &next), 0);
    assert_true(next == UINT64_MAX);
    assert_text_of(store, "SELECT state FROM audit_resizes WHERE finished_at IS NOT NULL",
                   "unmanaged");
}

static void a_learned_path_joins_its_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry unresolved = entry_of("sha-1", NULL, 12);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    int64_t unresolved_id, kata_id;

    unresolved.layout = LAYOUT_CRUST;
    unresolved_id = put_entry(store, &unresolved, true);
    kata_id = put_entry(store, &kata, true);
    assert_int_not_equal(unresolved_id, kata_id);
    unresolved.target_path = VOLUME_PATH;
    assert_int_equal(put_entry(store, &unresolved, true), kata_id);
    assert_int_equal(get_volume(store, unresolved_id).status, STORE_REMOVED);
    assert_text_of(store, "SELECT layout FROM audit_volumes WHERE removed_at IS NULL", "both");
}

/* Whichever of its directories it is about. */
static void a_remark_is_shown_as_the_problem(void **state)
{
    struct store *store = store_of(state);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry crust = entry_of("key-2", VOLUME_PATH, 12);

    crust.layout = LAYOUT_CRUST;
    crust.remark = "a file too many";
    (void)put_entry(store, &kata, true);
    (void)put_entry(store, &crust, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "a file too many");
    assert_text_of(store, "SELECT status FROM audit_volumes", "present");
    kata.remark = "another one";
    (void)put_entry(store, &kata, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "another one");
    kata.problem = "cut";
    (void)put_entry(store, &kata, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "cut");
}

static int count_keys(void *userdata, const char *key)
{
    assert_true(strncmp(key, "key-", 4) == 0);
    return ++*(int *)userdata == 2 ? 42 : 0;
}

static void each_entry_of_a_layout(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int seen = 0;

    (void)put_entry(store, &entry, true);
    assert_int_equal(store_each_entry(store, LAYOUT_CRUST, count_keys, &seen), 0);
    assert_int_equal(store_each_entry(store, LAYOUT_KATA, count_keys, &seen), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(store_each_entry(store, LAYOUT_KATA, count_keys, &seen), 42);
}

/* ---- with its device ------------------------------------------------------------------------ */

static struct store_entry_put put_on(struct store *store, const struct store_entry *entry)
{
    struct store_entry_put put;

    assert_int_equal(store_put_entry_on_device(store, entry, &put), 0);
    return put;
}

/* A row as text, all of them in their order. */
static void append_rows(struct store *store, const char *sql, struct buffer *text)
{
    sqlite3_stmt *statement = NULL;

    assert_int_equal(sqlite3_prepare_v2(store->connection.db, sql, -1, &statement, NULL), 0);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            const char *value = (const char *)sqlite3_column_text(statement, i);

            assert_int_equal(buffer_append_format(text, "%s=%s ", sqlite3_column_name(statement, i),
                                                  value ? value : "NULL"),
                             0);
        }
        assert_int_equal(buffer_append_text(text, "\n"), 0);
    }
    (void)sqlite3_finalize(statement);
}

static void dump(struct store *store, struct buffer *ret_text)
{
    append_rows(store, "SELECT * FROM volumes", ret_text);
    append_rows(store, "SELECT * FROM entries", ret_text);
    append_rows(store, "SELECT * FROM entry_sandboxes", ret_text);
    append_rows(store, "SELECT * FROM devices", ret_text);
    append_rows(store, "SELECT * FROM meta", ret_text);
    append_rows(store, "SELECT * FROM journal", ret_text);
}

/* Step by step, as a volume is put that something is known of. */
static void put_in_steps(struct store *store, struct store_entry entry)
{
    const struct store_device *device = entry.leads_to;
    int64_t volume_id, device_id;
    bool changed = false;

    entry.leads_to = NULL;
    volume_id = put_entry(store, &entry, true);
    device_id = put_device(store, device, true);
    assert_int_equal(store_set_volume_device(store, volume_id, device_id, &changed), 0);
    assert_true(changed);
}

static void a_volume_made_at_once_is_as_one_made_in_steps(void **state)
{
    struct store *in_steps = store_of(state), *at_once = fixture_open(NULL, "boot-1");
    cleanup(buffer_done) struct buffer expected = BUFFER_INIT(0), found = BUFFER_INIT(0);
    struct store_device file = {.kind = DEVICE_KIND_FILE,
                                .name = "/disk",
                                .file_device = 5,
                                .inode = 6,
                                .size_bytes = GIB,
                                .now_ns = 50};
    struct store_device block = device_of(1, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry other = entry_of("key-2", "/another/path", 12);

    entry.leads_to = &file;
    other.leads_to = &block;
    other.sandboxes = 0;
    assert_int_equal(store_begin(at_once), 0);
    at_once->now_ms = in_steps->now_ms;
    execute_sql(in_steps, "DELETE FROM journal"); /* store_opened has another time */
    execute_sql(at_once, "DELETE FROM journal");
    put_in_steps(in_steps, entry);
    put_in_steps(in_steps, other);
    assert_true(put_on(at_once, &entry).is_on);
    assert_true(put_on(at_once, &other).is_on);
    dump(in_steps, &expected);
    dump(at_once, &found);
    assert_string_equal(buffer_text(&found), buffer_text(&expected));
    store_close(at_once);
}

static void an_equal_entry_on_its_device_writes_nothing(void **state)
{
    struct store *store = store_of(state);
    struct store_device device = device_of(1, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry_put put;
    int before;

    entry.leads_to = &device;
    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    put = put_on(store, &entry);
    assert_true(put.changed && put.is_on);
    before = written(store);
    put = put_on(store, &entry);
    assert_true(!put.changed && put.is_on);
    entry.sandbox[0] = "sandbox-2"; /* in another order they are the same */
    entry.sandbox[1] = "sandbox-1";
    assert_false(put_on(store, &entry).changed);
    assert_int_equal(written(store), before);
    entry.sandbox[1] = "sandbox-3"; /* as many, but others */
    assert_true(put_on(store, &entry).changed);
    assert_int_equal(named_sandboxes(store, put.volume_id), 2);
}

/* Whatever is different about the device is for store_put_device() and its callers. */
static void different_device_is_recognised(void **state)
{
    struct store *store = store_of(state);
    struct store_device device = device_of(1, GIB), other = device_of(2, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_layer layer = {.kind = "disk"};
    int64_t device_id;
    bool changed;

    entry.leads_to = &device;
    assert_true(put_on(store, &entry).is_on);
    device_id = put_device(store, &device, false);
    entry.leads_to = NULL;
    assert_false(put_on(store, &entry).is_on);
    entry.leads_to = &other;
    assert_false(put_on(store, &entry).is_on);
    entry.leads_to = &device;
    device.size_bytes = 2 * GIB;
    assert_false(put_on(store, &entry).is_on);
    device.size_bytes = GIB;
    device.name = "/dev/loop2";
    assert_false(put_on(store, &entry).is_on);
    device.name = "/dev/loop1";
    assert_true(put_on(store, &entry).is_on);

    layer.layer_id = device_id;
    assert_int_equal(store_put_layers(store, device_id, &layer, 1), 0);
    assert_false(put_on(store, &entry).is_on);
    assert_int_equal(store_put_layers(store, device_id, NULL, 0), 0);
    assert_true(put_on(store, &entry).is_on);
    assert_int_equal(store_note_capacity_change(store, device_id, 50, &changed), 0);
    assert_true(changed);
    assert_false(put_on(store, &entry).is_on);
}

static void a_device_that_another_volume_has_is_left_to_its_callers(void **state)
{
    struct store *store = store_of(state);
    struct store_device device = device_of(1, GIB);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry other = entry_of("key-2", "/another/path", 12);

    entry.leads_to = other.leads_to = &device;
    assert_true(put_on(store, &entry).is_on);
    assert_false(put_on(store, &other).is_on);
    assert_int_equal(number_of(store, "SELECT count(*) FROM devices"), 1);
    assert_int_equal(lines_of(store, "device_seen"), 1);
    assert_int_equal(lines_of(store, "device_found"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_equal_entry_writes_nothing),
        MODEL(a_changed_entry_is_the_same_volume),
        MODEL(a_remark_is_shown_as_the_problem),
        MODEL(an_invalid_entry_keeps_its_last_good_columns),
        MODEL(a_name_that_never_read_well_takes_its_first_identity),
        MODEL(two_layouts_of_one_path_are_one_volume),
        MODEL(staged_again_is_a_new_volume),
        MODEL(a_volume_that_is_removed_in_use_stays_until_its_sandbox_ends),
        MODEL(a_removed_volume_has_nothing_open),
        MODEL(a_learned_path_joins_its_volume),
        MODEL(each_entry_of_a_layout),
        MODEL(a_volume_made_at_once_is_as_one_made_in_steps),
        MODEL(an_equal_entry_on_its_device_writes_nothing),
        MODEL(different_device_is_recognised),
        MODEL(a_device_that_another_volume_has_is_left_to_its_callers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
