/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor_test.c - what a call says without a VMM's answer. */
#include "tests/unit/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/workers.h"

static struct loop loop;

struct seen {
    unsigned count;
    struct hypervisor_reply reply;
};

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct seen *seen = userdata;

    seen->count++;
    seen->reply = *reply;
    (void)hypervisor_call_free(call);
    loop_stop(&loop);
}

static struct hypervisor_request request_for(enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .control_socket = "/nonexistent/api.sock",
        .vmm_pid = getpid(),
        .drive_id = "data-1",
        .forbidden = "resize.firecracker is off",
        .descriptor = -1,
        .path = "/dev/null",
        .serial = "crust-abc",
        .allowed_ns = NSEC_PER_SEC,
    };
}

static void expect(enum hypervisor_kind kind, const struct hypervisor_request *request,
                   enum hypervisor_outcome outcome, const char *text)
{
    struct seen seen = {.count = 0};
    struct hypervisor_call *call;
    struct error error;

    assert_int_equal(hypervisor_call_new(&loop, kind, request, on_done, &seen, &call, &error), 0);
    assert_int_equal(seen.count, 0);
    loop_run(&loop);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.reply.outcome, outcome);
    assert_int_equal(seen.reply.error.code, (int)outcome);
    assert_int_equal(seen.reply.state, HYPERVISOR_DRIVE_UNKNOWN);
    assert_non_null(strstr(seen.reply.error.text, text));
}

/* Each says why. */
static void every_kind_has_a_client_or_an_obstacle(void **state)
{
    for (int i = 0; i < HYPERVISOR_KINDS; i++) {
        const enum hypervisor_kind kind = (enum hypervisor_kind)i;
        struct hypervisor_request query = request_for(HYPERVISOR_QUERY);
        const char *obstacle = hypervisor_traits(kind)->resize_obstacle;

        query.drive_id = NULL;
        if (obstacle)
            expect(kind, &query, HYPERVISOR_UNSUPPORTED, obstacle);
        query.control_socket = NULL;
        expect(kind, &query, obstacle ? HYPERVISOR_UNSUPPORTED : HYPERVISOR_MONITOR_MISSING,
               obstacle ? obstacle : "no control socket");
    }
}

static void vmms_without_a_client_are_refused_with_a_reason(void **state)
{
    const struct hypervisor_request look = request_for(HYPERVISOR_QUERY);

    for (int i = HYPERVISOR_UNKNOWN; i < HYPERVISOR_KINDS; i++) {
        const enum hypervisor_kind kind = (enum hypervisor_kind)i;
        const char *obstacle = hypervisor_traits(kind)->obstacle;

        if (obstacle)
            expect(kind, &look, HYPERVISOR_UNSUPPORTED, obstacle);
    }
}

/* What is there may go. */
static void forbidden_vmm_is_asked_to_detach_only(void **state)
{
    const struct hypervisor_request attach = request_for(HYPERVISOR_ATTACH),
                                    resize = request_for(HYPERVISOR_RESIZE),
                                    detach = request_for(HYPERVISOR_DETACH);

    expect(HYPERVISOR_FIRECRACKER, &attach, HYPERVISOR_UNSUPPORTED, "resize.firecracker");
    expect(HYPERVISOR_FIRECRACKER, &resize, HYPERVISOR_UNSUPPORTED, "resize.firecracker");
    expect(HYPERVISOR_FIRECRACKER, &detach, HYPERVISOR_MONITOR_MISSING, "cannot connect");
}

static void acts_that_a_vmm_does_not_have_are_refused(void **state)
{
    const struct hypervisor_request limit = request_for(HYPERVISOR_LIMIT);
    struct hypervisor_request resize = request_for(HYPERVISOR_RESIZE);

    resize.disk.regular_file = true;
    expect(HYPERVISOR_CLOUD_HYPERVISOR, &limit, HYPERVISOR_UNSUPPORTED, "cannot change them");
    expect(HYPERVISOR_CLOUD_HYPERVISOR, &resize, HYPERVISOR_UNSUPPORTED, "regular file");
}

static void vmm_that_is_stopped_is_named(void **state)
{
    struct hypervisor_request detach = request_for(HYPERVISOR_DETACH);
    cleanup(fd_closep) int root = -1;
    char text[120];
    siginfo_t info;
    pid_t vmm = fork();

    if (vmm == 0) {
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)vmm, &info, WSTOPPED), 0);
    assert_int_equal(path_open_root("/", &root), 0);
    detach.root = root;
    detach.vmm_pid = vmm;
    detach.control_socket = "/dev/null"; /* which nobody listens on */
    expect(HYPERVISOR_CLOUD_HYPERVISOR, &detach, HYPERVISOR_UNREACHABLE,
           "is stopped (SIGSTOP, a debugger): kill -CONT ");
    (void)snprintf(text, sizeof(text), "the VMM does not answer: process %d ", (int)vmm);
    expect(HYPERVISOR_CLOUD_HYPERVISOR, &detach, HYPERVISOR_UNREACHABLE, text);
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
}

static int set_up(void **state)
{
    if (workers_fork_nursery() < 0 || loop_init(&loop) < 0)
        return -1;
    workers_start(&loop, NULL, NULL);
    return 0;
}

static int tear_down(void **state)
{
    workers_stop();
    loop_done(&loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_client_or_an_obstacle),
        cmocka_unit_test(vmms_without_a_client_are_refused_with_a_reason),
        cmocka_unit_test(forbidden_vmm_is_asked_to_detach_only),
        cmocka_unit_test(vmm_that_is_stopped_is_named),
        cmocka_unit_test(acts_that_a_vmm_does_not_have_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
