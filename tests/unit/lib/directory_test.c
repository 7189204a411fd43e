/* SPDX-License-Identifier: Apache-2.0 */
/* directory_test.c - listings and sorted names. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "tests/unit/scratch.h"

struct fixture {
    char path[SCRATCH_BYTES];
    int fd; /* O_PATH */
};

static const char *const files[] = {"b", "a", ".hidden", "c"};

static int set_up(void **state)
{
    static struct fixture fixture;

    assert_int_equal(scratch_directory_make(fixture.path), 0);
    fixture.fd = open(fixture.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(fixture.fd >= 0);
    for (size_t i = 0; i < array_length(files); i++) {
        char path[SCRATCH_BYTES + 16];

        (void)snprintf(path, sizeof(path), "%s/%s", fixture.path, files[i]);
        fd_close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    fd_close(fixture->fd);
    return scratch_directory_remove(fixture->path);
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static void read_all(struct fixture *fixture, unsigned limit, bool (*is_wanted)(const char *name),
                     struct directory_names *ret_names, int outcome)
{
    cleanup(dir_closep) DIR *listing = NULL;

    assert_int_equal(directory_list(fixture->fd, &listing), 0);
    assert_int_equal(directory_read_names(listing, limit, is_wanted, ret_names), outcome);
}

static void names_are_sorted_and_without_dots(void **state)
{
    cleanup(directory_names_done) struct directory_names names = {0};

    read_all(*state, 4, NULL, &names, DIRECTORY_READ);
    assert_int_equal(names.count, 4);
    assert_string_equal(names.name[0], ".hidden");
    assert_string_equal(names.name[1], "a");
    assert_string_equal(names.name[2], "b");
    assert_string_equal(names.name[3], "c");
}

static void only_wanted_names_count(void **state)
{
    cleanup(directory_names_done) struct directory_names names = {0};

    read_all(*state, 3, is_visible, &names, DIRECTORY_READ);
    assert_int_equal(names.count, 3);
    assert_string_equal(names.name[0], "a");
}

static void more_than_the_limit_is_an_outcome(void **state)
{
    cleanup(directory_names_done) struct directory_names names = {0};

    read_all(*state, 2, is_visible, &names, DIRECTORY_TOO_MANY);
    assert_int_equal(names.count, 2);
}

static void a_listing_is_its_own(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 2; i++) {
        cleanup(dir_closep) DIR *listing = NULL;
        unsigned count = 0;

        assert_int_equal(directory_list(fixture->fd, &listing), 0);
        while (directory_next(listing))
            count++;
        assert_int_equal(count, array_length(files));
    }
}

/* More names than its bytes hold at once. */
static void a_reader_gives_each_name_once(void **state)
{
    enum { NAMES = 100 };
    struct fixture *fixture = *state;
    cleanup(fd_closep) int fd = openat(fixture->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct directory_reader reader = {.fd = fd};
    bool seen[NAMES] = {false};
    unsigned count = 0, others = 0, number;
    char name[16];

    for (unsigned i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "name-%08u", i);
        fd_close(openat(fixture->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    for (const char *next; (next = directory_read_next(&reader));) {
        if (sscanf(next, "name-%u", &number) != 1) {
            others++;
            continue;
        }
        assert_false(seen[number]);
        seen[number] = true;
        count++;
    }
    assert_int_equal(errno, 0);
    assert_int_equal(count, NAMES);
    for (unsigned i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "name-%08u", i);
        assert_int_equal(unlinkat(fixture->fd, name, 0), 0);
    }
    assert_int_equal(others, array_length(files));
    assert_null(directory_read_next(&reader));
}

static void unreadable_directory_sets_errno(void **state)
{
    struct fixture *fixture = *state;
    struct directory_reader reader = {.fd = fixture->fd}; /* O_PATH: not to be read */

    assert_null(directory_read_next(&reader));
    assert_int_equal(errno, EBADF);
}

static void unlistable_directories_fail(void **state)
{
    struct fixture *fixture = *state;
    DIR *listing = NULL;

    assert_int_equal(directory_list_below(fixture->fd, "none", &listing), PATH_MISSING);
    assert_int_equal(directory_list_below(fixture->fd, "a", &listing), PATH_BELOW_A_FILE);
    assert_int_equal(directory_list_in_root(fixture->fd, "/none", &listing), PATH_MISSING);
    assert_null(listing);
}

static void a_file_is_written_as_a_whole(void **state)
{
    struct fixture *fixture = *state;
    char text[8] = "";
    int fd;

    assert_int_equal(path_write_below(fixture->fd, "a", O_EXCL, 0600, "text", 4), PATH_IS_TAKEN);
    assert_int_equal(path_write_below(fixture->fd, "a", O_TRUNC, 0600, "longer", 6), 0);
    assert_int_equal(path_write_below(fixture->fd, "a", O_TRUNC, 0600, "text", 4), 0);
    fd = openat(fixture->fd, "a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_string_equal(text, "text");
    fd_close(fd);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_are_sorted_and_without_dots), TEST(only_wanted_names_count),
        TEST(more_than_the_limit_is_an_outcome), TEST(a_listing_is_its_own),
        TEST(a_reader_gives_each_name_once),     TEST(unreadable_directory_sets_errno),
        TEST(unlistable_directories_fail),       TEST(a_file_is_written_as_a_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
