/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_answer_test.c - what a runtime's tool may say of a volume on a device of 1000 bytes.
 */
#include "tests/unit/test.h"

#include <errno.h>

#include "lib/cleanup.h"
#include "reconciler/command/runtime_cli.h"

enum { DEVICE = 1000 };

static int check_stats(const struct agent_stats *stats, uint64_t device_bytes)
{
    struct error error = {0};
    int r = runtime_cli_check_stats(stats, device_bytes, &error);

    assert_int_equal(r < 0, error.text[0] != '\0');
    return r;
}

static void stats_that_fit(void **state)
{
    struct agent_stats stats = {.has_bytes = true, .total = DEVICE, .used = 900, .available = 50};

    (void)state;
    assert_int_equal(check_stats(&stats, DEVICE), 0);
    stats.has_inodes = true; /* all zero: a file system that counts none */
    assert_int_equal(check_stats(&stats, DEVICE), 0);
    stats.has_bytes = false;
    assert_int_equal(check_stats(&stats, 0), 0); /* nothing to be held against a device */
}

static void stats_that_do_not(void **state)
{
    static const struct agent_stats stats[] = {
        {.has_bytes = true, .total = DEVICE + 1},
        {.has_bytes = true, .total = 0},
        {.has_bytes = true, .total = UINT64_MAX},
        {.has_bytes = true, .total = DEVICE, .used = DEVICE + 1},
        {.has_bytes = true, .total = DEVICE, .available = DEVICE + 1},
        {.has_inodes = true, .total_inodes = 5, .used_inodes = 6},
        {.has_inodes = true, .total_inodes = 5, .available_inodes = 6},
    };
    struct agent_stats good = {.has_bytes = true, .total = 1};

    (void)state;
    for (size_t i = 0; i < array_length(stats); i++)
        assert_int_equal(check_stats(&stats[i], DEVICE), -ERANGE);
    assert_int_equal(check_stats(&good, 0), -ERANGE);
}

static void capacities(void **state)
{
    static const struct {
        uint64_t bytes, required, limit, device;
        int outcome;
    } cases[] = {
        {DEVICE, 0, 0, DEVICE, 0},      {DEVICE, DEVICE, DEVICE, DEVICE, 0},
        {990, 980, 0, DEVICE, 0},       {DEVICE + 1, 0, 0, DEVICE, -ERANGE},
        {990, 991, 0, DEVICE, -ERANGE}, {990, 0, 989, DEVICE, -ERANGE},
        {0, 0, 0, DEVICE, -ERANGE},     {990, 0, 0, 0, -ERANGE},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct error error = {0};

        assert_int_equal(runtime_cli_check_capacity(cases[i].bytes, cases[i].required,
                                                    cases[i].limit, cases[i].device, &error),
                         cases[i].outcome);
        assert_int_equal(cases[i].outcome < 0, error.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_that_fit),
        cmocka_unit_test(stats_that_do_not),
        cmocka_unit_test(capacities),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
