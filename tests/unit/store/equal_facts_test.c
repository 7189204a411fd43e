/* SPDX-License-Identifier: Apache-2.0 */
/* equal_facts_test.c - a fact that is as it was writes nothing, neither its row nor the journal's,
 * and its caller learns that nothing changed.
 */
#include "store/cleanups.h"

#include "tests/unit/store/fixture.h"

/* Later. These expect `store` and `changed`. */
#define AGAIN(put)                                                                                 \
    do {                                                                                           \
        int rows = written(store);                                                                 \
        pass_time(store, 1000);                                                                    \
        changed = false;                                                                           \
        assert_int_equal(put, 0);                                                                  \
        assert_int_equal(written(store), rows);                                                    \
        assert_false(changed);                                                                     \
    } while (0)

#define TWICE(put)                                                                                 \
    do {                                                                                           \
        int before = written(store);                                                               \
        assert_int_equal(put, 0);                                                                  \
        assert_int_not_equal(written(store), before);                                              \
        AGAIN(put);                                                                                \
    } while (0)

static void what_was_observed(void **state)
{
    struct store *store = store_of(state);
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_device device = device_of(1, GIB);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    int64_t volume_id, device_id, sandbox_ref;
    bool changed;

    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    sandbox.claims = 1;
    sandbox.claim = &(struct store_claim){.path = "/data", .source = "bundle"};
    TWICE(row_put_entry(store, &entry, &volume_id, &changed));
    entry.target_path = NULL;       /* its name is a hash now: the path stays known */
    entry.sandbox[0] = "sandbox-2"; /* in another order they are compared one by one */
    entry.sandbox[1] = "sandbox-1";
    AGAIN(row_put_entry(store, &entry, &volume_id, &changed));
    entry.problem = "cut";
    TWICE(row_put_entry(store, &entry, &volume_id, &changed));
    TWICE(store_put_device(store, &device, &device_id, &changed));
    TWICE(store_set_volume_device(store, volume_id, device_id, &changed));
    TWICE(store_put_sandbox(store, &sandbox, &sandbox_ref, &changed));
    TWICE(store_set_problem(store, "sandbox-1", "cut", &changed));
    TWICE(store_set_agent_address(store, sandbox_ref, "unix:///a"));
    TWICE(store_set_vmm_version(store, sandbox_ref, "8.2"));
    TWICE(store_set_ability(store, sandbox_ref, ROUTE_AGENT, "no"));
    TWICE(store_set_orphaned(store, "sandbox-1", true, &fixture_drive, 1, &changed));
    TWICE(store_note_exit(store, "sandbox-1", 100));
    TWICE(store_end_sandbox(store, "sandbox-1", &changed));
}

/* Polls without an answer are counted up to a bound. */
static int note_silence(struct store *store, int64_t volume_id)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < 8; i++)
        r = store_note_guest_silent(store, volume_id);
    return r;
}

static void what_was_answered_and_decided(void **state)
{
    struct store *store = store_of(state);
    int64_t id = put_bound(store).volume_id;
    int64_t entry_id = number_of(store, "SELECT entry_id FROM entries");
    struct store_hypervisor_result hypervisor = {
        .volume_id = id, .bytes = 2 * GIB, .record = 1, .list = STORE_LIST_HAS};
    struct store_guest_result guest = {.volume_id = id, .guest_bytes = 5};
    struct store_stale stale = {
        .reason = STALE_REASON_GRACE, .evidence = "{\"file\":\"sandbox-1\"}", .since_ns = 5};
    struct store_volume volume = get_volume(store, id);
    bool changed;

    TWICE(row_open_resize(store, id, GIB, 2 * GIB));
    TWICE(store_put_hypervisor_result(store, &hypervisor));
    TWICE(store_put_guest_result(store, &guest));
    TWICE(row_set_state(store, id, STATE_BLOCK_GROWN, REASON_NONE, &changed));
    TWICE(row_set_state(store, id, STATE_IN_SYNC, REASON_NONE, &changed));
    TWICE(store_set_evidence(store, &volume, "io-error"));
    TWICE(store_set_observed(store, id, true));
    TWICE(store_set_attempts(store, id, 3, 500, 1767323045678));
    TWICE(store_forget_waiting(store));
    TWICE(store_note_size(store, id, 2 * GIB));
    TWICE(store_describe_binding(store, id, "drive-2", "/data", "persist"));
    TWICE(note_silence(store, id));
    TWICE(store_close_binding(store, id));
    TWICE(store_note_stale(store, entry_id, &stale));
    TWICE(store_note_stale_file(store, entry_id, "sandbox-1", &stale));
    TWICE(store_note_published(store, id, "sandbox-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(what_was_observed),
        MODEL(what_was_answered_and_decided),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
