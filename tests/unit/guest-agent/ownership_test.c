/* SPDX-License-Identifier: Apache-2.0 */
/* ownership_test.c - fsGroup by the kubelet's rule, and what it cannot be applied to. */
#include "tests/unit/guest-agent/ownership_fixture.h"

/* ---- the rule ---- */

struct rule {
    mode_t before, after, after_read_only;
};

static const struct rule file_rules[] = {
    {0000, 0660, 0440},    {0600, 0660, 0640},    {0644, 0664, 0644},    {0755, 0775, 0755},
    {04711, 04771, 04751}, {06755, 06775, 06755}, {01600, 01660, 01640},
};
static const struct rule directory_rules[] = {
    {0700, 02770, 02750}, {0755, 02775, 02755}, {01777, 03777, 03777}, {02700, 02770, 02750}};

static void check_rules(const struct rule *rules, size_t count, bool directories, bool read_only)
{
    struct ownership_request request = request_for(-1);
    struct ownership_result result;
    char name[32];

    tree_make("/volume");
    request.read_only = read_only;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        if (directories)
            tree_make(name);
        else
            tree_write(name, "x");
        assert_int_equal(chmod(tree_path(name), rules[i].before), 0);
    }
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_APPLIED);
    assert_int_equal(result.count.failed, 0);
    assert_int_equal(result.count.changed + result.count.skipped, count + 1);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof(name), "/volume/%zu", i);
        check_entry(name, read_only ? rules[i].after_read_only : rules[i].after);
    }
    check_entry("/volume", read_only ? 02750 : 02770);
}

static void files_get_group_and_mode(void **state)
{
    (void)state;
    check_rules(file_rules, array_length(file_rules), false, false);
}

static void files_of_a_read_only_use_get_group_and_mode(void **state)
{
    (void)state;
    check_rules(file_rules, array_length(file_rules), false, true);
}

static void directories_get_group_and_mode(void **state)
{
    (void)state;
    check_rules(directory_rules, array_length(directory_rules), true, false);
}

static void directories_of_a_read_only_use_get_group_and_mode(void **state)
{
    (void)state;
    check_rules(directory_rules, array_length(directory_rules), true, true);
}

static void correct_entries_are_not_touched(void **state)
{
    struct ownership_result result;
    struct stat before, after;

    (void)state;
    tree_make("/volume/a/b");
    tree_write("/volume/a/b/file", "x");
    assert_int_equal(symlink("nowhere", tree_path("/volume/a/link")), 0);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    before = stat_of("/volume/a/b/file");
    usleep(20000); /* more than a tick of the file system's clock */
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_count(&result, 0, 5, 0);
    after = stat_of("/volume/a/b/file");
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
}

/* ---- the policies ---- */

/* Whether the file below is changed, the root being as it is. */
static void check_mismatch(mode_t root_mode, bool read_only, int outcome)
{
    struct ownership_request request = request_for(-1);
    struct ownership_result result;

    request.policy = DRIVE_GROUP_ON_ROOT_MISMATCH;
    request.read_only = read_only;
    assert_int_equal(chmod(tree_path("/volume/file"), 0400), 0);
    assert_int_equal(chmod(tree_path("/volume"), root_mode), 0);
    assert_int_equal(apply_to("/volume", request, &result), outcome);
    assert_int_equal((stat_of("/volume/file").st_mode & 040) != 0, outcome == OWNERSHIP_APPLIED);
}

static void on_root_mismatch_asks_the_root_alone(void **state)
{
    struct ownership_result result;

    (void)state;
    tree_make("/volume");
    tree_write("/volume/file", "x");
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_mismatch(02770, false, OWNERSHIP_LEFT_ALONE);
    check_mismatch(02777, false, OWNERSHIP_LEFT_ALONE);
    check_mismatch(02550, true, OWNERSHIP_LEFT_ALONE);
    check_mismatch(0770, false, OWNERSHIP_APPLIED);
    check_mismatch(02760, false, OWNERSHIP_APPLIED);
    check_mismatch(02570, false, OWNERSHIP_APPLIED);
    check_mismatch(02550, false, OWNERSHIP_APPLIED);
    check_mismatch(02450, true, OWNERSHIP_APPLIED);
    if (group == getegid())
        skip();
    assert_int_equal(chown(tree_path("/volume"), (uid_t)-1, getegid()), 0);
    check_mismatch(02770, false, OWNERSHIP_APPLIED);
}

static void always_walks_below_a_root_that_is_right(void **state)
{
    struct ownership_result result;

    (void)state;
    tree_make("/volume");
    tree_write("/volume/file", "x");
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    assert_int_equal(chmod(tree_path("/volume/file"), 0400), 0);
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_count(&result, 1, 1, 0);
}

static bool stop_at_once(const struct drive_walk_count *count, void *userdata)
{
    (void)count;
    return --*(int *)userdata > 0;
}

static void a_walk_that_is_cancelled_leaves_the_root(void **state)
{
    struct ownership_request request = request_for(-1);
    struct ownership_result result;
    int calls = 3;

    (void)state;
    tree_make("/volume/a/b/c");
    assert_int_equal(chmod(tree_path("/volume"), 0700), 0);
    request.report = stop_at_once;
    request.userdata = &calls;
    request.report_entries = 1;
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_CANCELLED);
    assert_int_equal(calls, 0);
    assert_int_equal(stat_of("/volume").st_mode & 07777, 0700);
}

/* ---- what cannot be changed ---- */

/* As nobody, whose tree has things of root's in it. The exit code says which check failed. */
static int walk_as_nobody(void)
{
    static struct ownership_result result;
    struct ownership_request request = {.group = NOBODY};
    int fd = open(tree_path("/volume"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        return 1;
    request.directory = fd;
    if (ownership_apply(&request, &result) != OWNERSHIP_INCOMPLETE)
        return 2;
    if (result.count.failed != 21 || result.error_count != OWNERSHIP_ERRORS)
        return 3;
    if (result.count.changed != 1) /* nobody's own file */
        return 4;
    for (size_t i = 0; i < OWNERSHIP_ERRORS; i++) {
        if (!strstr(result.errors[i].text, "/volume/") || strchr(result.errors[i].text, '\n'))
            return 5;
    }
    return 0;
}

static void errors_are_counted_and_the_first_is_kept(void **state)
{
    char name[32];
    pid_t process;
    int status;

    (void)state;
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
    struct ownership_result result;
    struct stat status;

    (void)state;
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
    assert_int_equal(apply_to("/volume", request_for(-1), &result), OWNERSHIP_APPLIED);
    check_count(&result, 1, 0, 3);
    status = stat_of("/volume/mounted/file");
    assert_int_equal(status.st_mode & 07777, 0600);
    check_outside();
    assert_int_equal(umount(tree_path("/volume/mounted")), 0);
    assert_int_equal(umount(tree_path("/volume/bound")), 0);
    assert_int_equal(umount(tree_path("/volume/bound-file")), 0);
}

static void a_read_only_file_system_is_not_walked(void **state)
{
    struct ownership_request request = request_for(-1);
    struct ownership_result result;

    (void)state;
    if (!has_mounts)
        skip();
    tree_make("/volume");
    assert_int_equal(mount("none", tree_path("/volume"), "tmpfs", 0, NULL), 0);
    tree_write("/volume/file", "x");
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_READ_ONLY);
    check_count(&result, 0, 0, 0);
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT, NULL), 0);
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_APPLIED);
    assert_int_equal(mount(NULL, tree_path("/volume"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    request.policy = DRIVE_GROUP_ON_ROOT_MISMATCH;
    assert_int_equal(apply_to("/volume", request, &result), OWNERSHIP_LEFT_ALONE);
    assert_int_equal(umount(tree_path("/volume")), 0);
}

/* As the mount of a drive is when the group is applied: nobody sees it yet. */
static void a_detached_mount_is_walked(void **state)
{
    enum { CREATE = 6 /* FSCONFIG_CMD_CREATE */ };
    cleanup(fd_closep) int context = -1, volume = -1;
    struct ownership_request request;
    struct ownership_result result;
    struct stat status;

    (void)state;
    if (!has_mounts)
        skip();
    context = (int)syscall(SYS_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);
    assert_true(context >= 0);
    assert_int_equal(syscall(SYS_fsconfig, context, CREATE, NULL, NULL, 0), 0);
    volume = (int)syscall(SYS_fsmount, context, 1 /* FSMOUNT_CLOEXEC */, 0);
    assert_true(volume >= 0);
    assert_int_equal(mkdirat(volume, "a", 0700), 0);
    assert_int_equal(mknodat(volume, "a/file", S_IFREG | 0600, 0), 0);
    request = request_for(volume);
    assert_int_equal(ownership_apply(&request, &result), OWNERSHIP_APPLIED);
    check_count(&result, 3, 0, 0);
    assert_int_equal(fstatat(volume, "a/file", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    assert_int_equal(status.st_gid, group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_get_group_and_mode),
        TEST(files_of_a_read_only_use_get_group_and_mode),
        TEST(directories_get_group_and_mode),
        TEST(directories_of_a_read_only_use_get_group_and_mode),
        TEST(correct_entries_are_not_touched),
        TEST(on_root_mismatch_asks_the_root_alone),
        TEST(always_walks_below_a_root_that_is_right),
        TEST(a_walk_that_is_cancelled_leaves_the_root),
        TEST(errors_are_counted_and_the_first_is_kept),
        TEST(other_file_systems_are_not_entered),
        TEST(a_read_only_file_system_is_not_walked),
        TEST(a_detached_mount_is_walked),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
