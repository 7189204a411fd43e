/* SPDX-License-Identifier: Apache-2.0 */
/* monitors_test.c - the socket that was seen is removed, and no other. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/added_monitors.h"
#include "reconciler/cleanup/monitors.h"
#include "tests/unit/scratch.h"

#define NAME "a.sock"

static char scratch[SCRATCH_BYTES];
static int directory;

static int listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory,
                   name);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static bool is_served(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" NAME, directory);
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool is_there(const char *name)
{
    struct stat status;

    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct added_monitor look(void)
{
    struct stat status;

    assert_int_equal(fstatat(directory, NAME, &status, AT_SYMLINK_NOFOLLOW), 0);
    return (struct added_monitor){NAME, status.st_dev, status.st_ino, status.st_mtim};
}

static void the_one_that_was_seen_is_removed(void **state)
{
    cleanup(fd_closep) int fd = listen_at(NAME);
    struct added_monitor seen = look();

    (void)state;
    (void)fd; /* held while it listens */
    assert_int_equal(monitors_remove_socket(directory, &seen), 0);
    assert_false(is_there(NAME));
    assert_false(is_there(".gone"));
    assert_int_equal(monitors_remove_socket(directory, &seen), 1);
}

static void another_in_its_place_stays_and_is_served(void **state)
{
    cleanup(fd_closep) int first = listen_at(NAME), second = -1;
    struct added_monitor seen = look();

    (void)state;
    (void)first;
    /* As QEMU does at its start. The first one keeps its inode from being taken again. */
    assert_int_equal(linkat(directory, NAME, directory, "held", 0), 0);
    assert_int_equal(unlinkat(directory, NAME, 0), 0);
    second = listen_at(NAME);
    assert_int_equal(monitors_remove_socket(directory, &seen), 1);
    assert_true(is_served());
    assert_false(is_there(".gone"));
}

static void leftovers_of_an_earlier_removal_do_not_hinder(void **state)
{
    cleanup(fd_closep) int fd = listen_at(NAME), left = listen_at(".gone");
    struct added_monitor seen = look();

    (void)state;
    (void)fd;
    (void)left;
    assert_int_equal(monitors_remove_socket(directory, &seen), 0);
    assert_false(is_there(NAME));
    assert_false(is_there(".gone"));
}

static int start(void **state)
{
    (void)state;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
    fd_close(directory);
    return scratch_directory_remove(scratch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_one_that_was_seen_is_removed),
        TEST(another_in_its_place_stays_and_is_served),
        TEST(leftovers_of_an_earlier_removal_do_not_hinder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
