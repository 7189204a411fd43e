/* SPDX-License-Identifier: Apache-2.0 */
/* ownership_fixture.h - what the tests of ownership.c share. Without root the group is one that
 * this process has, and what needs mounts or another user is skipped. */
#pragma once

#include "tests/unit/tree.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "guest-agent/ownership.h"

enum { NOBODY = 65534 };

static bool has_mounts;
static gid_t group; /* one that this process may give, its own only where it has no other */

static inline struct ownership_request request_for(int directory)
{
    return (struct ownership_request){.directory = directory, .group = group};
}

static inline int apply_to(const char *path, struct ownership_request request,
                           struct ownership_result *result)
{
    cleanup(fd_closep) int fd = open(tree_path(path), O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    request.directory = fd;
    return ownership_apply(&request, result);
}

static inline struct stat stat_of(const char *path)
{
    struct stat status;

    assert_int_equal(lstat(tree_path(path), &status), 0);
    return status;
}

static inline void check_entry(const char *path, mode_t mode)
{
    struct stat status = stat_of(path);

    assert_int_equal(status.st_gid, group);
    assert_int_equal(status.st_mode & 07777, mode);
}

static inline void check_count(const struct ownership_result *result, uint64_t changed,
                               uint64_t skipped, uint64_t failed)
{
    assert_int_equal(result->count.changed, changed);
    assert_int_equal(result->count.skipped, skipped);
    assert_int_equal(result->count.failed, failed);
}

/* Beside the volume, and as it was. */
static inline void make_outside(void)
{
    tree_make("/outside/directory");
    tree_write("/outside/file", "x");
    tree_write("/outside/directory/file", "x");
}

static inline void check_outside(void)
{
    static const char *const paths[] = {"/outside", "/outside/directory", "/outside/file",
                                        "/outside/directory/file"};

    for (size_t i = 0; i < array_length(paths); i++) {
        struct stat status = stat_of(paths[i]);

        assert_int_equal(status.st_gid, getegid());
        assert_int_equal(status.st_mode & 07777,
                         S_ISDIR(status.st_mode) ? (i ? 0700 : 0755) : 0600);
    }
}

static inline int prepare(void **state)
{
    gid_t groups[64];
    int count = getgroups(64, groups);

    (void)state;
    (void)umask(0022);
    has_mounts =
        unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    group = geteuid() == 0 ? 4711 : getegid();
    for (int i = 0; geteuid() != 0 && i < count; i++)
        group = groups[i] != getegid() ? groups[i] : group;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, tree_stop)
