/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - five kinds of sources, implemented on libev.
 *
 * Each source contains libev's watcher and is found again from it; libev calls nothing but the
 * trampolines below. Stopping also takes back an event that libev has already queued, so a stopped
 * source may be freed at once, even by another source's callback in the same iteration.
 *
 * Time: libev's timers count from the loop's own "now", read when the iteration began. After a long
 * callback that is in the past and a timer would fire early, so starting one reads the clock first.
 * Timers run on CLOCK_MONOTONIC; the difference to clock_boottime() is a suspended machine. Within
 * one iteration I/O comes before timers: an answer that has arrived beats its deadline.
 *
 * Backend: epoll with EVFLAG_NOENV, because LIBEV_FLAGS in the environment could select io_uring,
 * which is broken in libev 4.33. The loop is not libev's default one: nothing here needs ev_child.
 */
#include "lib/loop.h"

#include <errno.h>
#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

enum { TIMER_PRIORITY = -1 };

/* ---- loop pass ------------------------------------------------------------------------------ */

/* Elapsed time is what clients wait for; processor time is what does not depend on how busy the
 * machine and its disks are. CLOCK_MONOTONIC: a machine that sleeps is no stall.
 */

static const uint64_t STALL_NS = NSEC_PER_SEC;

static void end_work(struct loop_pass *pass, uint64_t now_ns)
{
    pass->work.elapsed_ns = now_ns - pass->announced_ns;
    if (pass->work.what && pass->work.elapsed_ns > pass->longest_work.elapsed_ns)
        pass->longest_work = pass->work;
    pass->work.what = NULL;
    pass->announced_ns = now_ns;
}

static void log_stall(const struct loop_pass *pass, uint64_t elapsed_ns)
{
    const struct loop_work *work = &pass->longest_work;

    if (work->what)
        log_warning(NULL, "the event loop was blocked for %.1f s, %.1f s of which went into %s%s%s",
                    (double)elapsed_ns / (double)NSEC_PER_SEC,
                    (double)work->elapsed_ns / (double)NSEC_PER_SEC, work->what,
                    work->name[0] ? " " : "", work->name);
    else
        log_warning(NULL, "the event loop was blocked for %.1f s",
                    (double)elapsed_ns / (double)NSEC_PER_SEC);
}

/* libev calls these around epoll_wait(2) alone. */
static void on_polled(struct ev_loop *ev)
{
    struct loop_pass *pass = &((struct loop *)ev_userdata(ev))->pass;

    pass->began_ns = pass->announced_ns = clock_monotonic();
    if (!pass->processor_ns)
        pass->processor_ns = clock_processor();
    pass->work.what = pass->longest_work.what = NULL;
    pass->longest_work.elapsed_ns = 0;
}

static void on_poll(struct ev_loop *ev)
{
    struct loop_pass *pass = &((struct loop *)ev_userdata(ev))->pass;
    uint64_t now_ns, processor_ns, elapsed_ns;

    if (!pass->began_ns)
        return;
    now_ns = clock_monotonic();
    processor_ns = clock_processor();
    elapsed_ns = now_ns - pass->began_ns;
    end_work(pass, now_ns);
    if (elapsed_ns > pass->longest_ns)
        pass->longest_ns = elapsed_ns;
    if (processor_ns - pass->processor_ns > pass->longest_processor_ns)
        pass->longest_processor_ns = processor_ns - pass->processor_ns;
    pass->processor_ns = processor_ns;
    pass->began_ns = 0;
    if (elapsed_ns >= STALL_NS)
        log_stall(pass, elapsed_ns);
}

void loop_announce(struct loop *loop, const char *what, const char *name)
{
    end_work(&loop->pass, clock_monotonic());
    loop->pass.work.what = what;
    (void)snprintf(loop->pass.work.name, sizeof(loop->pass.work.name), "%s", name ? name : "");
}

/* ---- the loop ------------------------------------------------------------------------------- */

int loop_init(struct loop *loop)
{
    struct ev_loop *ev = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV | EVFLAG_NOSIGMASK);

    if (!ev)
        return -ENOMEM;
    *loop = (struct loop){.ev = ev};
    ev_set_userdata(ev, loop);
    ev_set_loop_release_cb(ev, on_poll, on_polled);
    return 0;
}

void loop_done(struct loop *loop)
{
    if (!loop || !loop->ev)
        return;
    ev_loop_destroy(loop->ev);
    loop->ev = NULL;
}

void loop_run(struct loop *loop)
{
    (void)ev_run(loop->ev, 0);
}

void loop_run_once(struct loop *loop)
{
    (void)ev_run(loop->ev, EVRUN_ONCE);
}

void loop_stop(struct loop *loop)
{
    ev_break(loop->ev, EVBREAK_ALL);
}

/* EV_ERROR means that the descriptor is unusable; the owner's next read or write says how. */
static void on_io(struct ev_loop *ev, ev_io *watcher, int events)
{
    struct loop_io *io = container_of(watcher, struct loop_io, ev);

    (void)ev;
    if (events & EV_ERROR)
        events |= LOOP_READ | LOOP_WRITE;
    io->callback(io, events & (LOOP_READ | LOOP_WRITE));
}

void loop_io_start(struct loop *loop, struct loop_io *io, int fd, int events,
                   void (*callback)(struct loop_io *io, int events))
{
    if (ev_is_active(&io->ev) && io->ev.fd == fd && io->ev.events == events) {
        io->callback = callback;
        return;
    }
    loop_io_stop(io);
    io->loop = loop;
    io->callback = callback;
    ev_io_init(&io->ev, on_io, fd, events);
    ev_io_start(loop->ev, &io->ev);
}

void loop_io_stop(struct loop_io *io)
{
    if (io->loop)
        ev_io_stop(io->loop->ev, &io->ev);
}

/* What libev calls for a source that has nothing to tell but that it is due, and its stop. */
#define SOURCE(kind)                                                                               \
    static void on_##kind(struct ev_loop *ev, ev_##kind *watcher, int events)                      \
    {                                                                                              \
        struct loop_##kind *source = container_of(watcher, struct loop_##kind, ev);                \
                                                                                                   \
        (void)ev, (void)events;                                                                    \
        source->callback(source);                                                                  \
    }                                                                                              \
                                                                                                   \
    void loop_##kind##_stop(struct loop_##kind *source)                                            \
    {                                                                                              \
        if (source->loop)                                                                          \
            ev_##kind##_stop(source->loop->ev, &source->ev);                                       \
    }

SOURCE(timer)
SOURCE(signal)
SOURCE(prepare)

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t nanoseconds,
                      void (*callback)(struct loop_timer *timer))
{
    loop_timer_stop(timer);
    timer->loop = loop;
    timer->callback = callback;
    ev_timer_init(&timer->ev, on_timer, (double)nanoseconds / (double)NSEC_PER_SEC, 0.);
    ev_set_priority(&timer->ev, TIMER_PRIORITY);
    ev_now_update(loop->ev);
    ev_timer_start(loop->ev, &timer->ev);
}

bool loop_timer_is_active(const struct loop_timer *timer)
{
    return timer->ev.active || timer->ev.pending; /* ev_is_active() casts const away */
}

void loop_signal_start(struct loop *loop, struct loop_signal *source, int number,
                       void (*callback)(struct loop_signal *signal))
{
    loop_signal_stop(source);
    source->loop = loop;
    source->callback = callback;
    ev_signal_init(&source->ev, on_signal, number);
    ev_signal_start(loop->ev, &source->ev);
}

void loop_prepare_start(struct loop *loop, struct loop_prepare *prepare,
                        void (*callback)(struct loop_prepare *prepare))
{
    loop_prepare_stop(prepare);
    prepare->loop = loop;
    prepare->callback = callback;
    ev_prepare_init(&prepare->ev, on_prepare);
    ev_prepare_start(loop->ev, &prepare->ev);
}
