/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_version_test.c - versions as Cloud Hypervisor writes them, and as people know them. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/cleanup.h"
#include "model/sandbox.h"

static void text_names_the_release(void **state)
{
    static const char *const cases[][2] = {
        {"51.1.0", "this is 51.1, the one that Kata 4.1.0 ships)"},
        {"v51.1", "this is 51.1, the one that Kata 4.1.0 ships)"},
        {"51.2.0", "this is 51.2)"},
        {"51.1.1", "this is 51.1.1)"},
        {"51.0", "this is 51.0)"},
        {"51", "this is 51)"},
        {"51.10.0", "this is 51.10)"},
        {"v51.1-dirty", "this is 51.1-dirty)"},
        {"v51.1-12-gabcdef", "this is 51.1-12-gabcdef)"},
        {"51.1.0.0", "this is 51.1.0.0)"},
        {".0", "this is .0)"},
        {"..0", "this is .)"},
        {"", "this is of no known version)"},
        {"v", "this is of no known version)"},
        {"51.1.0123456789012345678901234567890123456789",
         "this is 51.1.01234567890123456789012345678901234)"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        char text[VMM_VERSION_TEXT_BYTES];

        cloud_hypervisor_say_need(cases[i][0], text);
        assert_non_null(strstr(text, "needs Cloud Hypervisor 52 or later ("));
        assert_string_equal(strchr(text, '(') + 1, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_names_the_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
