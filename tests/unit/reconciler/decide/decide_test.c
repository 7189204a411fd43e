/* SPDX-License-Identifier: Apache-2.0 */
/* decide_test.c - the decision table of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/decide.h"

/* One combination, in the table's own words. */
enum {
    STATUS,
    POLICY,
    DEVICE,
    LIVE,
    CONFLICT,
    LOWER,
    SIZE,
    LIST,
    STILL,
    SYNCED,
    PROVEN,
    RESIZE,
    HYPERVISOR,
    GUEST,
    RESCAN,
    TRY,
    FACTS
};

static const struct table_fact facts[FACTS] = {
    [STATUS] = {"status", {"present", "invalid", "gone"}},
    [POLICY] = {"policy", {"grow", "observe", "never", "fixed", "guest"}},
    [DEVICE] = {"device", {"block", "file", "missing", "unsuitable"}},
    [LIVE] = {"live", {"0", "1", "2", "reader", "readers", "hidden"}},
    [CONFLICT] = {"conflict",
                  {"none", "sandbox_orphaned", "entries_disagree", "identity_mismatch",
                   "device_shared", "host_in_use", "bypassed", "unplugged", "detached"}},
    [LOWER] = {"lower", {"in_step", "pending", "stale"}},
    [SIZE] = {"size", {"smaller", "larger", "undone", "equal", "assumed", "unknown"}},
    [LIST] = {"list", {"read", "again", "unread"}},
    [STILL] = {"still", {"yes", "no"}},
    [SYNCED] = {"synced", {"yes", "no", "raw"}},
    [PROVEN] = {"proven", {"yes", "no"}},
    [RESIZE] = {"resize", {"open", "none"}},
    [HYPERVISOR] = {"hypervisor", {"none", "mismatch", "paused", "failed"}},
    [GUEST] = {"guest", {"none", "unverified", "failed"}},
    [RESCAN] = {"rescan", {"yes", "no"}},
    [TRY] = {"try", {"yes", "no"}},
};

/* A volume of one live sandbox, with nothing in its way. */
static const int neutral[FACTS] = {[LIVE] = 1};

static struct table table = {
    .marker = "<!-- decide -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 3,
};

enum { STATE, REASON, ACTION };

enum { SIZE_UNDONE = 2, SIZE_EQUAL = 3, SIZE_ASSUMED = 4, LIST_AGAIN = 1, LIST_UNREAD = 2 };

static void set_sizes(struct decide_facts *ret_facts, int size, int synced)
{
    static const struct {
        uint64_t device, first, largest, hypervisor;
    } sizes[] = {
        {50, 100, 100, 100},  /* smaller */
        {200, 100, 200, 100}, /* larger */
        {200, 100, 200, 100}, /* undone */
        {100, 100, 100, 100}, /* equal */
        {100, 100, 100, 0},   /* assumed */
        {100, 100, 100, 0},   /* unknown */
    };

    ret_facts->device_bytes = sizes[size].device;
    ret_facts->first_bytes = sizes[size].first;
    ret_facts->largest_bytes = sizes[size].largest;
    ret_facts->hypervisor_bytes = sizes[size].hypervisor;
    ret_facts->guest_synced_bytes = synced == 0 ? sizes[size].device : sizes[size].device / 2;
}

enum { READER = 3, HIDDEN = 5, SYNCED_NO = 1, SYNCED_RAW = 2 };

static struct decide_facts facts_of(const int *combination)
{
    static const enum volume_reason hypervisor[] = {REASON_NONE, REASON_IDENTITY_MISMATCH,
                                                    REASON_VM_PAUSED, REASON_MONITOR_MISSING};
    static const enum volume_reason guest[] = {REASON_NONE, REASON_UNVERIFIED, REASON_AGENT_DENIED};
    struct decide_facts result = {
        .status = combination[STATUS],
        .policy = combination[POLICY],
        .device = combination[DEVICE],
        .live_sandboxes = combination[LIVE] == HIDDEN   ? 0
                          : combination[LIVE] >= READER ? (unsigned)combination[LIVE] - READER + 1
                                                        : (unsigned)combination[LIVE],
        .may_be_hidden = combination[LIVE] == HIDDEN,
        .read_only = combination[LIVE] >= READER && combination[LIVE] != HIDDEN,
        .conflict = combination[CONFLICT],
        .lower = combination[LOWER],
        .list_read = combination[LIST] != LIST_UNREAD,
        .list_again = combination[LIST] == LIST_AGAIN,
        .size_assumed = combination[SIZE] == SIZE_ASSUMED,
        .is_undone = combination[SIZE] == SIZE_UNDONE,
        .guest_proven = combination[PROVEN] == 0,
        .is_raw = combination[SYNCED] == SYNCED_RAW,
        .resize_open = combination[RESIZE] == 0,
        .is_still = combination[STILL] == 0,
        .hypervisor_reason = hypervisor[combination[HYPERVISOR]],
        .guest_reason = guest[combination[GUEST]],
        .may_rescan = combination[RESCAN] == 0,
        .may_try = combination[TRY] == 0,
    };

    set_sizes(&result, combination[SIZE], combination[SYNCED]);
    return result;
}

/* What the table's `remark` stands for. */
static const char *expected_remark(const int *combination)
{
    if (combination[LOWER] == LOWER_STALE)
        return "host_stale";
    if (combination[LOWER] == LOWER_PENDING)
        return "host_layer_pending";
    return (combination[SIZE] != SIZE_EQUAL && combination[PROVEN] != 0) ||
                   combination[LIST] == LIST_UNREAD || combination[SYNCED] == SYNCED_NO ||
                   combination[GUEST] == 1
               ? "unverified"
               : "none";
}

static const char *expected_reason(const struct table_row *row, const int *combination,
                                   const struct decide_facts *given)
{
    if (strcmp(row->outcome[REASON], "remark") == 0)
        return expected_remark(combination);
    if (strcmp(row->outcome[REASON], "hypervisor") == 0)
        return reason_name(given->hypervisor_reason);
    if (strcmp(row->outcome[REASON], "guest") == 0)
        return reason_name(given->guest_reason);
    return row->outcome[REASON];
}

static bool decided[STATES][REASONS];

static void check(const int *combination)
{
    struct decide_facts given = facts_of(combination);
    struct decision decision = decide(&given);
    const struct table_row *row = table_match(&table, combination);

    decided[decision.state][decision.reason] = true;
    if (strcmp(state_name(decision.state), row->outcome[STATE]) != 0 ||
        strcmp(reason_name(decision.reason), expected_reason(row, combination, &given)) != 0 ||
        strcmp(decide_action_name(decision.action), row->outcome[ACTION]) != 0) {
        table_print(&table, combination);
        fail_msg("row %u says %s/%s/%s, the code %s/%s/%s", (unsigned)(row - table.rows) + 1,
                 row->outcome[STATE], row->outcome[REASON], row->outcome[ACTION],
                 state_name(decision.state), reason_name(decision.reason),
                 decide_action_name(decision.action));
    }
}

static void each_combination_is_decided_by_the_table(void **state)
{
    table_visit(&table, neutral, check);
    table_assert_used(&table);
}

/* What holds of every decision, whatever the facts. */
static void check_what_is_touched(const int *combination)
{
    struct decide_facts given = facts_of(combination);
    struct decision decision = decide(&given);

    if (decision.action == ACTION_NONE)
        return;
    assert_int_equal(given.status, DECIDE_PRESENT);
    assert_int_equal(given.live_sandboxes, 1);
    if (given.conflict == CONFLICT_UNPLUGGED)
        assert_int_equal(decision.action, ACTION_QUERY_HYPERVISOR);
    else
        assert_int_equal(given.conflict, CONFLICT_NONE);
    assert_int_not_equal(given.policy, POLICY_NEVER);
    assert_int_not_equal(given.policy, POLICY_FIXED);
    assert_false(given.is_raw && decision.action == ACTION_RESIZE_GUEST);
    if (decision.action == ACTION_RESCAN_DISK)
        assert_true(given.may_rescan && given.lower == LOWER_STALE);
    if (decision.action == ACTION_RESCAN_DISK || decision.action == ACTION_WAIT)
        return;
    assert_true(given.may_try || decision.action == ACTION_RESIZE_GUEST);
    if (decision.action == ACTION_QUERY_HYPERVISOR)
        return;
    if (!given.may_try)
        assert_true(given.hypervisor_reason != REASON_NONE && given.guest_reason == REASON_NONE);
    if (decision.action == ACTION_RESIZE_GUEST && given.policy == POLICY_GUEST)
        assert_true(given.device_bytes == given.hypervisor_bytes || given.size_assumed);
    else
        assert_int_equal(given.policy, POLICY_GROW);
    assert_true(given.device_bytes >= given.hypervisor_bytes);
}

/* "In sync" without a remark claims that all of it was seen. */
static void check_what_in_sync_claims(const int *combination)
{
    struct decide_facts given = facts_of(combination);
    struct decision decision = decide(&given);

    if (decision.state != STATE_IN_SYNC || decision.reason != REASON_NONE)
        return;
    assert_true(given.list_read);
    assert_true(given.hypervisor_bytes >= given.device_bytes || given.guest_proven);
    assert_true(given.is_raw || given.guest_synced_bytes >= given.device_bytes);
    assert_int_not_equal(given.guest_reason, REASON_UNVERIFIED);
}

static void what_holds_of_every_decision(void **state)
{
    table_visit(&table, neutral, check_what_is_touched);
    table_visit(&table, neutral, check_what_in_sync_claims);
}

static void a_resize_counts_from_what_the_vmm_has(void **state)
{
    assert_int_equal(decide_baseline(20, 10), 20);
    assert_int_equal(decide_baseline(0, 10), 10);
}

/* As they stand together in the enum. */
static bool is_of_hypervisor(enum volume_reason reason)
{
    return reason >= REASON_MONITOR_MISSING && reason <= REASON_READ_ONLY;
}

static bool is_of_guest(enum volume_reason reason)
{
    return reason >= REASON_OF_GUEST_FIRST && reason <= REASON_OF_GUEST_LAST;
}

/* facts_of() has one failure of each kind, which stands for all. */
static bool is_decided(enum volume_state state, enum volume_reason reason)
{
    return decided[state][reason] ||
           (is_of_hypervisor(reason) && decided[state][REASON_MONITOR_MISSING]) ||
           (is_of_guest(reason) && decided[state][REASON_AGENT_DENIED]);
}

/* The table comes to one pair that no volume gets: a guest that is only unverified has been grown,
 * so that no resize waits for it. One is kept for those who wait for it, though nothing comes to it
 * now. And a volume whose metadata is gone is not decided about. */
static bool is_exempt(enum volume_state state, enum volume_reason reason)
{
    return (state == STATE_BLOCK_GROWN && reason == REASON_UNVERIFIED) ||
           (state == STATE_UNKNOWN && reason == REASON_POLICY) || reason == REASON_UNSTAGED;
}

/* After the combinations were decided. */
static void states_have_the_reasons_that_are_decided(void **unused)
{
    for (unsigned state = 0; state < STATES; state++)
        for (unsigned reason = 0; reason < REASONS; reason++)
            if (!is_exempt(state, reason) &&
                reason_is_of(reason, state) != is_decided(state, reason))
                fail_msg("%s/%s is%s decided, and the model says otherwise", state_name(state),
                         reason_name(reason), is_decided(state, reason) ? "" : " not");
    assert_false(reason_is_of(REASON_UNVERIFIED, STATE_BLOCK_GROWN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_combination_is_decided_by_the_table),
        cmocka_unit_test(states_have_the_reasons_that_are_decided),
        cmocka_unit_test(what_holds_of_every_decision),
        cmocka_unit_test(a_resize_counts_from_what_the_vmm_has),
    };

    return cmocka_run_group_tests_name("decide", tests, NULL, NULL);
}
