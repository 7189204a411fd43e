/* SPDX-License-Identifier: Apache-2.0 */
/* process_test.c - arguments, start times, this boot. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "observe/observe.h"

#define ID "0123456789abcdef0123456789abcdef01234567"

static bool names(const char *arguments, size_t length, const char *token)
{
    struct buffer buffer = BUFFER_INIT(0);
    bool found;

    assert_int_equal(buffer_append(&buffer, arguments, length), 0);
    found = process_arguments_name(&buffer, token);
    buffer_done(&buffer);
    return found;
}

#define NAMES(literal) names(literal, sizeof(literal), ID)

static void finds_a_whole_token(void **state)
{
    assert_true(NAMES("qemu\0-name\0sandbox-" ID ",debug-threads=on"));
    assert_true(NAMES("qemu\0-name\0sandbox-" ID));
    assert_true(NAMES("clh\0--api-socket\0/run/vc/vm/" ID "/clh-api.sock"));
    assert_true(NAMES("clh\0--api-socket=path=/run/vc/vm/" ID));
    assert_true(NAMES("firecracker\0--id\0" ID));
    assert_true(NAMES("firecracker\0--id\0"
                      "0123456789abcdef0123456789abcdef"));
    assert_true(NAMES("x\0/a" ID "/" ID "/b")); /* the second place counts too */
}

static void finds_no_part_of_a_token(void **state)
{
    assert_false(NAMES(""));
    assert_false(NAMES("qemu\0-name\0sandbox-" ID "0"));
    assert_false(NAMES("qemu\0-name\0sandbox-0" ID));
    assert_false(NAMES("qemu\0-name\0other-" ID));
    assert_false(NAMES("qemu\0-name\0xsandbox-" ID));
    assert_false(NAMES("firecracker\0--name\0"
                       "0123456789abcdef0123456789abcdef"));
    assert_false(NAMES("firecracker\0--id\0"
                       "0123456789abcdef0123456789abcde"));
    assert_false(NAMES("0123456789abcdef0123\0"
                       "456789abcdef01234567"));
}

static void knows_a_process_and_its_start(void **state)
{
    struct process first, again;

    assert_int_equal(process_read(getpid(), &first), 0);
    assert_int_equal(process_read(getpid(), &again), 0);
    assert_true(first.alive);
    assert_int_equal(first.start_ns, again.start_ns);
    assert_true(first.start_ns > 0 && first.start_ns <= clock_boottime());
}

static void pids_without_a_process_are_missing(void **state)
{
    struct process process;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(process_read(child, &process), -ENOENT);
    assert_int_equal(process_read(0, &process), -ENOENT);
    assert_int_equal(process_read(-1, &process), -ENOENT);
}

static void knows_whether_a_process_has_ended(void **state)
{
    struct process process;
    siginfo_t info;
    pid_t child = fork();

    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(process_read(child, &process), 0);
    assert_int_equal(process_has_ended(child, process.start_ns), 0);
    assert_int_equal(process_has_ended(child, process.start_ns + 1), 1); /* another one */
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_has_ended(child, process.start_ns), 1); /* a zombie */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(process_has_ended(child, process.start_ns), 1);
}

static void knows_a_process_that_is_stopped(void **state)
{
    struct error error = {0};
    siginfo_t info;
    pid_t child = fork();

    if (child == 0) {
        (void)raise(SIGSTOP);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WSTOPPED), 0);
    assert_true(process_stands_still(child, &error));
    assert_non_null(strstr(error.text, "is stopped (SIGSTOP, a debugger): kill -CONT "));
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WCONTINUED), 0);
    assert_false(process_stands_still(child, &error));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(process_stands_still(child, &error));
}

static int wait_for_a_signal(void *argument)
{
    return pause();
}

/* Ends the first thread of a process and leaves another one, which has its descriptors. */
static void end_first_thread(void)
{
    static _Alignas(16) char stack[64 << 10];

    if (clone(wait_for_a_signal, stack + sizeof(stack),
              CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, NULL) > 0)
        (void)syscall(SYS_exit, 0);
    _exit(1);
}

/* As a VMM that was killed while one of its threads waits for a disk. */
static void a_process_without_its_first_thread_has_not_ended(void **state)
{
    struct process process;
    pid_t child = fork();

    if (child == 0)
        end_first_thread();
    (void)alarm(60);
    do
        assert_int_equal(process_read(child, &process), 0);
    while (process.alive);
    (void)alarm(0);
    assert_int_equal(process.threads, 2);
    assert_int_equal(process_has_ended(child, process.start_ns), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(process_has_ended(child, process.start_ns), 1);
}

/* 0: it was answered. SILENT_SKIPPED: no file system of this kind can be mounted here. */
enum { SILENT_SKIPPED = 77, SILENT_SECONDS = 20 };

static int stat_behind_a_silent_server(void)
{
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), directory;
    char options[64], name[32];
    struct stat st;

    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("silent", "/mnt", "fuse", 0, options) < 0)
        return SILENT_SKIPPED;
    directory = open("/mnt", O_PATH | O_CLOEXEC);
    (void)snprintf(name, sizeof(name), "fd/%d", directory);
    (void)alarm(SILENT_SECONDS);
    return directory < 0 || process_stat(getpid(), name, &st) < 0 || !S_ISDIR(st.st_mode);
}

static void asks_no_file_system(void **state)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(stat_behind_a_silent_server());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SILENT_SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void knows_what_a_process_is_linked_to(void **state)
{
    struct stat st, expected;

    assert_int_equal(stat("/proc/self/exe", &expected), 0);
    assert_int_equal(process_stat(getpid(), "exe", &st), 0);
    assert_int_equal(st.st_dev, expected.st_dev);
    assert_int_equal(st.st_ino, expected.st_ino);
    assert_int_equal(st.st_mode, expected.st_mode);
    assert_int_equal(process_stat(INT32_MAX, "exe", &st), PROCESS_GONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_a_whole_token),
        cmocka_unit_test(finds_no_part_of_a_token),
        cmocka_unit_test(knows_a_process_and_its_start),
        cmocka_unit_test(pids_without_a_process_are_missing),
        cmocka_unit_test(knows_whether_a_process_has_ended),
        cmocka_unit_test(knows_a_process_that_is_stopped),
        cmocka_unit_test(a_process_without_its_first_thread_has_not_ended),
        cmocka_unit_test(knows_what_a_process_is_linked_to),
        cmocka_unit_test(asks_no_file_system),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
