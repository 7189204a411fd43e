/* SPDX-License-Identifier: Apache-2.0 */
/* mounts_test.c - a mount in a mount namespace of its own. */
#include "tests/unit/test.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>

#include "tests/unit/scratch.h"
#include "watch/watch_internal.h"

static struct loop loop;
static unsigned changes;

static void note_change(void *userdata)
{
    changes++;
}

static void hears_of_each_mount(void **state)
{
    char directory[SCRATCH_BYTES];
    struct watch_mounts *watch;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        skip();
    assert_int_equal(scratch_directory_make(directory), 0);
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(watch_mounts_new_at(&loop, "/proc/self/mountinfo", note_change, NULL, &watch),
                     0);
    assert_true(watch_mounts_counters(watch)->up);
    loop_run_once(&loop);
    for (unsigned i = 0; i < 3; i++) {
        changes = 0;
        assert_int_equal(mount("none", directory, "tmpfs", 0, NULL), 0);
        while (!changes)
            loop_run_once(&loop);
        changes = 0;
        assert_int_equal(umount(directory), 0);
        while (!changes)
            loop_run_once(&loop);
    }
    watch_mounts_free(watch);
    loop_done(&loop);
    assert_int_equal(scratch_directory_remove(directory), 0);
}

static void on_timer(struct loop_timer *timer)
{
}

/* A table that is always readable must not keep the loop busy. */
static void is_quiet_between_changes(void **state)
{
    struct watch_mounts *watch;
    struct loop_timer timer = {0};

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        skip();
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(watch_mounts_new_at(&loop, "/proc/self/mountinfo", note_change, NULL, &watch),
                     0);
    loop_run_once(&loop);
    assert_true(changes >= 1); /* the first turn's own call */
    changes = 0;
    for (unsigned i = 0; i < 3; i++) {
        loop_timer_start(&loop, &timer, 0, on_timer);
        loop_run_once(&loop);
    }
    assert_int_equal(changes, 0);
    watch_mounts_free(watch);
    loop_done(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hears_of_each_mount),
        cmocka_unit_test(is_quiet_between_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
