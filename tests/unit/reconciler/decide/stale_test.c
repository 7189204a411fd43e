/* SPDX-License-Identifier: Apache-2.0 */
/* stale_test.c - the table of staleness in docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/stale.h"

enum { MODE, PATH, SANDBOX, KUBELET, ENTRY, RESTORED, DAEMON, SETTLED, LIMIT, FACTS };

static const struct table_fact facts[FACTS] = {
    [MODE] = {"mode", {"off", "report", "delete"}},
    [PATH] = {"path", {"publish", "empty_dir", "other", "unresolved"}},
    [SANDBOX] = {"sandbox", {"never", "seen", "cleared", "traces", "alive", "unseen"}},
    [KUBELET] = {"kubelet", {"holds", "left", "gone", "unseen", "moved"}},
    [ENTRY] = {"entry", {"valid", "extra", "invalid"}},
    [RESTORED] = {"restored", {"no", "yes"}},
    [DAEMON] = {"daemon", {"fit", "sources", "database", "trash"}},
    [SETTLED] = {"settled", {"no", "yes"}},
    [LIMIT] = {"limit", {"none", "breaker", "rate"}},
};

static struct table table = {
    .marker = "<!-- stale -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 2,
};

static struct stale_facts facts_of(const int *combination)
{
    return (struct stale_facts){
        .mode = combination[MODE],
        .path = combination[PATH],
        .sandbox = combination[SANDBOX],
        .kubelet = combination[KUBELET],
        .entry = combination[ENTRY],
        .restored = combination[RESTORED] == 1,
        .daemon = combination[DAEMON],
        .settled = combination[SETTLED] == 1,
        .limit = combination[LIMIT],
    };
}

static void check(const int *combination, const struct table_row *row,
                  struct stale_decision decision)
{
    static const char *const verdicts[] = {"none", "keep", "remove"};
    const char *decided[] = {verdicts[decision.verdict], stale_reason_name(decision.reason)};

    table_expect(&table, combination, row, decided);
}

static void every_combination_is_decided_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct stale_facts given = facts_of(combination);

        check(combination, table_match(&table, combination), stale_decide(&given));
    } while (table_advance(&table, combination));
    table_assert_used(&table);
}

/* A file of a sandbox that has ended; of others the table says nothing. */
static void a_file_is_decided_by_the_rows_without_the_kubelet(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct stale_facts given = facts_of(combination);
        struct stale_decision decision = stale_decide_file(&given);

        if (given.sandbox == STALE_SANDBOX_SEEN || given.sandbox == STALE_SANDBOX_CLEARED ||
            given.sandbox == STALE_SANDBOX_TRACES)
            check(combination, table_match_without(&table, combination, KUBELET), decision);
        else
            assert_int_equal(decision.verdict, STALE_NOT);
    } while (table_advance(&table, combination));
}

/* A reason of its own, or one that says the same of what looks stale. */
static void a_directory_that_does_not_look_stale_has_a_reason(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct stale_facts given = facts_of(combination);
        enum stale_reason why = stale_why_not(&given);

        if (given.mode == STALE_MODE_OFF || stale_decide(&given).verdict != STALE_NOT)
            continue;
        assert_int_equal(why == STALE_REASON_EMPTY_DIR, given.path == STALE_PATH_EMPTY_DIR);
        if (why == STALE_REASON_IN_USE)
            assert_int_equal(given.sandbox, STALE_SANDBOX_ALIVE);
        if (why == STALE_REASON_NOT_USED_YET) {
            assert_int_equal(given.sandbox, STALE_SANDBOX_NEVER);
            assert_int_equal(given.path, STALE_PATH_PUBLISH);
            assert_int_equal(given.kubelet, STALE_KUBELET_HOLDS);
        }
        if (why == STALE_REASON_KUBELET_UNSEEN)
            assert_int_equal(given.kubelet, STALE_KUBELET_UNSEEN);
        if (why == STALE_REASON_KUBELET_MOVED)
            assert_int_equal(given.kubelet, STALE_KUBELET_MOVED);
    } while (table_advance(&table, combination));
}

/* What must hold of every removal, said once more without the table. */
static void nothing_is_removed_without_every_piece_of_evidence(void **state)
{
    int combination[FACTS] = {0};
    unsigned long removed = 0;

    do {
        struct stale_facts given = facts_of(combination);

        if (stale_decide(&given).verdict != STALE_REMOVE)
            continue;
        removed++;
        assert_int_equal(given.mode, STALE_MODE_DELETE);
        assert_int_equal(given.path, STALE_PATH_PUBLISH);
        assert_true(given.sandbox == STALE_SANDBOX_SEEN || given.sandbox == STALE_SANDBOX_CLEARED ||
                    (given.sandbox == STALE_SANDBOX_NEVER && given.kubelet == STALE_KUBELET_GONE));
        assert_true(given.kubelet == STALE_KUBELET_GONE || given.kubelet == STALE_KUBELET_LEFT);
        assert_true(given.settled && given.entry == STALE_ENTRY_VALID && !given.restored);
        assert_int_equal(given.daemon, STALE_DAEMON_FIT);
        assert_int_equal(given.limit, STALE_LIMIT_NONE);
    } while (table_advance(&table, combination));
    assert_int_equal(removed, 5);
}

/* It begins with whatever was last: the change, the daemon or a source, the kubelet. */
static void the_grace_time_begins_anew(void **state)
{
    struct stale_times times = {.since_ns = 30, .well_ns = 10, .kubelet_ns = 20, .grace_ns = 5};

    assert_int_equal(stale_settles(&times), 35);
    times.kubelet_ns = 40;
    assert_int_equal(stale_settles(&times), 45);
    times.well_ns = 50;
    assert_int_equal(stale_settles(&times), 55);
    times.kubelet_ns = 0;
    times.grace_ns = 0;
    assert_int_equal(stale_settles(&times), 50);
    times.well_ns = 0;
    assert_true(stale_settles(&times) == UINT64_MAX);
}

static void more_than_half_and_at_least_five_break(void **state)
{
    assert_false(stale_breaks(4, 4));
    assert_true(stale_breaks(5, 5));
    assert_true(stale_breaks(5, 9));
    assert_false(stale_breaks(5, 10));
    assert_true(stale_breaks(6, 11));
    assert_false(stale_breaks(250, 500));
    assert_true(stale_breaks(251, 500));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_by_the_table),
        cmocka_unit_test(a_file_is_decided_by_the_rows_without_the_kubelet),
        cmocka_unit_test(a_directory_that_does_not_look_stale_has_a_reason),
        cmocka_unit_test(nothing_is_removed_without_every_piece_of_evidence),
        cmocka_unit_test(the_grace_time_begins_anew),
        cmocka_unit_test(more_than_half_and_at_least_five_break),
    };

    return cmocka_run_group_tests_name("stale", tests, NULL, NULL);
}
