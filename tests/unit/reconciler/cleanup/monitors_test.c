/* SPDX-License-Identifier: Apache-2.0 */
/* monitors_test.c - when sockets of added monitors are looked through, and which of them go: the
 * one that was seen, and no other. */
#include "tests/unit/reconciler/surroundings.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "lib/process.h"
#include "observe/process_scan.h"
#include "reconciler/cleanup/cleaner.h"

#define DIRECTORY "/run/crustd/qemu"
#define NAME      "c.sock"

struct added_monitors {
    bool given[2];
};

static struct {
    struct surroundings node;
    struct monitors monitors;
    int read, step; /* results */
    unsigned steps; /* that are still to be taken */
    unsigned passes, kept;
    struct added_monitors *pass;
    int directory;
} test;

/* ---- the sockets ---- */

bool namespaces_show_all_processes(void)
{
    return true;
}

bool namespaces_user_is_first(void)
{
    return true;
}

bool namespaces_first_has(const char *path, const struct stat *file)
{
    return true;
}

int added_monitors_read(int root_fd, struct added_monitors **ret_monitors)
{
    assert_int_equal(root_fd, root);
    test.passes++;
    if (test.read == 0)
        *ret_monitors = test.pass = calloc(1, sizeof(**ret_monitors));
    return test.read;
}

struct added_monitors *added_monitors_free(struct added_monitors *monitors)
{
    if (monitors)
        test.pass = NULL;
    free(monitors);
    return NULL;
}

void added_monitors_keep(struct added_monitors *monitors, const char *sandbox_id)
{
    assert_ptr_equal(monitors, test.pass);
    assert_string_equal(sandbox_id, "sandbox-1");
    test.kept++;
}

bool added_monitors_are_doubtful(const struct added_monitors *monitors)
{
    assert_ptr_equal(monitors, test.pass);
    return true;
}

int added_monitors_step(struct added_monitors *monitors)
{
    assert_ptr_equal(monitors, test.pass);
    if (test.step < 0)
        return test.step;
    return test.steps > 0 && --test.steps > 0;
}

/* One that is there, and one that has gone by itself. */
bool added_monitors_next(struct added_monitors *monitors, struct added_monitor *ret_monitor)
{
    static const char *const names[] = {"a.sock", "b.sock"};
    struct stat status = {0};

    for (unsigned i = 0; i < 2; i++) {
        if (monitors->given[i])
            continue;
        monitors->given[i] = true;
        (void)fstatat(test.directory, names[i], &status, 0);
        *ret_monitor =
            (struct added_monitor){names[i], status.st_dev, status.st_ino, status.st_mtim};
        return true;
    }
    return false;
}

int added_monitors_directory(const struct added_monitors *monitors)
{
    return test.directory;
}

/* ---- the node ---- */

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    tree_make(DIRECTORY);
    tree_write(DIRECTORY "/a.sock", "");
    tree_write(DIRECTORY "/other.sock", "");
    test.directory = open(tree_path(DIRECTORY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test.monitors.context = &test.node.context;
    test.steps = 3;
    return 0;
}

static int tear_down(void **state)
{
    monitors_done(&test.monitors);
    assert_null(test.pass);
    fd_close(test.directory);
    surroundings_end(&test.node);
    return 0;
}

static void work(void)
{
    monitors_want(&test.monitors);
    assert_true(monitors_are_busy(&test.monitors));
    while (monitors_work(&test.monitors))
        ;
    assert_false(monitors_are_busy(&test.monitors));
}

static bool is_there(void)
{
    return tree_has(DIRECTORY "/a.sock");
}

/* ---- tests ---- */

static void sockets_of_vms_that_are_gone_are_removed(void **state)
{
    assert_false(monitors_work(&test.monitors)); /* nobody wants it */
    assert_int_equal(test.passes, 0);
    work();
    assert_int_equal(test.passes, 1);
    assert_int_equal(test.kept, 1);
    assert_int_equal(test.steps, 0);
    assert_false(is_there());
    assert_true(tree_has(DIRECTORY "/other.sock"));
}

static void nothing_is_removed_after_a_failed_read(void **state)
{
    static const int failures[] = {ADDED_MONITORS_ABSENT, ADDED_MONITORS_EXPOSED, -EIO};

    for (size_t i = 0; i < array_length(failures); i++) {
        test.read = failures[i];
        work();
        assert_true(is_there());
    }
    assert_int_equal(test.passes, 3);
    assert_int_equal(test.kept, 0);
}

static void processes_that_cannot_be_read_remove_nothing(void **state)
{
    test.step = -EMFILE;
    work();
    assert_true(is_there());
    test.step = 0;
    work();
    assert_false(is_there());
}

static void a_store_that_fails_removes_nothing(void **state)
{
    execute_sql(test.node.context.store, "ALTER TABLE sandboxes RENAME COLUMN sandbox_id TO lost");
    work();
    assert_true(is_there());
}

/* ---- one socket ---- */

static int listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s",
                   test.directory, name);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static bool is_served(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" NAME,
                   test.directory);
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool has(const char *name)
{
    struct stat status;

    return fstatat(test.directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct added_monitor look(void)
{
    struct stat status;

    assert_int_equal(fstatat(test.directory, NAME, &status, AT_SYMLINK_NOFOLLOW), 0);
    return (struct added_monitor){NAME, status.st_dev, status.st_ino, status.st_mtim};
}

static void the_one_that_was_seen_is_removed(void **state)
{
    cleanup(fd_closep) int fd = listen_at(NAME);
    struct added_monitor seen = look();

    (void)fd; /* held while it listens */
    assert_int_equal(monitors_remove_socket(test.directory, &seen), 0);
    assert_false(has(NAME));
    assert_false(has(".gone"));
    assert_int_equal(monitors_remove_socket(test.directory, &seen), 1);
}

static void another_in_its_place_stays_and_is_served(void **state)
{
    cleanup(fd_closep) int first = listen_at(NAME), second = -1;
    struct added_monitor seen = look();

    (void)first;
    /* As QEMU does at its start. The first one keeps its inode from being taken again. */
    assert_int_equal(linkat(test.directory, NAME, test.directory, "held", 0), 0);
    assert_int_equal(unlinkat(test.directory, NAME, 0), 0);
    second = listen_at(NAME);
    assert_int_equal(monitors_remove_socket(test.directory, &seen), 1);
    assert_true(is_served());
    assert_false(has(".gone"));
}

static void leftovers_of_an_earlier_removal_do_not_hinder(void **state)
{
    cleanup(fd_closep) int fd = listen_at(NAME), left = listen_at(".gone");
    struct added_monitor seen = look();

    (void)fd;
    (void)left;
    assert_int_equal(monitors_remove_socket(test.directory, &seen), 0);
    assert_false(has(NAME));
    assert_false(has(".gone"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sockets_of_vms_that_are_gone_are_removed),
        TEST(nothing_is_removed_after_a_failed_read),
        TEST(processes_that_cannot_be_read_remove_nothing),
        TEST(a_store_that_fails_removes_nothing),
        TEST(the_one_that_was_seen_is_removed),
        TEST(another_in_its_place_stays_and_is_served),
        TEST(leftovers_of_an_earlier_removal_do_not_hinder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
