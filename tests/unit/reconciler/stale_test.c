/* stale_test.c - the table of staleness in docs/states.md against the code, cell by cell. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/stale.h"

enum { MODE, PATH, SANDBOX, KUBELET, ENTRY, RESTORED, DAEMON, SETTLED, BRAKE, FACTS };
enum { VALUES = 6 };

static const struct {
    const char *name;
    const char *values[VALUES];
} facts[FACTS] = {
    [MODE] = {"mode", {"off", "report", "delete"}},
    [PATH] = {"path", {"publish", "empty_dir", "other", "hidden"}},
    [SANDBOX] = {"sandbox", {"never", "seen", "cleared", "traces", "alive", "hidden"}},
    [KUBELET] = {"kubelet", {"holds", "left", "gone", "unseen", "moved"}},
    [ENTRY] = {"entry", {"valid", "invalid"}},
    [RESTORED] = {"restored", {"no", "yes"}},
    [DAEMON] = {"daemon", {"fit", "sources", "database", "trash"}},
    [SETTLED] = {"settled", {"no", "yes"}},
    [BRAKE] = {"brake", {"none", "breaker", "rate"}},
};

struct row {
    int fact[4], value[4];
    unsigned conditions;
    char decision[16], reason[32];
    unsigned long first_matches;
};

static struct row rows[64];
static unsigned row_count;

static int value_of(int fact, const char *name)
{
    for (int i = 0; i < VALUES && facts[fact].values[i]; i++)
        if (strcmp(facts[fact].values[i], name) == 0)
            return i;
    fail_msg("%s has no value %s", facts[fact].name, name);
    return -1;
}

static void add_condition(struct row *row, char *word)
{
    char *equals = strchr(word, '=');

    assert_non_null(equals);
    assert_true(row->conditions < 4);
    *equals = '\0';
    for (int fact = 0; fact < FACTS; fact++)
        if (strcmp(facts[fact].name, word) == 0) {
            row->fact[row->conditions] = fact;
            row->value[row->conditions++] = value_of(fact, equals + 1);
            return;
        }
    fail_msg("no fact %s", word);
}

static void read_row(const char *line)
{
    struct row *row = &rows[row_count];
    char conditions[128], *word, *rest = conditions;

    if (sscanf(line, "| %127[^|]| %15[a-z_] | %31[a-z_] |", conditions, row->decision,
               row->reason) != 3 ||
        !strchr(conditions, '='))
        return;
    while ((word = strsep(&rest, " ")))
        if (*word)
            add_condition(row, word);
    assert_true(++row_count < array_length(rows));
}

static int read_table(void **state)
{
    cleanup(freep) char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("docs/states.md", "re");
    bool inside = false;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &size, file) > 0) {
        if (strncmp(line, "<!-- stale -->", 14) == 0)
            inside = true;
        else if (strncmp(line, "## ", 3) == 0)
            inside = false;
        else if (inside && strncmp(line, "| ", 2) == 0)
            read_row(line);
    }
    fclose(file);
    assert_true(row_count > 30);
    return 0;
}

static bool matches(const struct row *row, const int *combination, bool without_kubelet)
{
    for (unsigned i = 0; i < row->conditions; i++)
        if (combination[row->fact[i]] != row->value[i] ||
            (without_kubelet && row->fact[i] == KUBELET))
            return false;
    return true;
}

static struct row *first_match(const int *combination, bool without_kubelet)
{
    for (unsigned i = 0; i < row_count; i++)
        if (matches(&rows[i], combination, without_kubelet))
            return &rows[i];
    return NULL;
}

static struct stale_facts facts_of(const int *combination)
{
    return (struct stale_facts){
        .mode = combination[MODE],
        .path = combination[PATH],
        .sandbox = combination[SANDBOX],
        .kubelet = combination[KUBELET],
        .invalid = combination[ENTRY] == 1,
        .restored = combination[RESTORED] == 1,
        .daemon = combination[DAEMON],
        .settled = combination[SETTLED] == 1,
        .brake = combination[BRAKE],
    };
}

static void check(const int *combination, const struct row *row, struct stale_decision decision)
{
    static const char *const verdicts[] = {"none", "keep", "remove"};

    if (strcmp(verdicts[decision.verdict], row->decision) == 0 &&
        strcmp(stale_reason_name(decision.reason), row->reason) == 0)
        return;
    for (int fact = 0; fact < FACTS; fact++)
        print_message("%s=%s ", facts[fact].name, facts[fact].values[combination[fact]]);
    fail_msg("row %u says %s/%s, the code %s/%s", (unsigned)(row - rows) + 1, row->decision,
             row->reason, verdicts[decision.verdict], stale_reason_name(decision.reason));
}

/* The next combination, as an odometer; false after the last. */
static bool advance(int *combination)
{
    for (int fact = FACTS - 1; fact >= 0; fact--) {
        int next = combination[fact] + 1;

        if (next < VALUES && facts[fact].values[next]) {
            combination[fact] = next;
            return true;
        }
        combination[fact] = 0;
    }
    return false;
}

static void every_combination_is_decided_as_the_table_says(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct stale_facts given = facts_of(combination);
        struct row *row = first_match(combination, false);

        assert_non_null(row);
        row->first_matches++;
        check(combination, row, stale_decide(&given));
    } while (advance(combination));
    for (unsigned i = 0; i < row_count; i++)
        if (rows[i].first_matches == 0)
            fail_msg("row %u of the table can never be the first match", i + 1);
}

/* A file of a sandbox that has ended; of others the table says nothing. */
static void a_file_is_decided_by_the_rows_without_the_kubelet(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct stale_facts given = facts_of(combination);
        struct stale_decision decision = stale_decide_file(&given);

        if (given.sandbox == STALE_SANDBOX_SEEN || given.sandbox == STALE_SANDBOX_CLEARED ||
            given.sandbox == STALE_SANDBOX_TRACES)
            check(combination, first_match(combination, true), decision);
        else
            assert_int_equal(decision.verdict, STALE_NOT);
    } while (advance(combination));
}

/* What must hold of every removal, said once more without the table. */
static void nothing_is_removed_without_every_piece_of_evidence(void **state)
{
    int combination[FACTS] = {0};
    unsigned long removed = 0;

    (void)state;
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
        assert_true(given.settled && !given.invalid && !given.restored);
        assert_int_equal(given.daemon, STALE_DAEMON_FIT);
        assert_int_equal(given.brake, STALE_BRAKE_NONE);
    } while (advance(combination));
    assert_int_equal(removed, 5);
}

static void more_than_half_and_at_least_five_break(void **state)
{
    (void)state;
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
        cmocka_unit_test(every_combination_is_decided_as_the_table_says),
        cmocka_unit_test(a_file_is_decided_by_the_rows_without_the_kubelet),
        cmocka_unit_test(nothing_is_removed_without_every_piece_of_evidence),
        cmocka_unit_test(more_than_half_and_at_least_five_break),
    };

    return cmocka_run_group_tests_name("stale", tests, read_table, NULL);
}
