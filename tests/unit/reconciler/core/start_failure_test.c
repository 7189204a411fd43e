/* SPDX-License-Identifier: Apache-2.0 */
/* start_failure_test.c - which failed starts are worth another, and that each says what to do. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/core/instance.h"
#include "reconciler/core/start_failure.h"
#include "store/store.h"

static void exit_codes(void **state)
{
    static const struct {
        enum start_step step;
        int result;
        int exit_code;
    } cases[] = {
        {START_CONFIG, -EINVAL, EXIT_USAGE},
        {START_CONFIG, -EACCES, EXIT_USAGE},
        {START_CONFIG, -ENOSYS, EXIT_USAGE},
        {START_DATABASE, STORE_NEWER, EXIT_REFUSED},
        {START_DATABASE, STORE_FOREIGN, EXIT_REFUSED},
        {START_DATABASE, STORE_IN_THE_WAY, EXIT_REFUSED},
        {START_DATABASE, STORE_FAULT, EXIT_REFUSED},
        {START_DATABASE, INSTANCE_LOCKED, EXIT_LOCKED},
        {START_DATABASE, STORE_NO_MEMORY, EXIT_FAILED},
        {START_DATABASE, STORE_UNREADABLE, EXIT_FAILED},
        {START_SERVING, -EINVAL, EXIT_USAGE},
        {START_SERVING, -EPERM, EXIT_USAGE},
        {START_SERVING, -EADDRINUSE, EXIT_FAILED},
        {START_OTHER, -EPERM, EXIT_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(start_failure_exit_code(cases[i].step, cases[i].result),
                         cases[i].exit_code);
}

static void each_failure_has_a_remedy(void **state)
{
    (void)state;
    for (int step = START_CONFIG; step <= START_OTHER; step++)
        for (int result = -200; result <= INSTANCE_LOCKED; result++)
            assert_true(strlen(start_failure_remedy((enum start_step)step, result)) > 10);
    assert_non_null(strstr(start_failure_remedy(START_CONFIG, -ENOSYS), "RestrictSUIDSGID"));
    assert_non_null(strstr(start_failure_remedy(START_DATABASE, STORE_NEWER), "upgrade crustd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(each_failure_has_a_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
