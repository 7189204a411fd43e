/* directories_test.c - real inotify on real directories.
 *
 * The listener here does what the reconciler does: it only takes notes while the loop calls it, and
 * looks when the turn is over, arming before it reads. Waiting means turning the loop until a
 * condition holds; that it never does is a failure after GUARD_SECONDS, which no passing run
 * reaches.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "reconciler/watch/watch.h"

enum { GUARD_SECONDS = 60, NOTES = 65536, TREES = 2, VOLUMES = 2000 };

static char scratch[64];
static int scratch_fd;
static struct loop loop;
static struct watch_directories *watch;
static bool may_mount = true;

static struct {
    unsigned count;
    struct {
        unsigned tree;
        char name[256];
    } note[NOTES];
    unsigned everywhere[TREES];
    bool in_loop; /* calls are allowed */
} heard;

static void note(void *userdata, unsigned tree, const char *name)
{
    (void)userdata;
    assert_true(heard.in_loop);
    assert_true(heard.count < NOTES);
    heard.note[heard.count].tree = tree;
    (void)snprintf(heard.note[heard.count].name, sizeof(heard.note[0].name), "%s", name);
    heard.count++;
}

static void note_everywhere(void *userdata, unsigned tree)
{
    (void)userdata;
    assert_true(heard.in_loop);
    assert_true(tree < TREES);
    heard.everywhere[tree]++;
}

static const struct watch_directories_handler handler = {note, note_everywhere};

static void forget_notes(void)
{
    heard.count = 0;
    memset(heard.everywhere, 0, sizeof(heard.everywhere));
}

static void on_guard(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("what was waited for never came");
}

static void turn(void)
{
    heard.in_loop = true;
    loop_run_once(&loop);
    heard.in_loop = false;
}

static bool has_note(unsigned tree, const char *name)
{
    for (unsigned i = 0; i < heard.count; i++)
        if (heard.note[i].tree == tree && strcmp(heard.note[i].name, name) == 0)
            return true;
    return false;
}

static struct loop_timer guard;

static void start_guard(void)
{
    loop_timer_start(&loop, &guard, GUARD_SECONDS * NSEC_PER_SEC, on_guard);
}

static void wait_for_note(unsigned tree, const char *name)
{
    start_guard();
    while (!has_note(tree, name))
        turn();
    loop_timer_stop(&guard);
}

static void wait_for_everywhere(unsigned tree)
{
    start_guard();
    while (!heard.everywhere[tree])
        turn();
    loop_timer_stop(&guard);
}

/* ---- files ------------------------------------------------------------------------------- */

static void make_directory(const char *path)
{
    assert_int_equal(mkdirat(scratch_fd, path, 0700), 0);
}

static void write_file(const char *path, const char *text)
{
    int fd = openat(scratch_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void move(const char *from, const char *to)
{
    assert_int_equal(renameat(scratch_fd, from, scratch_fd, to), 0);
}

static void remove_directory(const char *path)
{
    assert_int_equal(unlinkat(scratch_fd, path, AT_REMOVEDIR), 0);
}

static unsigned add_tree(const char *path)
{
    unsigned tree;

    assert_int_equal(watch_directories_add_tree(watch, path, &tree), 0);
    return tree;
}

/* Events come in order: when this name was heard of, so was everything before it. */
static void drain(const char *root, unsigned tree)
{
    static unsigned number;
    char path[300], *name;

    (void)snprintf(path, sizeof(path), "%s/drained-%u", root, number++);
    name = strrchr(path, '/') + 1;
    make_directory(path);
    wait_for_note(tree, name);
}

static int start(void **state)
{
    (void)state;
    (void)snprintf(scratch, sizeof(scratch), "/tmp/directories-test-XXXXXX");
    if (!mkdtemp(scratch) || path_open_root(scratch, &scratch_fd) < 0 || loop_init(&loop) < 0)
        return -1;
    forget_notes();
    return watch_directories_new(&loop, scratch_fd, &handler, NULL, &watch);
}

/* The scratch directory must be opened in the namespace in which things are mounted over it. */
static int start_in_namespace(void **state)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        may_mount = false;
    return start(state);
}

static int stop(void **state)
{
    char command[128];

    (void)state;
    loop_timer_stop(&guard);
    watch = watch_directories_free(watch);
    loop_done(&loop);
    fd_close(scratch_fd);
    (void)snprintf(command, sizeof(command), "rm -rf %s", scratch);
    return system(command);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void hears_of_children_and_their_files(void **state)
{
    unsigned tree;

    (void)state;
    make_directory("root");
    tree = add_tree("/root");
    assert_int_equal(tree, 0);
    assert_true(watch_directories_has_root(watch, tree));
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

    (void)state;
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

    (void)state;
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

    (void)state;
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

    (void)state;
    make_directory("root");
    make_directory("root/a");
    tree = add_tree("/root");
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    remove_directory("root/a");
    wait_for_note(tree, "a");
    drain("root", tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 1);
}

static void waits_for_an_absent_root(void **state)
{
    unsigned tree = add_tree("/one/two/three");

    (void)state;
    assert_false(watch_directories_has_root(watch, tree));
    wait_for_everywhere(tree);
    forget_notes();
    make_directory("one");
    make_directory("one/two");
    make_directory("one/two/three");
    wait_for_everywhere(tree);
    assert_true(watch_directories_has_root(watch, tree));
    make_directory("one/two/three/a");
    wait_for_note(tree, "a");
}

/* Once the way is complete its directories have nothing to report but themselves. */
static void is_not_woken_by_neighbours(void **state)
{
    unsigned tree = add_tree("/one/two");
    uint64_t events;

    (void)state;
    make_directory("one");
    make_directory("one/two");
    wait_for_everywhere(tree);
    while (!watch_directories_has_root(watch, tree))
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

    (void)state;
    make_directory("root");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    forget_notes();
    remove_directory("root");
    wait_for_everywhere(tree);
    assert_false(watch_directories_has_root(watch, tree));
    forget_notes();
    make_directory("root");
    wait_for_everywhere(tree);
    assert_true(watch_directories_has_root(watch, tree));
    make_directory("root/a");
    wait_for_note(tree, "a");
}

static void takes_up_a_root_that_was_replaced(void **state)
{
    unsigned tree;

    (void)state;
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

    (void)state;
    make_directory("one");
    make_directory("one/two");
    make_directory("one/two/root");
    tree = add_tree("/one/two/root");
    wait_for_everywhere(tree);
    forget_notes();
    move("one", "gone");
    wait_for_everywhere(tree);
    assert_false(watch_directories_has_root(watch, tree));
    forget_notes();
    move("gone", "one");
    wait_for_everywhere(tree);
    assert_true(watch_directories_has_root(watch, tree));
}

static void serves_two_trees_at_one_root(void **state)
{
    unsigned first, second;

    (void)state;
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

    (void)state;
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

/* Mounting over a directory is no event of it; whoever watches the mounts says so. */
static void notices_what_is_mounted_over_a_root(void **state)
{
    char path[128];
    unsigned tree;

    (void)state;
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
    assert_true(watch_directories_has_root(watch, tree));
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

static unsigned long queue_limit(void)
{
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    unsigned long limit = 0;

    if (file) {
        if (fscanf(file, "%lu", &limit) != 1)
            limit = 0;
        (void)fclose(file);
    }
    return limit;
}

static void starts_over_after_an_overflow(void **state)
{
    unsigned long limit = queue_limit();
    unsigned tree;

    (void)state;
    if (!limit || limit > 100000)
        skip();
    make_directory("root");
    make_directory("root/a");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    for (unsigned long i = 0; i < limit / 2 + 8; i++) {
        make_directory("root/x");
        remove_directory("root/x");
    }
    make_directory("root/lost");
    forget_notes();
    wait_for_everywhere(tree);
    assert_int_equal(watch_directories_counters(watch)->overflows, 1);
    forget_notes();
    assert_int_equal(watch_directories_arm(watch, tree, "a"), 0);
    write_file("root/a/file", "");
    wait_for_note(tree, "a");
    drain("root", tree);
    assert_int_equal(watch_directories_counters(watch)->overflows, 1);
}

/* ---- nothing is lost --------------------------------------------------------------------- */

static bool recorded[VOLUMES];
static unsigned recordings;

static void volume_path(unsigned number, const char *file, char *ret_path, size_t size)
{
    (void)snprintf(ret_path, size, "root/volume-%04u%s", number, file);
}

/* Kata's way: mkdir, create, write in place. */
static void write_volumes(void)
{
    char path[64];

    for (unsigned i = 0; i < VOLUMES; i++) {
        volume_path(i, "", path, sizeof(path));
        make_directory(path);
        volume_path(i, "/mountInfo.json", path, sizeof(path));
        write_file(path, "complete");
    }
    _exit(0);
}

static void look_at_volume(unsigned tree, const char *name)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(64);
    cleanup(fd_closep) int directory = -1;
    char path[300];
    unsigned number;

    if (sscanf(name, "volume-%u", &number) != 1 || recorded[number])
        return;
    if (watch_directories_arm(watch, tree, name) != 0)
        return;
    (void)snprintf(path, sizeof(path), "root/%s", name);
    if (path_open_directory_in_root(scratch_fd, path, &directory) < 0 ||
        path_read_below(directory, "mountInfo.json", &text, NULL, NULL) != PATH_OK ||
        strcmp(buffer_text(&text), "complete") != 0)
        return;
    recorded[number] = true;
    recordings++;
}

static void loses_none_of_two_thousand(void **state)
{
    unsigned tree;
    int status;
    pid_t writer;

    (void)state;
    make_directory("root");
    tree = add_tree("/root");
    wait_for_everywhere(tree);
    writer = fork();
    if (writer == 0)
        write_volumes();
    start_guard();
    while (recordings < VOLUMES) {
        forget_notes();
        turn();
        for (unsigned i = 0; i < heard.count; i++)
            look_at_volume(tree, heard.note[i].name);
    }
    loop_timer_stop(&guard);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(watch_directories_counters(watch)->overflows, 0);
}

/* ---- no more watches --------------------------------------------------------------------- */

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
    watch_directories_look_at_unarmed(watch);
    wait_for_note(tree, "b");
    write_limit("/proc/sys/user/max_inotify_watches", "4");
    if (watch_directories_arm(watch, tree, "b") != 0 || watch_directories_unarmed(watch) != 0)
        _exit(1);
    _exit(stop(NULL) != 0);
}

static void says_when_there_are_no_more_watches(void **state)
{
    pid_t child = fork();
    int status;

    (void)state;
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
        cmocka_unit_test_setup_teardown(hears_of_children_and_their_files, start, stop),
        cmocka_unit_test_setup_teardown(arms_directories_only, start, stop),
        cmocka_unit_test_setup_teardown(follows_a_renamed_child, start, stop),
        cmocka_unit_test_setup_teardown(hears_of_a_child_that_replaces_another, start, stop),
        cmocka_unit_test_setup_teardown(hears_of_removal, start, stop),
        cmocka_unit_test_setup_teardown(waits_for_an_absent_root, start, stop),
        cmocka_unit_test_setup_teardown(is_not_woken_by_neighbours, start, stop),
        cmocka_unit_test_setup_teardown(takes_up_a_root_that_comes_back, start, stop),
        cmocka_unit_test_setup_teardown(takes_up_a_root_that_was_replaced, start, stop),
        cmocka_unit_test_setup_teardown(notices_that_a_parent_was_replaced, start, stop),
        cmocka_unit_test_setup_teardown(serves_two_trees_at_one_root, start, stop),
        cmocka_unit_test_setup_teardown(serves_a_tree_inside_another, start, stop),
        cmocka_unit_test_setup_teardown(starts_over_after_an_overflow, start, stop),
        cmocka_unit_test_setup_teardown(loses_none_of_two_thousand, start, stop),
        cmocka_unit_test(says_when_there_are_no_more_watches),
        cmocka_unit_test_setup_teardown(notices_what_is_mounted_over_a_root, start_in_namespace,
                                        stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
