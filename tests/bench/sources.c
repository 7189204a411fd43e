/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c - see sources.h. One event at a time, so a callback may free its own source. */
#include "tests/bench/sources.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static int set(void)
{
    static int fd = -1;

    if (fd < 0 && (fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        fail("epoll_create1");
    return fd;
}

void sources_add(struct source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    if (epoll_ctl(set(), EPOLL_CTL_ADD, source->fd, &event) < 0)
        fail("epoll_ctl");
}

void sources_remove(struct source *source)
{
    (void)close(source->fd);
}

static int wait_once(const struct timespec *timeout)
{
    struct epoll_event event;
    int count = epoll_pwait2(set(), &event, 1, timeout, NULL);
    struct source *source = event.data.ptr;

    if (count < 0 && errno != EINTR)
        fail("epoll_pwait2");
    if (count > 0)
        source->ready(source);
    return count;
}

void sources_serve(uint64_t until_ns)
{
    if (until_ns == UINT64_MAX) {
        (void)wait_once(NULL);
        return;
    }
    for (uint64_t now; (now = now_ns()) < until_ns;) {
        uint64_t left = until_ns - now;
        struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                                   .tv_nsec = (long)(left % 1000000000)};

        (void)wait_once(&timeout);
    }
}
