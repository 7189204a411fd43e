/* SPDX-License-Identifier: Apache-2.0 */
/* cleanups_test.c - what looks stale, and the trash. */
#include "store/cleanups.h"

#include "tests/unit/store/fixture.h"

static int take_id(void *userdata, int64_t id)
{
    *(int64_t *)userdata = id;
    return 0;
}

static int64_t entry_id_of(struct store *store)
{
    int64_t id = 0;

    assert_int_equal(store_each_entry_id(store, 0, take_id, &id), 0);
    return id;
}

static struct store_suspect suspect_of(struct store *store, int64_t entry_id)
{
    struct store_suspect suspect;

    assert_int_equal(store_get_suspect(store, entry_id, &suspect), STORE_FOUND);
    return suspect;
}

static int64_t intend(struct store *store, int64_t entry_id, const char *file)
{
    int64_t id = 0;

    assert_int_equal(
        store_intend_cleanup(store, entry_id,
                             &(struct store_cleanup_intent){.reason = STALE_REASON_SANDBOX_ENDED,
                                                            .evidence = "{\"a\":1}",
                                                            .fingerprint = "f1",
                                                            .directory = "/run/.crust-trash",
                                                            .file = file,
                                                            .now_ns = 70},
                             &id),
        0);
    return id;
}

static void remove_entry(struct store *store)
{
    int64_t volume_id;

    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &volume_id), 0);
}

/* ---- what looks stale ---------------------------------------------------------------------- */

static void a_suspect_has_what_staleness_is_judged_by(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_suspect suspect = suspect_of(store, entry_id_of(store));
    bool changed;

    assert_int_equal(suspect.volume_id, bound.volume_id);
    assert_string_equal(suspect.key, "key-1");
    assert_string_equal(suspect.target_path, VOLUME_PATH);
    assert_string_equal(suspect.mount_info_sha256, "aa");
    assert_int_equal(suspect.directory_inode, 11);
    assert_int_equal(suspect.named_sandboxes, 1);
    assert_false(suspect.invalid);
    assert_true(suspect.live);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_false(suspect_of(store, entry_id_of(store)).live);
    assert_int_equal(store_get_suspect(store, 99, &suspect), STORE_NOT_FOUND);
}

static void a_claim_alone_makes_a_volume_live(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_sandbox sandbox = sandbox_of("sandbox-2", NULL);

    entry.sandboxes = 0;
    (void)put_entry(store, &entry, true);
    assert_false(suspect_of(store, entry_id_of(store)).live);
    sandbox.claims = 1;
    sandbox.claim = &(struct store_claim){.path = VOLUME_PATH, .source = "bundle"};
    (void)put_sandbox(store, &sandbox, true);
    assert_true(suspect_of(store, entry_id_of(store)).live);
}

struct users {
    unsigned count;
    bool alive, exit_seen;
    pid_t vmm_pid;
    uint64_t vmm_start_ns;
};

static int take_user(void *userdata, const struct store_user *user)
{
    struct users *users = userdata;

    users->count++;
    users->alive = user->alive;
    users->exit_seen = user->exit_seen;
    users->vmm_pid = user->vmm_pid;
    users->vmm_start_ns = user->vmm_start_ns;
    return 0;
}

static struct users users_of(struct store *store, int64_t volume_id)
{
    struct users users = {0};

    assert_int_equal(store_each_user(store, volume_id, take_user, &users), 0);
    return users;
}

static void a_user_is_the_last_that_had_its_id(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox next = sandbox_of("sandbox-1", NULL);
    bool changed;

    assert_true(users_of(store, bound.volume_id).alive);
    assert_int_equal(store_note_exit(store, "sandbox-1", 99), 0); /* not its VMM */
    assert_false(users_of(store, bound.volume_id).exit_seen);
    assert_int_equal(store_note_exit(store, "sandbox-1", 100), 0);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(users_of(store, bound.volume_id).count, 1);
    assert_false(users_of(store, bound.volume_id).alive);
    assert_true(users_of(store, bound.volume_id).exit_seen);

    next.vmm_pid = 200; /* its own end is not seen */
    (void)put_sandbox(store, &next, true);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_false(users_of(store, bound.volume_id).exit_seen);
    assert_int_equal(users_of(store, bound.volume_id).vmm_pid, 200);
}

static void a_sandbox_that_left_no_file_is_a_user_by_its_binding(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;

    entry.sandboxes = 0;
    (void)put_entry(store, &entry, true);
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(users_of(store, bound.volume_id).count, 1);
    assert_int_equal(suspect_of(store, entry_id_of(store)).named_sandboxes, 0);
}

static void note(struct store *store, enum stale_reason reason, uint64_t since_ns)
{
    struct store_stale stale = {.reason = reason,
                                .fingerprint = reason ? "f1" : NULL,
                                .since_ns = since_ns,
                                .held = reason == STALE_REASON_BREAKER,
                                .evidence = "{\"a\":1}"};

    assert_int_equal(store_note_stale(store, entry_id_of(store), &stale), 0);
}

static void a_reason_that_stays_is_one_row(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    int before;

    note(store, STALE_REASON_GRACE, 5);
    before = written(store);
    note(store, STALE_REASON_GRACE, 5);
    assert_int_equal(written(store), before);
    note(store, STALE_REASON_GRACE, 9);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 1);
    assert_false(suspect_of(store, entry_id_of(store)).held);
    note(store, STALE_REASON_BREAKER, 9);
    assert_true(suspect_of(store, entry_id_of(store)).held);
    note(store, STALE_REASON_NONE, 0);
    assert_false(suspect_of(store, entry_id_of(store)).held);
    note(store, STALE_REASON_GRACE, 20);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 3);
    assert_text_of(store,
                   "SELECT group_concat(decision || '/' || reason) FROM audit_cleanups"
                   " WHERE evidence = '{\"a\":1}'",
                   "kept/grace,kept/breaker,kept/grace");
    assert_int_equal(suspect_of(store, entry_id_of(store)).since_ns, 20);
    assert_int_equal(lines_of(store, "cleanup_kept"), 3);
    assert_int_equal(number_of(store, "SELECT volume_id FROM audit_cleanups"), volume_id);
    assert_text_of(store, "SELECT mount_info FROM audit_cleanups",
                   "{\"volume-type\":\"block\",\"device\":\"/dev/disk\",\"fstype\":\"ext4\","
                   "\"metadata\":{\"a\":\"b\"},\"options\":[\"rw\"]}");
    assert_text_of(store, "SELECT mount_info_sha256 FROM audit_cleanups", "aa");
}

static int take_named(void *userdata, const struct store_user *user)
{
    struct store_user *named = userdata;

    if (strcmp(user->sandbox_id, "sandbox-1") == 0)
        *named = *user;
    return 0;
}

static struct store_user named_of(struct store *store)
{
    struct store_user named = {0};

    assert_int_equal(store_each_named(store, entry_id_of(store), take_named, &named), 0);
    return named;
}

static void note_file(struct store *store, const char *file, enum stale_reason reason,
                      uint64_t since_ns)
{
    char evidence[64];

    (void)snprintf(evidence, sizeof(evidence), "{\"file\":\"%s\"}", file);
    assert_int_equal(
        store_note_stale_file(
            store, entry_id_of(store), file,
            &(struct store_stale){.reason = reason, .since_ns = since_ns, .evidence = evidence}),
        0);
}

static void a_file_is_kept_once_for_each_reason(void **state)
{
    struct store *store = store_of(state);

    (void)put_bound(store);
    for (int i = 0; i < 2; i++) {
        note_file(store, "sandbox-1", STALE_REASON_GRACE, 7);
        note_file(store, "older", STALE_REASON_GRACE, 7);
    }
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 2);
    assert_int_equal(named_of(store).stale_since_ns, 7);
    assert_true(named_of(store).alive);
    note_file(store, "sandbox-1", STALE_REASON_RATE_LIMIT, 7);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 3);
    note_file(store, "sandbox-1", STALE_REASON_NONE, 0);
    assert_int_equal(named_of(store).stale_since_ns, 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 3);
}

/* ---- the trash ----------------------------------------------------------------------------- */

/* The cleanup that has something to be done; 0 none. */
static int64_t due_before(struct store *store, int64_t kept_before_ns)
{
    uint64_t oldest_ns;
    int64_t id = 0;

    assert_int_equal(store_each_trash(store, kept_before_ns, take_id, &id), 0);
    assert_int_equal(store_oldest_trash(store, &oldest_ns), 0);
    if (id && kept_before_ns)
        assert_true(oldest_ns <= (uint64_t)kept_before_ns);
    return id;
}

static void a_removal_is_shown_when_it_is_decided(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id, id;
    struct store_trash trash;
    char decision[STORE_NAME_BYTES];
    uint64_t volumes;

    id = intend(store, entry_id_of(store), NULL);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 0);
    assert_int_equal(store_get_trash(store, id, &trash), STORE_FOUND);
    assert_int_equal(trash.step, STORE_TRASH_INTENDED);
    assert_int_equal(due_before(store, 0), id);
    assert_string_equal(trash.key, "key-1");
    assert_string_equal(trash.file, "");
    assert_string_equal(trash.directory, "/run/.crust-trash");
    assert_string_equal(trash.fingerprint, "f1");
    assert_int_equal(trash.since_ns, 70);
    remove_entry(store);
    assert_int_equal(get_volume(store, volume_id).status, STORE_QUARANTINED);
    assert_int_equal(store_set_trash_step(store, id, STORE_TRASH_MOVED, 80), 0);
    assert_int_equal(store_finish_cleanup(store, id, STORE_CLEANUP_REMOVED, STALE_REASON_NONE, 90),
                     0);
    assert_text_of(store, "SELECT decision || reason FROM audit_cleanups", "removedsandbox_ended");
    assert_int_equal(store_get_trash(store, id, &trash), STORE_FOUND);
    assert_int_equal(trash.step, STORE_TRASH_STORED);
    assert_int_equal(trash.since_ns, 90);
    assert_int_equal(store_get_cleanup(store, id, decision), STORE_FOUND);
    assert_string_equal(decision, "removed");
    assert_int_equal(store_count_volumes(store, &volumes), 0);
    assert_int_equal(volumes, 0);

    assert_int_equal(due_before(store, 89), 0);
    assert_int_equal(due_before(store, 90), id);
    assert_int_equal(store_forget_trash(store, id), 0);
    assert_int_equal(due_before(store, 90), 0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_REMOVED);
    assert_int_equal(store_get_trash(store, id, &trash), STORE_NOT_FOUND);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_cleanups"), 1);
}

static void a_directory_that_never_moved_leaves_no_row(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id, id;

    id = intend(store, entry_id_of(store), NULL);
    remove_entry(store); /* by somebody else */
    assert_int_equal(store_drop_cleanup(store, id), 0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_REMOVED);
    assert_int_equal(number_of(store, "SELECT count(*) FROM cleanups"), 0);
    assert_int_equal(lines_of(store, "cleanup_dropped"), 1);
}

static void a_directory_that_comes_back_is_the_same_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_bound(store).volume_id, id;
    uint64_t volumes;

    id = intend(store, entry_id_of(store), NULL);
    remove_entry(store);
    assert_int_equal(put_entry(store, &entry, true), volume_id);
    assert_int_equal(
        store_finish_cleanup(store, id, STORE_CLEANUP_PUT_BACK, STALE_REASON_CHANGED, 90), 0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_PRESENT);
    assert_int_equal(named_sandboxes(store, volume_id), 1);
    assert_text_of(store, "SELECT decision || reason FROM audit_cleanups", "put-backchanged");
    assert_text_of(store, "SELECT removed_at FROM audit_volumes", NULL);
    assert_int_equal(store_count_volumes(store, &volumes), 0);
    assert_int_equal(volumes, 1);
    assert_int_equal(number_of(store, "SELECT count(*) FROM trash"), 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM volumes"), 1);
}

static void both_directories_come_back_to_one_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry kata = entry_of("key-1", VOLUME_PATH, 11);
    struct store_entry crust = entry_of("key-2", VOLUME_PATH, 12);
    int64_t volume_id = put_entry(store, &kata, true), removed;
    uint64_t volumes;

    crust.layout = LAYOUT_CRUST;
    assert_int_equal(put_entry(store, &crust, true), volume_id);
    for (int64_t entry_id = 1; entry_id <= 2; entry_id++)
        (void)intend(store, entry_id, NULL);
    remove_entry(store);
    assert_int_equal(store_remove_entry(store, LAYOUT_CRUST, "key-2", &removed), 0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_QUARANTINED);
    assert_int_equal(put_entry(store, &kata, true), volume_id); /* which was not the last to go */
    assert_int_equal(put_entry(store, &crust, true), volume_id);
    assert_int_equal(get_volume(store, volume_id).status, STORE_PRESENT);
    assert_text_of(store, "SELECT layout FROM audit_volumes", "both");
    assert_int_equal(number_of(store, "SELECT count(*) FROM entries"), 2);
    assert_int_equal(store_count_volumes(store, &volumes), 0);
    assert_int_equal(volumes, 1);
}

static void another_directory_is_another_volume(void **state)
{
    struct store *store = store_of(state);
    struct store_entry newer = entry_of("key-1", VOLUME_PATH, 12);
    struct store_entry returned = entry_of("key-1", VOLUME_PATH, 11);
    int64_t volume_id = put_bound(store).volume_id, next;

    (void)intend(store, entry_id_of(store), NULL);
    remove_entry(store);
    next = put_entry(store, &newer, true);
    assert_int_not_equal(next, volume_id);
    assert_int_equal(get_volume(store, volume_id).status, STORE_QUARANTINED);
    assert_int_equal(put_entry(store, &returned, true), volume_id); /* by somebody's hand */
    assert_int_equal(get_volume(store, next).status, STORE_REMOVED);
}

static void a_restored_volume_is_marked_until_it_is_bound(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct bound bound = put_bound(store);
    int64_t id = intend(store, entry_id_of(store), NULL);

    remove_entry(store);
    assert_int_equal(store_finish_cleanup(store, id, STORE_CLEANUP_REMOVED, STALE_REASON_NONE, 90),
                     0);
    assert_int_equal(store_set_trash_step(store, id, STORE_TRASH_RESTORING, 95), 0);
    assert_int_equal(put_entry(store, &entry, true), bound.volume_id);
    assert_int_equal(store_record_restore(store, id, STALE_REASON_REQUESTED), 0);
    assert_string_equal(suspect_of(store, entry_id_of(store)).restored, "f1");
    assert_text_of(store,
                   "SELECT decision || reason || evidence FROM audit_cleanups"
                   " ORDER BY cleanup_id DESC",
                   "restoredrequested{\"cleanup_id\":1}");
    assert_int_equal(
        store_open_binding(store, &(struct store_binding){.volume_id = bound.volume_id,
                                                          .sandbox_ref = bound.sandbox_ref,
                                                          .device_id = bound.device_id,
                                                          .source = "bundle"}),
        0);
    assert_string_equal(suspect_of(store, entry_id_of(store)).restored, "");
}

static void one_file_of_a_directory_leaves_the_volume_there(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    int64_t id = intend(store, entry_id_of(store), "sandbox-1");
    struct store_trash trash;

    assert_int_equal(store_get_trash(store, id, &trash), STORE_FOUND);
    assert_string_equal(trash.file, "sandbox-1");
    assert_int_equal(store_finish_cleanup(store, id, STORE_CLEANUP_REMOVED, STALE_REASON_NONE, 90),
                     0);
    assert_int_equal(get_volume(store, volume_id).status, STORE_PRESENT);
    assert_false(named_of(store).restored);
    assert_int_equal(store_record_restore(store, id, STALE_REASON_REQUESTED), 0);
    assert_true(named_of(store).restored);
    assert_string_equal(suspect_of(store, entry_id_of(store)).restored, "");
    remove_entry(store);
    assert_int_equal(get_volume(store, volume_id).status, STORE_REMOVED);
}

static void the_trash_outlives_its_history(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    int64_t volume_id = put_bound(store).volume_id;
    int64_t id = intend(store, entry_id_of(store), NULL);
    bool changed;

    remove_entry(store);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(store_finish_cleanup(store, id, STORE_CLEANUP_REMOVED, STALE_REASON_NONE, 90),
                     0);
    store->keep_ms = -1000;
    (void)trim_in_sweeps(store, 2);
    assert_int_equal(number_of(store, "SELECT count(*) FROM cleanups"), 1);
    assert_int_equal(get_volume(store, volume_id).status, STORE_QUARANTINED);
    assert_int_equal(store_forget_trash(store, id), 0);
    (void)trim_in_sweeps(store, 4);
    assert_int_equal(number_of(store, "SELECT count(*) FROM cleanups"), 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM volumes"), 0);
}

static void another_boot_knows_no_ages(void **state)
{
    struct fixture *fixture = *state;
    struct store_trash trash;
    int64_t id;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_bound(fixture->store);
    note(fixture->store, STALE_REASON_GRACE, 5);
    id = intend(fixture->store, entry_id_of(fixture->store), NULL);
    assert_int_equal(store_commit_durable(fixture->store), 0);
    store_close(fixture->store);
    fixture->store = fixture_open(fixture->path, "boot-2");
    assert_int_equal(store_get_trash(fixture->store, id, &trash), STORE_FOUND);
    assert_int_equal(trash.since_ns, 0);
    assert_int_equal(store_set_trash_step(fixture->store, id, STORE_TRASH_STORED, 0), 0);
    assert_int_equal(due_before(fixture->store, -1), 0); /* younger than they are kept for */
    assert_int_equal(suspect_of(fixture->store, entry_id_of(fixture->store)).since_ns, 0);
    assert_int_equal(suspect_of(fixture->store, entry_id_of(fixture->store)).stale_reason,
                     STALE_REASON_GRACE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_suspect_has_what_staleness_is_judged_by),
        MODEL(a_claim_alone_makes_a_volume_live),
        MODEL(a_user_is_the_last_that_had_its_id),
        MODEL(a_sandbox_that_left_no_file_is_a_user_by_its_binding),
        MODEL(a_reason_that_stays_is_one_row),
        MODEL(a_file_is_kept_once_for_each_reason),
        MODEL(a_removal_is_shown_when_it_is_decided),
        MODEL(a_directory_that_never_moved_leaves_no_row),
        MODEL(a_directory_that_comes_back_is_the_same_volume),
        MODEL(both_directories_come_back_to_one_volume),
        MODEL(another_directory_is_another_volume),
        MODEL(a_restored_volume_is_marked_until_it_is_bound),
        MODEL(one_file_of_a_directory_leaves_the_volume_there),
        MODEL(the_trash_outlives_its_history),
        FILES(another_boot_knows_no_ages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
