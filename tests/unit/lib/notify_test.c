/* SPDX-License-Identifier: Apache-2.0 */
/* notify_test.c - what a service manager's socket receives. The socket is real, in both kinds. */
#include "tests/unit/test.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/notify.h"
#include "tests/unit/scratch.h"

static struct loop loop;
static struct notify notify;
static struct error error;
static char scratch[SCRATCH_BYTES];
static int manager;

static int set_up(void **state)
{
    notify = (struct notify)NOTIFY_INIT;
    error = (struct error){0};
    manager = -1;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    notify_done(&notify);
    loop_done(&loop);
    if (manager >= 0)
        (void)close(manager);
    return scratch_directory_remove(scratch);
}

/* A manager that listens below this name, "@" meaning abstract, and says so in the environment. */
static void listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

    memcpy(address.sun_path, name, strlen(name));
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(manager >= 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&address, length), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
}

static void listen_in_scratch(void)
{
    char path[80];

    (void)snprintf(path, sizeof(path), "%s/notify", scratch);
    listen_at(path);
}

static void receive(char ret_text[static 256])
{
    ssize_t length = recv(manager, ret_text, 255, 0);

    assert_true(length > 0);
    ret_text[length] = '\0';
}

static void assert_notified(const char *text)
{
    char received[256];

    receive(received);
    assert_string_equal(received, text);
}

static void assert_silent(void)
{
    char byte;

    assert_int_equal(recv(manager, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void states_of_a_life_are_notified(void **state)
{
    listen_in_scratch();
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_int_equal(notify_status(&notify, "scanning"), 0);
    assert_int_equal(notify_status(&notify, "scanning"), 0);
    assert_int_equal(notify_ready(&notify), 0);
    assert_int_equal(notify_stopping(&notify), 0);
    assert_notified("STATUS=scanning");
    assert_notified("READY=1");
    assert_notified("STOPPING=1");
    assert_silent();
}

static void abstract_socket_name_is_supported(void **state)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "@%s", scratch);
    listen_at(name);
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    assert_int_equal(notify_ready(&notify), 0);
    assert_notified("READY=1");
}

static void reload_notification_has_its_start_time(void **state)
{
    struct timespec now;
    uint64_t before, began;
    char text[256];

    listen_in_scratch();
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    before = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    assert_int_equal(notify_reloading(&notify), 0);
    receive(text);
    assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%" SCNu64, &began), 1);
    assert_true(began >= before);
}

static void cuts_a_long_status(void **state)
{
    char text[NOTIFY_STATUS_BYTES * 2], received[256];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    listen_in_scratch();
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    assert_int_equal(notify_status(&notify, text), 0);
    receive(received);
    assert_int_equal(strlen(received), strlen("STATUS=") + NOTIFY_STATUS_BYTES - 1);
}

static void beats_from_the_loop(void **state)
{
    char pid[32];

    listen_in_scratch();
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    (void)setenv("WATCHDOG_USEC", "2000", 1);
    (void)setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    assert_int_equal(notify.beat, NSEC_PER_MSEC);
    assert_silent();
    for (int i = 0; i < 3; i++) {
        loop_run_once(&loop);
        assert_notified("WATCHDOG=1");
    }
}

static void has_no_watchdog_of_others(void **state)
{
    static const struct {
        const char *microseconds, *pid;
    } cases[] = {
        {"2000", "1"}, {"2000", ""},    {"0", NULL},  {"", NULL},
        {"-1", NULL},  {"2000s", NULL}, {NULL, NULL}, {"99999999999999999999", NULL},
    };

    listen_in_scratch();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[80];

        (void)snprintf(name, sizeof(name), "%s/notify", scratch);
        (void)setenv("NOTIFY_SOCKET", name, 1);
        if (cases[i].microseconds)
            (void)setenv("WATCHDOG_USEC", cases[i].microseconds, 1);
        if (cases[i].pid)
            (void)setenv("WATCHDOG_PID", cases[i].pid, 1);
        assert_int_equal(notify_init(&notify, &loop, &error), 0);
        assert_int_equal(notify.beat, 0);
        notify_done(&notify);
    }
}

static void is_silent_without_a_manager(void **state)
{
    (void)setenv("WATCHDOG_USEC", "2000", 1);
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    assert_int_equal(notify.beat, 0);
    assert_int_equal(notify_ready(&notify), 0);
    assert_int_equal(notify_status(&notify, "up"), 0);
    assert_int_equal(notify_reloading(&notify), 0);
    assert_int_equal(notify_stopping(&notify), 0);
}

static void refuses_malformed_addresses(void **state)
{
    static const char *const names[] = {"relative", "/", "@", "vsock:2:1234", NULL};
    char endless[200];

    for (size_t i = 0; names[i]; i++) {
        (void)setenv("NOTIFY_SOCKET", names[i], 1);
        assert_int_equal(notify_init(&notify, &loop, &error), -EINVAL);
        assert_non_null(strstr(error.text, names[i]));
        assert_int_equal(notify_ready(&notify), 0);
    }
    memset(endless, '/', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    (void)setenv("NOTIFY_SOCKET", endless, 1);
    assert_int_equal(notify_init(&notify, &loop, &error), -EINVAL);
}

static void vanished_manager_is_reported(void **state)
{
    listen_in_scratch();
    assert_int_equal(notify_init(&notify, &loop, &error), 0);
    (void)close(manager);
    manager = -1;
    assert_int_equal(notify_ready(&notify), -ECONNREFUSED);
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_scratch(states_of_a_life_are_notified),
        in_scratch(abstract_socket_name_is_supported),
        in_scratch(reload_notification_has_its_start_time),
        in_scratch(cuts_a_long_status),
        in_scratch(beats_from_the_loop),
        in_scratch(has_no_watchdog_of_others),
        in_scratch(is_silent_without_a_manager),
        in_scratch(refuses_malformed_addresses),
        in_scratch(vanished_manager_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
