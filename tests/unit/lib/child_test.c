/* SPDX-License-Identifier: Apache-2.0 */
/* child_test.c - programs that end well, badly, or not at all. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

struct made {
    struct loop loop;
    unsigned count;
    enum child_end end;
    int status;
    struct buffer output;
};

static void on_done(struct child *child, enum child_end end, int status,
                    const struct buffer *output, void *userdata)
{
    struct made *made = userdata;

    made->count++;
    made->end = end;
    made->status = status;
    assert_int_equal(buffer_append(&made->output, buffer_text(output), output->length), 0);
    assert_null(child_free(child));
    loop_stop(&made->loop);
}

static int set_up(void **state)
{
    struct made *made = calloc(1, sizeof(*made));

    assert_non_null(made);
    assert_int_equal(loop_init(&made->loop), 0);
    *state = made;
    return 0;
}

static int tear_down(void **state)
{
    struct made *made = *state;

    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left, not even a zombie */
    assert_int_equal(errno, ECHILD);
    buffer_done(&made->output);
    loop_done(&made->loop);
    free(made);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static int begin(struct made *made, const char *script, uint64_t deadline_ns,
                 struct child **ret_child)
{
    const char *const arguments[] = {"/bin/sh", "-c", script, "sh", "an $argument", NULL};
    struct child_request request = {arguments, 1000, deadline_ns, -1};

    return child_new(&made->loop, &request, on_done, made, ret_child);
}

static void run_for(struct made *made, const char *script, uint64_t deadline_ns)
{
    struct child *child;

    buffer_clear(&made->output);
    made->count = 0;
    assert_int_equal(begin(made, script, deadline_ns, &child), 0);
    loop_run(&made->loop);
    assert_int_equal(made->count, 1);
}

static void run(struct made *made, const char *script)
{
    run_for(made, script, 60 * NSEC_PER_SEC);
}

static void what_it_says(void **state)
{
    struct made *made = *state;

    run(made, "echo \"$1\"; echo no >&2");
    assert_int_equal(made->end, CHILD_EXITED);
    assert_int_equal(made->status, 0);
    assert_string_equal(buffer_text(&made->output), "an $argument\n");
    run(made, "exit 3");
    assert_int_equal(made->end, CHILD_EXITED);
    assert_int_equal(made->status, 3);
    assert_int_equal(made->output.length, 0);
    run(made, "kill -9 $$");
    assert_int_equal(made->end, CHILD_KILLED);
    assert_int_equal(made->status, SIGKILL);
}

static void what_it_is_given(void **state)
{
    struct made *made = *state;

    assert_int_equal(setenv("SECRET", "x", 1), 0);
    (void)signal(SIGPIPE, SIG_IGN);
    run(made, "cat /proc/$$/environ; cat; pwd; kill -PIPE $$; echo deaf");
    assert_int_equal(made->end, CHILD_KILLED);
    assert_int_equal(made->status, SIGPIPE);
    assert_string_equal(buffer_text(&made->output), "/\n");
}

static void it_has_no_capabilities(void **state)
{
    struct made *made = *state;

    run(made, "grep -c -E '^(CapPrm|CapEff|CapAmb):\t0+$|^NoNewPrivs:\t1$' /proc/self/status");
    assert_string_equal(buffer_text(&made->output), "4\n");
}

static void its_root(void **state)
{
    static const char *const arguments[] = {"/bin/sh", "-c", "pwd", NULL};
    char directory[] = "/tmp/child_test-XXXXXX";
    cleanup(fd_closep) int ours = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int empty = -1;
    struct made *made = *state;
    struct child_request request = {arguments, 1000, 60 * NSEC_PER_SEC, ours};
    struct child *child = NULL;

    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(directory));
    empty = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), 0);
    loop_run(&made->loop);
    assert_string_equal(buffer_text(&made->output), "/\n");
    request.root = empty;
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -ENOENT);
}

static void one_that_does_not_end(void **state)
{
    run_for(*state, "trap '' TERM INT HUP; while :; do sleep 1; done", NSEC_PER_MSEC);
    assert_int_equal(((struct made *)*state)->end, CHILD_TIMEOUT);
}

static void one_that_does_not_stop_talking(void **state)
{
    run(*state, "while :; do echo 0123456789; done");
    assert_int_equal(((struct made *)*state)->end, CHILD_FLOOD);
    run(*state, "head -c 1001 /dev/zero");
    assert_int_equal(((struct made *)*state)->end, CHILD_FLOOD);
    run(*state, "head -c 1000 /dev/zero");
    assert_int_equal(((struct made *)*state)->end, CHILD_EXITED);
    assert_int_equal(((struct made *)*state)->output.length, 1000);
}

/* It holds the pipe open; its end is not waited for. */
static void one_that_leaves_another_behind(void **state)
{
    struct made *made = *state;

    run(made, "(while :; do sleep 1; done) & echo here");
    assert_int_equal(made->end, CHILD_EXITED);
    assert_string_equal(buffer_text(&made->output), "here\n");
}

static void one_that_is_given_up(void **state)
{
    struct made *made = *state;
    struct child *child;

    assert_int_equal(begin(made, "while :; do sleep 1; done", 60 * NSEC_PER_SEC, &child), 0);
    assert_null(child_free(child));
    assert_int_equal(made->count, 0);
    assert_null(child_free(NULL));
}

static void one_that_is_not_there(void **state)
{
    static const char *const missing[] = {"/nonexistent", NULL}, *const plain[] = {"/etc/passwd",
                                                                                   NULL};
    struct made *made = *state;
    struct child_request request = {missing, 1000, NSEC_PER_SEC, -1};
    struct child *child = NULL;

    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -ENOENT);
    request.arguments = plain;
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -EACCES);
    assert_null(child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_it_says),
        TEST(what_it_is_given),
        TEST(it_has_no_capabilities),
        TEST(its_root),
        TEST(one_that_does_not_end),
        TEST(one_that_does_not_stop_talking),
        TEST(one_that_leaves_another_behind),
        TEST(one_that_is_given_up),
        TEST(one_that_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
