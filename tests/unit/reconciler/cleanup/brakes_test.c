/* SPDX-License-Identifier: Apache-2.0 */
/* brakes_test.c - so many in any minute, and no half of everything in small portions. */
#include "reconciler/cleanup/cleanup.h"

#include "lib/clock.h"
#include "tests/unit/test.h"

static const uint64_t BEGIN = 100000 * NSEC_PER_SEC;

static unsigned long allowance(const struct cleanup *cleanup, unsigned seconds)
{
    uint64_t wake_ns;
    unsigned long left = brakes_allowance(cleanup, 3, BEGIN + seconds * NSEC_PER_SEC, &wake_ns);

    assert_true(wake_ns > BEGIN + seconds * NSEC_PER_SEC);
    return left;
}

static void note(struct cleanup *cleanup, unsigned seconds, bool doubtful)
{
    brakes_note(cleanup, BEGIN + seconds * NSEC_PER_SEC, doubtful);
}

static void no_minute_has_more_than_the_rate(void **state)
{
    struct cleanup cleanup = {0};
    uint64_t wake_ns;

    (void)state;
    assert_int_equal(allowance(&cleanup, 0), 3);
    note(&cleanup, 0, false);
    note(&cleanup, 30, false);
    note(&cleanup, 30, false);
    assert_int_equal(allowance(&cleanup, 30), 0);
    assert_int_equal(brakes_allowance(&cleanup, 3, BEGIN + 31 * NSEC_PER_SEC, &wake_ns), 0);
    assert_int_equal((wake_ns - BEGIN) / NSEC_PER_SEC, 61);
    assert_int_equal(allowance(&cleanup, 60), 0);
    assert_int_equal(allowance(&cleanup, 61), 1);
    note(&cleanup, 61, false);
    assert_int_equal(allowance(&cleanup, 61), 0);
    assert_int_equal(allowance(&cleanup, 91), 2);
    assert_int_equal(allowance(&cleanup, 200), 3);
}

/* Sixty seconds apart, the last of two seconds does not take the place of the first. */
static void a_full_minute_later_the_second_still_counts(void **state)
{
    struct cleanup cleanup = {0};

    (void)state;
    note(&cleanup, 0, false);
    note(&cleanup, 1, false);
    note(&cleanup, 1, false);
    assert_int_equal(allowance(&cleanup, 61), 1);
    note(&cleanup, 61, false);
    assert_int_equal(allowance(&cleanup, 61), 0);
    assert_int_equal(allowance(&cleanup, 62), 2);
}

static void a_lower_rate_holds_at_once(void **state)
{
    struct cleanup cleanup = {0};
    uint64_t wake_ns;

    (void)state;
    for (int i = 0; i < 5; i++)
        note(&cleanup, 0, false);
    assert_int_equal(brakes_allowance(&cleanup, 3, BEGIN, &wake_ns), 0);
    assert_int_equal(brakes_allowance(&cleanup, 7, BEGIN, &wake_ns), 2);
}

static void the_breaker_remembers_for_a_while(void **state)
{
    struct cleanup cleanup = {0};

    (void)state;
    note(&cleanup, 0, false);
    assert_int_equal(brakes_recent(&cleanup, BEGIN), 0);
    note(&cleanup, 1, true);
    note(&cleanup, 400, true);
    assert_int_equal(brakes_recent(&cleanup, BEGIN + 401 * NSEC_PER_SEC), 2);
    assert_int_equal(brakes_recent(&cleanup, BEGIN + 1001 * NSEC_PER_SEC), 0);
    note(&cleanup, 1002, true);
    assert_int_equal(brakes_recent(&cleanup, BEGIN + 1002 * NSEC_PER_SEC), 1);
    brakes_confirm(&cleanup);
    assert_int_equal(brakes_recent(&cleanup, BEGIN + 1002 * NSEC_PER_SEC), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_minute_has_more_than_the_rate),
        cmocka_unit_test(a_full_minute_later_the_second_still_counts),
        cmocka_unit_test(a_lower_rate_holds_at_once),
        cmocka_unit_test(the_breaker_remembers_for_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
