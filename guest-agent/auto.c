/* SPDX-License-Identifier: Apache-2.0 */
/* auto.c - an event only triggers a scan; what is done follows from sizes alone.
 *
 * For each file system (by the device number in mountinfo) it remembers the size of its devices
 * when it was last seen to fill them. A larger size, or a file system not seen before, is a reason
 * to grow it. An attempt that failed for a temporary reason is not remembered and is repeated with
 * the next scan. Growing a file system that fills its device changes nothing.
 *
 * Uevents: datagrams of the kernel's (port id 0) group 1; anything from elsewhere is dropped
 * (netlink(7)). An overrun of the socket is one more reason to scan.
 */
#include "guest-agent/guest_serve.h"

#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

enum { KERNEL_GROUP = 1, UEVENT_BYTES = 8192, KNOWN = 256 };

/* Events of one change come together; one scan serves them all. */
#define SCAN_DELAY_NS  (20 * NSEC_PER_MSEC)
#define SCAN_PERIOD_NS (30 * NSEC_PER_SEC)

struct known {
    dev_t device;          /* as in mountinfo; 0: a free slot */
    uint64_t filled_bytes; /* of its devices, when it was last seen to fill them */
    uint64_t trying_bytes; /* the same, when the task now running began */
    struct task_waiter task;
    bool seen; /* in this scan */
    bool shut_down;
    char mount_point[256];
};

static struct {
    struct loop *loop;
    int socket;
    struct loop_io events;
    struct loop_timer scan;
    bool postponed; /* too many grew at once to start another */
    struct known known[KNOWN];
} automatic;

static void on_scan(struct loop_timer *timer);

static uint64_t total_bytes(const struct volume *volume)
{
    cleanup(fd_closep) int directory = -1;
    struct filesystem filesystem;
    uint64_t total = 0;

    if (volume_open(volume, &filesystem, &directory) < 0)
        return 0;
    for (unsigned i = 0; i < filesystem.device_count; i++) {
        uint64_t bytes;

        if (device_size(filesystem.devices[i].device, &bytes) == 0)
            total += bytes;
    }
    return total;
}

static void on_grown(struct task_waiter *waiter, const struct task_result *result)
{
    struct known *known = container_of(waiter, struct known, task);

    if (result->outcome == FILESYSTEM_GROWN)
        log_info(NULL, "%s fills its device", known->mount_point);
    else
        log_warning(NULL, "cannot grow %s: %s", known->mount_point, result->text);
    if (result->outcome >= 0 && result->outcome != FILESYSTEM_BUSY) /* not for a temporary reason */
        known->filled_bytes = known->trying_bytes;
    if (automatic.postponed)
        loop_timer_start(automatic.loop, &automatic.scan, SCAN_DELAY_NS, on_scan);
}

static void check_volume(const struct volume *volume)
{
    struct known *known = NULL;
    uint64_t bytes = total_bytes(volume);
    int outcome = FILESYSTEM_GROWN;
    const char *trouble = volume_trouble(volume, &outcome);
    bool shut_down = outcome == FILESYSTEM_SHUT_DOWN;
    int r;

    for (size_t i = 0; i < KNOWN && !(known && known->device == volume->device); i++) {
        if (automatic.known[i].device == volume->device || (!known && !automatic.known[i].device))
            known = &automatic.known[i];
    }
    if (!known)
        return;
    known->device = volume->device;
    known->seen = true;
    if (shut_down && !known->shut_down)
        log_warning(NULL, "%s does not grow: %s", volume->mount_point, trouble);
    known->shut_down = shut_down;
    if (shut_down || known->task.task || bytes <= known->filled_bytes)
        return;
    known->trying_bytes = bytes;
    (void)snprintf(known->mount_point, sizeof(known->mount_point), "%.*s",
                   (int)sizeof(known->mount_point) - 1, volume->mount_point);
    r = grow_start(automatic.loop, volume, &known->task, on_grown);
    if (r == TASK_TOO_MANY || r == GROW_RUNS)
        automatic.postponed = true;
}

static void on_scan(struct loop_timer *timer)
{
    cleanup(freep) struct volume *volumes = NULL;
    size_t count = 0;
    int r = volume_list(0, &volumes, &count);

    automatic.postponed = false;
    if (r < 0)
        log_warning(NULL, "cannot read the mounts: %s", strerror(-r));
    for (size_t i = 0; i < count; i++)
        check_volume(&volumes[i]);
    for (size_t i = 0; r == 0 && i < KNOWN; i++) {
        struct known *known = &automatic.known[i];

        /* It is not mounted any more, and its device number may be given to another. */
        if (known->device && !known->seen && !known->task.task)
            *known = (struct known){0};
        known->seen = false;
    }
    loop_timer_start(automatic.loop, timer, SCAN_PERIOD_NS, on_scan);
}

static void on_events(struct loop_io *io, int events)
{
    bool is_reason = false;
    char text[UEVENT_BYTES];
    ssize_t length;

    (void)io;
    (void)events;
    do {
        struct sockaddr_nl sender = {0};
        socklen_t size = sizeof(sender);

        length = recvfrom(automatic.socket, text, sizeof(text), MSG_DONTWAIT,
                          (struct sockaddr *)&sender, &size);
        is_reason |= length < 0 ? errno == ENOBUFS
                                : sender.nl_pid == 0 &&
                                      memmem(text, (size_t)length, "\0SUBSYSTEM=block", 17);
    } while (length >= 0 || errno == ENOBUFS || errno == EINTR);
    if (is_reason)
        loop_timer_start(automatic.loop, &automatic.scan, SCAN_DELAY_NS, on_scan);
}

void automatic_start(struct loop *loop)
{
    const struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};

    automatic.loop = loop;
    automatic.socket =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    if (automatic.socket < 0 ||
        bind(automatic.socket, (const struct sockaddr *)&name, sizeof(name)) < 0)
        log_warning(NULL, "no kernel events, comparing sizes only: %s", strerror(errno));
    else
        loop_io_start(loop, &automatic.events, automatic.socket, LOOP_READ, on_events);
    loop_timer_start(loop, &automatic.scan, 0, on_scan);
}
