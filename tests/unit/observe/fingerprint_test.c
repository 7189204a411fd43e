/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint_test.c - every change shows, and being moved is none. */
#include "tests/unit/tree.h"

#include <sys/time.h>

#include "observe/observe.h"

#define ENTRY "/volumes/key"

static char before[SHA256_HEX_BYTES];
static struct error error;

static int take_of(const char *path, char *ret_text)
{
    cleanup(fd_closep) int fd = open(tree_path(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fingerprint_directory(fd, ret_text, &error);
}

static int start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    tree_make(ENTRY);
    tree_make("/trash");
    tree_write(ENTRY "/mountInfo.json", "{\"device\":\"/dev/a\"}");
    tree_write(ENTRY "/sandbox", "");
    assert_int_equal(take_of(ENTRY, before), FINGERPRINT_TAKEN);
    return 0;
}

static void expect(bool same)
{
    char now[SHA256_HEX_BYTES];

    assert_int_equal(take_of(ENTRY, now), FINGERPRINT_TAKEN);
    assert_int_equal(strcmp(now, before) == 0, same);
    memcpy(before, now, sizeof(before));
}

static void a_move_is_not_a_change(void **state)
{
    char moved[SHA256_HEX_BYTES];

    expect(true);
    assert_int_equal(rename(tree_path(ENTRY), tree_path("/trash/key")), 0);
    assert_int_equal(take_of("/trash/key", moved), FINGERPRINT_TAKEN);
    assert_string_equal(moved, before);
}

static void every_change_shows(void **state)
{
    static const struct timeval times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    tree_write(ENTRY "/mountInfo.json", "{\"device\":\"/dev/b\"}"); /* as long */
    expect(false);
    tree_write(ENTRY "/another", "");
    expect(false);
    tree_remove(ENTRY "/another");
    expect(false);
    assert_int_equal(utimes(tree_path(ENTRY "/sandbox"), times), 0);
    expect(false);
    assert_int_equal(chmod(tree_path(ENTRY "/sandbox"), 0400), 0);
    expect(false);
    assert_int_equal(utimes(tree_path(ENTRY), times), 0);
    expect(false);
}

static void foreign_content_makes_a_directory_unfit(void **state)
{
    char now[SHA256_HEX_BYTES];

    tree_make(ENTRY "/directory");
    assert_int_equal(take_of(ENTRY, now), FINGERPRINT_UNFIT);
    assert_string_equal(error.text, "directory: not a regular file");
    tree_remove(ENTRY "/directory");
    assert_int_equal(symlink("x", tree_path(ENTRY "/link")), 0);
    assert_int_equal(take_of(ENTRY, now), FINGERPRINT_UNFIT);
    tree_remove(ENTRY "/link");
    assert_int_equal(link(tree_path(ENTRY "/sandbox"), tree_path("/other")), 0);
    assert_int_equal(take_of(ENTRY, now), FINGERPRINT_UNFIT);
    assert_int_equal(unlink(tree_path("/other")), 0);
    assert_int_equal(chmod(tree_path(ENTRY "/sandbox"), 0664), 0);
    assert_int_equal(take_of(ENTRY, now), FINGERPRINT_UNFIT);
    assert_string_equal(error.text, "sandbox: is writable by others than its owner");
}

static void a_file_is_the_same_where_it_is_moved(void **state)
{
    cleanup(fd_closep) int here = open(tree_path(ENTRY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int there = open(tree_path("/trash"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char first[SHA256_HEX_BYTES], second[SHA256_HEX_BYTES];

    assert_int_equal(fingerprint_file(here, "sandbox", first), FINGERPRINT_TAKEN);
    assert_int_equal(renameat(here, "sandbox", there, "sandbox"), 0);
    assert_int_equal(fingerprint_file(here, "sandbox", second), FINGERPRINT_ABSENT);
    assert_int_equal(fingerprint_file(there, "sandbox", second), FINGERPRINT_TAKEN);
    assert_string_equal(first, second);
    tree_write("/trash/sandbox", "x");
    assert_int_equal(fingerprint_file(there, "sandbox", second), FINGERPRINT_UNFIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_move_is_not_a_change, start, tree_stop),
        cmocka_unit_test_setup_teardown(every_change_shows, start, tree_stop),
        cmocka_unit_test_setup_teardown(foreign_content_makes_a_directory_unfit, start, tree_stop),
        cmocka_unit_test_setup_teardown(a_file_is_the_same_where_it_is_moved, start, tree_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
