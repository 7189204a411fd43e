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

    assert_int_equal(store_each_user(store, volume_id, 0, take_user, &users), 0);
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

static void note(struct store *store, enum stale_reason reason, uint64_t since_ns)
{
    struct store_stale stale = {.reason = reason,
                                .fingerprint = reason ? "f1" : NULL,
                                .since_ns = since_ns,
                                .held = reason == STALE_REASON_BREAKER,
                                .evidence = "{\"a\":1}"};

    assert_int_equal(store_note_stale(store, entry_id_of(store), &stale), 0);
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

static void the_trash_outlives_its_history(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    int64_t volume_id = put_bound(store).volume_id;
    int64_t id = intend(store, entry_id_of(store), NULL);
    bool changed;

    remove_entry(store);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(store_finish_cleanup(store, id, CLEANUP_REMOVED, STALE_REASON_NONE, 90), 0);
    store->keep_ms = -1000;
    trim_for_days(store, 2);
    assert_int_equal(number_of(store, "SELECT count(*) FROM cleanups"), 1);
    assert_int_equal(get_volume(store, volume_id).status, STORE_QUARANTINED);
    assert_int_equal(store_forget_trash(store, id), 0);
    trim_for_days(store, 4);
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
        MODEL(a_claim_alone_makes_a_volume_live),
        MODEL(a_user_is_the_last_that_had_its_id),
        MODEL(a_directory_that_never_moved_leaves_no_row),
        MODEL(the_trash_outlives_its_history),
        FILES(another_boot_knows_no_ages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
