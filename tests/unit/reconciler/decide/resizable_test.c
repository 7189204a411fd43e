/* SPDX-License-Identifier: Apache-2.0 */
/* resizable_test.c - the table "Resizable" of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/decide.h"

enum {
    STATUS,
    POLICY,
    DEVICE,
    LIVE,
    CONFLICT,
    SIZE,
    UNDONE,
    HYPERVISOR,
    MONITOR,
    GUEST,
    PROVEN,
    FACTS
};

static const struct table_fact facts[FACTS] = {
    [STATUS] = {"status", {"present", "invalid", "gone"}},
    [POLICY] = {"policy", {"grow", "observe", "never", "fixed", "guest"}},
    [DEVICE] = {"device", {"block", "file", "missing", "unsuitable"}},
    [LIVE] = {"live", {"0", "1", "2", "reader", "readers"}},
    [CONFLICT] = {"conflict",
                  {"none", "sandbox_orphaned", "entries_disagree", "identity_mismatch",
                   "device_shared", "host_in_use", "bypassed", "unplugged", "detached"}},
    [SIZE] = {"size", {"smaller", "larger"}},
    [UNDONE] = {"undone", {"yes", "no"}},
    [HYPERVISOR] = {"hypervisor", {"none", "failed"}},
    [MONITOR] = {"monitor", {"unasked", "able", "unable"}},
    [GUEST] = {"guest", {"none", "unverified", "failed"}},
    [PROVEN] = {"proven", {"yes", "no", "raw"}},
};

static struct table table = {
    .marker = "<!-- resizable -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 2,
};

enum { ANSWER, REASON };
enum { READER = 3, PROVEN_RAW = 2 };

static struct decide_facts resize_facts_of(const int *combination)
{
    static const enum volume_reason hypervisor[] = {REASON_NONE, REASON_MONITOR_MISSING};
    static const enum volume_reason guest[] = {REASON_NONE, REASON_UNVERIFIED, REASON_AGENT_FAILED};
    bool is_smaller = combination[SIZE] == 0;

    return (struct decide_facts){
        .status = combination[STATUS],
        .policy = combination[POLICY],
        .device = combination[DEVICE],
        .live_sandboxes = combination[LIVE] >= READER ? (unsigned)combination[LIVE] - READER + 1
                                                      : (unsigned)combination[LIVE],
        .read_only = combination[LIVE] >= READER,
        .conflict = combination[CONFLICT],
        .device_bytes = is_smaller ? 50 : 200,
        .first_bytes = 100,
        .largest_bytes = is_smaller ? 100 : 200,
        .hypervisor_bytes = 100,
        .is_undone = combination[UNDONE] == 0,
        .hypervisor_reason = hypervisor[combination[HYPERVISOR]],
        .guest_reason = guest[combination[GUEST]],
        .guest_proven = combination[PROVEN] == 0,
        .is_raw = combination[PROVEN] == PROVEN_RAW,
    };
}

static struct resizable_facts facts_of(const int *combination, const struct decide_facts *resize)
{
    return (struct resizable_facts){
        .resize = resize,
        .monitor = combination[MONITOR],
        .monitor_reason = REASON_HYPERVISOR_VERSION,
    };
}

/* The table names the fact whose reason it is. */
static const char *expected_reason(const struct table_row *row, const struct resizable_facts *given)
{
    if (strcmp(row->outcome[REASON], "hypervisor") == 0)
        return reason_name(given->resize->hypervisor_reason);
    if (strcmp(row->outcome[REASON], "guest") == 0)
        return reason_name(given->resize->guest_reason);
    if (strcmp(row->outcome[REASON], "monitor") == 0)
        return reason_name(given->monitor_reason);
    return row->outcome[REASON];
}

static const char *shown(enum resizable_answer answer)
{
    const char *name = resizable_name(answer);

    return name ? name : "none";
}

static void every_combination_is_decided_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct decide_facts resize = resize_facts_of(combination);
        struct resizable_facts given = facts_of(combination, &resize);
        struct resizable resizable = resizable_decide(&given);
        const struct table_row *row = table_match(&table, combination);

        if (strcmp(shown(resizable.answer), row->outcome[ANSWER]) == 0 &&
            strcmp(reason_name(resizable.reason), expected_reason(row, &given)) == 0)
            continue;
        table_print(&table, combination);
        fail_msg("row %u says %s/%s, the code %s/%s", (unsigned)(row - table.rows) + 1,
                 row->outcome[ANSWER], row->outcome[REASON], shown(resizable.answer),
                 reason_name(resizable.reason));
    } while (table_advance(&table, combination));
    table_assert_used(&table);
}

/* "Yes" claims that each part was seen, and decide() then acts on a resize. What is wrong or not
 * known is named, and nothing else is. */
static void an_answer_claims_only_what_was_seen(void **state)
{
    int combination[FACTS] = {0};
    unsigned count = 0;

    do {
        struct decide_facts resize = resize_facts_of(combination);
        struct resizable_facts given = facts_of(combination, &resize);
        struct resizable resizable = resizable_decide(&given);

        assert_int_equal(resizable.reason != REASON_NONE,
                         resizable.answer == RESIZABLE_NO || resizable.answer == RESIZABLE_UNKNOWN);
        if (resizable.answer != RESIZABLE_YES)
            continue;
        count++;
        assert_int_equal(given.monitor, MONITOR_ABLE);
        assert_true(resize.guest_proven || resize.is_raw);
        resize.is_still = resize.may_try = true;
        assert_int_equal(decide(&resize).action, ACTION_RESIZE_HYPERVISOR);
    } while (table_advance(&table, combination));
    assert_true(count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_by_the_table),
        cmocka_unit_test(an_answer_claims_only_what_was_seen),
    };

    return cmocka_run_group_tests_name("resizable", tests, NULL, NULL);
}
