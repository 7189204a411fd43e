/* SPDX-License-Identifier: Apache-2.0 */
/* drive_fsck.c - e2fsck -p repairs what is safe to repair; -n only checks, for a read-only disk. */
#include "guest-agent/drive_fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* Exit codes of e2fsck(8), which may be added up. */
enum { E2FSCK_REPAIRED = 1, E2FSCK_RESTART = 2, NOT_STARTED = 127 };

static const char *find_program(void)
{
    static const char *const paths[] = {"/sbin/e2fsck", "/usr/sbin/e2fsck", "/usr/bin/e2fsck"};

    for (size_t i = 0; i < array_length(paths); i++) {
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    }
    return NULL;
}

/* In the child, whose input and output are /dev/null. */
static _Noreturn void become(const char *program, const char *device, bool read_only)
{
    char name[] = "e2fsck", repair[] = "-p", check[] = "-n", *path = strdup(device);
    char *arguments[] = {name, read_only ? check : repair, path, NULL};
    char *environment[] = {NULL};
    int nothing = open("/dev/null", O_RDWR);

    if (path && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(nothing, STDOUT_FILENO) >= 0 && dup2(nothing, STDERR_FILENO) >= 0)
        (void)execve(program, arguments, environment);
    _exit(NOT_STARTED);
}

/* The exit code, or -errno. */
static int run(const char *program, const char *device, bool read_only)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0)
        become(program, device, read_only);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

enum status_code drive_fsck_run(const char *device, const char *filesystem_type, bool read_only,
                                enum drive_fsck_result *ret_result, struct error *error)
{
    const char *program = find_program();
    int code;

    if (strcmp(filesystem_type, "ext4") != 0) {
        *ret_result = DRIVE_FSCK_NOT_RUN;
        return STATUS_OK;
    }
    if (!program) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION, "the guest has no e2fsck");
        return STATUS_FAILED_PRECONDITION;
    }
    code = run(program, device, read_only);
    if (code < 0 || code == NOT_STARTED) {
        (void)error_set_errno(error, code < 0 ? code : -ENOEXEC, "cannot run %s", program);
        return STATUS_INTERNAL;
    }
    if (code & ~(E2FSCK_REPAIRED | E2FSCK_RESTART)) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "e2fsck %s found what it does not repair without asking (exit code %d)",
                        read_only ? "-n" : "-p", code);
        return STATUS_FAILED_PRECONDITION;
    }
    *ret_result = code ? DRIVE_FSCK_REPAIRED : DRIVE_FSCK_CLEAN;
    return STATUS_OK;
}
