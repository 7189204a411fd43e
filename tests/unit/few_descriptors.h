/* SPDX-License-Identifier: Apache-2.0 */
/* few_descriptors.h - a process that may open only a few more files. */
#pragma once

#include "tests/unit/test.h"

#include <sys/resource.h>
#include <unistd.h>

/* Leaves just so many descriptors free; the limit before is to be set again. */
static struct rlimit leave_free(int *fillers, int number)
{
    struct rlimit limit, few;

    for (int i = 0; i < number; i++)
        fillers[i] = dup(STDERR_FILENO);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = (rlim_t)fillers[number - 1] + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < number; i++)
        assert_int_equal(close(fillers[i]), 0);
    return limit;
}
