/* decide_test.c - the decision table of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/decide.h"

/* One combination, in the table's own words. */
enum {
    STATUS,
    PERMIT,
    DEVICE,
    LIVE,
    CONFLICT,
    BENEATH,
    SIZE,
    LIST,
    DRIVE,
    STILL,
    SYNCED,
    PROVEN,
    GROWTH,
    HYPERVISOR,
    GUEST,
    RESCAN,
    TRY,
    FACTS
};

static const struct table_fact facts[FACTS] = {
    [STATUS] = {"status", {"present", "invalid", "gone"}},
    [PERMIT] = {"permit", {"grow", "observe", "never"}},
    [DEVICE] = {"device", {"block", "file", "missing", "unsuitable"}},
    [LIVE] = {"live", {"0", "1", "2", "reader", "readers"}},
    [CONFLICT] = {"conflict",
                  {"none", "entries_disagree", "identity_mismatch", "device_shared", "host_in_use",
                   "bypassed", "unplugged", "detached"}},
    [BENEATH] = {"beneath", {"in_step", "pending", "stale"}},
    [SIZE] = {"size", {"smaller", "larger", "equal", "assumed", "unknown"}},
    [LIST] = {"list", {"read", "again", "unread"}},
    [DRIVE] = {"drive", {"told", "untold"}},
    [STILL] = {"still", {"yes", "no"}},
    [SYNCED] = {"synced", {"yes", "no"}},
    [PROVEN] = {"proven", {"yes", "no"}},
    [GROWTH] = {"growth", {"open", "none"}},
    [HYPERVISOR] = {"hypervisor", {"none", "mismatch", "failed"}},
    [GUEST] = {"guest", {"none", "unverified", "failed"}},
    [RESCAN] = {"rescan", {"yes", "no"}},
    [TRY] = {"try", {"yes", "no"}},
};

static struct table table = {
    .marker = "<!-- decide -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 3,
};

enum { STATE, REASON, ACTION };

static int read_table(void **state)
{
    (void)state;
    table_read(&table);
    return 0;
}

enum { SIZE_EQUAL = 2, SIZE_ASSUMED = 3, LIST_AGAIN = 1, LIST_UNREAD = 2 };

static void set_sizes(struct decide_facts *ret_facts, int size, int synced)
{
    static const struct {
        uint64_t device, first, largest, hypervisor;
    } sizes[] = {
        {50, 100, 100, 100},  /* smaller */
        {200, 100, 200, 100}, /* larger */
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

enum { READER = 3 };

static struct decide_facts facts_of(const int *combination)
{
    static const enum volume_reason hypervisor[] = {REASON_NONE, REASON_IDENTITY_MISMATCH,
                                                    REASON_MONITOR_MISSING};
    static const enum volume_reason guest[] = {REASON_NONE, REASON_UNVERIFIED, REASON_AGENT_DENIED};
    struct decide_facts result = {
        .status = combination[STATUS],
        .permit = combination[PERMIT],
        .device = combination[DEVICE],
        .live_sandboxes = combination[LIVE] >= READER ? (unsigned)combination[LIVE] - READER + 1
                                                      : (unsigned)combination[LIVE],
        .read_only = combination[LIVE] >= READER,
        .conflict = combination[CONFLICT],
        .beneath = combination[BENEATH],
        .list_read = combination[LIST] != LIST_UNREAD,
        .list_again = combination[LIST] == LIST_AGAIN,
        .list_doubtful = combination[DRIVE] != 0,
        .size_assumed = combination[SIZE] == SIZE_ASSUMED,
        .guest_proven = combination[PROVEN] == 0,
        .growth_open = combination[GROWTH] == 0,
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
    if (combination[BENEATH] == BENEATH_STALE)
        return "host_stale";
    if (combination[BENEATH] == BENEATH_PENDING)
        return "host_layer_pending";
    return combination[SIZE] != SIZE_EQUAL || combination[LIST] == LIST_UNREAD ||
                   combination[DRIVE] != 0 || combination[SYNCED] != 0 || combination[GUEST] == 1
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

static void check(const int *combination)
{
    struct decide_facts given = facts_of(combination);
    struct decision decision = decide(&given);
    const struct table_row *row = table_match(&table, combination);

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

static void every_combination_is_decided_as_the_table_says(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do
        check(combination);
    while (table_advance(&table, combination));
    table_assert_used(&table);
}

/* What INTERFACES promises about every decision, whatever the facts. */
static void never_touches_what_it_must_not(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct decide_facts given = facts_of(combination);
        struct decision decision = decide(&given);

        if (decision.action == ACTION_NONE)
            continue;
        assert_int_equal(given.status, DECIDE_PRESENT);
        assert_int_equal(given.live_sandboxes, 1);
        if (given.conflict == CONFLICT_UNPLUGGED)
            assert_int_equal(decision.action, ACTION_QUERY_HYPERVISOR);
        else
            assert_int_equal(given.conflict, CONFLICT_NONE);
        assert_int_not_equal(given.permit, PERMIT_NEVER);
        if (decision.action == ACTION_RESCAN_DISK)
            assert_true(given.may_rescan && given.beneath == BENEATH_STALE);
        if (decision.action == ACTION_RESCAN_DISK || decision.action == ACTION_WAIT)
            continue;
        assert_true(given.may_try || decision.action == ACTION_GROW_GUEST);
        if (decision.action == ACTION_QUERY_HYPERVISOR)
            continue;
        if (!given.may_try)
            assert_true(given.hypervisor_reason != REASON_NONE &&
                        given.guest_reason == REASON_NONE);
        assert_int_equal(given.permit, PERMIT_GROW);
        assert_true(given.device_bytes >= given.hypervisor_bytes);
    } while (table_advance(&table, combination));
}

/* "In sync" without a remark claims that all of it was seen. */
static void in_sync_claims_only_what_was_seen(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct decide_facts given = facts_of(combination);
        struct decision decision = decide(&given);

        if (decision.state != STATE_IN_SYNC || decision.reason != REASON_NONE)
            continue;
        assert_true(given.list_read && !given.list_doubtful);
        assert_true(given.hypervisor_bytes >= given.device_bytes);
        assert_true(given.guest_synced_bytes >= given.device_bytes);
        assert_int_not_equal(given.guest_reason, REASON_UNVERIFIED);
    } while (table_advance(&table, combination));
}

static void a_growth_counts_from_what_the_vmm_has(void **state)
{
    struct decide_facts given = {.first_bytes = 10, .hypervisor_bytes = 20};

    (void)state;
    assert_int_equal(decide_baseline(&given), 20);
    given.hypervisor_bytes = 0;
    assert_int_equal(decide_baseline(&given), 10);
}

static void every_reason_has_a_name_that_leads_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < REASONS; i++)
        assert_int_equal(reason_from_name(reason_name(i)), i);
    assert_int_equal(reason_from_name(""), REASON_NONE);
    assert_int_equal(reason_from_name("no such reason"), REASON_NONE);
    for (unsigned i = 0; i < STATES; i++)
        assert_non_null(state_name(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_as_the_table_says),
        cmocka_unit_test(never_touches_what_it_must_not),
        cmocka_unit_test(in_sync_claims_only_what_was_seen),
        cmocka_unit_test(a_growth_counts_from_what_the_vmm_has),
        cmocka_unit_test(every_reason_has_a_name_that_leads_back),
    };

    return cmocka_run_group_tests_name("decide", tests, read_table, NULL);
}
