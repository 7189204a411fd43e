/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines_test.c - the journal's rows as lines: their members, what is escaped, cut and left
 * out. */
#include "tests/unit/store/fixture.h"

#include "lib/json.h"
#include "store/journal.h"
#include "tests/unit/reference.h"
#include "tests/unit/volume_rows.h"

enum { LINE = 4096, ROWS = 32 };

static struct buffer text = BUFFER_INIT(ROWS * LINE);

/* The rows after seq; how many. The last that was written becomes seq. */
static int read_after(struct store *store, struct store_journal_lines *lines)
{
    int r;

    lines->most = lines->most ? lines->most : ROWS;
    lines->line_bytes = LINE;
    buffer_clear(&text);
    r = store_read_journal_lines(store, lines, &text);
    assert_int_equal(buffer_error(&text), 0);
    return r;
}

static int64_t newest(struct store *store)
{
    int64_t seq = 0;

    assert_int_equal(store_newest_journal_row(store, &seq), 0);
    return seq;
}

/* The only line after seq, as JSON; a newline is at its end and nowhere else. */
static cJSON *only_line(struct store *store, struct store_journal_lines *lines)
{
    cJSON *line = NULL;

    assert_int_equal(read_after(store, lines), 1);
    assert_ptr_equal(strchr(text.data, '\n'), text.data + text.length - 1);
    assert_true(text.length <= LINE);
    assert_int_equal(json_parse(text.data, text.length - 1, JSON_LIMITS_HTTP, &line, NULL), 0);
    return line;
}

static const char *member(const cJSON *line, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(line, name);

    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* A volume that is blocked in a sandbox; the journal's last row says so. */
static void add_stalled_volume(struct store *store)
{
    struct store_entry entry = entry_of("key", VOLUME_PATH, 5);
    const struct store_device device = device_of(1, GIB);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    struct store_binding binding = {.source = "sandbox-file"};
    bool changed = false;

    binding.volume_id = put_entry(store, &entry, true);
    binding.device_id = put_device(store, &device, true);
    assert_int_equal(store_set_volume_device(store, binding.volume_id, binding.device_id, &changed),
                     0);
    binding.sandbox_ref = put_sandbox(store, &sandbox, true);
    assert_int_equal(store_open_binding(store, &binding), 0);
    assert_int_equal(
        row_set_state(store, binding.volume_id, STATE_BLOCKED, REASON_MONITOR_MISSING, NULL), 0);
    assert_int_equal(store_commit(store), 0);
}

static void expect_members(const cJSON *line)
{
    const cJSON *one;
    struct reference page;

    reference_open(&page, "docs/reference/journal.md", "members");
    cJSON_ArrayForEach(one, line) reference_expect(&page, one->string);
    reference_expect(&page, "cut");
    reference_expect_end(&page);
}

static void line_has_the_members_of_the_page(void **state)
{
    struct store *store = store_of(state);
    struct store_journal_lines lines = {.node = "node-1"};
    cleanup(json_deletep) cJSON *line = NULL;

    add_stalled_volume(store);
    lines.seq = newest(store) - 1;
    line = only_line(store, &lines);
    assert_int_equal(lines.seq, newest(store));
    expect_members(line);
    assert_string_equal(member(line, "log"), "journal");
    assert_string_equal(member(line, "kind"), "state_changed");
    assert_string_equal(member(line, "node"), "node-1");
    assert_string_equal(member(line, "pv"), "pv-1");
    assert_string_equal(member(line, "namespace"), "default");
    assert_string_equal(member(line, "pod"), "pod");
    assert_string_equal(member(line, "sandbox_id"), "sandbox-1");
    assert_string_equal(member(line, "state"), "blocked");
    assert_string_equal(member(line, "reason"), "monitor_missing");
    assert_string_equal(member(line, "device"), "/dev/loop1");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "stalled")));
    assert_true(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(line, "detail")));
}

static void row_about_nothing_has_no_volume(void **state)
{
    struct store_journal_lines lines = {0};
    cleanup(json_deletep) cJSON *line = NULL;

    assert_int_equal(store_commit(store_of(state)), 0);
    line = only_line(store_of(state), &lines); /* store_opened */
    assert_string_equal(member(line, "kind"), "store_opened");
    assert_null(cJSON_GetObjectItemCaseSensitive(line, "volume_id"));
    assert_null(cJSON_GetObjectItemCaseSensitive(line, "stalled"));
    assert_null(cJSON_GetObjectItemCaseSensitive(line, "node"));
}

/* What stands on record, from a name of a pod to damage, cannot begin another line. */
static void nothing_on_record_begins_a_line(void **state)
{
    static const char *const details[] = {"{\"a\":\n1}", "no JSON\n{\"log\":\"journal\"}",
                                          "{\"a\":\"\x7f\"}", "{\"a\":1", "\xff\n"};
    struct store *store = store_of(state);
    struct store_journal_lines lines = {.node = "a\"\n\x01\xff"};

    for (size_t i = 0; i < array_length(details); i++) {
        cleanup(json_deletep) cJSON *line = NULL;

        assert_int_equal(store_journal(store, "kind\n", 0, "sand\nbox", "/dev/\"\n", details[i]),
                         0);
        assert_int_equal(store_commit(store), 0);
        lines.seq = newest(store) - 1;
        line = only_line(store, &lines);
        assert_string_equal(member(line, "sandbox_id"), "sand\nbox");
        assert_string_equal(member(line, "kind"), "kind\n");
        assert_non_null(member(line, "detail"));
        assert_int_equal(store_begin(store), 0);
    }
    assert_int_equal(store_commit(store), 0);
}

static void long_line_is_cut(void **state)
{
    static char detail[2 * LINE], device[2 * LINE];
    struct store *store = store_of(state);
    struct store_journal_lines lines = {.node = "node-1"};
    cleanup(json_deletep) cJSON *line = NULL;
    cleanup(json_deletep) cJSON *bare = NULL;

    (void)snprintf(detail, sizeof(detail), "{\"a\":\"%0*d\"}", LINE, 0);
    memset(device, '\n', sizeof(device) - 1);
    assert_int_equal(store_journal(store, "first", 1, "sandbox", "/dev/a", detail), 0);
    assert_int_equal(store_journal(store, "second", 2, device, device, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    lines.seq = newest(store) - 2;
    lines.most = 1;
    line = only_line(store, &lines);
    assert_string_equal(member(line, "sandbox_id"), "sandbox");
    assert_null(cJSON_GetObjectItemCaseSensitive(line, "detail"));
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "cut")));
    bare = only_line(store, &lines);
    assert_string_equal(member(bare, "kind"), "second");
    assert_null(member(bare, "sandbox_id"));
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(bare, "cut")));
}

static void only_committed_rows_are_read(void **state)
{
    struct store *store = store_of(state);
    struct store_journal_lines lines = {0};

    assert_int_equal(read_after(store, &lines), STORE_RUNNING);
    store_rollback(store);
    assert_int_equal(read_after(store, &lines), 1);
    assert_int_equal(read_after(store, &lines), 0);
    assert_int_equal(lines.seq, newest(store));
}

static void rows_come_in_pieces_without_those_that_were_trimmed(void **state)
{
    struct store *store = store_of(state);
    struct store_journal_lines lines = {.most = 2};
    int64_t opening = 0;

    for (int i = 0; i < 5; i++)
        assert_int_equal(store_journal(store, "kind", 0, NULL, NULL, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_opening_journal_row(store, &opening), 0);
    assert_int_equal(opening, 1);
    assert_int_equal(read_after(store, &lines), 2);
    assert_int_equal(lines.seq, 2);
    assert_int_equal(sql_execute(&store->connection, "DELETE FROM journal WHERE seq IN (3, 4)"), 0);
    assert_int_equal(read_after(store, &lines), 2);
    assert_int_equal(lines.seq, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(line_has_the_members_of_the_page),
        MODEL(row_about_nothing_has_no_volume),
        MODEL(nothing_on_record_begins_a_line),
        MODEL(long_line_is_cut),
        MODEL(only_committed_rows_are_read),
        MODEL(rows_come_in_pieces_without_those_that_were_trimmed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    buffer_done(&text);
    return failed;
}
