/* SPDX-License-Identifier: Apache-2.0 */
/* directories_test.c - roots that are absent, replaced or covered, and trees that meet. */
#include "tests/unit/watch/directories.h"

#include <sched.h>
#include <sys/mount.h>

static void waits_for_an_absent_root(void **state)
{
    unsigned tree = add_tree("/one/two/three");

    wait_for_everywhere(tree);
    forget_notes();
    make_directory("one");
    make_directory("one/two");
    make_directory("one/two/three");
    wait_for_everywhere(tree);
    make_directory("one/two/three/a");
    wait_for_note(tree, "a");
}

/* Once the way is complete its directories have nothing to report but themselves. */
static void is_not_woken_by_neighbours(void **state)
{
    unsigned tree = add_tree("/one/two");
    uint64_t events;

    make_directory("one");
    make_directory("one/two");
    wait_for_everywhere(tree);
    make_directory("one/two/seen");
    while (watch_directories_arm(watch, tree, "seen") != 0)
        turn();
    drain("one/two", tree);
    events = watch_directories_counters(watch)->events;
    for (int i = 0; i < 10; i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "one/neighbour-%d", i);
        make_directory(path);
    }
    drain("one/two", tree);
    assert_int_equal(watch_directories_counters(watch)->events, events + 1);
}

static void takes_up_a_root_that_comes_back(void **state)
{
    unsigned tree;

    make_directory("root");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    forget_notes();
    remove_directory("root");
    wait_for_everywhere(tree);
    forget_notes();
    make_directory("root");
    wait_for_everywhere(tree);
    make_directory("root/a");
    wait_for_note(tree, "a");
}

static void takes_up_a_root_that_was_replaced(void **state)
{
    unsigned tree;

    make_directory("root");
    make_directory("root/a");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    forget_notes();
    move("root", "gone");
    make_directory("root");
    make_directory("root/a");
    wait_for_everywhere(tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    drain("root", tree);
    forget_notes();
    write_file("gone/a/file", "");
    drain("root", tree);
    assert_false(has_note(tree, "a")); /* the old directory is nobody's business any more */
    write_file("root/a/file", "");
    wait_for_note(tree, "a");
}

static void notices_that_a_parent_was_replaced(void **state)
{
    unsigned tree;

    make_directory("one");
    make_directory("one/two");
    make_directory("one/two/root");
    tree = add_tree("/one/two/root");
    wait_for_everywhere(tree);
    forget_notes();
    move("one", "gone");
    wait_for_everywhere(tree);
    forget_notes();
    move("gone", "one");
    wait_for_everywhere(tree);
    drain("one/two/root", tree);
}

/* Its number, too, is another one's then. */
static void forgets_a_tree_that_is_removed(void **state)
{
    unsigned first, second;

    make_directory("root");
    make_directory("root/seen");
    make_directory("other");
    first = add_tree("/root");
    second = add_tree("/other");
    wait_for_everywhere(second);
    assert_int_equal(watch_directories_arm(watch, first, "seen"), 0);
    watch_directories_remove_tree(watch, first);
    watch_directories_check_roots(watch);
    drain("other", second);
    forget_notes();
    make_directory("root/unseen");
    make_directory("root/seen/below");
    drain("other", second);
    assert_false(has_note(first, "unseen") || has_note(first, "seen") || heard.everywhere[first]);
    assert_int_equal(add_tree("/root"), first);
    wait_for_everywhere(first);
    make_directory("root/again");
    wait_for_note(first, "again");
}

static void serves_two_trees_at_one_root(void **state)
{
    unsigned first, second;

    make_directory("root");
    make_directory("root/a");
    first = add_tree("/root");
    second = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, first, "a"), 0);
    assert_int_equal(watch_directories_arm(watch, second, "a"), 0);
    write_file("root/a/file", "");
    wait_for_note(first, "a");
    wait_for_note(second, "a");
    forget_notes();
    make_directory("root/b");
    wait_for_note(first, "b");
    wait_for_note(second, "b");
}

static void serves_a_tree_inside_another(void **state)
{
    unsigned outer, inner;

    make_directory("root");
    make_directory("root/a");
    outer = add_tree("/root");
    inner = add_tree("/root/a/deep"); /* a child of one is on the way to the other */
    assert_int_equal(watch_directories_arm(watch, outer, "a"), 0);
    wait_for_everywhere(inner);
    forget_notes();
    make_directory("root/a/deep");
    wait_for_everywhere(inner);
    forget_notes();
    write_file("root/a/file", ""); /* the way needs less now, the child as much as ever */
    wait_for_note(outer, "a");
}

static bool may_mount = true;

/* The scratch directory must be opened in the namespace in which things are mounted over it. */
static int start_in_namespace(void **state)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        may_mount = false;
    return start(state);
}

/* Mounting over a directory is no event of it; whoever watches the mounts says so. */
static void notices_what_is_mounted_over_a_root(void **state)
{
    char path[128];
    unsigned tree;

    if (!may_mount)
        skip();
    make_directory("root");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    forget_notes();
    (void)snprintf(path, sizeof(path), "%s/root", scratch);
    assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
    watch_directories_check_roots(watch);
    assert_int_equal(heard.everywhere[tree], 0);
    wait_for_everywhere(tree);
    drain("root", tree);

    forget_notes();
    assert_int_equal(umount(path), 0); /* not held by a descriptor; reported by IN_UNMOUNT */
    wait_for_everywhere(tree);
    drain("root", tree);
    forget_notes();
    watch_directories_check_roots(watch);
    drain("root", tree);
    assert_int_equal(heard.everywhere[tree], 0); /* nothing has changed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(waits_for_an_absent_root),
        TEST(is_not_woken_by_neighbours),
        TEST(takes_up_a_root_that_comes_back),
        TEST(takes_up_a_root_that_was_replaced),
        TEST(notices_that_a_parent_was_replaced),
        TEST(forgets_a_tree_that_is_removed),
        TEST(serves_two_trees_at_one_root),
        TEST(serves_a_tree_inside_another),
        cmocka_unit_test_setup_teardown(notices_what_is_mounted_over_a_root, start_in_namespace,
                                        stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
