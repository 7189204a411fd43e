/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved_names_test.c - names that are hashes, and the paths that are found behind them. */
#include "lib/encode.h"
#include "tests/unit/store/fixture.h"

#define OTHER_PATH "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pv-2/mount"

static char hash[SHA256_HEX_BYTES];

/* A directory that is named by the hash of VOLUME_PATH. */
static struct store_entry hashed(enum volume_layout layout, uint64_t inode)
{
    struct store_entry entry = entry_of(hash, NULL, inode);

    sha256_hex(VOLUME_PATH, strlen(VOLUME_PATH), hash);
    entry.layout = layout;
    return entry;
}

static bool has_unresolved(struct store *store)
{
    bool has = false;

    assert_int_equal(store_has_unresolved(store, &has), 0);
    return has;
}

static int64_t learn(struct store *store, const char *path)
{
    char key[STORE_KEY_BYTES];
    int64_t volume_id = -1;

    assert_int_equal(store_learn_path(store, path, "kubelet", key, &volume_id), 0);
    if (volume_id)
        assert_string_equal(key, hash);
    return volume_id;
}

static void an_unresolved_volume_keeps_its_id_when_its_path_is_found(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = hashed(LAYOUT_CRUST, 12);
    int64_t volume_id;

    assert_false(has_unresolved(store));
    volume_id = put_entry(store, &entry, true);
    assert_true(has_unresolved(store));
    assert_int_equal(learn(store, OTHER_PATH), 0);
    assert_int_equal(learn(store, VOLUME_PATH), volume_id);
    assert_false(has_unresolved(store));
    assert_int_equal(learn(store, VOLUME_PATH), 0);
    assert_string_equal(get_volume(store, volume_id).target_path, VOLUME_PATH);
    assert_text_of(store,
                   "SELECT json_extract(detail, '$.source') FROM audit_journal"
                   " WHERE kind = 'path_learned'",
                   "kubelet");
}

static void both_names_of_one_path_are_one_volume_in_any_order(void **state)
{
    struct store *store = store_of(state);
    struct store_entry crust = hashed(LAYOUT_CRUST, 12), kata = hashed(LAYOUT_KATA, 13);
    struct store_entry plain = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_entry(store, &crust, true);

    assert_int_equal(put_entry(store, &kata, true), volume_id);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "both");
    assert_int_equal(learn(store, VOLUME_PATH), volume_id);
    assert_int_equal(put_entry(store, &plain, true), volume_id);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_volumes"), 1);
}

static void a_path_once_known_stays_known(void **state)
{
    struct store *store = store_of(state);
    struct store_entry plain = entry_of("key-1", VOLUME_PATH, 11);
    char path[STORE_TARGET_BYTES];
    int64_t removed;

    (void)hashed(LAYOUT_CRUST, 12);
    assert_int_equal(store_path_of_hash(store, hash, path), 0);
    assert_string_equal(path, "");
    (void)put_entry(store, &plain, true);
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(store_path_of_hash(store, hash, path), 0);
    assert_string_equal(path, VOLUME_PATH);
}

static void a_name_that_is_not_a_hash_is_never_unresolved(void **state)
{
    struct store *store = store_of(state);
    struct store_entry broken = {.key = "key-1", .problem = "the name is not base64url"};

    (void)put_entry(store, &broken, true);
    assert_false(has_unresolved(store));
}

/* That there was none is remembered within a transaction only for as long as it is so. */
static void a_name_that_comes_after_a_search_for_none_is_found(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = hashed(LAYOUT_KATA, 12);
    int64_t volume_id;

    assert_int_equal(learn(store, OTHER_PATH), 0);
    volume_id = put_entry(store, &entry, true);
    assert_int_equal(learn(store, VOLUME_PATH), volume_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_unresolved_volume_keeps_its_id_when_its_path_is_found),
        MODEL(both_names_of_one_path_are_one_volume_in_any_order),
        MODEL(a_path_once_known_stays_known),
        MODEL(a_name_that_is_not_a_hash_is_never_unresolved),
        MODEL(a_name_that_comes_after_a_search_for_none_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
