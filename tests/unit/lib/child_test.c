/* SPDX-License-Identifier: Apache-2.0 */
/* child_test.c - programs and functions that end well, badly, or not at all. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "tests/unit/scratch.h"

struct made {
    struct loop loop;
    unsigned count;
    enum child_end end;
    int status;
    struct buffer output;
};

/* While it is deaf, the kernel holds every process that is killed. */
static bool deaf;
static pid_t held[256];
static unsigned held_count;

/* In place of the C library's. */
int kill(pid_t pid, int number)
{
    if (!deaf)
        return (int)syscall(SYS_kill, pid, number);
    assert_true(held_count < array_length(held));
    if (held_count == 0 || held[held_count - 1] != -pid)
        held[held_count++] = -pid;
    return 0;
}

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
    struct child_request request = {arguments, 1000, deadline_ns, -1, NULL, NULL, -1, 0};

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

static void its_output_is_returned(void **state)
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

static void its_environment_and_input_are_empty(void **state)
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
    char directory[SCRATCH_BYTES];
    cleanup(fd_closep) int ours = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int empty = -1;
    struct made *made = *state;
    struct child_request request = {arguments, 1000, 60 * NSEC_PER_SEC, ours, NULL, NULL, -1, 0};
    struct child *child = NULL;

    if (geteuid() != 0)
        skip();
    assert_int_equal(scratch_directory_make(directory), 0);
    empty = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), 0);
    loop_run(&made->loop);
    assert_string_equal(buffer_text(&made->output), "/\n");
    request.root = empty;
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -ENOENT);
}

static void a_child_that_does_not_end_is_killed(void **state)
{
    run_for(*state, "trap '' TERM INT HUP; while :; do sleep 1; done", NSEC_PER_MSEC);
    assert_int_equal(((struct made *)*state)->end, CHILD_TIMEOUT);
}

static void a_child_that_does_not_stop_writing_is_killed(void **state)
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
static void a_child_that_leaves_another_behind(void **state)
{
    struct made *made = *state;

    run(made, "(while :; do sleep 1; done) & echo here");
    assert_int_equal(made->end, CHILD_EXITED);
    assert_string_equal(buffer_text(&made->output), "here\n");
}

static void a_child_that_is_given_up(void **state)
{
    struct made *made = *state;
    struct child *child;

    assert_int_equal(begin(made, "while :; do sleep 1; done", 60 * NSEC_PER_SEC, &child), 0);
    assert_null(child_free(child));
    assert_int_equal(made->count, 0);
    assert_null(child_free(NULL));
}

static void a_program_that_does_not_exist(void **state)
{
    static const char *const missing[] = {"/nonexistent", NULL}, *const plain[] = {"/etc/passwd",
                                                                                   NULL};
    struct made *made = *state;
    struct child_request request = {missing, 1000, NSEC_PER_SEC, -1, NULL, NULL, -1, 0};
    struct child *child = NULL;

    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -ENOENT);
    request.arguments = plain;
    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), -EACCES);
    assert_null(child);
}

/* ---- functions ---- */

static int write_one(const void *text)
{
    return write(STDIN_FILENO, text, strlen(text)) < 0 ? errno : 0;
}

static int begin_function(struct made *made, int input, uint64_t deadline_ns,
                          struct child **ret_child)
{
    const struct child_request request = {
        .deadline_ns = deadline_ns, .function = write_one, .argument = "1", .input = input};

    return child_new(&made->loop, &request, on_done, made, ret_child);
}

static void call_for(struct made *made, int input, uint64_t deadline_ns)
{
    struct child *child;

    made->count = 0;
    assert_int_equal(begin_function(made, input, deadline_ns, &child), 0);
    loop_run(&made->loop);
    assert_int_equal(made->count, 1);
}

static void a_function_writes_to_its_input(void **state)
{
    struct made *made = *state;
    char text[8] = "";
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    call_for(made, ends[1], 60 * NSEC_PER_SEC);
    assert_int_equal(made->end, CHILD_EXITED);
    assert_int_equal(made->status, 0);
    fd_close(ends[1]);
    assert_int_equal(read(ends[0], text, sizeof(text)), 1);
    assert_string_equal(text, "1");
    assert_int_equal(read(ends[0], text, sizeof(text)), 0); /* the child holds nothing */
    fd_close(ends[0]);
}

static void failed_write_returns_its_errno(void **state)
{
    cleanup(fd_closep) int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    cleanup(fd_closep) int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct made *made = *state;

    call_for(made, full, 60 * NSEC_PER_SEC);
    assert_int_equal(made->status, ENOSPC);
    call_for(made, closed, 0); /* no deadline */
    assert_int_equal(made->status, EBADF);
}

/* What it says on its output, and which descriptors it has. */
static int list_descriptors(const void *argument)
{
    char name[8];

    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0 &&
            write(STDOUT_FILENO, name, (size_t)snprintf(name, sizeof(name), "%d ", fd)) < 0)
            return 1;
    return 0;
}

static void a_function_has_its_output_and_nothing_else(void **state)
{
    const struct child_request request = {
        .output_limit = 1000, .function = list_descriptors, .input = -1};
    struct made *made = *state;
    struct child *child;

    assert_int_equal(child_new(&made->loop, &request, on_done, made, &child), 0);
    loop_run(&made->loop);
    assert_int_equal(made->status, 0);
    assert_string_equal(buffer_text(&made->output), "1 ");
}

/* A pipe that nobody reads and that takes no more. */
static void fill(int ends[2])
{
    static char block[4096];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof(block)) > 0)
        ;
    while (write(ends[1], block, 1) > 0)
        ;
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
}

static void a_function_that_hangs_is_ended(void **state)
{
    struct made *made = *state;
    int ends[2];

    fill(ends);
    for (unsigned i = 0; i < 3; i++) {
        call_for(made, ends[1], NSEC_PER_MSEC);
        assert_int_equal(made->end, CHILD_TIMEOUT);
    }
    fd_close(ends[0]);
    fd_close(ends[1]);
}

static void a_function_that_is_given_up_is_ended(void **state)
{
    struct made *made = *state;
    struct child *child;
    char block[1];
    int ends[2];

    fill(ends);
    assert_int_equal(begin_function(made, ends[1], 60 * NSEC_PER_SEC, &child), 0);
    child_free(child);
    fd_close(ends[1]);
    assert_int_equal(fcntl(ends[0], F_SETFL, 0), 0);
    while (read(ends[0], block, sizeof(block)) > 0) /* ends once the child has */
        ;
    assert_int_equal(made->count, 0);
    fd_close(ends[0]);
}

/* ---- processes that cannot be killed ---- */

static int wait_for_ever(const void *argument)
{
    while (pause() < 0)
        ;
    return 0;
}

static int begin_one(struct made *made, uint64_t subject)
{
    const struct child_request request = {
        .deadline_ns = 1, .function = wait_for_ever, .input = -1, .subject = subject};
    struct child *child;

    return child_new(&made->loop, &request, on_done, made, &child);
}

static int begin_hanging(struct made *made, uint64_t subject)
{
    int r = begin_one(made, subject);

    if (r == 0) {
        loop_run(&made->loop);
        assert_int_equal(made->end, CHILD_TIMEOUT);
    }
    return r;
}

/* The kernel lets go of them. */
static void end_held(void)
{
    deaf = false;
    for (; held_count; held_count--) {
        (void)kill(held[held_count - 1], SIGKILL);
        (void)waitpid(held[held_count - 1], NULL, 0);
    }
}

static void one_subject_has_one_process_that_hangs(void **state)
{
    struct made *made = *state;
    siginfo_t left;

    deaf = true;
    assert_int_equal(begin_hanging(made, 1), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(begin_hanging(made, 1), CHILD_STILL_HANGS);
    assert_int_equal(begin_hanging(made, 2), 0);
    assert_int_equal(begin_hanging(made, 0), 0);
    assert_int_equal(begin_hanging(made, 2), CHILD_STILL_HANGS);
    end_held();
    assert_int_equal(begin_hanging(made, 1), 0);
    assert_int_equal(begin_hanging(made, 1), 0); /* that one could be killed */
    /* On a busy machine it may take long to die: the next one that begins has it reaped. */
    for (unsigned tries = 0;
         tries < 500 && waitid(P_ALL, 0, &left, WEXITED | WNOHANG | WNOWAIT) == 0; tries++) {
        (void)usleep(10000);
        run_for(made, ":", 60 * NSEC_PER_SEC);
    }
}

/* They leave places to those with a subject. */
static void few_without_a_subject_may_hang(void **state)
{
    struct made *made = *state;

    deaf = true;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(begin_hanging(made, 0), 0);
    assert_int_equal(begin_hanging(made, 0), CHILD_TOO_MANY_HANG);
    assert_int_equal(begin_hanging(made, 1), 0);
    end_held();
}

/* Of disks, without keeping those of no disk from beginning. */
static void all_that_hang_are_bounded(void **state)
{
    struct made *made = *state;
    unsigned hanging = 0;

    deaf = true;
    while (hanging < 100 && begin_hanging(made, hanging + 1) == 0)
        hanging++;
    assert_int_equal(hanging, 28);
    assert_int_equal(begin_hanging(made, hanging + 1), CHILD_TOO_MANY_HANG);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(begin_hanging(made, 0), 0);
    assert_int_equal(begin_hanging(made, 0), CHILD_TOO_MANY_HANG);
    end_held();
    assert_non_null(strstr(child_explain(CHILD_TOO_MANY_HANG), "too many"));
    assert_non_null(strstr(child_explain(CHILD_STILL_HANGS), "an earlier process"));
    assert_string_equal(child_explain(-ENOENT), strerror(ENOENT));
    assert_true(child_subject("/dev/a") != child_subject("/dev/b"));
}

/* None of them is known to hang before all have begun. Each stays known. */
static void none_of_those_that_begin_at_once_is_lost(void **state)
{
    struct made *made = *state;

    deaf = true;
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(begin_one(made, i + 1), 0);
    while (made->count < 40)
        loop_run(&made->loop);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(begin_one(made, i + 1), CHILD_STILL_HANGS);
    assert_int_equal(begin_one(made, 41), CHILD_TOO_MANY_HANG);
    end_held();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(its_output_is_returned),
        TEST(its_environment_and_input_are_empty),
        TEST(it_has_no_capabilities),
        TEST(its_root),
        TEST(a_child_that_does_not_end_is_killed),
        TEST(a_child_that_does_not_stop_writing_is_killed),
        TEST(a_child_that_leaves_another_behind),
        TEST(a_child_that_is_given_up),
        TEST(a_program_that_does_not_exist),
        TEST(a_function_writes_to_its_input),
        TEST(failed_write_returns_its_errno),
        TEST(a_function_has_its_output_and_nothing_else),
        TEST(a_function_that_hangs_is_ended),
        TEST(a_function_that_is_given_up_is_ended),
        TEST(one_subject_has_one_process_that_hangs),
        TEST(few_without_a_subject_may_hang),
        TEST(all_that_hang_are_bounded),
        TEST(none_of_those_that_begin_at_once_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
