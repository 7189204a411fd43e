/* SPDX-License-Identifier: Apache-2.0 */
/* unknown_sandboxes_test.c - when it is certain that a sandbox has no shim. The index is the
 * test's. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "observe/observe.h"
#include "observe/process_table.h"

static struct observe_cache cache;
static enum process_index_outcome outcome;
static uint64_t sure_since_ns;

int process_index_find(struct observe_cache *asked, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search)
{
    assert_ptr_equal(asked, &cache);
    assert_int_equal(role, PROCESS_SHIM);
    assert_non_null(sandbox_id);
    *ret_search = (struct process_search){.sure_since_ns = sure_since_ns};
    return (int)outcome;
}

static int begin(void **state)
{
    outcome = PROCESS_INDEX_NONE;
    sure_since_ns = 0;
    memset(&cache, 0, sizeof(cache));
    return 0;
}

static int find(const char *sandbox_id)
{
    return unknown_sandboxes_find(&cache, sandbox_id);
}

static void a_reading_that_began_before_the_question_is_not_enough(void **state)
{
    sure_since_ns = clock_boottime() - 1;
    unknown_sandboxes_ask(&cache, "a");
    assert_int_equal(find("a"), OBSERVED_UNFINISHED);
    sure_since_ns = clock_boottime();
    assert_int_equal(find("b"), OBSERVED_UNFINISHED);
    assert_int_equal(find("a"), OBSERVED_ABSENT);
}

/* Whoever went on with it. */
static void a_reading_that_ended_between_two_questions_is(void **state)
{
    outcome = PROCESS_INDEX_UNFINISHED;
    assert_int_equal(find("a"), OBSERVED_UNFINISHED);
    sure_since_ns = clock_boottime();
    outcome = PROCESS_INDEX_NONE;
    assert_int_equal(find("a"), OBSERVED_ABSENT);
    assert_int_equal(find("a"), OBSERVED_UNFINISHED); /* another question */
}

static void one_that_may_have_missed_the_shim_is_not(void **state)
{
    assert_int_equal(find("a"), OBSERVED_UNFINISHED);
    assert_int_equal(find("a"), OBSERVED_UNFINISHED);
}

/* Its bundle was not found, but will be. */
static void a_shim_that_is_there_is_not_absent(void **state)
{
    outcome = PROCESS_INDEX_FOUND;
    sure_since_ns = UINT64_MAX;
    assert_int_equal(find("a"), OBSERVED_UNFINISHED);
}

static void the_latest_questions_are_remembered(void **state)
{
    char sandbox_id[16];

    assert_int_equal(find("first"), OBSERVED_UNFINISHED);
    for (unsigned i = 0; i < 63; i++) {
        (void)snprintf(sandbox_id, sizeof(sandbox_id), "s%u", i);
        assert_int_equal(find(sandbox_id), OBSERVED_UNFINISHED);
    }
    sure_since_ns = clock_boottime();
    assert_int_equal(find("another"), OBSERVED_UNFINISHED); /* in place of the first */
    assert_int_equal(find("s0"), OBSERVED_ABSENT);
    assert_int_equal(find("first"), OBSERVED_UNFINISHED);
}

static void what_is_no_id_has_no_shim(void **state)
{
    unknown_sandboxes_ask(&cache, "../x");
    assert_int_equal(find("../x"), OBSERVED_ABSENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reading_that_began_before_the_question_is_not_enough,
                                        begin, NULL),
        cmocka_unit_test_setup_teardown(a_reading_that_ended_between_two_questions_is, begin, NULL),
        cmocka_unit_test_setup_teardown(one_that_may_have_missed_the_shim_is_not, begin, NULL),
        cmocka_unit_test_setup_teardown(a_shim_that_is_there_is_not_absent, begin, NULL),
        cmocka_unit_test_setup_teardown(the_latest_questions_are_remembered, begin, NULL),
        cmocka_unit_test_setup_teardown(what_is_no_id_has_no_shim, begin, NULL),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
