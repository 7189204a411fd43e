/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.c - changes of the mount table.
 *
 * The kernel reports them as POLLPRI on a mountinfo file, which libev cannot wait for. So the file
 * is in an epoll set of its own, for EPOLLPRI only, and the loop watches that set, which is
 * readable whenever something in it is ready. Checking consumes the report: once the outer epoll
 * has checked, the inner one may have nothing left to return. So "readable" is the whole message,
 * and the inner wait only clears its list. For the same reason a change before the loop's first
 * iteration can get lost when libev adds the set to its own, so that iteration ends with one call.
 *
 * Process 1 has the host's mount table. Reading it requires the permissions of a debugger; without
 * them the daemon's own table is used instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "lib/cleanup.h"
#include "lib/mount_table.h"
#include "watch/watch.h"
#include "watch/watch_internal.h"

struct watch_mounts {
    void (*changed)(void *userdata);
    void *userdata;
    struct watch_counters counters;
    struct loop_io io;
    struct loop_timer first;
    int table_fd;
    int epoll_fd;
};

static void on_readable(struct loop_io *io, int events)
{
    struct watch_mounts *watch = container_of(io, struct watch_mounts, io);
    struct epoll_event ready;

    (void)events;
    (void)epoll_wait(watch->epoll_fd, &ready, 1, 0);
    watch->counters.events++;
    watch->changed(watch->userdata);
}

static void on_first_turn(struct loop_timer *timer)
{
    struct watch_mounts *watch = container_of(timer, struct watch_mounts, first);

    watch->changed(watch->userdata);
}

int watch_mounts_new_at(struct loop *loop, const char *mount_table, void (*changed)(void *userdata),
                        void *userdata, struct watch_mounts **ret_watch)
{
    struct watch_mounts *watch = calloc(1, sizeof(*watch));
    struct epoll_event wanted = {.events = EPOLLPRI};
    int r;

    if (!watch)
        return -ENOMEM;
    watch->changed = changed;
    watch->userdata = userdata;
    watch->epoll_fd = -1;
    watch->table_fd = open(mount_table, O_RDONLY | O_CLOEXEC);
    if (watch->table_fd >= 0)
        watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->epoll_fd < 0 ||
        epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->table_fd, &wanted) < 0) {
        r = -errno;
        watch_mounts_free(watch);
        return r;
    }
    watch->counters.up = true;
    loop_io_start(loop, &watch->io, watch->epoll_fd, LOOP_READ, on_readable);
    loop_timer_start(loop, &watch->first, 0, on_first_turn);
    *ret_watch = watch;
    return 0;
}

int watch_mounts_new(struct loop *loop, void (*changed)(void *userdata), void *userdata,
                     struct watch_mounts **ret_watch)
{
    return watch_mounts_new_at(loop, mount_table_path(), changed, userdata, ret_watch);
}

struct watch_mounts *watch_mounts_free(struct watch_mounts *watch)
{
    if (!watch)
        return NULL;
    loop_io_stop(&watch->io);
    loop_timer_stop(&watch->first);
    fd_close(watch->epoll_fd);
    fd_close(watch->table_fd);
    free(watch);
    return NULL;
}

const struct watch_counters *watch_mounts_counters(const struct watch_mounts *watch)
{
    return &watch->counters;
}

const char *watch_source_name(enum watch_source source)
{
    static const char *const names[WATCH_SOURCES] = {"inotify", "uevent", "mounts", "process"};

    return names[source];
}
