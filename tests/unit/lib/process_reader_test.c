/* SPDX-License-Identifier: Apache-2.0 */
/* process_reader_test.c - arguments of processes that keep their memory locked, and of others. */
#include "tests/unit/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/process.h"

enum { ENOUGH = 1024 * 1024 };
/* On a busy machine the locker may have no processor, and its memory unlocked, for a while. */
static const uint64_t PATIENCE_NS = 60 * NSEC_PER_SEC;

static pid_t other; /* a process of the test's; 0: none */

static int begin(void **state)
{
    other = 0;
    return process_reader_start();
}

static int end(void **state)
{
    if (other) {
        (void)kill(other, SIGKILL);
        (void)waitpid(other, NULL, 0);
    }
    return 0;
}

static pid_t run(const char *const *arguments)
{
    union {
        const char *const *constant;
        char *const *plain;
    } given = {.constant = arguments};
    int status;

    other = fork();
    if (other == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv("/bin/sh", given.plain);
        _exit(127);
    }
    assert_int_equal(waitpid(other, &status, WUNTRACED), other);
    assert_true(WIFSTOPPED(status));
    return other;
}

/* Changes the protection of as much memory as a user may have without having any: 2 GiB that all
 * are one page of zeros. */
static _Noreturn void keep_memory_locked(int ready)
{
    const size_t bytes = (size_t)2 << 30;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE) < 0)
        _exit(1);
    for (size_t i = 0; i < bytes; i += 4096)
        (void)*(volatile char *)(memory + i);
    (void)!write(ready, "", 1);
    for (int i = 0;; i++)
        (void)mprotect(memory, bytes, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
}

static void run_locked(void)
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    other = fork();
    if (other == 0)
        keep_memory_locked(ready[1]);
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
}

/* ---- the reader ---------------------------------------------------------------------------- */

static bool is_reader(pid_t pid)
{
    struct buffer name = BUFFER_INIT(64);
    struct process process;
    bool answer = process_read(pid, &process) == 0 && process.alive && process.parent == getpid() &&
                  process_read_file(pid, "comm", &name) == 0 &&
                  strcmp(buffer_text(&name), "crustd-reader\n") == 0;

    buffer_done(&name);
    return answer;
}

/* A reader that is not this one, which may have been killed and not be dead yet; 0: none. */
static pid_t find_reader_besides(pid_t killed)
{
    struct process_list *list;
    pid_t pid;

    assert_int_equal(process_list_new(&list), 0);
    do
        assert_int_equal(process_list_next(list, &pid), 0);
    while (pid && (pid == killed || !is_reader(pid)));
    process_list_free(list);
    return pid;
}

static pid_t find_reader(void)
{
    return find_reader_besides(0);
}

/* Waits until the kernel has killed it. */
static void await_death(pid_t pid)
{
    struct process process;

    while (process_read(pid, &process) == 0 && process.alive)
        (void)usleep(1000);
}

static int read_own(void)
{
    struct buffer arguments = BUFFER_INIT(ENOUGH);
    int r = process_read_arguments(getpid(), &arguments);

    if (r == 0)
        assert_non_null(strstr(buffer_text(&arguments), "process_reader_test"));
    buffer_done(&arguments);
    return r;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void whole_arguments_and_the_first_ones(void **state)
{
    static char word[100 * 1024];
    const char *const arguments[] = {"a-name", "-c", "kill -STOP $$", word, NULL};
    struct buffer all = BUFFER_INIT(ENOUGH), some = BUFFER_INIT(20), few = BUFFER_INIT(1024);

    memset(word, 'x', sizeof(word) - 1);
    run(arguments);
    assert_int_equal(process_read_arguments(other, &all), 0);
    assert_int_equal(all.length,
                     sizeof("a-name") + sizeof("-c") + sizeof("kill -STOP $$") + sizeof(word));
    assert_string_equal(buffer_text(&all), "a-name");
    assert_string_equal(buffer_text(&all) + all.length - sizeof(word), word);
    assert_int_equal(process_read_first_arguments(other, 20, &some), 0);
    assert_int_equal(some.length, 20);
    assert_memory_equal(some.data, all.data, 20);
    assert_int_equal(process_read_arguments(other, &few), BUFFER_FULL);
    assert_int_equal(few.length, 0);
    assert_int_equal(process_still_has_arguments(other, &all), 1);
    assert_int_equal(read_own(), 0);
    buffer_done(&all);
    buffer_done(&some);
    buffer_done(&few);
}

static void a_process_that_is_not_there(void **state)
{
    struct buffer arguments = BUFFER_INIT(ENOUGH);

    assert_int_equal(process_read_arguments(0x7ffffffe, &arguments), PROCESS_GONE);
    assert_int_equal(process_read_arguments(0, &arguments), PROCESS_GONE);
    buffer_done(&arguments);
}

static void a_reader_that_was_killed_is_started_again(void **state)
{
    pid_t before = find_reader();

    assert_true(before > 0);
    assert_int_equal(kill(before, SIGTERM), 0); /* as a service manager does to all at once */
    assert_int_equal(read_own(), 0);
    assert_int_equal(find_reader(), before);
    assert_int_equal(kill(before, SIGKILL), 0);
    assert_int_equal(read_own(), 0);
    assert_true(find_reader_besides(before) > 0);
    await_death(before);
}

static void a_reader_that_does_nothing_is_replaced(void **state)
{
    pid_t before = find_reader();

    assert_true(before > 0);
    assert_int_equal(kill(before, SIGSTOP), 0);
    assert_int_equal(read_own(), PROCESS_HANGS);
    assert_int_equal(read_own(), 0);
    assert_true(find_reader_besides(before) > 0);
    await_death(before);
}

static void locked_memory_is_not_waited_for(void **state)
{
    struct buffer arguments = BUFFER_INIT(ENOUGH);
    const uint64_t until_ns = clock_monotonic() + PATIENCE_NS;
    int r = 0;

    run_locked();
    while (r == 0 && clock_monotonic() < until_ns) {
        buffer_clear(&arguments);
        r = process_read_arguments(other, &arguments);
    }
    assert_int_equal(r, PROCESS_HANGS);
    assert_int_equal(read_own(), 0);
    buffer_done(&arguments);
}

/* Whether the one that keeps its memory locked is the only one without arguments. */
static bool walk_finds_it(void)
{
    struct buffer arguments = BUFFER_INIT(ENOUGH);
    struct process_list *list;
    bool found_own = false, hung = false;
    pid_t pid;

    assert_int_equal(process_list_new(&list), 0);
    for (;;) {
        int r;

        assert_int_equal(process_list_next(list, &pid), 0);
        if (!pid)
            break;
        buffer_clear(&arguments);
        r = process_list_read_arguments(list, ENOUGH, &arguments);
        hung |= pid == other && r == PROCESS_HANGS;
        if (pid == getpid())
            found_own = r == 0 && strstr(buffer_text(&arguments), "process_reader_test");
    }
    process_list_free(list);
    buffer_done(&arguments);
    assert_true(found_own);
    return hung;
}

static void a_walk_goes_on_behind_one_that_hangs(void **state)
{
    const uint64_t until_ns = clock_monotonic() + PATIENCE_NS;
    bool found = false;

    run_locked();
    while (!found && clock_monotonic() < until_ns)
        found = walk_finds_it();
    assert_true(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_arguments_and_the_first_ones, begin, end),
        cmocka_unit_test_setup_teardown(a_process_that_is_not_there, begin, end),
        cmocka_unit_test_setup_teardown(a_reader_that_was_killed_is_started_again, begin, end),
        cmocka_unit_test_setup_teardown(a_reader_that_does_nothing_is_replaced, begin, end),
        cmocka_unit_test_setup_teardown(locked_memory_is_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_walk_goes_on_behind_one_that_hangs, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
