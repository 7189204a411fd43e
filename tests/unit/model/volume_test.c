/* SPDX-License-Identifier: Apache-2.0 */
/* volume_test.c - the names of layouts, policies and kinds of device, which the database keeps. */
#include "model/volume.h"

#include "tests/unit/test.h"

static void every_name_leads_back(void **state)
{
    static const char *const layouts[] = {"kata", "crust", "none"},
                             *const kinds[] = {"block", "file", "other"},
                             *const policies[] = {"grow", "observe", "never"};

    for (unsigned i = 0; i < 3; i++) {
        assert_string_equal(layout_name(i), layouts[i]);
        assert_int_equal(layout_from_name(layouts[i]), i);
        assert_string_equal(device_kind_name(i), kinds[i]);
        assert_int_equal(device_kind_from_name(kinds[i]), i);
        assert_int_equal(policy_from_name(policies[i]), i);
    }
    assert_int_equal(policy_from_name("Grow"), POLICY_OBSERVE);
    assert_int_equal(policy_from_name(""), POLICY_OBSERVE);
    assert_int_equal(policy_from_name("fixed"), POLICY_OBSERVE); /* no driver can say that */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
