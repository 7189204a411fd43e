/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h - tells the service manager how the daemon is (sd_notify(3)'s protocol).
 *
 * One datagram of NAME=VALUE lines to the socket in $NOTIFY_SOCKET: a path, or with a leading @ an
 * abstract name. If nothing listens, every function does nothing and succeeds.
 *
 * The loop sends the watchdog's messages, every half of $WATCHDOG_USEC, so that a loop that hangs
 * is noticed.
 */
#pragma once

#include <stdint.h>
#include <sys/un.h>

#include "lib/loop.h"
#include "lib/result.h"

enum { NOTIFY_STATUS_BYTES = 160 }; /* longer text is cut */

struct notify {
    int fd; /* -1: nobody listens */
    struct sockaddr_un address;
    socklen_t address_length;
    struct loop *loop;
    struct loop_timer watchdog;
    uint64_t beat; /* nanoseconds; 0: no watchdog */
    char status[NOTIFY_STATUS_BYTES];
};

#define NOTIFY_INIT                                                                                \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Takes the environment's variables out of it and starts the watchdog. A WATCHDOG_PID that is not
 * this process's means no watchdog. 0; on -EINVAL or another -errno no message is ever sent. */
int notify_init(struct notify *notify, struct loop *loop, struct error *error);
void notify_done(struct notify *notify);

/* 0 or -errno. They wait a second at most for a manager whose queue is full. */
int notify_ready(struct notify *notify);     /* also ends a reload */
int notify_reloading(struct notify *notify); /* until the next notify_ready() */
int notify_stopping(struct notify *notify);

/* One short line for people, without control characters; an equal one is not sent again. */
int notify_status(struct notify *notify, const char *text);
