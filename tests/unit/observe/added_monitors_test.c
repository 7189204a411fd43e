/* SPDX-License-Identifier: Apache-2.0 */
/* added_monitors_test.c - real processes that name a socket, or none. */
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#include "observe/process_scan.h"

/* A sandbox that no process has which another run of this test has started. Its id stands in the
 * place of the text's @; what is returned lasts until three more are made. */
static const char *with_id(const char *text)
{
    static char texts[4][256];
    static unsigned next;
    char *made = texts[next++ % array_length(texts)];
    const char *at = strchr(text, '@');

    (void)snprintf(made, sizeof(texts[0]), "%.*s%08x%056d%s", (int)(at - text), text,
                   (unsigned)getpid(), 0, at + 1);
    return made;
}

#define ID     with_id("@")
#define SOCKET with_id("@.sock")

/* The directory has to be root's. */
static void need_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* The names that are abandoned, each followed by a space. */
static const char *find_abandoned(const char *kept)
{
    static char names[1024];
    struct added_monitors *monitors = NULL;
    struct added_monitor monitor;
    size_t length = 0;
    int r;

    names[0] = '\0';
    assert_int_equal(added_monitors_read(paths.root, &monitors), 0);
    if (kept)
        added_monitors_keep(monitors, kept);
    while ((r = added_monitors_step(monitors)) > 0)
        ;
    assert_int_equal(r, 0);
    while (added_monitors_next(monitors, &monitor))
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s ", monitor.name);
    added_monitors_free(monitors);
    return names;
}

static int start_monitors(void **state)
{
    if (start(state) < 0)
        return -1;
    make_directory(ADDED_MONITORS);
    return 0;
}

static void a_socket_that_no_process_names_is_abandoned(void **state)
{
    need_root();
    assert_string_equal(find_abandoned(NULL), "");
    make_socket(ADDED_MONITORS, SOCKET);
    assert_string_equal(find_abandoned(NULL), with_id("@.sock "));
    assert_string_equal(find_abandoned(ID), "");
    assert_string_equal(find_abandoned("another"), with_id("@.sock "));
}

static void a_process_that_names_the_socket_serves_it(void **state)
{
    static const char *const arguments[][2] = {
        {"-qmp", "unix:" ADDED_MONITORS "/@.sock,server=on,wait=off"},
        {"-chardev", "socket,id=mon,path=" ADDED_MONITORS "/@.sock"},
        {"-name", "sandbox-@,debug-threads=on"},
        {"-name", "sandbox-@"},
    };

    need_root();
    make_socket(ADDED_MONITORS, SOCKET);
    for (size_t i = 0; i < array_length(arguments); i++) {
        (void)start_process("/", "qemu", arguments[i][0], with_id(arguments[i][1]), NULL);
        assert_string_equal(find_abandoned(NULL), "");
        stop_processes();
    }
    (void)start_process("/", "qemu", "-name", with_id("sandbox-@0"), NULL);
    assert_string_equal(find_abandoned(NULL), with_id("@.sock "));
}

static void a_zombie_serves_nothing(void **state)
{
    need_root();
    make_socket(ADDED_MONITORS, SOCKET);
    (void)kill(start_process("/", "qemu", "-name", with_id("sandbox-@"), NULL), SIGKILL);
    /* Until it is dead, without taking its status. */
    assert_int_equal(waitid(P_PID, (id_t)process[0], &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_string_equal(find_abandoned(NULL), with_id("@.sock "));
}

static void foreign_files_are_left_alone(void **state)
{
    need_root();
    write_file(with_id(ADDED_MONITORS "/@.sock"), "");
    make_directory(ADDED_MONITORS "/directory.sock");
    make_socket(ADDED_MONITORS, "no-suffix");
    make_socket(ADDED_MONITORS, ".sock");
    make_socket(ADDED_MONITORS, ".12x");
    make_socket(ADDED_MONITORS, "a b.sock");
    assert_int_equal(symlink("no-suffix", in_scratch(ADDED_MONITORS "/link.sock")), 0);
    assert_string_equal(find_abandoned(NULL), "");
}

static void a_trial_is_its_process(void **state)
{
    char name[32];

    need_root();
    (void)snprintf(name, sizeof(name), ".%d", (int)getpid());
    make_socket(ADDED_MONITORS, name);
    make_socket(ADDED_MONITORS, ".99999999"); /* no pid is that large */
    assert_string_equal(find_abandoned(NULL), ".99999999 ");
}

static void the_directory_must_be_roots_alone(void **state)
{
    struct added_monitors *monitors = NULL;
    const char *directory = in_scratch(ADDED_MONITORS);

    need_root();
    assert_int_equal(chmod(directory, 0710), 0);
    assert_int_equal(added_monitors_read(paths.root, &monitors), -EPERM);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(added_monitors_read(paths.root, &monitors), -ENOENT);
    assert_int_equal(symlink("/tmp", directory), 0);
    assert_int_equal(added_monitors_read(paths.root, &monitors), -ELOOP);
    assert_null(monitors);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_monitors, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_socket_that_no_process_names_is_abandoned),
        TEST(a_process_that_names_the_socket_serves_it),
        TEST(a_zombie_serves_nothing),
        TEST(foreign_files_are_left_alone),
        TEST(a_trial_is_its_process),
        TEST(the_directory_must_be_roots_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
