/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll_test.c - when a guest is asked. */
#include "tests/unit/test.h"

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/command/stats_poll.h"

enum { BINDINGS = 4000, TICKS = 64 };
static const uint64_t PERIOD_NS = 300 * NSEC_PER_SEC;

static bool is_due(uint64_t from_ns, uint64_t to_ns, int64_t binding_id, uint32_t failures)
{
    return stats_poll_is_moment(&(struct stats_span){from_ns, to_ns, PERIOD_NS}, binding_id,
                                failures);
}

/* Each once in a period, and never many at a time. */
static void thousands_are_spread_evenly(void **state)
{
    const uint64_t began_ns = 12345 * NSEC_PER_SEC, tick_ns = PERIOD_NS / TICKS;
    unsigned all = 0;

    (void)state;
    for (unsigned tick = 0; tick < TICKS; tick++) {
        unsigned due = 0;

        for (int64_t id = 1; id <= BINDINGS; id++)
            due += is_due(began_ns + tick * tick_ns, began_ns + (tick + 1) * tick_ns, id, 0);
        assert_in_range(due, BINDINGS / TICKS * 2 / 3, BINDINGS / TICKS * 4 / 3);
        all += due;
    }
    assert_int_equal(all, BINDINGS);
}

/* Whatever the steps in which time is looked at, nobody is asked twice or passed over. */
static void steps_do_not_matter(void **state)
{
    (void)state;
    for (int64_t id = 1; id <= 100; id++) {
        unsigned due = 0;
        uint64_t at_ns = 7;

        for (unsigned step = 1; at_ns < 3 * PERIOD_NS; step++) {
            uint64_t to_ns = at_ns + step * NSEC_PER_SEC;

            if (to_ns > 3 * PERIOD_NS + 7)
                to_ns = 3 * PERIOD_NS + 7;
            due += is_due(at_ns, to_ns, id, 0);
            at_ns = to_ns;
        }
        assert_int_equal(due, 3);
    }
}

static void a_silent_guest_is_asked_less_often(void **state)
{
    static const unsigned asked[] = {64, 32, 16, 8, 4, 2, 2, 2, 2};

    (void)state;
    for (uint32_t failures = 0; failures < array_length(asked); failures++) {
        unsigned due = 0;

        for (unsigned period = 64; period < 128; period++)
            due += is_due(period * PERIOD_NS, (period + 1) * PERIOD_NS, 77, failures);
        assert_int_equal(due, asked[failures]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_are_spread_evenly),
        cmocka_unit_test(steps_do_not_matter),
        cmocka_unit_test(a_silent_guest_is_asked_less_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
