/* SPDX-License-Identifier: Apache-2.0 */
/* slots_test.c - slots and backoff: order, bounds and fairness. */
#include "tests/unit/test.h"

#include <string.h>

#include "reconciler/act/actor.h"
#include "reconciler/decide/decide.h"

static struct slots slots;

static void begin(unsigned parallel)
{
    slots_init(&slots, parallel);
}

static int end(void **state)
{
    slots_done(&slots);
    return 0;
}

static void enters(int64_t sandbox, int64_t volume)
{
    assert_true(slots_enter(&slots, sandbox, volume, false));
}

static void waits(int64_t sandbox, int64_t volume)
{
    assert_false(slots_enter(&slots, sandbox, volume, false));
}

static void expect_next(int64_t expected)
{
    int64_t volume;

    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, expected);
}

static void expect_none(void)
{
    int64_t volume;

    assert_false(slots_next(&slots, &volume));
}

/* Nothing is remembered of sandboxes that nobody acts on or waits for. */
static void expect_nobody(void)
{
    assert_null(slots.sandboxes);
}

static void one_act_per_sandbox(void **state)
{
    begin(4);
    enters(1, 10);
    waits(1, 11);
    enters(2, 20);
    expect_none();
    slots_leave(&slots, 1);
    expect_next(11);
    expect_none();
    slots_leave(&slots, 2);
    expect_nobody();
}

static void the_bound_holds_over_all_slots(void **state)
{
    begin(2);
    enters(1, 10);
    enters(2, 20);
    waits(3, 30);
    waits(4, 40);
    expect_none();
    slots_leave(&slots, 1);
    expect_next(30);
    enters(3, 30);
    expect_none();
    slots_leave(&slots, 2);
    expect_next(40);
}

static void resting_keeps_the_sandbox_and_frees_a_place(void **state)
{
    begin(1);
    enters(1, 10);
    waits(1, 11);
    waits(2, 20);
    slots_rest(&slots, 1);
    slots_rest(&slots, 1);
    expect_next(20);
    enters(2, 20);
    slots_leave(&slots, 1);
    expect_none();
    slots_leave(&slots, 2);
    expect_next(11);
    expect_nobody();
}

static void a_bounded_number_may_rest(void **state)
{
    begin(1);
    for (int64_t sandbox = 1; sandbox <= SLOTS_RESTING + 1; sandbox++) {
        enters(sandbox, sandbox * 10);
        slots_rest(&slots, sandbox);
    }
    waits(1000, 10000);
    slots_leave(&slots, 1);
    slots_rest(&slots, SLOTS_RESTING + 1);
    enters(1000, 10000);
}

/* A volume that is handed out and no longer wants to act must not hold up the others of its slot.
 */
static void a_waiter_that_declines_lets_the_next_one_go(void **state)
{
    begin(1);
    enters(1, 10);
    waits(1, 11);
    waits(1, 12);
    slots_leave(&slots, 1);
    expect_next(11);
    expect_next(12);
    expect_none();
    expect_nobody();
}

/* Two that wait behind each other would be handed out in turn for ever. */
static void those_that_go_first_go_before_those_that_wait(void **state)
{
    begin(4);
    assert_true(slots_enter(&slots, 1, 10, true));
    waits(1, 11);
    assert_false(slots_enter(&slots, 1, 12, true));
    slots_leave(&slots, 1);
    waits(1, 10); /* 12 goes before it */
    expect_next(12);
    assert_true(slots_enter(&slots, 1, 12, true));
    slots_leave(&slots, 1);
    enters(1, 12); /* nothing goes before it any more */
    slots_leave(&slots, 1);
    expect_next(11);
    expect_next(10);
    expect_none();
    expect_nobody();
}

static void slots_take_turns(void **state)
{
    begin(2);
    enters(1, 10);
    enters(2, 20);
    for (int64_t i = 1; i < 4; i++) {
        waits(1, 10 + i);
        waits(2, 20 + i);
    }
    slots_leave(&slots, 1);
    expect_next(11);
    enters(1, 11);
    slots_leave(&slots, 2);
    expect_next(21);
}

static void backoff_doubles_up_to_its_largest(void **state)
{
    assert_int_equal(backoff_bound(1), BACKOFF_FIRST_NS);
    assert_int_equal(backoff_bound(2), 2 * BACKOFF_FIRST_NS);
    assert_int_equal(backoff_bound(9), 256 * BACKOFF_FIRST_NS);
    assert_int_equal(backoff_bound(10), BACKOFF_LARGEST_NS);
    assert_int_equal(backoff_bound(UINT32_MAX), BACKOFF_LARGEST_NS);
    for (uint32_t failures = 1; failures < 20; failures++)
        for (uint64_t random = 0; random < 64; random++) {
            uint64_t delay = backoff_delay(failures, random * UINT64_C(0x9e3779b97f4a7c15));

            assert_true(delay <= backoff_bound(failures));
            assert_true(delay >= backoff_bound(failures) / 100);
        }
}

#define SLOTS(test) cmocka_unit_test_teardown(test, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SLOTS(one_act_per_sandbox),
        SLOTS(the_bound_holds_over_all_slots),
        SLOTS(resting_keeps_the_sandbox_and_frees_a_place),
        SLOTS(a_bounded_number_may_rest),
        SLOTS(a_waiter_that_declines_lets_the_next_one_go),
        SLOTS(those_that_go_first_go_before_those_that_wait),
        SLOTS(slots_take_turns),
        cmocka_unit_test(backoff_doubles_up_to_its_largest),
    };

    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
