/* model_test.c - facts in, rows out: entries, devices, sandboxes, bindings, states, growths. */
#include "tests/unit/store/fixture.h"

static struct store *store_of(void **state)
{
    return ((struct fixture *)*state)->store;
}

/* ---- entries and volumes ------------------------------------------------------------------- */

static void an_equal_entry_writes_nothing(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &entry, true);
    int before = written(store);

    assert_int_equal(put_entry(store, &entry, false), volume_id);
    entry.target_path = NULL; /* hidden by its name now: the path stays known */
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
    entry.policy = STORE_POLICY_NEVER;
    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    assert_int_equal(put_entry(store, &entry, true), volume_id);
    assert_string_equal(get_volume(store, volume_id).device_path, "/dev/other");
    assert_int_equal(get_volume(store, volume_id).policy, STORE_POLICY_NEVER);
    assert_int_equal(get_volume(store, volume_id).named_sandboxes, 2);
    entry.sandbox[0] = "sandbox-2";
    entry.sandboxes = 1;
    (void)put_entry(store, &entry, true);
    assert_int_equal(get_volume(store, volume_id).named_sandboxes, 1);
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

    crust.layout = STORE_CRUST;
    crust.device = "/dev/crust";
    crust.policy = STORE_POLICY_OBSERVE;
    volume_id = put_entry(store, &crust, true);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "crust");
    assert_int_equal(put_entry(store, &kata, true), volume_id);
    before = written(store);
    (void)put_entry(store, &crust, false);
    (void)put_entry(store, &kata, false);
    assert_int_equal(written(store), before);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "both");
    assert_text_of(store, "SELECT key FROM audit_volumes", "key-1");
    assert_int_equal(get_volume(store, volume_id).policy, STORE_POLICY_OBSERVE);
    assert_int_equal(get_volume(store, volume_id).named_sandboxes, 2);

    assert_int_equal(store_remove_entry(store, STORE_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, volume_id);
    assert_text_of(store, "SELECT layout || key || device || status FROM audit_volumes",
                   "crustsha-1/dev/crustpresent");
    assert_int_equal(store_remove_entry(store, STORE_CRUST, "sha-1", &removed), 0);
    assert_text_of(store, "SELECT layout || key || device || status FROM audit_volumes",
                   "crustsha-1/dev/crustremoved");
}

static void staged_again_is_a_new_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t first = put_entry(store, &entry, true), second, third, removed;

    assert_int_equal(store_remove_entry(store, STORE_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, first);
    assert_int_equal(store_remove_entry(store, STORE_KATA, "key-1", &removed), 0);
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

static void a_removed_volume_has_nothing_open(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_volume volume;
    uint64_t next;
    int64_t removed;

    assert_int_equal(store_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_set_attempts(store, bound.volume_id, 2, 77, 1000), 0);
    assert_int_equal(store_remove_entry(store, STORE_KATA, "key-1", &removed), 0);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.status, STORE_REMOVED);
    assert_int_equal(volume.mapping_id, 0);
    assert_int_equal(volume.resize_id, 0);
    assert_string_equal(volume.state, "unmanaged");
    assert_string_equal(volume.device_path, "/dev/disk");
    assert_int_equal(store_next_attempt(store, 0, &next), 0);
    assert_true(next == UINT64_MAX);
    assert_text_of(store, "SELECT state FROM audit_resizes WHERE finished_at IS NOT NULL",
                   "unmanaged");
}

static void a_learned_path_joins_its_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry hidden = entry_of("sha-1", NULL, 12);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    int64_t hidden_id, kata_id;

    hidden.layout = STORE_CRUST;
    hidden_id = put_entry(store, &hidden, true);
    kata_id = put_entry(store, &kata, true);
    assert_int_not_equal(hidden_id, kata_id);
    hidden.target_path = VOLUME_PATH;
    assert_int_equal(put_entry(store, &hidden, true), kata_id);
    assert_int_equal(get_volume(store, hidden_id).status, STORE_REMOVED);
    assert_text_of(store, "SELECT layout FROM audit_volumes WHERE removed_at IS NULL", "both");
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
    assert_int_equal(store_each_entry(store, STORE_CRUST, count_keys, &seen), 0);
    assert_int_equal(store_each_entry(store, STORE_KATA, count_keys, &seen), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(store_each_entry(store, STORE_KATA, count_keys, &seen), 42);
}

/* ---- devices ------------------------------------------------------------------------------- */

static void a_device_is_its_identity(void **state)
{
    struct store *store = store_of(state);
    struct store_device device = device_of(1, GIB);
    int64_t first = put_device(store, &device, true);
    int before = written(store);

    device.now_ns = 60;
    assert_int_equal(put_device(store, &device, false), first);
    assert_int_equal(written(store), before);
    device.diskseq = 4;
    assert_int_not_equal(put_device(store, &device, true), first);
    assert_int_equal(lines_of(store, "device_seen"), 2);
}

static void a_file_is_its_inode(void **state)
{
    struct store *store = store_of(state);
    struct store_device file = {.kind = STORE_FILE,
                                .name = "/data/disk.img",
                                .file_device = UINT64_MAX,
                                .inode = UINT64_MAX - 1,
                                .size_bytes = GIB};
    int64_t first = put_device(store, &file, true);

    file.major = 9; /* means nothing here */
    assert_int_equal(put_device(store, &file, false), first);
    file.name = "/data/renamed.img";
    assert_int_equal(put_device(store, &file, true), first);
    file.inode = 5;
    assert_int_not_equal(put_device(store, &file, true), first);
    assert_text_of(store, "SELECT major FROM audit_devices", NULL);
}

static void sizes_are_dated(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_device device = device_of(1, 2 * GIB);

    device.now_ns = 60;
    (void)put_device(store, &device, true);
    assert_int_equal(get_volume(store, bound.volume_id).device_bytes, 2 * GIB);
    assert_int_equal(get_volume(store, bound.volume_id).size_since_ns, 60);
    device.size_bytes = GIB;
    (void)put_device(store, &device, true);
    assert_int_equal(lines_of(store, "device_grown"), 1);
    assert_int_equal(lines_of(store, "device_shrunk"), 1);
}

static int count_device(void *userdata, int64_t device_id, uint32_t major, uint32_t minor,
                        uint64_t size)
{
    (void)device_id;
    assert_int_equal(major, 7);
    assert_int_equal(minor, 1);
    assert_int_equal(size, GIB);
    return ++*(int *)userdata * 0;
}

static void each_device_once_and_only_in_use(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_device unused = device_of(2, GIB);
    struct store_entry other = entry_of("key-2", "/other", 12);
    int64_t second = put_entry(store, &other, true);
    bool changed = false;
    int seen = 0;

    (void)put_device(store, &unused, true);
    assert_int_equal(store_set_volume_device(store, second, bound.device_id, &changed), 0);
    assert_true(changed);
    assert_int_equal(store_set_volume_device(store, second, bound.device_id, &changed), 0);
    assert_false(changed);
    assert_int_equal(store_each_device(store, count_device, &seen), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(store_set_volume_device(store, second, 0, &changed), 0);
    assert_true(changed);
    assert_int_equal(get_volume(store, second).device_id, 0);
}

/* ---- sandboxes ----------------------------------------------------------------------------- */

static void an_equal_sandbox_writes_nothing(void **state)
{
    struct store *store = store_of(state);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    int64_t ref = put_sandbox(store, &sandbox, true);
    int before = written(store);

    assert_int_equal(put_sandbox(store, &sandbox, false), ref);
    assert_int_equal(written(store), before);
    sandbox.drives = 0;
    assert_int_equal(put_sandbox(store, &sandbox, true), ref);
}

static void another_vmm_is_another_sandbox(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    int64_t ref;

    sandbox.vmm_start_ns++;
    ref = put_sandbox(store, &sandbox, true);
    assert_int_not_equal(ref, bound.sandbox_ref);
    assert_int_equal(get_volume(store, bound.volume_id).mapping_id, 0);
    assert_int_equal(get_volume(store, bound.volume_id).sandbox_ref, ref);
    assert_int_equal(lines_of(store, "sandbox_gone"), 1);
    assert_int_equal(lines_of(store, "mapping_closed"), 1);
    assert_text_of(store, "SELECT sandbox_id FROM journal WHERE kind = 'mapping_closed'",
                   "sandbox-1");
}

static void an_ability_lasts_as_long_as_its_address(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);

    for (unsigned i = 0; i < STORE_ROUTES; i++)
        assert_int_equal(store_set_ability(store, bound.sandbox_ref, i, "agent_unsupported"), 0);
    assert_string_equal(get_volume(store, bound.volume_id).ability[STORE_ROUTE_SHIM],
                        "agent_unsupported");
    (void)put_sandbox(store, &sandbox, false);
    assert_string_equal(get_volume(store, bound.volume_id).ability[STORE_ROUTE_AGENT],
                        "agent_unsupported");
    sandbox.agent_address = "vsock://4:1024";
    (void)put_sandbox(store, &sandbox, true);
    assert_string_equal(get_volume(store, bound.volume_id).ability[STORE_ROUTE_AGENT], "");
}

static void an_address_that_was_learned_stays(void **state)
{
    struct store *store = store_of(state);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    int64_t ref;

    sandbox.agent_address = NULL;
    ref = put_sandbox(store, &sandbox, true);
    assert_int_equal(store_set_agent_address(store, ref, "unix:///a"), 0);
    assert_int_equal(store_set_ability(store, ref, STORE_ROUTE_AGENT, "able"), 0);
    (void)put_sandbox(store, &sandbox, false);
    assert_text_of(store, "SELECT agent_address FROM audit_sandboxes", "unix:///a");
    assert_text_of(store, "SELECT agent_ability FROM sandboxes", "able");
    assert_int_equal(lines_of(store, "sandbox_changed"), 1);
    sandbox.agent_address = "vsock://3:1024";
    (void)put_sandbox(store, &sandbox, true);
    assert_text_of(store, "SELECT agent_address FROM audit_sandboxes", "vsock://3:1024");
    assert_text_of(store, "SELECT agent_ability FROM sandboxes", NULL);
}

static void an_ended_sandbox_leaves_its_volumes(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    bool changed = false;

    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_true(changed);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_false(changed);
    assert_int_equal(get_volume(store, bound.volume_id).live_sandboxes, 0);
    assert_int_equal(get_volume(store, bound.volume_id).named_sandboxes, 1);
    assert_int_equal(get_volume(store, bound.volume_id).mapping_id, 0);
    assert_text_of(store, "SELECT sandbox_id FROM audit_volumes", NULL);
    assert_text_of(store, "SELECT status FROM audit_sandboxes", "gone");
    assert_int_equal(number_of(store, "SELECT count(*) FROM sandbox_drives"), 0);
}

static int see_sandbox(void *userdata, const char *sandbox_id, pid_t vmm_pid)
{
    assert_string_equal(sandbox_id, "sandbox-1");
    *(pid_t *)userdata = vmm_pid;
    return 0;
}

static void each_live_sandbox(void **state)
{
    pid_t pid = 0;

    (void)put_bound(store_of(state));
    assert_int_equal(store_each_live_sandbox(store_of(state), see_sandbox, &pid), 0);
    assert_int_equal(pid, 100);
}

static void only_live_sandboxes_count(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_sandbox second = sandbox_of("sandbox-2", NULL);
    struct bound bound = put_bound(store);

    entry.sandboxes = 3;
    entry.sandbox[1] = "sandbox-dead";
    entry.sandbox[2] = "sandbox-2";
    (void)put_entry(store, &entry, true);
    assert_int_equal(get_volume(store, bound.volume_id).live_sandboxes, 1);
    assert_string_equal(get_volume(store, bound.volume_id).sandbox_id, "sandbox-1");
    second.vmm_pid = 101;
    (void)put_sandbox(store, &second, true);
    assert_int_equal(get_volume(store, bound.volume_id).live_sandboxes, 2);
    assert_int_equal(get_volume(store, bound.volume_id).sandbox_ref, 0);
    assert_string_equal(get_volume(store, bound.volume_id).sandbox_id, "");
    assert_string_equal(get_volume(store, bound.volume_id).control_socket, "");
}

static int sum_volumes(void *userdata, int64_t volume_id)
{
    *(int64_t *)userdata += volume_id;
    return 0;
}

/* A sandbox of a runtime that writes no sandbox-id file. */
static struct store_sandbox claiming(const char *sandbox_id, const struct store_claim *claim)
{
    struct store_sandbox sandbox = sandbox_of(sandbox_id, NULL);

    sandbox.runtime = "kata-rs";
    sandbox.claims = claim ? 1 : 0;
    sandbox.claim = claim;
    return sandbox;
}

static const struct store_claim fixture_claim = {
    .path = VOLUME_PATH, .source = "bundle", .guest_path = "/guest/data"};

static int64_t put_unnamed(struct store *store, const char *key, const char *target_path)
{
    struct store_entry entry = entry_of(key, target_path, key[4]);

    entry.sandboxes = 0;
    return put_entry(store, &entry, true);
}

static void a_claim_binds_like_a_file(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_unnamed(store, "key-1", VOLUME_PATH), sum = 0;
    struct store_sandbox sandbox = claiming("sandbox-1", &fixture_claim);
    struct store_volume volume;
    bool changed;

    assert_int_equal(get_volume(store, volume_id).live_sandboxes, 0);
    (void)put_sandbox(store, &sandbox, true);
    (void)put_sandbox(store, &sandbox, false);
    volume = get_volume(store, volume_id);
    assert_int_equal(volume.named_sandboxes, 0);
    assert_int_equal(volume.live_sandboxes, 1);
    assert_string_equal(volume.sandbox_id, "sandbox-1");
    assert_string_equal(volume.binding_source, "bundle");
    assert_string_equal(volume.recorded_guest_path, "/guest/data");
    assert_text_of(store, "SELECT sandbox_id FROM audit_volumes", "sandbox-1");
    assert_int_equal(store_each_volume_of_sandbox(store, "sandbox-1", sum_volumes, &sum), 0);
    assert_int_equal(sum, volume_id);

    sandbox.claims = 0;
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(get_volume(store, volume_id).live_sandboxes, 0);
    sandbox.claims = 1;
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(get_volume(store, volume_id).live_sandboxes, 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM sandbox_claims"), 0);
}

static void sources_that_agree_are_one_sandbox_and_others_two(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox same = claiming("sandbox-1", &fixture_claim);
    struct store_sandbox other = claiming("sandbox-2", &fixture_claim);
    struct store_volume volume;

    (void)put_sandbox(store, &same, true);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.live_sandboxes, 1);
    assert_string_equal(volume.binding_source, "sandbox-file");
    assert_string_equal(volume.recorded_guest_path, "/guest/data");
    (void)put_sandbox(store, &other, true);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.live_sandboxes, 2);
    assert_int_equal(volume.sandbox_ref, 0);
    assert_string_equal(volume.recorded_guest_path, "");
}

static void a_claimed_device_is_shared_too(void **state)
{
    static const struct store_claim other_claim = {.path = "/other", .source = "bundle"};
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    int64_t other_id = put_unnamed(store, "key-2", "/other");
    struct store_sandbox other = claiming("sandbox-2", &other_claim);
    bool changed;

    assert_int_equal(store_set_volume_device(store, other_id, bound.device_id, &changed), 0);
    assert_false(get_volume(store, bound.volume_id).device_shared);
    (void)put_sandbox(store, &other, true);
    assert_true(get_volume(store, bound.volume_id).device_shared);
    assert_true(get_volume(store, other_id).device_shared);
}

static void a_drive_that_the_vmm_named_says_so(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_hypervisor_result result = {.volume_id = bound.volume_id, .drive_id = "drive-9"};

    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).mapping_source, "sandbox-file");
    assert_int_equal(
        store_open_mapping(store, &(struct store_mapping){.volume_id = bound.volume_id,
                                                          .sandbox_ref = bound.sandbox_ref,
                                                          .device_id = bound.device_id,
                                                          .source = "bundle"}),
        0);
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).mapping_source, "hypervisor");
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

static void one_device_in_two_sandboxes_is_shared(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry other = entry_of("key-2", "/other", 12);
    struct store_sandbox second = sandbox_of("sandbox-2", NULL);
    int64_t other_id, removed;
    bool changed;

    other_id = put_entry(store, &other, true);
    assert_int_equal(store_set_volume_device(store, other_id, bound.device_id, &changed), 0);
    assert_false(get_volume(store, bound.volume_id).device_shared); /* the same sandbox */
    other.sandbox[0] = "sandbox-2";
    (void)put_entry(store, &other, true);
    assert_false(get_volume(store, bound.volume_id).device_shared); /* not alive */
    (void)put_sandbox(store, &second, true);
    assert_true(get_volume(store, bound.volume_id).device_shared);
    assert_true(get_volume(store, other_id).device_shared);
    assert_int_equal(store_remove_entry(store, STORE_KATA, "key-2", &removed), 0);
    assert_false(get_volume(store, bound.volume_id).device_shared);
}

/* ---- who is touched ------------------------------------------------------------------------ */

static void each_volume_that_is_touched(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry other = entry_of("key-2", "/other", 12);
    int64_t sum = 0, other_id;

    other.sandboxes = 0;
    other_id = put_entry(store, &other, true);
    assert_int_equal(store_each_volume_of_device(store, 7, 1, sum_volumes, &sum), 0);
    assert_int_equal(sum, bound.volume_id);
    assert_int_equal(store_each_volume_of_device(store, 7, 2, sum_volumes, &sum), 0);
    assert_int_equal(store_each_volume_of_device_id(store, bound.device_id, sum_volumes, &sum), 0);
    assert_int_equal(sum, 2 * bound.volume_id);
    assert_int_equal(store_each_volume_of_sandbox(store, "sandbox-1", sum_volumes, &sum), 0);
    assert_int_equal(sum, 3 * bound.volume_id);
    sum = 0;
    assert_int_equal(store_each_volume(store, sum_volumes, &sum), 0);
    assert_int_equal(sum, bound.volume_id + other_id);
}

static void a_sandbox_touches_what_is_bound_to_it_without_a_name(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t sum = 0;

    entry.sandboxes = 0;
    (void)put_entry(store, &entry, true);
    assert_int_equal(store_each_volume_of_sandbox(store, "sandbox-1", sum_volumes, &sum), 0);
    assert_int_equal(sum, bound.volume_id);
}

static void waiting_volumes_come_due(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    int64_t sum = 0;
    uint64_t next = 0;
    int before;

    assert_int_equal(store_next_attempt(store, 0, &next), 0);
    assert_true(next == UINT64_MAX);
    assert_int_equal(store_set_attempts(store, bound.volume_id, 3, 500, 1767323045678), 0);
    before = written(store);
    assert_int_equal(store_set_attempts(store, bound.volume_id, 3, 500, 1767323045678), 0);
    assert_int_equal(written(store), before);
    assert_int_equal(store_next_attempt(store, 0, &next), 0);
    assert_int_equal(next, 500);
    assert_int_equal(store_next_attempt(store, 500, &next), 0);
    assert_true(next == UINT64_MAX);
    assert_text_of(store, "SELECT next_attempt_at FROM audit_volumes", "2026-01-02T03:04:05.678Z");
    assert_int_equal(store_each_volume_due(store, 499, sum_volumes, &sum), 0);
    assert_int_equal(sum, 0);
    assert_int_equal(store_each_volume_due(store, 500, sum_volumes, &sum), 0);
    assert_int_equal(sum, bound.volume_id);

    assert_int_equal(store_set_ability(store, bound.sandbox_ref, STORE_ROUTE_AGENT, "no"), 0);
    assert_int_equal(store_forget_waiting(store), 0);
    assert_int_equal(get_volume(store, bound.volume_id).attempts, 0);
    assert_int_equal(get_volume(store, bound.volume_id).next_attempt_ns, 0);
    assert_string_equal(get_volume(store, bound.volume_id).ability[STORE_ROUTE_AGENT], "");
    before = written(store);
    assert_int_equal(store_forget_waiting(store), 0);
    assert_int_equal(written(store), before);

    assert_int_equal(store_set_attempts(store, bound.volume_id, 3, 500, 1767323045678), 0);
    assert_int_equal(store_close_mapping(store, bound.volume_id), 0);
    assert_int_equal(get_volume(store, bound.volume_id).next_attempt_ns, 0);
}

/* ---- mappings, states, growths ------------------------------------------------------------- */

static void a_mapping_is_described_and_replaced(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_volume volume;
    int before;

    assert_int_equal(store_describe_mapping(store, bound.volume_id, NULL, "/run/kata/x", "persist"),
                     0);
    before = written(store);
    assert_int_equal(store_describe_mapping(store, bound.volume_id, "drive-1", NULL, "persist"), 0);
    assert_int_equal(store_note_size(store, bound.volume_id, GIB), 0);
    assert_int_equal(written(store), before);
    assert_int_equal(store_note_size(store, bound.volume_id, 3 * GIB), 0);
    volume = get_volume(store, bound.volume_id);
    assert_string_equal(volume.drive_id, "drive-1");
    assert_string_equal(volume.guest_path, "/run/kata/x");
    assert_string_equal(volume.mapping_source, "persist");
    assert_int_equal(volume.first_bytes, GIB);
    assert_int_equal(volume.largest_bytes, 3 * GIB);
    assert_int_equal(volume.mapping_device_id, bound.device_id);
    assert_int_equal(volume.mapping_sandbox_ref, bound.sandbox_ref);

    assert_int_equal(
        store_open_mapping(store, &(struct store_mapping){.volume_id = bound.volume_id,
                                                          .sandbox_ref = bound.sandbox_ref,
                                                          .device_id = bound.device_id,
                                                          .source = "api"}),
        0);
    assert_int_not_equal(get_volume(store, bound.volume_id).mapping_id, volume.mapping_id);
    assert_int_equal(get_volume(store, bound.volume_id).hypervisor_bytes, 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_mappings"), 2);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_mappings WHERE until IS NULL"),
                     1);
    assert_int_equal(store_close_mapping(store, bound.volume_id), 0);
    before = written(store);
    assert_int_equal(store_close_mapping(store, bound.volume_id), 0);
    assert_int_equal(written(store), before);
}

static void a_growth_follows_its_volume_to_the_end(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    int64_t volume_id = bound.volume_id;
    bool changed = false;

    assert_int_equal(store_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_set_state(store, volume_id, "host_grown", "none", &changed), 0);
    assert_true(changed);
    assert_int_equal(store_intend(store, volume_id, "resize_hypervisor", 2 * GIB), 0);
    assert_int_equal(store_put_hypervisor_result(
                         store, &(struct store_hypervisor_result){.volume_id = volume_id,
                                                                  .reason = "hypervisor_busy",
                                                                  .error = "no greeting"}),
                     0);
    assert_text_of(store, "SELECT error FROM audit_resizes", "no greeting");
    assert_string_equal(get_volume(store, volume_id).hypervisor_reason, "hypervisor_busy");
    assert_int_equal(store_set_attempts(store, volume_id, 1, 500, 1000), 0);

    assert_int_equal(store_open_resize(store, volume_id, GIB, 3 * GIB), 0);
    assert_int_equal(get_volume(store, volume_id).attempts, 0);
    assert_string_equal(get_volume(store, volume_id).hypervisor_reason, "");
    assert_int_equal(get_volume(store, volume_id).resize_to_bytes, 3 * GIB);
    assert_int_equal(store_intend(store, volume_id, "resize_hypervisor", 3 * GIB), 0);
    assert_int_equal(
        store_put_hypervisor_result(store, &(struct store_hypervisor_result){.volume_id = volume_id,
                                                                             .drive_id = "drive-9",
                                                                             .bytes = 3 * GIB,
                                                                             .told = true}),
        0);
    assert_int_equal(get_volume(store, volume_id).hypervisor_bytes, 3 * GIB);
    assert_string_equal(get_volume(store, volume_id).drive_id, "drive-9");
    assert_int_equal(store_set_state(store, volume_id, "block_grown", "none", NULL), 0);
    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .synced_bytes = 3 * GIB,
                                                                   .guest_bytes = 3 * GIB - 4096,
                                                                   .verified = true}),
        0);
    assert_true(get_volume(store, volume_id).guest_verified);
    assert_text_of(store,
                   "SELECT state || attempts || (hypervisor_at IS NOT NULL) ||"
                   " (guest_at IS NOT NULL) || (finished_at IS NULL) FROM audit_resizes",
                   "block_grown2111");
    assert_int_equal(store_set_state(store, volume_id, "in_sync", "unverified", NULL), 0);
    assert_int_equal(get_volume(store, volume_id).resize_id, 0);
    assert_text_of(store, "SELECT state || reason || (finished_at IS NOT NULL) FROM audit_resizes",
                   "in_syncunverified1");
    assert_int_equal(lines_of(store, "resize_opened"), 1);
    assert_int_equal(lines_of(store, "resize_raised"), 1);
    assert_int_equal(lines_of(store, "resize_finished"), 1);
    assert_int_equal(lines_of(store, "resize_hypervisor_intended"), 2);
    assert_text_of(store,
                   "SELECT detail FROM journal WHERE kind = 'state_changed' ORDER BY seq DESC",
                   "{\"from\":\"block_grown/none\",\"to\":\"in_sync/unverified\"}");
}

static void equal_states_and_results_write_nothing(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_hypervisor_result hypervisor = {.volume_id = volume_id, .bytes = GIB};
    struct store_guest_result guest = {.volume_id = volume_id, .guest_bytes = 5, .verified = true};
    bool changed = true;
    int before;

    assert_int_equal(store_set_state(store, volume_id, "in_sync", "none", NULL), 0);
    assert_int_equal(store_put_hypervisor_result(store, &hypervisor), 0);
    assert_int_equal(store_put_guest_result(store, &guest), 0);
    before = written(store);
    assert_int_equal(store_set_state(store, volume_id, "in_sync", "none", &changed), 0);
    assert_false(changed);
    assert_int_equal(store_put_hypervisor_result(store, &hypervisor), 0);
    assert_int_equal(store_put_guest_result(store, &guest), 0);
    assert_int_equal(store_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    before = written(store);
    assert_int_equal(store_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(written(store), before);
}

static void a_failed_guest_keeps_what_it_said_before(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_volume volume;

    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .synced_bytes = 2 * GIB,
                                                                   .guest_bytes = 7,
                                                                   .verified = true}),
        0);
    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .reason = "agent_unreachable",
                                                                   .error = "timeout"}),
        0);
    volume = get_volume(store, volume_id);
    assert_string_equal(volume.guest_reason, "agent_unreachable");
    assert_int_equal(volume.guest_bytes, 7);
    assert_int_equal(volume.guest_synced_bytes, 2 * GIB);
    assert_true(volume.guest_verified);

    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .reason = "unverified",
                                                                   .synced_bytes = 3 * GIB}),
        0);
    assert_false(get_volume(store, volume_id).guest_verified);
    assert_int_equal(store_forget_waiting(store), 0);
    assert_string_equal(get_volume(store, volume_id).guest_reason, "unverified");
}

static void an_unknown_volume_is_not_found(void **state)
{
    struct store *store = store_of(state);
    struct store_volume volume = {.volume_id = 5};

    assert_int_equal(store_get_volume(store, 99, &volume), -ENOENT);
    assert_int_equal(volume.volume_id, 5);
    assert_int_equal(store_set_state(store, 99, "in_sync", "none", NULL), -ENOENT);
}

static void a_line_brings_its_volumes_sandbox_and_device(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;

    assert_int_equal(store_journal(store, "resync", volume_id, NULL, NULL, "{\"by\":\"x\"}"), 0);
    assert_text_of(store,
                   "SELECT sandbox_id || device || detail FROM journal WHERE kind = 'resync'",
                   "sandbox-1/dev/loop1{\"by\":\"x\"}");
    assert_int_equal(store_journal(store, "signal", 0, NULL, NULL, NULL), 0);
    assert_text_of(store, "SELECT volume_id FROM journal WHERE kind = 'signal'", NULL);
}

/* ---- cost ---------------------------------------------------------------------------------- */

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
    assert_int_equal(store_each_volume_of_device(store, 7, 1, sum_volumes, &sum), 0);
    assert_int_equal(store_each_volume_of_sandbox(store, "sandbox-1", sum_volumes, &sum), 0);
    assert_int_equal(store_each_volume_due(store, 1, sum_volumes, &sum), 0);
    assert_int_equal(store_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_set_state(store, bound.volume_id, "host_grown", "none", NULL), 0);
    assert_int_equal(store_intend(store, bound.volume_id, "resize_hypervisor", 2 * GIB), 0);
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

#define MODEL(test) cmocka_unit_test_setup_teardown(test, fixture_memory, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_equal_entry_writes_nothing),
        MODEL(a_changed_entry_is_the_same_volume),
        MODEL(an_invalid_entry_keeps_its_last_good_columns),
        MODEL(a_name_that_never_read_well_takes_its_first_identity),
        MODEL(two_layouts_of_one_path_are_one_volume),
        MODEL(staged_again_is_a_new_volume),
        MODEL(a_removed_volume_has_nothing_open),
        MODEL(a_learned_path_joins_its_volume),
        MODEL(each_entry_of_a_layout),
        MODEL(a_device_is_its_identity),
        MODEL(a_file_is_its_inode),
        MODEL(sizes_are_dated),
        MODEL(each_device_once_and_only_in_use),
        MODEL(an_equal_sandbox_writes_nothing),
        MODEL(another_vmm_is_another_sandbox),
        MODEL(an_ability_lasts_as_long_as_its_address),
        MODEL(an_address_that_was_learned_stays),
        MODEL(an_ended_sandbox_leaves_its_volumes),
        MODEL(each_live_sandbox),
        MODEL(only_live_sandboxes_count),
        MODEL(a_claim_binds_like_a_file),
        MODEL(sources_that_agree_are_one_sandbox_and_others_two),
        MODEL(a_claimed_device_is_shared_too),
        MODEL(a_drive_that_the_vmm_named_says_so),
        MODEL(a_drive_is_found_by_number_then_by_source),
        MODEL(one_device_in_two_sandboxes_is_shared),
        MODEL(each_volume_that_is_touched),
        MODEL(a_sandbox_touches_what_is_bound_to_it_without_a_name),
        MODEL(waiting_volumes_come_due),
        MODEL(a_mapping_is_described_and_replaced),
        MODEL(a_growth_follows_its_volume_to_the_end),
        MODEL(equal_states_and_results_write_nothing),
        MODEL(a_failed_guest_keeps_what_it_said_before),
        MODEL(an_unknown_volume_is_not_found),
        MODEL(a_line_brings_its_volumes_sandbox_and_device),
        MODEL(the_hot_path_scans_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
