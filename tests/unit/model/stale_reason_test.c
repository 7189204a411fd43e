/* SPDX-License-Identifier: Apache-2.0 */
/* stale_reason_test.c - every reason about stale metadata has a name and a text. */
#include "model/stale_reason.h"

#include <string.h>

#include "tests/unit/test.h"

static void every_reason_is_explained(void **state)
{
    (void)state;
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++)
        if (!stale_reason_meaning(i))
            fail_msg("%s is not explained", stale_reason_name(i));
    assert_null(stale_reason_meaning(STALE_REASON_NONE));
    assert_null(stale_reason_remedy(STALE_REASON_NONE));
}

static void every_name_leads_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < STALE_REASONS; i++)
        assert_int_equal(stale_reason_from_name(stale_reason_name(i)), i);
    assert_int_equal(stale_reason_from_name("asleep"), STALE_REASON_NONE);
    assert_int_equal(stale_reason_from_name(""), STALE_REASON_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_explained),
        cmocka_unit_test(every_name_leads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
