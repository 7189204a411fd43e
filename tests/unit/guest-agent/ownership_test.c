/* SPDX-License-Identifier: Apache-2.0 */
/* ownership_test.c - fsGroup by the kubelet's rule, and trees that lead out, never end, or change
 * during the walk. Without root the group is one that this process has, and what needs mounts or
 * another user is skipped. */
#include "tests/unit/tree.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "guest-agent/guest_drive.h"

enum { NOBODY = 65534 };

static bool has_mounts;
static gid_t group; /* one that this process may give, its own only where it has no other */

static struct drive_walk_count count;
static struct error error;

static enum status_code apply(enum drive_group_policy policy)
{
    cleanup(fd_closep) int fd = open(tree_path("/volume"), O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    error = (struct error){0};
    return ownership_set_group(fd, group, policy, &count, &error);
}

static void apply_well(void)
{
    assert_int_equal(apply(DRIVE_GROUP_ALWAYS), STATUS_OK);
}

/* In place of the C library's: what happens at each change of a mode. */
static void (*before_chmod)(void);

int chmod(const char *path, mode_t mode)
{
    if (before_chmod)
        before_chmod();
    return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}

static struct stat stat_of(const char *path)
{
    struct stat status;

    assert_int_equal(lstat(tree_path(path), &status), 0);
    return status;
}

static void check_entry(const char *path, mode_t mode)
{
    struct stat status = stat_of(path);

    assert_int_equal(status.st_gid, group);
    assert_int_equal(status.st_mode & 07777, mode);
}

static void check_count(uint64_t changed, uint64_t skipped, uint64_t failed)
{
    assert_int_equal(count.changed, changed);
    assert_int_equal(count.skipped, skipped);
    assert_int_equal(count.failed, failed);
}

/* Beside the volume, and as it was. */
static void make_outside(void)
{
    tree_make("/outside/directory");
    tree_write("/outside/file", "x");
    tree_write("/outside/directory/file", "x");
}

static void check_outside(void)
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

static int prepare(void **state)
{
    gid_t groups[64];
    int length = getgroups(64, groups);

    (void)umask(0022);
    has_mounts =
        unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    group = geteuid() == 0 ? 4711 : getegid();
    for (int i = 0; geteuid() != 0 && i < length; i++)
        group = groups[i] != getegid() ? groups[i] : group;
    return 0;
}

/* ---- the rule ---- */

static const struct rule {
    bool is_directory;
    mode_t before, after;
} rules[] = {
    {false, 0000, 0660},   {false, 0600, 0660},   {false, 0644, 0664},   {false, 0755, 0775},
    {false, 04711, 04771}, {false, 06755, 06775}, {false, 01600, 01660}, {true, 0700, 02770},
    {true, 0755, 02775},   {true, 01777, 03777},  {true, 02700, 02770},
};

static void entries_get_group_and_mode(void **state)
{
    char name[32];

    tree_make("/volume");
    for (size_t i = 0; i < array_length(rules); i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        if (rules[i].is_directory)
            tree_make(name);
        else
            tree_write(name, "x");
        assert_int_equal(chmod(tree_path(name), rules[i].before), 0);
    }
    apply_well();
    assert_int_equal(count.failed, 0);
    assert_int_equal(count.changed + count.skipped, array_length(rules) + 1);
    for (size_t i = 0; i < array_length(rules); i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        check_entry(name, rules[i].after);
    }
    check_entry("/volume", 02770);
}

static void correct_entries_are_not_touched(void **state)
{
    struct stat before, after;

    tree_make("/volume/a/b");
    tree_write("/volume/a/b/file", "x");
    assert_int_equal(symlink("nowhere", tree_path("/volume/a/link")), 0);
    apply_well();
    before = stat_of("/volume/a/b/file");
    usleep(20000); /* more than a tick of the file system's clock */
    apply_well();
    check_count(0, 5, 0);
    after = stat_of("/volume/a/b/file");
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
}

/* ---- the policies ---- */

/* Whether the file below is changed, the root being as it is. */
static void check_mismatch(mode_t root_mode, bool is_walked)
{
    assert_int_equal(chmod(tree_path("/volume/file"), 0400), 0);
    assert_int_equal(chmod(tree_path("/volume"), root_mode), 0);
    assert_int_equal(apply(DRIVE_GROUP_ON_ROOT_MISMATCH), STATUS_OK);
    assert_int_equal((stat_of("/volume/file").st_mode & 040) != 0, is_walked);
}

static void on_root_mismatch_asks_the_root_alone(void **state)
{
    tree_make("/volume");
    tree_write("/volume/file", "x");
    apply_well();
    check_mismatch(02770, false);
    check_mismatch(02777, false);
    check_mismatch(0770, true);
    check_mismatch(02760, true);
    check_mismatch(02570, true);
    check_mismatch(02550, true);
    if (group == getegid())
        skip();
    assert_int_equal(chown(tree_path("/volume"), (uid_t)-1, getegid()), 0);
    check_mismatch(02770, true);
}

static void always_walks_below_a_root_that_is_right(void **state)
{
    tree_make("/volume");
    tree_write("/volume/file", "x");
    apply_well();
    assert_int_equal(chmod(tree_path("/volume/file"), 0400), 0);
    apply_well();
    check_count(1, 1, 0);
}

/* ---- what cannot be changed ---- */

/* As nobody, whose tree has things of root's in it. The exit code says which check failed. */
static int walk_as_nobody(void)
{
    int fd = open(tree_path("/volume"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        return 1;
    if (ownership_set_group(fd, NOBODY, DRIVE_GROUP_ALWAYS, &count, &error) !=
        STATUS_FAILED_PRECONDITION)
        return 2;
    if (count.failed != 21 || count.changed != 1) /* nobody's own file */
        return 3;
    return !strstr(error.text, "/volume/") || strchr(error.text, '\n') ? 4 : 0;
}

static void errors_are_counted_and_the_first_is_kept(void **state)
{
    char name[32];
    pid_t process;
    int status;

    if (geteuid() != 0)
        skip();
    tree_make("/volume/closed");
    assert_int_equal(chmod(scratch, 0755), 0);
    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "/volume/line\n%u", i);
        tree_write(name, "x");
    }
    tree_write("/volume/own", "x");
    assert_int_equal(chown(tree_path("/volume/own"), NOBODY, NOBODY), 0);
    assert_int_equal(chown(tree_path("/volume"), NOBODY, NOBODY), 0);
    process = fork();
    if (process == 0)
        _exit(walk_as_nobody());
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
    assert_int_equal(stat_of("/volume").st_mode & 02000, 0); /* to be walked again */
}

/* ---- mounts ---- */

static void other_file_systems_are_not_entered(void **state)
{
    struct stat status;

    if (!has_mounts)
        skip();
    make_outside();
    tree_make("/volume/mounted");
    tree_make("/volume/bound");
    tree_write("/volume/bound-file", "x");
    assert_int_equal(mount("none", tree_path("/volume/mounted"), "tmpfs", 0, NULL), 0);
    tree_write("/volume/mounted/file", "x");
    assert_int_equal(mount(tree_path("/outside"), tree_path("/volume/bound"), NULL, MS_BIND, NULL),
                     0);
    assert_int_equal(
        mount(tree_path("/outside/file"), tree_path("/volume/bound-file"), NULL, MS_BIND, NULL), 0);
    apply_well();
    check_count(1, 0, 3);
    status = stat_of("/volume/mounted/file");
    assert_int_equal(status.st_mode & 07777, 0600);
    check_outside();
    assert_int_equal(umount(tree_path("/volume/mounted")), 0);
    assert_int_equal(umount(tree_path("/volume/bound")), 0);
    assert_int_equal(umount(tree_path("/volume/bound-file")), 0);
}

static void a_read_only_file_system_is_not_walked(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/volume");
    assert_int_equal(mount("none", tree_path("/volume"), "tmpfs", 0, NULL), 0);
    tree_write("/volume/file", "x");
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(apply(DRIVE_GROUP_ALWAYS), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "it is read-only"));
    check_count(0, 0, 0);
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT, NULL), 0);
    apply_well();
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(apply(DRIVE_GROUP_ON_ROOT_MISMATCH), STATUS_OK);
    assert_int_equal(umount(tree_path("/volume")), 0);
}

/* As the mount of a drive is when the group is applied: nobody sees it yet. */
static void a_detached_mount_is_walked(void **state)
{
    enum { CREATE = 6 /* FSCONFIG_CMD_CREATE */ };
    cleanup(fd_closep) int context = -1, volume = -1;
    struct stat status;

    if (!has_mounts)
        skip();
    context = (int)syscall(SYS_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);
    assert_true(context >= 0);
    assert_int_equal(syscall(SYS_fsconfig, context, CREATE, NULL, NULL, 0), 0);
    volume = (int)syscall(SYS_fsmount, context, 1 /* FSMOUNT_CLOEXEC */, 0);
    assert_true(volume >= 0);
    assert_int_equal(mkdirat(volume, "a", 0700), 0);
    assert_int_equal(mknodat(volume, "a/file", S_IFREG | 0600, 0), 0);
    assert_int_equal(ownership_set_group(volume, group, DRIVE_GROUP_ALWAYS, &count, NULL),
                     STATUS_OK);
    check_count(3, 0, 0);
    assert_int_equal(fstatat(volume, "a/file", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    assert_int_equal(status.st_gid, group);
}

/* ---- hostile trees ---- */

static void links_are_not_followed(void **state)
{
    static const char *const targets[] = {
        "../outside", "../outside/file", "../outside/directory", "/", "..", ".",
        "loop",       "/proc/self/cwd",  "/proc/self/root/etc"};
    char name[32];

    make_outside();
    tree_make("/volume");
    assert_int_equal(symlink(tree_path("/outside"), tree_path("/volume/absolute")), 0);
    for (size_t i = 0; i < array_length(targets); i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        assert_int_equal(symlink(targets[i], tree_path(name)), 0);
    }
    assert_int_equal(symlink("loop", tree_path("/volume/loop")), 0);
    apply_well();
    assert_int_equal(count.failed, 0);
    assert_int_equal(count.changed + count.skipped, array_length(targets) + 3);
    assert_int_equal(stat_of("/volume/absolute").st_gid, group);
    check_outside();
}

static void names_and_kinds_of_files_do_not_matter(void **state)
{
    static const char *const names[] = {"/volume/-rf", "/volume/\n",       "/volume/ ",
                                        "/volume/...", "/volume/\xff\xfe", "/volume/\"'\\$(id)",
                                        "/volume/%s%n"};
    char longest[9 + 255];

    tree_make("/volume");
    for (size_t i = 0; i < array_length(names); i++)
        tree_write(names[i], "x");
    memset(longest, 'n', sizeof(longest));
    memcpy(longest, "/volume/", 8);
    longest[8 + 255] = '\0';
    tree_write(longest, "x");
    assert_int_equal(mkfifo(tree_path("/volume/fifo"), 0600), 0);
    assert_int_equal(mknod(tree_path("/volume/socket"), S_IFSOCK | 0600, 0), 0);
    apply_well();
    check_count(array_length(names) + 4, 0, 0);
    for (size_t i = 0; i < array_length(names); i++)
        check_entry(names[i], 0660);
    check_entry(longest, 0660);
    check_entry("/volume/fifo", 0660);
    check_entry("/volume/socket", 0660);
}

/* Makes a chain of directories "d" below the volume; the descriptor is of the last. */
static int make_chain(unsigned depth)
{
    int fd = open(tree_path("/volume"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (unsigned i = 0; i < depth; i++) {
        int next;

        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd_close(fd);
        fd = next;
    }
    assert_true(fd >= 0);
    return fd;
}

/* From its end, because no path leads there: the scratch directory can then be removed. */
static void remove_chain(int last, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        int parent = openat(last, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        fd_close(last);
        assert_int_equal(unlinkat(parent, "d", AT_REMOVEDIR), 0);
        last = parent;
    }
    fd_close(last);
}

static void limit_descriptors(rlim_t limit, struct rlimit *ret_before)
{
    struct rlimit limits;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limits), 0);
    *ret_before = limits;
    limits.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limits), 0);
}

static void a_tree_deeper_than_any_path_is_walked(void **state)
{
    enum { DEPTH = 6000 };
    struct rlimit before;
    struct stat status;
    int last;

    tree_make("/volume");
    last = make_chain(DEPTH);
    limit_descriptors(48, &before);
    apply_well();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_count(DEPTH + 1, 0, 0);
    assert_int_equal(fstat(last, &status), 0);
    assert_int_equal(status.st_mode & 07777, 02770);
    remove_chain(last, DEPTH);
}

/* Below the levels that stay open, each directory has enough names for several readings. */
static void listings_of_deep_directories_go_on_where_they_were(void **state)
{
    enum { DEPTH = 24, FILES = 300 };
    char path[128] = "/volume", name[160];

    for (unsigned i = 0; i < DEPTH; i++) {
        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/d");
        tree_make(path);
        for (unsigned j = 0; i >= DEPTH - 4 && j < FILES; j++) {
            (void)snprintf(name, sizeof(name), "%s/f%u", path, j);
            tree_write(name, "");
            (void)snprintf(name, sizeof(name), "%s/d%u", path, j);
            assert_int_equal(mkdir(tree_path(name), 0700), 0);
        }
    }
    apply_well();
    assert_int_equal(count.failed, 0);
    assert_int_equal(count.changed + count.skipped, 1 + DEPTH + UINT64_C(4) * 2 * FILES);
    apply_well();
    check_count(0, 1 + DEPTH + UINT64_C(4) * 2 * FILES, 0);
}

/* ---- trees that change ---- */

#define DEEP "/volume/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18"

static uint64_t treated;   /* in this walk */
static bool is_count_late; /* at one of them */

/* The walk is below the levels that stay open, so it must come back by "..": after the fourth
 * directory, 18, it cannot. */
static void move_away(void)
{
    if (treated == 0)
        assert_int_equal(rename(tree_path(DEEP), tree_path("/outside/18")), 0);
    is_count_late |=
        count.changed != treated || count.skipped != 1 || count.failed != (treated > 3);
    treated++;
}

static void a_directory_that_is_moved_away_does_not_lead_out(void **state)
{
    enum status_code code;

    make_outside();
    tree_make(DEEP "/19/20/21");
    tree_write(DEEP "/19/20/21/right", "x");
    assert_int_equal(chown(tree_path(DEEP "/19/20/21/right"), (uid_t)-1, group), 0);
    assert_int_equal(chmod(tree_path(DEEP "/19/20/21/right"), 0660), 0);
    assert_int_equal(chmod(tree_path("/volume"), 0700), 0);
    before_chmod = move_away;
    code = apply(DRIVE_GROUP_ALWAYS);
    before_chmod = NULL;
    assert_int_equal(code, STATUS_FAILED_PRECONDITION);
    assert_false(is_count_late);
    check_count(treated, 1, 1);
    assert_in_range(treated, 5, 20); /* it has gone on above */
    assert_non_null(strstr(error.text, "/outside/18"));
    assert_int_equal(stat_of("/volume").st_mode & 07777, 0700); /* to be walked again */
    check_entry("/volume/1/2", 02775);
    assert_int_equal(rename(tree_path("/outside/18"), tree_path("/volume/18")), 0);
    check_outside();
}

/* A process that makes /volume/x a directory, and a link out, in turns. */
static pid_t start_swapping(void)
{
    pid_t process = fork();

    if (process == 0) {
        for (;;)
            (void)syscall(SYS_renameat2, root, "volume/x", root, "volume/y", 2 /* EXCHANGE */);
    }
    assert_true(process > 0);
    return process;
}

static void a_directory_that_is_swapped_with_a_link_is_not_followed(void **state)
{
    pid_t swapper;

    make_outside();
    tree_make("/volume/x/directory");
    tree_write("/volume/x/file", "x");
    assert_int_equal(symlink("../outside", tree_path("/volume/y")), 0);
    swapper = start_swapping();
    for (unsigned i = 0; i < 2000; i++) {
        enum status_code code = apply(DRIVE_GROUP_ALWAYS);

        assert_true(code == STATUS_OK || code == STATUS_FAILED_PRECONDITION);
        assert_int_equal(chmod(tree_path("/volume"), 0700), 0);
    }
    assert_int_equal(kill(swapper, SIGKILL), 0);
    assert_int_equal(waitpid(swapper, NULL, 0), swapper);
    check_outside();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(entries_get_group_and_mode),
        TEST(correct_entries_are_not_touched),
        TEST(on_root_mismatch_asks_the_root_alone),
        TEST(always_walks_below_a_root_that_is_right),
        TEST(errors_are_counted_and_the_first_is_kept),
        TEST(other_file_systems_are_not_entered),
        TEST(a_read_only_file_system_is_not_walked),
        TEST(a_detached_mount_is_walked),
        TEST(links_are_not_followed),
        TEST(names_and_kinds_of_files_do_not_matter),
        TEST(a_tree_deeper_than_any_path_is_walked),
        TEST(listings_of_deep_directories_go_on_where_they_were),
        TEST(a_directory_that_is_moved_away_does_not_lead_out),
        TEST(a_directory_that_is_swapped_with_a_link_is_not_followed),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
