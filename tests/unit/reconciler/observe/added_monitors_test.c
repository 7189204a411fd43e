/* added_monitors_test.c - real processes that name a socket, or none. */
#include "tests/unit/reconciler/observe/node_fixture.h"

#include "reconciler/observe/added_monitors.h"

#define ID "beadbeadbeadbeadbeadbeadbeadbeadbeadbeadbeadbeadbeadbeadbeadbead"

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
    (void)state;
    need_root();
    assert_string_equal(find_abandoned(NULL), "");
    make_socket(ADDED_MONITORS, ID ".sock");
    assert_string_equal(find_abandoned(NULL), ID ".sock ");
    assert_string_equal(find_abandoned(ID), "");
    assert_string_equal(find_abandoned("another"), ID ".sock ");
}

static void whoever_names_it_serves_it(void **state)
{
    static const char *const arguments[][2] = {
        {"-qmp", "unix:" ADDED_MONITORS "/" ID ".sock,server=on,wait=off"},
        {"-chardev", "socket,id=mon,path=" ADDED_MONITORS "/" ID ".sock"},
        {"-name", "sandbox-" ID ",debug-threads=on"},
        {"-name", "sandbox-" ID},
    };

    (void)state;
    need_root();
    make_socket(ADDED_MONITORS, ID ".sock");
    for (size_t i = 0; i < array_length(arguments); i++) {
        (void)start_process("/", "qemu", arguments[i][0], arguments[i][1], NULL);
        assert_string_equal(find_abandoned(NULL), "");
        stop_processes();
    }
    (void)start_process("/", "qemu", "-name", "sandbox-" ID "0", NULL);
    assert_string_equal(find_abandoned(NULL), ID ".sock ");
}

static void a_zombie_serves_nothing(void **state)
{
    (void)state;
    need_root();
    make_socket(ADDED_MONITORS, ID ".sock");
    (void)kill(start_process("/", "qemu", "-name", "sandbox-" ID, NULL), SIGKILL);
    /* Until it is dead, without taking its status. */
    assert_int_equal(waitid(P_PID, (id_t)process[0], &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_string_equal(find_abandoned(NULL), ID ".sock ");
}

static void what_is_not_crust_qemus_is_left_alone(void **state)
{
    (void)state;
    need_root();
    write_file(ADDED_MONITORS "/" ID ".sock", "");
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

    (void)state;
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

    (void)state;
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
        TEST(whoever_names_it_serves_it),
        TEST(a_zombie_serves_nothing),
        TEST(what_is_not_crust_qemus_is_left_alone),
        TEST(a_trial_is_its_process),
        TEST(the_directory_must_be_roots_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
