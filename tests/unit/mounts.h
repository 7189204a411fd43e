/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.h - a part of a test that runs in a child with mounts of its own.
 *
 *     if (child_begins()) {
 *         child_mounts(scratch, "/from", "/to");
 *         child_expects(...);
 *         child_ends();
 *     }
 *     child_went_well();
 *
 * Where mounts are not permitted, the test is skipped.
 */
#pragma once

#include "tests/unit/test.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_WENT_WELL = 0, CHILD_FAILED = 1, CHILD_MAY_NOT_MOUNT = 77 };

static pid_t child_pid;

static inline bool child_begins(void)
{
    child_pid = fork();
    return child_pid == 0;
}

static inline void child_ends(void)
{
    _exit(CHILD_WENT_WELL);
}

static inline void child_mounts(const char *scratch_path, const char *from, const char *to)
{
    char source[512], target[512];

    (void)snprintf(source, sizeof(source), "%s%s", scratch_path, from);
    (void)snprintf(target, sizeof(target), "%s%s", scratch_path, to);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(source, target, NULL, MS_BIND, NULL) < 0)
        _exit(CHILD_MAY_NOT_MOUNT);
}

/* cmocka's own assertions would end the parent's tests in the child. */
#define child_expects(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition);    \
            _exit(CHILD_FAILED);                                                                   \
        }                                                                                          \
    } while (0)

static inline void child_went_well(void)
{
    int status;

    assert_int_equal(waitpid(child_pid, &status, 0), child_pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_MAY_NOT_MOUNT)
        skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_WENT_WELL);
}
