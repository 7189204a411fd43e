/* SPDX-License-Identifier: Apache-2.0 */
/* child_watches_test.c - what is heard of a root's children, and when no more can be watched. */
#include "tests/unit/watch/directories.h"

#include <sched.h>
#include <sys/wait.h>

static void hears_of_children_and_their_files(void **state)
{
    unsigned tree;

    make_directory("root");
    tree = add_tree("/root");
    assert_int_equal(tree, 0);
    wait_for_everywhere(tree); /* a new tree is to be scanned */

    make_directory("root/a");
    wait_for_note(tree, "a");
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    forget_notes();
    write_file("root/a/mountInfo.json", "{}");
    wait_for_note(tree, "a");
    forget_notes();
    assert_int_equal(unlinkat(scratch_fd, "root/a/mountInfo.json", 0), 0);
    wait_for_note(tree, "a");
    assert_true(watch_directories_counters(watch)->up);
    assert_int_equal(watch_directories_unarmed(watch), 0);
}

static void arms_directories_only(void **state)
{
    unsigned tree;

    make_directory("root");
    make_directory("elsewhere");
    write_file("root/file", "");
    assert_int_equal(symlinkat("../elsewhere", scratch_fd, "root/link"), 0);
    tree = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, tree, "absent"), 1);
    assert_int_equal(watch_directories_arm(watch, tree, "file"), 1);
    assert_int_equal(watch_directories_arm(watch, tree, "link"), 1);
    assert_int_equal(watch_directories_arm(watch, tree, ".."), 1);
    assert_int_equal(watch_directories_arm(watch, tree, "."), 1);
    assert_int_equal(watch_directories_arm(watch, tree, ""), 1);
    assert_int_equal(watch_directories_arm(watch, tree, "a/b"), 1);
}

static void follows_a_renamed_child(void **state)
{
    unsigned tree;

    make_directory("root");
    make_directory("root/old");
    tree = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, tree, "old"), 0);
    move("root/old", "root/new");
    wait_for_note(tree, "new");
    assert_true(has_note(tree, "old"));
    assert_int_equal(watch_directories_arm(watch, tree, "new"), 0);
    drain("root", tree); /* its IN_MOVE_SELF may have come after the arming */
    assert_int_equal(watch_directories_arm(watch, tree, "new"), 0);
    forget_notes();
    write_file("root/new/file", "");
    wait_for_note(tree, "new");
    assert_false(has_note(tree, "old"));
}

static void hears_of_a_child_that_replaces_another(void **state)
{
    unsigned tree;

    make_directory("root");
    make_directory("root/a");
    make_directory("root/b");
    tree = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    move("root/b", "root/a"); /* over the empty directory */
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    drain("root", tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    forget_notes();
    write_file("root/a/file", "");
    wait_for_note(tree, "a");
}

static void hears_of_removal(void **state)
{
    unsigned tree;

    make_directory("root");
    make_directory("root/a");
    tree = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    remove_directory("root/a");
    wait_for_note(tree, "a");
    drain("root", tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 1);
}

static void write_limit(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        _exit(2);
    (void)close(fd);
}

/* In a user namespace of its own, where the limit is its own too. */
static void run_out_of_watches(void)
{
    unsigned tree;

    if (unshare(CLONE_NEWUSER) < 0)
        _exit(2);
    write_limit("/proc/self/uid_map", "0 0 1");
    if (start(NULL) != 0)
        _exit(2);
    make_directory("root");
    make_directory("root/a");
    make_directory("root/b");
    tree = add_tree("/root"); /* "/" and "/root" */
    write_limit("/proc/sys/user/max_inotify_watches", "3");
    if (watch_directories_arm(watch, tree, "a") != 0 ||
        watch_directories_arm(watch, tree, "b") != 2 ||
        watch_directories_arm(watch, tree, "b") != 2 || watch_directories_unarmed(watch) != 1)
        _exit(1);
    forget_notes();
    watch_directories_observe_unarmed(watch);
    wait_for_note(tree, "b");
    write_limit("/proc/sys/user/max_inotify_watches", "4");
    if (watch_directories_arm(watch, tree, "b") != 0 || watch_directories_unarmed(watch) != 0)
        _exit(1);
    _exit(stop(NULL) != 0);
}

static void running_out_of_watches_is_reported(void **state)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        run_out_of_watches();
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hears_of_children_and_their_files),
        TEST(arms_directories_only),
        TEST(follows_a_renamed_child),
        TEST(hears_of_a_child_that_replaces_another),
        TEST(hears_of_removal),
        cmocka_unit_test(running_out_of_watches_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
