/* SPDX-License-Identifier: Apache-2.0 */
/* own_processes.h - a pid namespace with a /proc of its own. The first process there is the test's,
 * so that it can be examined; that of the machine may have rights that the test has not. */
#pragma once

#include "tests/unit/test.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWN_PROCESSES_REFUSED = 77 };

static inline bool first_process_can_be_examined(void)
{
    struct stat status;

    return stat("/proc/1/root", &status) == 0;
}

/* What a process ended with; 1 if by a signal. */
static inline int own_processes_wait(pid_t pid)
{
    int status;

    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : 1;
}

static inline void own_processes_begin(int (*all_tests)(void))
{
    pid_t pid;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", 0, NULL) < 0)
        _exit(OWN_PROCESSES_REFUSED);
    pid = fork();
    if (pid == 0)
        exit(all_tests());
    _exit(own_processes_wait(pid));
}

/* Returns what the tests return. Without the rights for it they run where they are. */
static inline int own_processes_run(int (*all_tests)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
            _exit(OWN_PROCESSES_REFUSED);
        pid = fork();
        if (pid == 0)
            own_processes_begin(all_tests);
        _exit(own_processes_wait(pid));
    }
    status = own_processes_wait(pid);
    return status == OWN_PROCESSES_REFUSED ? all_tests() : status;
}
