/* SPDX-License-Identifier: Apache-2.0 */
/* command_test.c - commands on a scratch node, as a person or a script would run them. */
#include "lib/json.h"
#include "tests/unit/crustctl/node.h"

static cJSON *parse(const struct buffer *out)
{
    cJSON *value = NULL;

    assert_int_equal(json_parse(buffer_text(out), out->length,
                                (struct json_limits){16 * MIB, 12, 0}, &value, NULL),
                     0);
    return value;
}

static void expect(const struct node *node, const char *words, int code, const char *text)
{
    cleanup(buffer_done) struct buffer out = {0};

    assert_int_equal(node_run(node, words, &out), code);
    if (!strstr(buffer_text(&out), text))
        fail_msg("%s: \"%s\" is not in:\n%s", words, text, buffer_text(&out));
}

static void expect_wide(const struct node *node, const char *words, const char *text)
{
    cleanup(buffer_done) struct buffer out = {0};

    assert_int_equal(node_run_wide(node, words, UINT_MAX, &out), EXIT_DONE);
    if (!strstr(buffer_text(&out), text) || strstr(buffer_text(&out), "…"))
        fail_msg("%s: \"%s\" is not in, or something is cut:\n%s", words, text, buffer_text(&out));
}

static void tables_fit_a_terminal(void **state)
{
    static const char *const lists[] = {"volumes",  "sandboxes", "devices", "layers",
                                        "mappings", "resizes",   "cleanups"};

    for (size_t i = 0; i < array_length(lists); i++) {
        cleanup(buffer_done) struct buffer out = {0};
        char *line;

        assert_int_equal(node_run(*state, lists[i], &out), EXIT_DONE);
        for (line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"))
            if (display_width(line) > 80 || line[strlen(line) - 1] == ' ')
                fail_msg("%s: %s|", lists[i], line);
    }
}

static void volumes_show_sizes_and_states(void **state)
{
    expect(*state, "volumes", EXIT_DONE, "pvc-orders");
    expect(*state, "volumes", EXIT_DONE, "128 MiB");
    expect(*state, "volumes", EXIT_DONE, "block_grown/agent_unsupported");
    expect(*state, "volumes", EXIT_DONE, "unbound\n");
}

/* Nothing is cut, however narrow the terminal. */
static void wide_has_pod_and_claim(void **state)
{
    cleanup(buffer_done) struct buffer out = {0}, filtered = {0};

    assert_int_equal(node_run(*state, "volumes -o wide", &out), EXIT_DONE);
    assert_non_null(strstr(buffer_text(&out), "NAMESPACE  POD         CLAIM"));
    assert_non_null(
        strstr(buffer_text(&out), "default    database-0  data-database-0  /dev/loop1"));
    assert_non_null(strstr(buffer_text(&out), "direct_volume"));
    assert_null(strstr(buffer_text(&out), "…"));
    assert_int_equal(node_run(*state, "volumes --blocked -o wide", &filtered), EXIT_DONE);
    assert_non_null(strstr(buffer_text(&filtered), "pvc-ledger"));
    assert_null(strstr(buffer_text(&filtered), "pvc-orders"));
}

static void removed_volumes_are_asked_for(void **state)
{
    struct node *node = *state;
    cleanup(buffer_done) struct buffer live = {0}, all = {0};
    cleanup(json_deletep) cJSON *live_rows = NULL, *all_rows = NULL;
    int64_t id;

    assert_int_equal(store_begin(node->store), 0);
    assert_int_equal(store_remove_entry(node->store, LAYOUT_KATA, "key3", &id), 0);
    assert_int_equal(store_commit(node->store), 0);
    assert_int_equal(node_run(node, "volumes -o json", &live), EXIT_DONE);
    assert_int_equal(node_run(node, "-o json volumes --all", &all), EXIT_DONE);
    live_rows = parse(&live);
    all_rows = parse(&all);
    assert_int_equal(cJSON_GetArraySize(live_rows), 2);
    assert_int_equal(cJSON_GetArraySize(all_rows), 3);
}

static void a_volume_is_a_sheet(void **state)
{
    const struct node *node = *state;
    char words[64];

    (void)snprintf(words, sizeof(words), "volume %d", (int)node->blocked);
    expect(node, words, EXIT_DONE, "blocked/monitor_missing");
    expect(node, "volume pvc-ledger", EXIT_DONE, "ffeeddccbbaa99887766554433221100");
    expect(node, "volume key2", EXIT_DONE, "Open resize\n");
    expect(node, "volume pvc-ledger", EXIT_DONE, "Last in the journal\n");
    expect(node, "volume pvc-nothing", EXIT_NOT_FOUND, "");
}

static void a_volume_in_json_is_an_object(void **state)
{
    cleanup(buffer_done) struct buffer out = {0};
    cleanup(json_deletep) cJSON *volume = NULL;

    assert_int_equal(node_run(*state, "-o json volume pvc-orders", &out), EXIT_DONE);
    volume = parse(&out);
    assert_true(cJSON_IsObject(volume));
    assert_string_equal(json_string(volume, "state"), "block_grown");
}

/* What the others need to have something to show: a layer, and a kept directory. */
static void add_layer_and_cleanup(const struct node *node)
{
    const struct store_device disk = {.name = "/dev/sda", .major = 8, .size_bytes = 128 * MIB};
    const struct store_stale stale = {
        .reason = STALE_REASON_GRACE, .fingerprint = "aa", .since_ns = 1, .evidence = "{}"};
    struct store_layer layer = {.kind = "disk"};
    struct store_volume volume;
    bool changed;

    assert_int_equal(store_begin(node->store), 0);
    assert_int_equal(store_put_device(node->store, &disk, &layer.layer_id, &changed), 0);
    assert_int_equal(store_get_volume(node->store, node->grown, &volume), 0);
    assert_int_equal(store_put_layers(node->store, volume.device_id, &layer, 1), 0);
    assert_int_equal(store_note_stale(node->store, 1, &stale), 0);
    assert_int_equal(store_commit(node->store), 0);
}

static void every_list_that_shows_a_volume_has_its_pv(void **state)
{
    static const char *const lists[] = {"volumes", "layers",   "mappings",
                                        "resizes", "cleanups", "journal"};

    add_layer_and_cleanup(*state);
    for (size_t i = 0; i < array_length(lists); i++) {
        char words[64];

        expect(*state, lists[i], EXIT_DONE, "pvc-orders");
        (void)snprintf(words, sizeof(words), "%s -o json", lists[i]);
        expect(*state, words, EXIT_DONE, "\"pv\":\"pvc-orders\"");
    }
}

/* What is no terminal has no width. */
static void a_program_gets_whole_columns(void **state)
{
    const struct node *node = *state;
    const char *path = "a1b2c3d4e5f60718293a4b5c6d7e8f90";

    expect(node, "mappings", EXIT_DONE, "…");
    expect_wide(node, "mappings", path);
    expect_wide(node, "mappings", "/run/kata/data");
    expect_wide(node, "sandboxes", "/run/vc/vm/a1b2/extra-monitor.sock");
}

/* Their paths come from clients. */
static void a_drive_shows_its_containers(void **state)
{
    static char containers[] =
        "[{\"container_id\":\"c1\",\"path\":\"/in\",\"sub_path\":\"db\",\"read_only\":true},"
        "{\"container_id\":\"c2\",\"path\":\"/\\u001b[2J\",\"sub_path\":\"\",\"read_only\":false}]";
    const struct node *node = *state;
    const struct store_drive_mount_request request = {.drive_id = "data",
                                                      .sandbox_id =
                                                          "a1b2c3d4e5f60718293a4b5c6d7e8f90",
                                                      .host_path = "/dev/loop7",
                                                      .vm_path = "/vm",
                                                      .fs_type = "ext4",
                                                      .containers = containers};
    int64_t drive_ref;

    expect(node, "drives", EXIT_DONE, "no drives");
    assert_int_equal(store_begin(node->store), 0);
    assert_int_equal(store_add_drive_mount(node->store, &request, "serial", &drive_ref), 0);
    assert_int_equal(store_commit(node->store), 0);
    expect_wide(node, "drives", "c1:/in:db:ro, c2:/\\u001b[2J ");
    expect(node, "drives", EXIT_DONE, "requested"); /* where it does not fit, it goes */
}

static void status_comes_from_the_database_too(void **state)
{
    expect(*state, "status", EXIT_DONE, "no daemon answers");
    expect(*state, "status", EXIT_DONE, "blocked 1");
    expect(*state, "status -o json", EXIT_DONE, "\"daemon\":false");
}

static void doctor_needs_no_daemon(void **state)
{
    cleanup(buffer_done) struct buffer text = {0}, out = {0};
    cleanup(json_deletep) cJSON *findings = NULL;
    char *line;

    /* The scratch node has no /dev. */
    assert_int_equal(node_run(*state, "doctor", &text), EXIT_BLOCKED);
    assert_non_null(strstr(buffer_text(&text), "No daemon answers; crustctl sees "));
    assert_non_null(strstr(buffer_text(&text), "\n\nerror    "));
    assert_non_null(strstr(buffer_text(&text), "error    dev /dev: there is no /dev"));
    assert_non_null(strstr(buffer_text(&text), "\n      -> Mount the node's /dev"));
    for (line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
        if (display_width(line) > 80 || line[strlen(line) - 1] == ' ')
            fail_msg("%s|", line);
    assert_int_equal(node_run(*state, "doctor -o json", &out), EXIT_BLOCKED);
    findings = parse(&out);
    assert_true(cJSON_IsArray(findings));
    assert_string_equal(json_string(findings->child, "id"), "kernel");
}

static void the_journal_has_lines(void **state)
{
    cleanup(buffer_done) struct buffer out = {0};
    cleanup(json_deletep) cJSON *rows = NULL;

    expect(*state, "journal -n 100", EXIT_DONE, "volume 2");
    assert_int_equal(node_run(*state, "journal -n 2 -o json", &out), EXIT_DONE);
    rows = parse(&out);
    assert_int_equal(cJSON_GetArraySize(rows), 2);
}

static void output_that_does_not_fit_is_a_failure(void **state)
{
    struct session session = {.out = BUFFER_INIT(2)};

    buffer_append_text(&session.out, "{}\n");
    assert_int_equal(session_end(&session, EXIT_DONE), EXIT_FAILED);
    assert_int_equal(session_end(&session, EXIT_BLOCKED), EXIT_BLOCKED); /* it is told once */
    buffer_append_text(&session.out, "{}\n");
    assert_int_equal(session_flush(&session), -EMSGSIZE);
    assert_int_equal(session_flush(&session), 0);
    buffer_done(&session.out);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, node_set_up, node_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tables_fit_a_terminal),
        TEST(volumes_show_sizes_and_states),
        TEST(wide_has_pod_and_claim),
        TEST(removed_volumes_are_asked_for),
        TEST(a_volume_is_a_sheet),
        TEST(a_volume_in_json_is_an_object),
        TEST(every_list_that_shows_a_volume_has_its_pv),
        TEST(a_program_gets_whole_columns),
        TEST(a_drive_shows_its_containers),
        TEST(status_comes_from_the_database_too),
        TEST(doctor_needs_no_daemon),
        TEST(the_journal_has_lines),
        cmocka_unit_test(output_that_does_not_fit_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
