/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - the one event loop, a thin layer over libev.
 *
 * Sources are embedded in their owner, which is found with container_of(). A source must be stopped
 * before its memory is freed: each owner's _done/_free does so. Callbacks run one after another on
 * the one thread; a callback may start, stop and free any source, its own included. The epoll
 * backend is forced and LIBEV_FLAGS ignored.
 */
#pragma once

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- loop pass ------------------------------------------------------------------------------ */

/* How long the loop goes without polling.
 *
 * A pass is what runs between two polls. While it lasts nobody else is served, so its length is the
 * measure of every bound on outside content. The longest one is kept; one that lasts a second or
 * more is logged, with the piece of work that took most of it.
 */

enum { LOOP_PASS_NAME_BYTES = 72 };

struct loop_work {
    const char *what; /* static; NULL: nothing that was announced */
    char name[LOOP_PASS_NAME_BYTES];
    uint64_t elapsed_ns;
};

struct loop_pass {
    uint64_t began_ns;     /* CLOCK_MONOTONIC; 0: the loop polls */
    uint64_t processor_ns; /* of this thread, when the last pass ended */
    uint64_t announced_ns; /* when `work` began */
    struct loop_work work, longest_work;
    /* The longest since the start, each by itself. */
    uint64_t longest_ns;
    uint64_t longest_processor_ns;
};

/* Stays where it was initialised. */
struct loop {
    struct ev_loop *ev;
    struct loop_pass pass;
};

int loop_init(struct loop *loop); /* 0, -ENOMEM */
void loop_done(struct loop *loop);

void loop_run(struct loop *loop);      /* until loop_stop() or no source is left */
void loop_run_once(struct loop *loop); /* one iteration, waits for an event */
void loop_stop(struct loop *loop);

/* From now on this is done, until something else is announced or the pass ends: for the log, should
 * it take too long. `name` may be NULL. */
void loop_announce(struct loop *loop, const char *what, const char *name);

enum { LOOP_READ = EV_READ, LOOP_WRITE = EV_WRITE };

struct loop_io {
    ev_io ev;
    struct loop *loop;
    void (*callback)(struct loop_io *io, int events);
};

/* Does not own fd. Starting a started source changes its events. Zero-initialise before use. */
void loop_io_start(struct loop *loop, struct loop_io *io, int fd, int events,
                   void (*callback)(struct loop_io *io, int events));
void loop_io_stop(struct loop_io *io); /* a never-started source is fine */

struct loop_timer {
    ev_timer ev;
    struct loop *loop;
    void (*callback)(struct loop_timer *timer);
};

/* Fires once, nanoseconds from now (0: in the next iteration). Starting again replaces the old
 * time. */
void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t nanoseconds,
                      void (*callback)(struct loop_timer *timer));
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_is_active(const struct loop_timer *timer);

struct loop_signal {
    ev_signal ev;
    struct loop *loop;
    void (*callback)(struct loop_signal *signal);
};

void loop_signal_start(struct loop *loop, struct loop_signal *source, int number,
                       void (*callback)(struct loop_signal *signal));
void loop_signal_stop(struct loop_signal *source);

/* Runs after all ready sources have been served, just before the loop would sleep. The core makes
 * its reconcile pass here. */
struct loop_prepare {
    ev_prepare ev;
    struct loop *loop;
    void (*callback)(struct loop_prepare *prepare);
};

void loop_prepare_start(struct loop *loop, struct loop_prepare *prepare,
                        void (*callback)(struct loop_prepare *prepare));
void loop_prepare_stop(struct loop_prepare *prepare);
