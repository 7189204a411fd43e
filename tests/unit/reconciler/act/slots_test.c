/* SPDX-License-Identifier: Apache-2.0 */
/* slots_test.c - slots and backoff: order, bounds and fairness. */
#include "tests/unit/test.h"

#include <string.h>

#include "reconciler/act/slots.h"
#include "reconciler/decide/backoff.h"

static void one_act_per_sandbox(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 4);
    assert_true(slots_enter(&slots, 1, 10));
    assert_false(slots_enter(&slots, 1, 11));
    assert_true(slots_enter(&slots, 2, 20));
    assert_false(slots_next(&slots, &volume));
    slots_leave(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 11);
    assert_false(slots_next(&slots, &volume));
    slots_leave(&slots, 2);
    assert_null(slots.sandboxes);
    slots_done(&slots);
}

static void the_bound_holds_over_all_slots(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 2);
    assert_true(slots_enter(&slots, 1, 10));
    assert_true(slots_enter(&slots, 2, 20));
    assert_false(slots_enter(&slots, 3, 30));
    assert_false(slots_enter(&slots, 4, 40));
    assert_false(slots_next(&slots, &volume));
    slots_leave(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 30);
    assert_true(slots_enter(&slots, 3, 30));
    assert_false(slots_next(&slots, &volume));
    slots_leave(&slots, 2);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 40);
    slots_done(&slots);
}

static void resting_keeps_the_sandbox_and_frees_a_place(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 1);
    assert_true(slots_enter(&slots, 1, 10));
    assert_false(slots_enter(&slots, 1, 11));
    assert_false(slots_enter(&slots, 2, 20));
    slots_rest(&slots, 1);
    slots_rest(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 20);
    assert_true(slots_enter(&slots, 2, 20));
    slots_leave(&slots, 1);
    assert_false(slots_next(&slots, &volume));
    slots_leave(&slots, 2);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 11);
    assert_null(slots.sandboxes);
    slots_done(&slots);
}

static void so_many_may_rest(void **state)
{
    struct slots slots;

    (void)state;
    slots_init(&slots, 1);
    for (int64_t sandbox = 1; sandbox <= SLOTS_RESTING + 1; sandbox++) {
        assert_true(slots_enter(&slots, sandbox, sandbox * 10));
        slots_rest(&slots, sandbox);
    }
    assert_false(slots_enter(&slots, 1000, 10000));
    slots_leave(&slots, 1);
    slots_rest(&slots, SLOTS_RESTING + 1);
    assert_true(slots_enter(&slots, 1000, 10000));
    slots_done(&slots);
}

/* A volume that is handed out and no longer wants to act must not hold up the others of its slot.
 */
static void who_passes_lets_the_next_one_go(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 1);
    assert_true(slots_enter(&slots, 1, 10));
    assert_false(slots_enter(&slots, 1, 11));
    assert_false(slots_enter(&slots, 1, 12));
    slots_leave(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 11);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 12);
    assert_false(slots_next(&slots, &volume));
    assert_null(slots.sandboxes);
    slots_done(&slots);
}

/* Two that wait behind each other would be handed out in turn for ever. */
static void what_goes_first_goes_before_what_waits(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 4);
    assert_true(slots_enter_first(&slots, 1, 10));
    assert_false(slots_enter(&slots, 1, 11));
    assert_false(slots_enter_first(&slots, 1, 12));
    slots_leave(&slots, 1);
    assert_false(slots_enter(&slots, 1, 10)); /* 12 goes before it */
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 12);
    assert_true(slots_enter_first(&slots, 1, 12));
    slots_leave(&slots, 1);
    assert_true(slots_enter(&slots, 1, 12)); /* nothing goes before it any more */
    slots_leave(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 11);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 10);
    assert_false(slots_next(&slots, &volume));
    assert_null(slots.sandboxes);
    slots_done(&slots);
}

static void slots_take_turns(void **state)
{
    struct slots slots;
    int64_t volume;

    (void)state;
    slots_init(&slots, 2);
    assert_true(slots_enter(&slots, 1, 10));
    assert_true(slots_enter(&slots, 2, 20));
    for (int64_t i = 1; i < 4; i++) {
        assert_false(slots_enter(&slots, 1, 10 + i));
        assert_false(slots_enter(&slots, 2, 20 + i));
    }
    slots_leave(&slots, 1);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 11);
    assert_true(slots_enter(&slots, 1, volume));
    slots_leave(&slots, 2);
    assert_true(slots_next(&slots, &volume));
    assert_int_equal(volume, 21);
    slots_done(&slots);
}

static void backoff_doubles_up_to_its_largest(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_act_per_sandbox),
        cmocka_unit_test(the_bound_holds_over_all_slots),
        cmocka_unit_test(resting_keeps_the_sandbox_and_frees_a_place),
        cmocka_unit_test(so_many_may_rest),
        cmocka_unit_test(who_passes_lets_the_next_one_go),
        cmocka_unit_test(what_goes_first_goes_before_what_waits),
        cmocka_unit_test(slots_take_turns),
        cmocka_unit_test(backoff_doubles_up_to_its_largest),
    };

    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
