/* SPDX-License-Identifier: Apache-2.0 */
/* entries_test.c - metadata directories in, volumes out. */
#include <sys/sysmacros.h>

#include "store/cleanups.h"
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

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

/* A problem comes first, then the remark on the directory that leads. */
static void a_remark_is_shown_as_the_problem(void **state)
{
    struct store *store = store_of(state);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry crust = entry_of("key-2", VOLUME_PATH, 12);

    crust.layout = LAYOUT_CRUST;
    crust.remark = "a file too many";
    (void)put_entry(store, &crust, true);
    (void)put_entry(store, &kata, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "a file too many");
    assert_text_of(store, "SELECT status FROM audit_volumes", "present");
    kata.remark = "another one";
    (void)put_entry(store, &kata, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "another one");
    crust.problem = "cut";
    (void)put_entry(store, &crust, true);
    assert_text_of(store, "SELECT problem FROM audit_volumes", "cut");
}

/* ---- raw block claims ---- */

static int count(void *userdata, int64_t entry_id)
{
    unsigned *entries = userdata;

    ++*entries;
    return 0;
}

static int count_key(void *userdata, const char *key)
{
    unsigned *keys = userdata;

    ++*keys;
    return 0;
}

/* There is no directory that a scan could miss or a cleanup remove. */
static void a_raw_block_claim_is_no_directory(void **state)
{
    struct store *store = store_of(state);
    struct store_entry claim = claim_of("block:1", CLAIM_PATH);
    struct store_entry direct = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &claim, true);
    struct store_volume volume = get_volume(store, volume_id);
    unsigned entries = 0, keys = 0;

    assert_true(volume.is_block_claim && !volume.grows_file_system);
    assert_text_of(store, "SELECT layout || ' ' || kind || ' ' || status FROM audit_volumes",
                   "none block_claim present");
    assert_int_equal(put_entry(store, &claim, false), volume_id);
    assert_int_equal(store_each_entry_id(store, 0, count, &entries), 0);
    assert_int_equal(store_each_entry_id(store, volume_id, count, &entries), 0);
    assert_int_equal(entries, 0);
    (void)put_entry(store, &direct, true);
    assert_int_equal(store_each_entry_id(store, 0, count, &entries), 0);
    assert_int_equal(entries, 1);
    assert_int_equal(store_each_entry(store, LAYOUT_KATA, false, count_key, &keys), 0);
    assert_int_equal(store_each_entry(store, LAYOUT_CRUST, false, count_key, &keys), 0);
    assert_int_equal(keys, 1);
}

static struct store_sandbox sandbox_with(struct store_claim *claim, const char *sandbox_id)
{
    struct store_sandbox sandbox = sandbox_of(sandbox_id, NULL);

    *claim = (struct store_claim){
        .path = CLAIM_PATH, .source = "bundle", .drive = -1, .given = makedev(7, 5)};
    sandbox.claims = 1;
    sandbox.claim = claim;
    return sandbox;
}

static void assert_unclaimed(struct store *store, const char *expected)
{
    char key[STORE_KEY_BYTES];

    assert_int_equal(store_find_unclaimed(store, key), 0);
    assert_string_equal(key, expected);
}

/* It lasts as long as a live sandbox has it, or may have it. */
static void a_raw_block_claim_ends_with_its_last_container(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = claim_of("block:1", CLAIM_PATH);
    struct store_claim claim;
    struct store_sandbox first = sandbox_with(&claim, "sandbox-1");
    struct store_sandbox other = sandbox_of("sandbox-2", NULL);
    bool changed;
    int64_t volume_id;

    assert_unclaimed(store, "");
    volume_id = put_entry(store, &entry, true);
    assert_unclaimed(store, "block:1");
    (void)put_sandbox(store, &first, true);
    (void)put_sandbox(store, &other, true);
    assert_unclaimed(store, "");
    assert_int_equal(store_set_problem(store, "sandbox-2", "cannot be read", &changed), 0);
    first.claims = 0;
    (void)put_sandbox(store, &first, true);
    assert_unclaimed(store, "");
    assert_int_equal(store_set_problem(store, "sandbox-2", NULL, &changed), 0);
    assert_unclaimed(store, "block:1");
    assert_int_equal(store_remove_entry(store, LAYOUT_NONE, "block:1", &volume_id), 0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_REMOVED);
    assert_unclaimed(store, "");
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
}

static void the_device_that_was_given_is_remembered(void **state)
{
    struct store *store = store_of(state);
    struct store_claim claim;
    struct store_sandbox sandbox = sandbox_with(&claim, "sandbox-1");
    dev_t device = 1;
    bool changed;

    assert_int_equal(store_find_given_device(store, CLAIM_PATH, &device), 0);
    assert_int_equal(device, 0);
    (void)put_sandbox(store, &sandbox, true);
    (void)put_sandbox(store, &sandbox, false);
    assert_int_equal(store_find_given_device(store, CLAIM_PATH, &device), 0);
    assert_int_equal(device, makedev(7, 5));
    claim.given = makedev(7, 0);
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_find_given_device(store, CLAIM_PATH, &device), 0);
    assert_int_equal(device, makedev(7, 0));
    claim.given = 0; /* a mount of that path */
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_find_given_device(store, CLAIM_PATH, &device), 0);
    assert_int_equal(device, 0);
    claim.given = makedev(7, 5);
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(store_find_given_device(store, CLAIM_PATH, &device), 0);
    assert_int_equal(device, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_name_that_never_read_well_takes_its_first_identity),
        MODEL(a_volume_that_is_removed_in_use_stays_until_its_sandbox_ends),
        MODEL(a_removed_volume_has_nothing_open),
        MODEL(a_learned_path_joins_its_volume),
        MODEL(a_remark_is_shown_as_the_problem),
        MODEL(a_raw_block_claim_is_no_directory),
        MODEL(a_raw_block_claim_ends_with_its_last_container),
        MODEL(the_device_that_was_given_is_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
