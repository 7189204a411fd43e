/* SPDX-License-Identifier: Apache-2.0 */
/* path_guard_test.c - a FUSE file system that nobody serves, in a mount namespace of this test's:
 * whoever looks up a name there waits for ever, so the test would be ended by its alarm. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

enum { SECONDS = 60, LINKS = 38 };

static char directory[SCRATCH_BYTES];
static int root = -1, fuse = -1;

static bool mount_hung(const char *path)
{
    char options[96];

    if (fuse < 0)
        fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0)
        return false;
    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    return mount("hung", path, "fuse", 0, options) == 0;
}

static void make(const char *name)
{
    assert_int_equal(mkdirat(root, name, 0755), 0);
}

static int set_up(void **state)
{
    char path[128];

    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 0;
    assert_int_equal(scratch_directory_make(directory), 0);
    assert_int_equal(path_open_root(directory, &root), 0);
    make("dir");
    make("dir/hung");
    make("dir/fine");
    make("dir/plain");
    assert_int_equal(symlinkat("hung", root, "dir/link"), 0);
    assert_int_equal(symlinkat("/dir/hung/inner", root, "far"), 0);
    assert_int_equal(symlinkat("dir/plain/../fine", root, "around"), 0);
    assert_int_equal(symlinkat("loop", root, "loop"), 0);
    (void)snprintf(path, sizeof(path), "%s/dir/fine", directory);
    assert_int_equal(mount("fine", path, "tmpfs", 0, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/dir/hung", directory);
    (void)alarm(SECONDS);
    if (!mount_hung(path))
        root = -1;
    return 0;
}

static int tear_down(void **state)
{
    char path[128];

    path_guard_stop();
    (void)snprintf(path, sizeof(path), "%s/dir/hung", directory);
    (void)umount2(path, MNT_DETACH);
    fd_close(take_fd(&fuse));
    (void)snprintf(path, sizeof(path), "%s/dir/fine", directory);
    (void)umount2(path, MNT_DETACH);
    return directory[0] ? scratch_directory_remove(directory) : 0;
}

static void start(const char *trusted)
{
    if (root < 0)
        skip(); /* mounting is not allowed here */
    path_guard_stop();
    assert_int_equal(path_guard_start(root, &trusted, trusted ? 1 : 0), 0);
}

static void nothing_is_looked_up_in_a_guarded_mount(void **state)
{
    static const char *const paths[] = {
        "/dir/hung",
        "/dir/hung/inner",
        "dir/hung/",
        "/dir/link/x",
        "/far",
        "/dir/plain/../hung",
        "/far/../x",
        "/dir/./link",
        "/../../dir/hung/x/",
        "/around/../hung/one",
    };
    struct error error;
    struct stat st;
    int fd = -1;

    start(NULL);
    for (size_t i = 0; i < array_length(paths); i++) {
        assert_int_equal(path_guard_check(root, paths[i]), PATH_MAY_HANG);
        assert_int_equal(path_stat_in_root(root, paths[i], &st), PATH_MAY_HANG);
        assert_int_equal(path_open_in_root(root, paths[i], &fd), PATH_MAY_HANG);
        assert_int_equal(path_open_directory_in_root(root, paths[i], &fd), PATH_MAY_HANG);
        assert_int_equal(path_require_roots(root, paths[i], &error), PATH_MAY_HANG);
    }
    assert_false(path_is_missing(PATH_MAY_HANG));
    assert_false(path_leads_nowhere(PATH_MAY_HANG));
    assert_false(path_is_no_directory(PATH_MAY_HANG));
}

static void other_paths_are_unaffected(void **state)
{
    struct stat st;

    start(NULL);
    assert_int_equal(path_stat_in_root(root, "/dir/fine", &st), 0);
    assert_int_equal(path_stat_in_root(root, "/around", &st), 0);
    assert_int_equal(path_stat_in_root(root, "/../dir/plain/../../dir", &st), 0);
    assert_int_equal(path_stat_in_root(root, "/", &st), 0);
    assert_int_equal(path_stat_in_root(root, "/dir/none/../hung", &st), PATH_MISSING);
    assert_int_equal(path_stat_in_root(root, "/loop", &st), PATH_BEHIND_A_LINK);
}

static void trusted_mounts_are_entered(void **state)
{
    start("/dir/hung/inner");
    /* Only asked, not opened: that would wait for ever. */
    assert_int_equal(path_guard_check(root, "/dir/hung/inner/deep"), 0);
    assert_int_equal(path_guard_check(root, "/dir/hung"), 0);
    start("/dir/hungry");
    assert_int_equal(path_guard_check(root, "/dir/hung"), PATH_MAY_HANG);
    start("/dir/link"); /* a link is not a name */
    assert_int_equal(path_guard_check(root, "/dir/link"), PATH_MAY_HANG);
}

static void mounts_are_noticed(void **state)
{
    char path[128];

    start(NULL);
    (void)snprintf(path, sizeof(path), "%s/dir/plain", directory);
    assert_int_equal(path_guard_check(root, "/dir/plain/x"), 0);
    fd_close(take_fd(&fuse));
    (void)umount2(path, MNT_DETACH);
    assert_true(mount_hung(path));
    assert_int_equal(path_guard_check(root, "/dir/plain/x"), PATH_MAY_HANG);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    assert_int_equal(path_guard_check(root, "/dir/plain/x"), 0);
}

/* On a node that has had none, unless others have made one on this machine. */
static void the_first_mount_is_noticed(void **state)
{
    char path[128];

    start(NULL);
    (void)snprintf(path, sizeof(path), "%s/dir/hung", directory);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    fd_close(take_fd(&fuse));
    start(NULL);
    assert_int_equal(path_guard_check(root, "/dir/hung/inner"), 0);
    assert_true(mount_hung(path));
    assert_int_equal(path_guard_check(root, "/dir/hung/inner"), PATH_MAY_HANG);
}

/* No event tells of it: the names that the table gave are those of before. */
static void mounts_are_recognised_behind_a_renamed_directory(void **state)
{
    char path[128];

    make("before");
    make("before/mount");
    make("before/tmpfs");
    (void)snprintf(path, sizeof(path), "%s/before/tmpfs", directory);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/before/mount", directory);
    fd_close(take_fd(&fuse));
    assert_true(mount_hung(path));
    start(NULL);
    assert_int_equal(renameat(root, "before", root, "after"), 0);
    assert_int_equal(path_guard_check(root, "/after/mount/x"), PATH_MAY_HANG);
    assert_int_equal(path_guard_check(root, "/after/tmpfs"), 0);
    (void)snprintf(path, sizeof(path), "%s/after/mount", directory);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    (void)snprintf(path, sizeof(path), "%s/after/tmpfs", directory);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

/* A process that has one mount more in a mount namespace of its own. */
static pid_t start_process(const char *path, const char *its_root)
{
    int pipe_of[2];
    pid_t child;
    char byte;

    assert_int_equal(pipe(pipe_of), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fuse = -1;
        if (unshare(CLONE_NEWNS) < 0 || !mount_hung(path) || chroot(its_root) < 0)
            _exit(1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)!write(pipe_of[1], "x", 1);
        for (;;)
            pause();
    }
    fd_close(pipe_of[1]);
    assert_int_equal(read(pipe_of[0], &byte, 1), 1);
    fd_close(pipe_of[0]);
    return child;
}

static void expect_own_mounts(const char *its_root, const char *below_root)
{
    char name[128], path[128];
    int process;
    pid_t child;

    (void)snprintf(path, sizeof(path), "%s/dir/plain", directory);
    child = start_process(path, its_root);
    (void)snprintf(name, sizeof(name), "/proc/%d/root%s", (int)child, below_root);
    process = open(name, O_PATH | O_CLOEXEC);
    assert_true(process >= 0);
    assert_int_equal(path_guard_check_process(child, process, "/dir/plain/x"), PATH_MAY_HANG);
    assert_int_equal(path_guard_check_process(child, process, "/dir/fine"), 0);
    assert_int_equal(path_guard_check_process(getpid(), root, "/dir/hung"), 0);
    fd_close(process);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void another_process_has_its_own_mounts(void **state)
{
    start(NULL);
    expect_own_mounts("/", directory);
}

/* What it mounts on an administrator's path is no less its own. */
static void mounts_of_another_process_are_not_trusted(void **state)
{
    start("/dir/plain/x");
    expect_own_mounts("/", directory);
}

/* Its table names mount points as it sees them. */
static void another_process_may_have_another_root(void **state)
{
    start(NULL);
    expect_own_mounts(directory, "");
}

/* Links as many as the kernel follows, each as long as it may be. */
static void walks_end_after_a_number_of_steps(void **state)
{
    char name[16], target[PATH_MAX];
    uint64_t began_ns;

    start(NULL);
    make("links");
    for (unsigned i = 0; i < LINKS; i++) {
        size_t length = 0;

        while (length < 4000)
            length +=
                (size_t)snprintf(target + length, sizeof(target) - length, "../dir/../links/");
        (void)snprintf(target + length, sizeof(target) - length, "%u", i + 1);
        (void)snprintf(name, sizeof(name), "links/%u", i);
        assert_int_equal(symlinkat(target, root, name), 0);
    }
    began_ns = clock_processor();
    assert_int_equal(path_guard_check(root, "/links/0"), PATH_MAY_HANG);
    assert_true(clock_processor() - began_ns <
                20 * NSEC_PER_MSEC); /* 1.2 ms; more in a sanitizer */
    (void)snprintf(name, sizeof(name), "/links/%u", LINKS - 1);
    assert_int_equal(path_guard_check(root, name), PATH_MAY_HANG);
    memset(target, '/', sizeof(target) - 1);
    memcpy(target, "/dir/plain/../../dir/fine/../plain",
           strlen("/dir/plain/../../dir/fine/../plain"));
    target[sizeof(target) - 1] = '\0';
    assert_int_equal(path_guard_check(root, target), 0);
}

/* Descends into directories below `name` until the path is longer than `length`. */
static int descend(const char *name, size_t length)
{
    char blanks[] = "                                                                           "
                    "                                                                           ";
    int fd = openat(root, name, O_PATH | O_CLOEXEC), next;

    for (size_t at = 0; at < length; at += sizeof(blanks)) {
        (void)mkdirat(fd, blanks, 0755);
        next = openat(fd, blanks, O_PATH | O_CLOEXEC);
        assert_true(next >= 0);
        fd_close(fd);
        fd = next;
    }
    return fd;
}

/* Mounts on the directory as often as it takes to have so many bytes more in the table, in which a
 * blank is four. */
static void fill_table(int fd, size_t bytes)
{
    char here[32];

    (void)snprintf(here, sizeof(here), "/proc/self/fd/%d", fd);
    for (size_t at = 0; at < bytes; at += (size_t)4 * 3800)
        assert_int_equal(mount("fill", here, "tmpfs", 0, NULL), 0);
}

/* Whether the kernel has listmount(2), which Linux has since 6.8. */
static bool can_list(void)
{
    const uint64_t request[] = {24, UINT64_MAX /* LSMT_ROOT */, 0};
    uint64_t mount;

    return syscall(458, request, &mount, 1, 0) == 1;
}

/* A file system other than FUSE, which is known by its name as well. False: not allowed here. */
static bool mount_automatic(const char *path)
{
    char options[96];
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)snprintf(options, sizeof(options), "fd=%d,pgrp=%d,minproto=5,maxproto=5", ends[1],
                   (int)getpgrp());
    return mount("automatic", path, "autofs", 0, options) == 0;
}

/* Users who may mount can make it that large, with names that are long. */
static void large_tables_are_read(void **state)
{
    char path[128], automatic[160];
    int fd;

    start(NULL);
    make("big");
    (void)snprintf(path, sizeof(path), "%s/big", directory);
    assert_int_equal(mount("big", path, "tmpfs", 0, NULL), 0);
    fd = descend("big", 3800);
    fill_table(fd, 6 << 20);
    assert_int_equal(path_guard_check(root, "/dir/fine"), 0);
    assert_int_equal(path_guard_check(root, "/dir/hung"), PATH_MAY_HANG);
    start(NULL);
    assert_int_equal(path_guard_check(root, "/dir/fine"), 0);
    assert_int_equal(path_guard_check(root, "/dir/hung"), PATH_MAY_HANG);
    fill_table(fd, 12 << 20); /* more than is read: then only a list helps */
    assert_int_equal(path_guard_check(root, "/dir/fine"), can_list() ? 0 : PATH_MAY_HANG);
    assert_int_equal(path_guard_check(root, "/dir/hung"), PATH_MAY_HANG);
    start("/dir/hung");
    assert_int_equal(path_guard_check(root, "/dir/hung"), can_list() ? 0 : PATH_MAY_HANG);
    make("big/automatic");
    (void)snprintf(automatic, sizeof(automatic), "%s/big/automatic", directory);
    if (mount_automatic(automatic))
        assert_int_equal(path_guard_check(root, "/big/automatic/x"), PATH_MAY_HANG);
    fd_close(fd);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

/* A process with so many mounts in a mount namespace of its own, none of which may hang. */
static pid_t start_with_large_table(const char *path)
{
    int pipe_of[2];
    pid_t child;
    char byte;

    assert_int_equal(pipe(pipe_of), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWNS) < 0 || path_open_root(directory, &root) < 0 ||
            mount("large", path, "tmpfs", 0, NULL) < 0)
            _exit(1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        fill_table(descend("large", 3800), MOUNT_TABLE_BYTES);
        (void)!write(pipe_of[1], "x", 1);
        for (;;)
            pause();
    }
    fd_close(pipe_of[1]);
    assert_int_equal(read(pipe_of[0], &byte, 1), 1);
    fd_close(pipe_of[0]);
    return child;
}

/* What is beyond the part that is read may be a mount that hangs. */
static void large_table_of_another_process_hides_no_mount(void **state)
{
    char path[128], name[128];
    int process;
    pid_t child;

    start(NULL);
    make("large");
    (void)snprintf(path, sizeof(path), "%s/large", directory);
    child = start_with_large_table(path);
    (void)snprintf(name, sizeof(name), "/proc/%d/root%s", (int)child, directory);
    process = open(name, O_PATH | O_CLOEXEC);
    assert_true(process >= 0);
    assert_int_equal(path_guard_check_process(child, process, "/dir/plain/x"), 0);
    assert_int_equal(path_guard_check_process(child, process, "/dir/fine"), PATH_MAY_HANG);
    fd_close(process);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Such a name is in no list, because no path can be that long. */
static void mount_with_a_name_too_long_for_a_path_is_not_entered(void **state)
{
    char path[128], here[48];
    int fd;

    make("deep");
    start(NULL);
    (void)snprintf(path, sizeof(path), "%s/deep", directory);
    assert_int_equal(mount("deep", path, "tmpfs", 0, NULL), 0);
    fd = descend("deep", 3 * MOUNT_TABLE_FIELD_BYTES);
    assert_int_equal(mkdirat(fd, "x", 0755), 0);
    (void)snprintf(here, sizeof(here), "/proc/self/fd/%d/x", fd);
    fd_close(take_fd(&fuse));
    assert_true(mount_hung(here));
    assert_int_equal(path_guard_check(fd, "x/y"), PATH_MAY_HANG);
    assert_int_equal(path_guard_check(root, "/dir/fine"), 0);
    fd_close(fd);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

static void types_that_may_hang(void **state)
{
    assert_true(path_guard_may_hang("fuse"));
    assert_true(path_guard_may_hang("fuse.sshfs"));
    assert_true(path_guard_may_hang("nfs4"));
    assert_true(path_guard_may_hang("autofs"));
    assert_false(path_guard_may_hang("fusectl"));
    assert_false(path_guard_may_hang("ext4"));
    assert_false(path_guard_may_hang("virtiofs"));
    assert_false(path_guard_may_hang(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_looked_up_in_a_guarded_mount),
        cmocka_unit_test(other_paths_are_unaffected),
        cmocka_unit_test(trusted_mounts_are_entered),
        cmocka_unit_test(mounts_are_noticed),
        cmocka_unit_test(the_first_mount_is_noticed),
        cmocka_unit_test(mounts_are_recognised_behind_a_renamed_directory),
        cmocka_unit_test(another_process_has_its_own_mounts),
        cmocka_unit_test(another_process_may_have_another_root),
        cmocka_unit_test(mounts_of_another_process_are_not_trusted),
        cmocka_unit_test(walks_end_after_a_number_of_steps),
        cmocka_unit_test(large_tables_are_read),
        cmocka_unit_test(large_table_of_another_process_hides_no_mount),
        cmocka_unit_test(mount_with_a_name_too_long_for_a_path_is_not_entered),
        cmocka_unit_test(types_that_may_hang),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
