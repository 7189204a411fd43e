/* SPDX-License-Identifier: Apache-2.0 */
/* drive_target_test.c - where a drive may be mounted. Mounts are in a namespace of this process
 * alone; without root, what needs them is skipped. */
#include "tests/unit/tree.h"

#include <sched.h>
#include <sys/mount.h>

#include "guest-agent/drive_place.h"

static bool has_mounts;

static int open_target(const char *path)
{
    struct error error = {0};
    int fd = -1, r = drive_target_open(path, &fd, &error);

    assert_true((r == DRIVE_TARGET_OPEN) == (fd >= 0));
    assert_true((r == DRIVE_TARGET_OPEN) == !error.text[0]);
    fd_close(fd);
    return r;
}

static void protected_places_are_refused(void **state)
{
    static const char *const places[] = {
        "/",       "//",   "/proc",    "/proc/self", "/sys",
        "/sys/fs", "/dev", "/dev/shm", "//dev//",    "/dev/crust-new/below"};

    (void)state;
    for (size_t i = 0; i < array_length(places); i++)
        assert_int_equal(open_target(places[i]), DRIVE_TARGET_PROTECTED);
    assert_int_equal(access("/dev/crust-new", F_OK), -1);
}

static void missing_directories_are_made(void **state)
{
    struct stat status;

    (void)state;
    assert_int_equal(open_target(tree_path("/a/b/c")), DRIVE_TARGET_OPEN);
    assert_int_equal(stat(tree_path("/a/b/c"), &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_int_equal(status.st_mode & 0022, 0);
    assert_int_equal(open_target(tree_path("/a/b/c/")), DRIVE_TARGET_OPEN);
}

static void links_and_files_are_not_followed(void **state)
{
    (void)state;
    tree_make("/real");
    tree_write("/file", "x");
    assert_int_equal(symlink("real", tree_path("/link")), 0);
    assert_int_equal(symlink("/proc", tree_path("/proc")), 0);
    assert_int_equal(open_target(tree_path("/link")), DRIVE_TARGET_UNREACHABLE);
    assert_int_equal(open_target(tree_path("/link/new")), DRIVE_TARGET_UNREACHABLE);
    assert_int_equal(open_target(tree_path("/proc")), DRIVE_TARGET_UNREACHABLE);
    assert_int_equal(open_target(tree_path("/file")), DRIVE_TARGET_UNREACHABLE);
    assert_int_equal(open_target(tree_path("/file/new")), DRIVE_TARGET_UNREACHABLE);
    assert_false(tree_has("/real/new"));
}

static void a_mount_point_is_taken(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    tree_make("/point");
    assert_int_equal(mount("none", tree_path("/point"), "tmpfs", 0, NULL), 0);
    assert_int_equal(open_target(tree_path("/point")), DRIVE_TARGET_TAKEN);
    assert_int_equal(open_target(tree_path("/point/below")), DRIVE_TARGET_OPEN);
    assert_int_equal(umount(tree_path("/point")), 0);
}

static void a_bind_mount_of_a_protected_place_is_protected(void **state)
{
    static const char *const places[] = {"/proc", "/sys", "/dev"};

    (void)state;
    if (!has_mounts)
        skip();
    tree_make("/point");
    for (size_t i = 0; i < array_length(places); i++) {
        assert_int_equal(mount(places[i], tree_path("/point"), NULL, MS_BIND, NULL), 0);
        assert_int_equal(open_target(tree_path("/point")), DRIVE_TARGET_PROTECTED);
        assert_int_equal(umount(tree_path("/point")), 0);
    }
}

static int private_mounts(void **state)
{
    (void)state;
    has_mounts =
        unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protected_places_are_refused),
        TEST(missing_directories_are_made),
        TEST(links_and_files_are_not_followed),
        TEST(a_mount_point_is_taken),
        TEST(a_bind_mount_of_a_protected_place_is_protected),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
