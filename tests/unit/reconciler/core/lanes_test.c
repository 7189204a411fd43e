/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_test.c - lanes and backoff: order, bounds and fairness. */
#include "tests/unit/test.h"

#include <string.h>

#include "reconciler/core/lanes.h"
#include "reconciler/decide/backoff.h"

static void one_act_per_lane(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 4);
    assert_true(lanes_enter(&lanes, 1, 10));
    assert_false(lanes_enter(&lanes, 1, 11));
    assert_true(lanes_enter(&lanes, 2, 20));
    assert_false(lanes_next(&lanes, &volume));
    lanes_leave(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 11);
    assert_false(lanes_next(&lanes, &volume));
    lanes_leave(&lanes, 2);
    assert_null(lanes.lanes);
    lanes_done(&lanes);
}

static void the_bound_holds_over_all_lanes(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 2);
    assert_true(lanes_enter(&lanes, 1, 10));
    assert_true(lanes_enter(&lanes, 2, 20));
    assert_false(lanes_enter(&lanes, 3, 30));
    assert_false(lanes_enter(&lanes, 4, 40));
    assert_false(lanes_next(&lanes, &volume));
    lanes_leave(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 30);
    assert_true(lanes_enter(&lanes, 3, 30));
    assert_false(lanes_next(&lanes, &volume));
    lanes_leave(&lanes, 2);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 40);
    lanes_done(&lanes);
}

static void who_rests_keeps_its_lane_and_gives_its_slot(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 1);
    assert_true(lanes_enter(&lanes, 1, 10));
    assert_false(lanes_enter(&lanes, 1, 11));
    assert_false(lanes_enter(&lanes, 2, 20));
    lanes_rest(&lanes, 1);
    lanes_rest(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 20);
    assert_true(lanes_enter(&lanes, 2, 20));
    lanes_leave(&lanes, 1);
    assert_false(lanes_next(&lanes, &volume));
    lanes_leave(&lanes, 2);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 11);
    assert_null(lanes.lanes);
    lanes_done(&lanes);
}

static void so_many_may_rest(void **state)
{
    struct lanes lanes;

    (void)state;
    lanes_init(&lanes, 1);
    for (int64_t sandbox = 1; sandbox <= LANES_RESTING + 1; sandbox++) {
        assert_true(lanes_enter(&lanes, sandbox, sandbox * 10));
        lanes_rest(&lanes, sandbox);
    }
    assert_false(lanes_enter(&lanes, 1000, 10000));
    lanes_leave(&lanes, 1);
    lanes_rest(&lanes, LANES_RESTING + 1);
    assert_true(lanes_enter(&lanes, 1000, 10000));
    lanes_done(&lanes);
}

/* A volume that is handed out and no longer wants to act must not hold up the others of its lane.
 */
static void who_passes_lets_the_next_one_go(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 1);
    assert_true(lanes_enter(&lanes, 1, 10));
    assert_false(lanes_enter(&lanes, 1, 11));
    assert_false(lanes_enter(&lanes, 1, 12));
    lanes_leave(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 11);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 12);
    assert_false(lanes_next(&lanes, &volume));
    assert_null(lanes.lanes);
    lanes_done(&lanes);
}

/* Two that wait behind each other would be handed out in turn for ever. */
static void what_goes_first_goes_before_what_waits(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 4);
    assert_true(lanes_enter_first(&lanes, 1, 10));
    assert_false(lanes_enter(&lanes, 1, 11));
    assert_false(lanes_enter_first(&lanes, 1, 12));
    lanes_leave(&lanes, 1);
    assert_false(lanes_enter(&lanes, 1, 10)); /* 12 goes before it */
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 12);
    assert_true(lanes_enter_first(&lanes, 1, 12));
    lanes_leave(&lanes, 1);
    assert_true(lanes_enter(&lanes, 1, 12)); /* nothing goes before it any more */
    lanes_leave(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 11);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 10);
    assert_false(lanes_next(&lanes, &volume));
    assert_null(lanes.lanes);
    lanes_done(&lanes);
}

static void lanes_take_turns(void **state)
{
    struct lanes lanes;
    int64_t volume;

    (void)state;
    lanes_init(&lanes, 2);
    assert_true(lanes_enter(&lanes, 1, 10));
    assert_true(lanes_enter(&lanes, 2, 20));
    for (int64_t i = 1; i < 4; i++) {
        assert_false(lanes_enter(&lanes, 1, 10 + i));
        assert_false(lanes_enter(&lanes, 2, 20 + i));
    }
    lanes_leave(&lanes, 1);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 11);
    assert_true(lanes_enter(&lanes, 1, volume));
    lanes_leave(&lanes, 2);
    assert_true(lanes_next(&lanes, &volume));
    assert_int_equal(volume, 21);
    lanes_done(&lanes);
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
        cmocka_unit_test(one_act_per_lane),
        cmocka_unit_test(the_bound_holds_over_all_lanes),
        cmocka_unit_test(who_rests_keeps_its_lane_and_gives_its_slot),
        cmocka_unit_test(so_many_may_rest),
        cmocka_unit_test(who_passes_lets_the_next_one_go),
        cmocka_unit_test(what_goes_first_goes_before_what_waits),
        cmocka_unit_test(lanes_take_turns),
        cmocka_unit_test(backoff_doubles_up_to_its_largest),
    };

    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
