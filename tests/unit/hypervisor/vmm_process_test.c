/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process_test.c - what of a process is examined, and how much; the process is this one. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"

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
    struct vmm_process *process = *state;
    struct hypervisor_disk disk = {.device = 0};
    struct rlimit limit, none;

    assert_int_equal(vmm_process_path(process, "/nonexistent", &disk), -ENOENT);
    assert_int_equal(process->shortage, 0);
    assert_int_equal(vmm_process_holds(process, &disk), VMM_HOLDS_NOT);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(vmm_process_path(process, "/dev/null", &disk), -EMFILE);
    assert_int_equal(process->shortage, -EMFILE);
    process->shortage = 0;
    assert_int_equal(vmm_process_holds(process, &disk), VMM_MAY_HOLD);
    assert_int_equal(process->shortage, -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static enum hypervisor_outcome judge(struct vmm_process *process, struct error *error)
{
    const struct hypervisor_request request = {.disk = {.device = 0}};
    enum hypervisor_outcome outcome = HYPERVISOR_DRIVE_NOT_FOUND;

    (void)vmm_process_judge(process, &request, false, &outcome, error);
    return outcome;
}

/* Descriptors that are no files count towards the bound as well. */
static void descriptors_are_counted(void **state)
{
    struct vmm_process *process = *state;
    static int open_ones[VMM_DESCRIPTORS + 1];
    enum hypervisor_outcome outcome;
    struct rlimit limit, more;
    struct error error;
    int pipe_of[2];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    more = (struct rlimit){VMM_DESCRIPTORS + 256, VMM_DESCRIPTORS + 256};
    if (limit.rlim_max > more.rlim_max)
        more.rlim_max = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &more) < 0)
        skip();
    assert_int_equal(pipe(pipe_of), 0);
    assert_int_equal(judge(process, &error), HYPERVISOR_DRIVE_NOT_FOUND);
    for (size_t i = 0; i < array_length(open_ones); i++)
        open_ones[i] = dup(pipe_of[0]);
    outcome = judge(process, &error);
    for (size_t i = 0; i < array_length(open_ones); i++)
        fd_close(open_ones[i]);
    fd_close(pipe_of[0]);
    fd_close(pipe_of[1]);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(outcome, HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(error.text, "than crustd examines"));
}

#define process_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        process_test(a_lack_of_descriptors_is_noted),
        process_test(descriptors_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
