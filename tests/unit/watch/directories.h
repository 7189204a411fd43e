/* SPDX-License-Identifier: Apache-2.0 */
/* directories.h - the watch of directories on a real loop and a scratch directory.
 *
 * The listener here does what the reconciler does: it only takes notes while the loop calls it, and
 * looks when the turn is over, arming before it reads. Waiting means turning the loop until a
 * condition holds; that it never does is a failure after GUARD_SECONDS, which no passing run
 * reaches.
 */
#pragma once

#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"
#include "watch/watch.h"

enum { GUARD_SECONDS = 60, NOTES = 65536, TREES = 2 };

static char scratch[SCRATCH_BYTES];
static int scratch_fd;
static struct loop loop;
static struct watch_directories *watch;

static struct {
    unsigned count;
    struct {
        unsigned tree;
        char name[256];
    } note[NOTES];
    unsigned everywhere[TREES];
    bool in_loop; /* calls are allowed */
} heard;

static inline void note(void *userdata, unsigned tree, const char *name)
{
    assert_true(heard.in_loop);
    assert_true(heard.count < NOTES);
    heard.note[heard.count].tree = tree;
    (void)snprintf(heard.note[heard.count].name, sizeof(heard.note[0].name), "%s", name);
    heard.count++;
}

static inline void note_everywhere(void *userdata, unsigned tree)
{
    assert_true(heard.in_loop);
    assert_true(tree < TREES);
    heard.everywhere[tree]++;
}

static const struct watch_directories_handler handler = {note, note_everywhere};

static inline void forget_notes(void)
{
    heard.count = 0;
    memset(heard.everywhere, 0, sizeof(heard.everywhere));
}

static inline void on_guard(struct loop_timer *timer)
{
    fail_msg("what was waited for never came");
}

static inline void turn(void)
{
    heard.in_loop = true;
    loop_run_once(&loop);
    heard.in_loop = false;
}

static inline bool has_note(unsigned tree, const char *name)
{
    for (unsigned i = 0; i < heard.count; i++)
        if (heard.note[i].tree == tree && strcmp(heard.note[i].name, name) == 0)
            return true;
    return false;
}

static struct loop_timer guard;

static inline void start_guard(void)
{
    loop_timer_start(&loop, &guard, GUARD_SECONDS * NSEC_PER_SEC, on_guard);
}

static inline void wait_for_note(unsigned tree, const char *name)
{
    start_guard();
    while (!has_note(tree, name))
        turn();
    loop_timer_stop(&guard);
}

static inline void wait_for_everywhere(unsigned tree)
{
    start_guard();
    while (!heard.everywhere[tree])
        turn();
    loop_timer_stop(&guard);
}

/* ---- files ------------------------------------------------------------------------------- */

static inline void make_directory(const char *path)
{
    assert_int_equal(mkdirat(scratch_fd, path, 0700), 0);
}

static inline void write_file(const char *path, const char *text)
{
    int fd = openat(scratch_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static inline void move(const char *from, const char *to)
{
    assert_int_equal(renameat(scratch_fd, from, scratch_fd, to), 0);
}

static inline void remove_directory(const char *path)
{
    assert_int_equal(unlinkat(scratch_fd, path, AT_REMOVEDIR), 0);
}

static inline unsigned add_tree(const char *path)
{
    unsigned tree;

    assert_int_equal(watch_directories_add_tree(watch, path, &tree), 0);
    return tree;
}

/* Events come in order: when this name was heard of, so was everything before it. */
static inline void drain(const char *root, unsigned tree)
{
    static unsigned number;
    char path[300], *name;

    (void)snprintf(path, sizeof(path), "%s/drained-%u", root, number++);
    name = strrchr(path, '/') + 1;
    make_directory(path);
    wait_for_note(tree, name);
}

static inline int start(void **state)
{
    if (scratch_directory_make(scratch) < 0 || path_open_root(scratch, &scratch_fd) < 0 ||
        loop_init(&loop) < 0)
        return -1;
    forget_notes();
    return watch_directories_new(&loop, scratch_fd, &handler, NULL, &watch);
}

static inline int stop(void **state)
{
    loop_timer_stop(&guard);
    watch = watch_directories_free(watch);
    loop_done(&loop);
    fd_close(scratch_fd);
    return scratch_directory_remove(scratch);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start, stop)
