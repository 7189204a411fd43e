/* SPDX-License-Identifier: Apache-2.0 */
/* directories_loss_test.c - no volume is lost, neither in a crowd nor when the queue overflows. */
#include "tests/unit/watch/directories.h"

#include <sys/wait.h>

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

enum { VOLUMES = 2000 };

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

static void observe_volume(unsigned tree, const char *name)
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
            observe_volume(tree, heard.note[i].name);
    }
    loop_timer_stop(&guard);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(watch_directories_counters(watch)->overflows, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(starts_over_after_an_overflow),
        TEST(loses_none_of_two_thousand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
