/* SPDX-License-Identifier: Apache-2.0 */
/* block_test.c - the kernel's own uevents, and others' forgeries.
 *
 * Writing "change" into a block device's uevent file has the kernel itself send one, so no device
 * needs to be made or touched. Without such a device, or without the rights, a test is skipped.
 */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <glob.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "watch/watch_internal.h"

enum { GUARD_SECONDS = 60, RECEIVE_BYTES = 1024 * 1024, TINY_BYTES = 4096, STORM = 600 };

static struct loop loop;
static struct watch_block *watch;
static struct loop_timer guard;
static unsigned wanted_major, wanted_minor, looked, queued_forged, everywhere;

static void queue_device(void *userdata, uint32_t major, uint32_t minor)
{
    looked += major == wanted_major && minor == wanted_minor;
    queued_forged += major == 4242;
}

static void capacity_changed(void *userdata, const char *devpath)
{
}

static void queue_all_devices(void *userdata)
{
    everywhere++;
}

static const struct watch_block_handler handler = {queue_device, capacity_changed,
                                                   queue_all_devices};

static void on_guard(struct loop_timer *timer)
{
    fail_msg("what was waited for never came");
}

static void wait_until(const unsigned *count)
{
    loop_timer_start(&loop, &guard, GUARD_SECONDS * NSEC_PER_SEC, on_guard);
    while (!*count)
        loop_run_once(&loop);
    loop_timer_stop(&guard);
}

static int start_sized(int bytes)
{
    looked = queued_forged = everywhere = 0;
    assert_int_equal(loop_init(&loop), 0);
    return watch_block_new_sized(&loop, &handler, NULL, bytes, &watch);
}

static int start(void **state)
{
    return start_sized(RECEIVE_BYTES);
}

static int start_tiny(void **state)
{
    return start_sized(TINY_BYTES);
}

static int stop(void **state)
{
    loop_timer_stop(&guard);
    watch = watch_block_free(watch);
    loop_done(&loop);
    return 0;
}

/* The uevent file of some block device whose number is then the wanted one; -1 none. */
static int open_uevent_file(void)
{
    glob_t found;
    int fd = -1;

    if (glob("/sys/dev/block/*", 0, NULL, &found) != 0)
        return -1;
    for (size_t i = 0; i < found.gl_pathc && fd < 0; i++) {
        char path[128];

        if (sscanf(found.gl_pathv[i], "/sys/dev/block/%u:%u", &wanted_major, &wanted_minor) != 2)
            continue;
        (void)snprintf(path, sizeof(path), "%s/uevent", found.gl_pathv[i]);
        fd = open(path, O_WRONLY | O_CLOEXEC);
    }
    globfree(&found);
    return fd;
}

static bool make_event(int fd)
{
    return pwrite(fd, "change", strlen("change"), 0) == (ssize_t)strlen("change");
}

static void hears_the_kernel(void **state)
{
    cleanup(fd_closep) int fd = open_uevent_file();

    if (fd < 0 || !make_event(fd)) {
        print_message("no block device whose uevent file may be written\n");
        skip();
    }
    wait_until(&looked);
    assert_true(watch_block_counters(watch)->events > 0);
    assert_int_equal(watch_block_counters(watch)->overflows, 0);
}

/* From another socket of root's, to the group and to our own address. */
static void send_forgery(int sender, uint32_t port, uint32_t groups)
{
    static const char text[] = "change@/devices/virtual/block/forged\0SUBSYSTEM=block\0"
                               "MAJOR=4242\0MINOR=1\0RESIZE=1";
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_pid = port, .nl_groups = groups};

    assert_int_equal(
        sendto(sender, text, sizeof(text), 0, (const struct sockaddr *)&address, sizeof(address)),
        sizeof(text));
}

static void ignores_forgeries(void **state)
{
    cleanup(fd_closep) int fd = open_uevent_file();
    cleanup(fd_closep) int sender =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

    if (fd < 0 || sender < 0)
        skip();
    send_forgery(sender, 0, 1);
    /* The first netlink socket of a process gets its pid for an address. */
    send_forgery(sender, (uint32_t)getpid(), 0);
    if (!make_event(fd))
        skip();
    wait_until(&looked); /* messages come in order */
    assert_int_equal(queued_forged, 0);
}

static void lost_messages_are_reported_and_reading_continues(void **state)
{
    cleanup(fd_closep) int fd = open_uevent_file();

    if (fd < 0 || !make_event(fd))
        skip();
    for (unsigned i = 0; i < STORM; i++)
        assert_true(make_event(fd));
    wait_until(&everywhere);
    assert_true(watch_block_counters(watch)->overflows >= 1);
    assert_true(watch_block_counters(watch)->up);
    looked = 0;
    assert_true(make_event(fd));
    wait_until(&looked);
}

/* No descriptor is to be had at first. */
static void begins_to_listen_when_it_can(void **state)
{
    cleanup(fd_closep) int fd = open_uevent_file();
    struct rlimit limit, none;

    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(watch_block_new(&loop, &handler, NULL, &watch), 0);
    watch_block_check(watch);
    assert_false(watch_block_counters(watch)->up);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    watch_block_check(watch);
    assert_true(watch_block_counters(watch)->up);
    looked = 0;
    if (fd >= 0 && make_event(fd))
        wait_until(&looked);
    (void)stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hears_the_kernel, start, stop),
        cmocka_unit_test_setup_teardown(ignores_forgeries, start, stop),
        cmocka_unit_test_setup_teardown(lost_messages_are_reported_and_reading_continues,
                                        start_tiny, stop),
        cmocka_unit_test(begins_to_listen_when_it_can),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
