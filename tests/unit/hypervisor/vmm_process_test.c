/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process_test.c - what of a process is examined, and how much; the process is this one. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

enum { MOST = 64 };

static int set_up(void **state)
{
    static struct vmm_process process;

    assert_int_equal(vmm_process_init(&process, getpid(), NULL), 0);
    *state = &process;
    return 0;
}

static int tear_down(void **state)
{
    vmm_process_done(*state);
    return 0;
}

/* Nothing found, and nothing known either. */
static void a_lack_of_descriptors_is_noted(void **state)
{
    struct vmm_resolver *resolver = &((struct vmm_process *)*state)->resolver;
    struct vmm_identity identity;
    struct rlimit limit, none;

    assert_int_equal(resolver->path(resolver, "/nonexistent", &identity), -ENOENT);
    assert_int_equal(resolver->shortage, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), -EMFILE);
    assert_int_equal(resolver->shortage, -EMFILE);
    resolver->shortage = 0;
    assert_int_equal(resolver->held(resolver, &identity, 1), 0);
    assert_int_equal(resolver->shortage, -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A VMM chooses how many files it has and how long its paths are, and others wait meanwhile. */
static void one_time_bounds_all_that_is_examined(void **state)
{
    struct vmm_resolver *resolver = &((struct vmm_process *)*state)->resolver;
    const struct vmm_identity none = {.block_device = true};
    struct vmm_identity identity;
    struct error error;

    assert_true(resolver->until_ns > clock_processor());
    assert_true(resolver->until_ns < clock_processor() + 50 * NSEC_PER_MSEC);
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), 0);
    assert_int_equal(vmm_resolver_doubt(resolver, false, &error), 0);
    assert_false(vmm_may_hold(resolver, &none));
    resolver->until_ns = 1;
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), -ETIME);
    resolver->exhausted = false;
    assert_int_equal(resolver->descriptor(resolver, 0, &identity), -ETIME);
    resolver->exhausted = false;
    assert_int_equal(resolver->held(resolver, &identity, 1), 0);
    assert_true(vmm_may_hold(resolver, &none));
    assert_true(vmm_resolver_doubt(resolver, true, &error) < 0);
    assert_non_null(strstr(error.text, "than crustd examines"));
}

/* Descriptors that are no files count towards the bound as well. */
static void descriptors_are_counted(void **state)
{
    struct vmm_resolver *resolver = &((struct vmm_process *)*state)->resolver;
    static int open_ones[VMM_DESCRIPTORS + 1];
    struct vmm_identity held[MOST];
    struct rlimit limit, more;
    struct error error;
    int pipe_of[2];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    more = (struct rlimit){VMM_DESCRIPTORS + 256, VMM_DESCRIPTORS + 256};
    if (limit.rlim_max > more.rlim_max)
        more.rlim_max = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &more) < 0)
        skip();
    resolver->until_ns = 0; /* their number is the bound, however fast they are examined */
    assert_int_equal(pipe(pipe_of), 0);
    (void)resolver->held(resolver, held, MOST);
    assert_int_equal(vmm_resolver_doubt(resolver, true, &error), 0);
    for (size_t i = 0; i < array_length(open_ones); i++)
        open_ones[i] = dup(pipe_of[0]);
    (void)resolver->held(resolver, held, MOST);
    for (size_t i = 0; i < array_length(open_ones); i++)
        fd_close(open_ones[i]);
    fd_close(pipe_of[0]);
    fd_close(pipe_of[1]);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    assert_true(vmm_resolver_doubt(resolver, true, &error) < 0);
    assert_non_null(strstr(error.text, "than crustd examines"));
}

#define process_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        process_test(a_lack_of_descriptors_is_noted),
        process_test(one_time_bounds_all_that_is_examined),
        process_test(descriptors_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
