/* SPDX-License-Identifier: Apache-2.0 */
/* states_test.c - what a person may wait for. */
#include "crustctl/crustctl.h"

#include "tests/unit/test.h"

static void states_are_selected(void **state)
{
    assert_true(states_is_selector("in_sync"));
    assert_true(states_is_selector("in_sync/none"));
    assert_true(states_is_selector("blocked/read_only"));
    assert_false(states_is_selector("in_sync/read_only"));
    assert_false(states_is_selector("in_syn"));
    assert_false(states_is_selector("in_sync_"));
    assert_false(states_is_selector("blocked/"));
    assert_false(states_is_selector(""));
    assert_true(states_match("blocked", "blocked", "read_only"));
    assert_true(states_match("blocked/read_only", "blocked", "read_only"));
    assert_false(states_match("blocked/read_only", "blocked", "no_device"));
    assert_false(states_match("block", "blocked", "none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_selected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
