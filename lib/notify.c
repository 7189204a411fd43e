/* SPDX-License-Identifier: Apache-2.0 */
/* notify.c - sd_notify(3) without libsystemd.
 *
 * The protocol is one datagram per message, so there is no connection to lose: the manager may be
 * executed anew while the daemon runs. A message that finds its queue full waits for a bounded
 * time, because a lost READY=1 would have the daemon killed; a second is far less than any
 * watchdog.
 *
 * The variables are removed from the environment, so that no child could speak for the daemon.
 */
#include "lib/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

#define NSEC_PER_USEC UINT64_C(1000)

/* ---- the environment ---- */

static int parse_address(const char *name, struct notify *notify)
{
    size_t length = strlen(name);

    if ((name[0] != '/' && name[0] != '@') || length < 2 ||
        length >= sizeof(notify->address.sun_path))
        return -EINVAL;
    notify->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(notify->address.sun_path, name, length);
    notify->address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
    if (name[0] == '@') { /* an abstract name begins with NUL, and none ends it */
        notify->address.sun_path[0] = '\0';
        notify->address_length--;
    }
    return 0;
}

/* A decimal number and nothing else; 0 if it is none. */
static uint64_t parse_number(const char *text)
{
    char *end;
    uint64_t number;

    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    errno = 0;
    number = strtoumax(text, &end, 10);
    return *end || errno ? 0 : number;
}

static uint64_t watchdog_beat(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t microseconds = parse_number(getenv("WATCHDOG_USEC"));

    if ((pid && parse_number(pid) != (uint64_t)getpid()) ||
        microseconds > UINT64_MAX / NSEC_PER_USEC)
        return 0;
    return microseconds * NSEC_PER_USEC / 2;
}

/* ---- messages ---- */

static int send_text(struct notify *notify, const char *text)
{
    ssize_t sent;

    if (notify->fd < 0)
        return 0;
    do
        sent = sendto(notify->fd, text, strlen(text), MSG_NOSIGNAL,
                      (const struct sockaddr *)&notify->address, notify->address_length);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* A lost message does no harm: two are sent in each interval. */
static void on_beat(struct loop_timer *timer)
{
    struct notify *notify = container_of(timer, struct notify, watchdog);

    (void)send_text(notify, "WATCHDOG=1");
    loop_timer_start(notify->loop, timer, notify->beat, on_beat);
}

int notify_ready(struct notify *notify)
{
    return send_text(notify, "READY=1");
}

/* The time tells the manager which of several reloads this is. */
int notify_reloading(struct notify *notify)
{
    struct timespec now;
    char text[64];

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                   ((uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec) / NSEC_PER_USEC);
    return send_text(notify, text);
}

int notify_stopping(struct notify *notify)
{
    return send_text(notify, "STOPPING=1");
}

int notify_status(struct notify *notify, const char *text)
{
    char status[NOTIFY_STATUS_BYTES], message[NOTIFY_STATUS_BYTES + 8];

    if (notify->fd < 0)
        return 0;
    (void)snprintf(status, sizeof(status), "%s", text);
    if (strcmp(status, notify->status) == 0)
        return 0;
    memcpy(notify->status, status, sizeof(status));
    (void)snprintf(message, sizeof(message), "STATUS=%s", status);
    return send_text(notify, message);
}

/* ---- life ---- */

int notify_init(struct notify *notify, struct loop *loop, struct error *error)
{
    const struct timeval patience = {.tv_sec = 1};
    const char *name = getenv("NOTIFY_SOCKET");
    int r = 0;

    *notify = (struct notify){.fd = -1, .loop = loop};
    if (name && name[0]) {
        r = parse_address(name, notify);
        if (r == 0) {
            notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            if (notify->fd < 0 ||
                setsockopt(notify->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
                r = -errno;
        }
        if (r < 0) {
            (void)error_set_errno(error, r, "NOTIFY_SOCKET=%s", name);
            fd_close(take_fd(&notify->fd));
        } else {
            notify->beat = watchdog_beat();
        }
    }
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    if (notify->beat)
        loop_timer_start(loop, &notify->watchdog, notify->beat, on_beat);
    return r;
}

void notify_done(struct notify *notify)
{
    if (!notify)
        return;
    if (notify->beat)
        loop_timer_stop(&notify->watchdog);
    fd_close(notify->fd);
    notify->fd = -1;
    notify->beat = 0;
}
