/* SPDX-License-Identifier: Apache-2.0 */
/* permit_test.c - which VMMs the configuration lets crustd tell of a new size. */
#include "tests/unit/test.h"

#include <string.h>

#include "config/config.h"
#include "reconciler/core/permit.h"

static void firecracker_alone_has_to_be_allowed(void **state)
{
    struct config config;
    const char *why;

    (void)state;
    config_defaults(&config);
    for (int i = 0; i < HYPERVISOR_KINDS; i++)
        if (i != HYPERVISOR_FIRECRACKER)
            assert_null(permit_find_forbidding(&config, (enum hypervisor_kind)i));
    why = permit_find_forbidding(&config, HYPERVISOR_FIRECRACKER);
    assert_non_null(why);
    assert_non_null(strstr(why, "resize.firecracker = on"));
    config.resize.firecracker = true;
    assert_null(permit_find_forbidding(&config, HYPERVISOR_FIRECRACKER));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(firecracker_alone_has_to_be_allowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
