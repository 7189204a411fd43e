/* SPDX-License-Identifier: Apache-2.0 */
/* volumes_test.c - a volume whole: its sandbox and drive, what touches it, and what that costs. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

/* ---- whose it is ----------------------------------------------------------------------------- */

/* The beginning of a path leads to somebody else. */
static void an_address_that_does_not_fit_is_dropped(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    char address[STORE_ADDRESS_BYTES + 1];

    memset(address, 'x', sizeof(address));
    address[0] = '/';
    address[STORE_ADDRESS_BYTES - 1] = '\0';
    sandbox.control_socket = sandbox.agent_address = address;
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).control_socket, address);
    assert_string_equal(get_volume(store, bound.volume_id).agent_address, address);
    address[STORE_ADDRESS_BYTES - 1] = 'x';
    address[STORE_ADDRESS_BYTES] = '\0';
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).control_socket, "");
    assert_string_equal(get_volume(store, bound.volume_id).agent_address, "");
}

/* A sandbox of a runtime that writes no sandbox-id file. */
static struct store_sandbox claiming(const char *sandbox_id, const struct store_claim *claim)
{
    struct store_sandbox sandbox = sandbox_of(sandbox_id, NULL);

    sandbox.runtime = RUNTIME_KATA_RS;
    sandbox.claims = claim ? 1 : 0;
    sandbox.claim = claim;
    return sandbox;
}

static const struct store_claim fixture_claim = {
    .path = VOLUME_PATH, .source = "bundle", .guest_path = "/guest/data"};

static int64_t put_unnamed(struct store *store, const char *key, const char *target_path);
static int sum_volumes(void *userdata, int64_t volume_id);

static struct store_volume get_bypassed(struct store *store, int64_t volume_id, const char *path,
                                        bool changes)
{
    struct store_claim claim = {.path = path, .source = "bundle"};
    struct store_sandbox sandbox = claiming("sandbox-1", &claim);
    int64_t sum = 0;

    (void)put_sandbox(store, &sandbox, changes);
    assert_int_equal(
        store_each_volume(store, STORE_SEARCH(BYPASSED, .name = "sandbox-1"), sum_volumes, &sum),
        0);
    if (get_volume(store, volume_id).bypassed)
        assert_int_equal(sum, volume_id);
    return get_volume(store, volume_id);
}

static void a_part_of_a_volume_is_no_claim_on_it(void **state)
{
    static const char *const parts[] = {VOLUME_PATH "/sub", VOLUME_PATH "/a/b",
                                        "/kubelet/volume-subpaths/pv/container/0"};
    static const char *const others[] = {VOLUME_PATH "2/sub", "/kubelet/volume-subpaths/pv2/c/0",
                                         "/kubelet/volume-subpaths/pv", "/other"};
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_volume volume;
    int64_t volume_id;

    entry.sandboxes = 0;
    entry.subpaths = "/kubelet/volume-subpaths/pv";
    volume_id = put_entry(store, &entry, true);
    for (size_t i = 0; i < array_length(parts); i++) {
        volume = get_bypassed(store, volume_id, parts[i], true);
        assert_true(volume.bypassed);
        assert_int_equal(volume.live_sandboxes, 1);
        assert_int_equal(volume.sandbox_ref, 0);
    }
    for (size_t i = 0; i < array_length(others); i++) {
        volume = get_bypassed(store, volume_id, others[i], true);
        assert_false(volume.bypassed);
        assert_int_equal(volume.live_sandboxes, 0);
    }
    volume = get_bypassed(store, volume_id, VOLUME_PATH, true);
    assert_false(volume.bypassed);
    assert_int_not_equal(volume.sandbox_ref, 0);
    (void)put_unnamed(store, "key-2", VOLUME_PATH "/sub"); /* a volume by itself */
    assert_false(get_bypassed(store, volume_id, VOLUME_PATH "/sub", true).bypassed);
}

/* A runtime that looks for metadata along the path has the whole volume in the VM. */
static void a_part_that_is_served_goes_round_nothing(void **state)
{
    const struct store_claim part = {.path = VOLUME_PATH "/sub", .source = "bundle"},
                             bound_part = {.path = "/kubelet/volume-subpaths/pv/c/0",
                                           .source = "bundle"};
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_drive other = fixture_drive;
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    struct store_claim claims[] = {fixture_claim, part};
    int64_t volume_id;

    entry.subpaths = "/kubelet/volume-subpaths/pv";
    volume_id = put_bound(store).volume_id;
    (void)put_entry(store, &entry, true);
    sandbox.claim = &claims[1];
    sandbox.claims = 1;
    (void)put_sandbox(store, &sandbox, true);
    assert_false(get_volume(store, volume_id).bypassed);
    assert_int_equal(get_volume(store, volume_id).live_sandboxes, 1);
    assert_string_equal(get_volume(store, volume_id).sandbox_id, "sandbox-1");

    sandbox.claim = claims; /* another container has the whole: any runtime attaches it for that */
    sandbox.claims = 2;
    (void)put_sandbox(store, &sandbox, true);
    assert_true(get_volume(store, volume_id).bypassed);
    claims[1] = bound_part; /* what the kubelet binds is the node's own */
    sandbox.claim = &claims[1];
    sandbox.claims = 1;
    (void)put_sandbox(store, &sandbox, true);
    assert_true(get_volume(store, volume_id).bypassed);
    claims[1] = part;
    other.minor = 2;
    sandbox.drive = &other;
    (void)put_sandbox(store, &sandbox, true);
    assert_true(get_volume(store, volume_id).bypassed);
    sandbox.drive = &fixture_drive;
    (void)put_sandbox(store, &sandbox, true);
    assert_false(get_volume(store, volume_id).bypassed);
    entry.sandboxes = 0;
    (void)put_entry(store, &entry, true);
    assert_true(get_volume(store, volume_id).bypassed);
}

static void the_bypassing_container_is_shown(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_unnamed(store, "key-1", VOLUME_PATH);

    (void)get_bypassed(store, volume_id, VOLUME_PATH "/sub", true);
    assert_text_of(store, "SELECT evidence FROM audit_volumes", NULL);
    assert_int_equal(row_set_state(store, volume_id, STATE_BLOCKED, REASON_BYPASSED, NULL), 0);
    assert_text_of(store, "SELECT evidence FROM audit_volumes",
                   "a container of sandbox sandbox-1 mounts " VOLUME_PATH "/sub");
}

static void two_directories_may_name_two_devices(void **state)
{
    struct store *store = store_of(state);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry crust = entry_of("sha-1", VOLUME_PATH, 12);
    int64_t volume_id = put_entry(store, &kata, true);

    crust.layout = LAYOUT_CRUST;
    (void)put_entry(store, &crust, true);
    assert_string_equal(get_volume(store, volume_id).other_device_path, "");
    crust.device = "/dev/other";
    (void)put_entry(store, &crust, true);
    assert_string_equal(get_volume(store, volume_id).device_path, "/dev/disk");
    assert_string_equal(get_volume(store, volume_id).other_device_path, "/dev/other");
    assert_int_equal(row_set_state(store, volume_id, STATE_BLOCKED, REASON_ENTRIES_DISAGREE, NULL),
                     0);
    assert_text_of(store, "SELECT evidence FROM audit_volumes",
                   "kata/key-1 names /dev/disk, crust/sha-1 names /dev/other");
}

static int64_t put_unnamed(struct store *store, const char *key, const char *target_path)
{
    struct store_entry entry = entry_of(key, target_path, key[4]);

    entry.sandboxes = 0;
    return put_entry(store, &entry, true);
}

static int sum_volumes(void *userdata, int64_t volume_id)
{
    *(int64_t *)userdata += volume_id;
    return 0;
}

static void a_drive_is_found_by_number_then_by_source(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    struct store_drive drives[] = {
        {.mount_source = "/dev/disk", .major = 8, .minor = 8, .drive_id = "by-source"},
        {.mount_source = "/dev/x", .major = 7, .minor = 1, .drive_id = "by-number"},
        {.mount_source = "/dev/y", .major = -1, .minor = -1, .drive_id = "neither"}};

    sandbox.drives = 3;
    sandbox.drive = drives;
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).recorded_drive_id, "by-number");
    drives[1].minor = 5;
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).recorded_drive_id, "by-source");
    sandbox.drives = 0;
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).recorded_drive_id, "");
}

static void set_drive_state(struct store *store, int64_t drive_ref, enum drive_state drive_state)
{
    assert_int_equal(store_set_drive_mount_state(store, drive_ref, drive_state, STATUS_OK, ""), 0);
}

static void readers_share_a_device(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry first = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry other = entry_of("key-2", "/other", 12);
    struct store_sandbox second = sandbox_of("sandbox-2", NULL);
    int64_t other_id;
    bool changed;

    other.sandbox[0] = "sandbox-2";
    other.read_only = true;
    other_id = put_entry(store, &other, true);
    assert_int_equal(store_set_volume_device(store, other_id, bound.device_id, &changed), 0);
    (void)put_sandbox(store, &second, true);
    assert_true(get_volume(store, other_id).read_only);
    assert_false(get_volume(store, bound.volume_id).read_only);
    assert_int_not_equal(get_volume(store, bound.volume_id).shared_with,
                         0); /* a reader and a writer */
    assert_int_not_equal(get_volume(store, other_id).shared_with, 0);
    first.read_only = true;
    (void)put_entry(store, &first, true);
    assert_int_equal(get_volume(store, bound.volume_id).shared_with, 0);
    assert_int_equal(get_volume(store, other_id).shared_with, 0);
}

static void move_binding(struct store *store, const char *change)
{
    assert_int_equal(sql_execute(&store->connection, change), 0);
}

/* Once a VMM may have it; before that, the drive is refused if this volume was in use before. */
static void a_device_that_a_drive_has_is_shared(void **state)
{
    static const enum drive_state having[] = {DRIVE_ATTACHED, DRIVE_READY, DRIVE_REMOVING};
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_drive_mount_request request = {.drive_id = "data",
                                                .sandbox_id = "sandbox-1",
                                                .host_path = "/dev/loop1",
                                                .vm_path = "/vm",
                                                .fs_type = "ext4"};
    struct store_drive_mount_disk disk = {
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 4};
    int64_t drive_ref;
    bool changed;

    assert_int_equal(store_add_drive_mount(store, &request, "serial", &drive_ref), 0);
    set_drive_state(store, drive_ref, DRIVE_READY);
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &disk), 0);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive,
                     0); /* another disk's number */
    disk.diskseq = 3;
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &disk), 0);
    set_drive_state(store, drive_ref, DRIVE_CLAIMED);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, 0);
    move_binding(store, "UPDATE mappings SET since = since + 1000000");
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, drive_ref);
    set_drive_state(store, drive_ref, DRIVE_REQUESTED);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, 0);
    move_binding(store, "UPDATE mappings SET since = since - 1000000");
    for (size_t i = 0; i < array_length(having); i++) {
        set_drive_state(store, drive_ref, having[i]);
        assert_int_equal(get_volume(store, bound.volume_id).shared_drive, drive_ref);
    }
    entry.read_only = true;
    (void)put_entry(store, &entry, true);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, 0); /* both read */
    entry.read_only = false;
    (void)put_entry(store, &entry, true);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, drive_ref);
    assert_int_equal(sql_execute(&store->connection, "UPDATE sandboxes SET boot_id = 'boot-0'"), 0);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, 0);
    assert_int_equal(sql_execute(&store->connection, "UPDATE sandboxes SET boot_id = 'boot-1'"), 0);
    set_drive_state(store, drive_ref, DRIVE_LOST);
    assert_int_equal(get_volume(store, bound.volume_id).shared_drive, 0);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Nothing between a uevent and its command may look through a table. */
static void assert_no_scan(struct store *store, const char *sql)
{
    char explain[8192];
    sqlite3_stmt *statement = NULL;

    (void)snprintf(explain, sizeof(explain), "EXPLAIN QUERY PLAN %s", sql);
    if (sqlite3_prepare_v2(store->connection.db, explain, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(store->connection.db));
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *plan = (const char *)sqlite3_column_text(statement, 3);

        /* A constant row and a sub-query of one row are no tables. */
        if (strncmp(plan, "SCAN ", 5) == 0 && strcmp(plan, "SCAN CONSTANT ROW") != 0 &&
            plan[5] != '(')
            fail_msg("%s: %s", sql, plan);
    }
    (void)sqlite3_finalize(statement);
}

static void the_hot_path_scans_nothing(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_device device = device_of(1, 2 * GIB);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    unsigned statements = 0;
    int64_t sum = 0;

    (void)put_entry(store, &entry, false);
    (void)put_device(store, &device, true);
    (void)put_sandbox(store, &sandbox, false);
    (void)get_volume(store, bound.volume_id);
    assert_int_equal(store_each_volume(store, STORE_SEARCH(OF_DEVICE, .major = 7, .minor = 1),
                                       sum_volumes, &sum),
                     0);
    assert_int_equal(
        store_each_volume(store, STORE_SEARCH(OF_SANDBOX, .name = "sandbox-1"), sum_volumes, &sum),
        0);
    assert_int_equal(store_each_volume(store, STORE_SEARCH(DUE, .time_ns = 1), sum_volumes, &sum),
                     0);
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(row_set_state(store, bound.volume_id, STATE_HOST_GROWN, REASON_NONE, NULL), 0);
    assert_int_equal(row_intend(store, bound.volume_id, "resize_hypervisor", 2 * GIB), 0);
    assert_int_equal(
        store_put_hypervisor_result(
            store, &(struct store_hypervisor_result){.volume_id = bound.volume_id, .told = true}),
        0);
    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = bound.volume_id,
                                                                   .synced_bytes = 2 * GIB}),
        0);
    for (size_t i = 0; i < SQL_STATEMENTS; i++) {
        const char *text = store->connection.cached[i].text;

        /* Opening looks through the boots and the schema, once. */
        if (!text || strstr(text, "BEGIN") || strstr(text, "boot_id <> ?1") ||
            strstr(text, "sqlite_schema") || strstr(text, "FROM meta") ||
            strstr(text, "device_id = NULL, attempts = 0, next_attempt_ns = NULL, next_attempt_ms"
                         " = NULL WHERE removed_at"))
            continue;
        assert_no_scan(store, text);
        statements++;
    }
    assert_true(statements > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_address_that_does_not_fit_is_dropped),
        MODEL(a_drive_is_found_by_number_then_by_source),
        MODEL(readers_share_a_device),
        MODEL(a_device_that_a_drive_has_is_shared),
        MODEL(a_part_of_a_volume_is_no_claim_on_it),
        MODEL(a_part_that_is_served_goes_round_nothing),
        MODEL(the_bypassing_container_is_shown),
        MODEL(two_directories_may_name_two_devices),
        MODEL(the_hot_path_scans_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
