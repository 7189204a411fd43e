/* SPDX-License-Identifier: Apache-2.0 */
/* loop_test.c - sources start, stop and vanish in every order; time is compared, never asserted. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/loop.h"

static struct loop loop;
static unsigned calls;

static int open_loop(void **state)
{
    calls = 0;
    return loop_init(&loop);
}

static int close_loop(void **state)
{
    loop_done(&loop);
    return 0;
}

static void on_timer_stop(struct loop_timer *timer)
{
    calls++;
    assert_false(loop_timer_is_active(timer));
    loop_stop(timer->loop);
}

static void timer_fires_once(void **state)
{
    struct loop_timer timer = {0};

    loop_timer_stop(&timer); /* never started */
    loop_timer_start(&loop, &timer, 0, on_timer_stop);
    assert_true(loop_timer_is_active(&timer));
    loop_run(&loop);
    assert_int_equal(calls, 1);
    loop_run(&loop); /* no source is left */
    assert_int_equal(calls, 1);
}

struct timed {
    struct loop_timer timer;
    uint64_t fired;
};

static void on_timed(struct loop_timer *timer)
{
    container_of(timer, struct timed, timer)->fired = clock_boottime();
    loop_stop(timer->loop);
}

static struct timed late;
static uint64_t late_started;

/* Takes long, then starts a timer: the time that passed must not count. */
static void on_long_callback(struct loop_timer *timer)
{
    uint64_t until = clock_boottime() + 30 * NSEC_PER_MSEC;

    while (clock_boottime() < until)
        ;
    late_started = clock_boottime();
    loop_timer_start(timer->loop, &late.timer, 20 * NSEC_PER_MSEC, on_timed);
}

static void timer_is_never_early(void **state)
{
    struct loop_timer first = {0};

    memset(&late, 0, sizeof(late));
    loop_timer_start(&loop, &first, 0, on_long_callback);
    loop_run(&loop);
    assert_true(late.fired >= late_started + 20 * NSEC_PER_MSEC);
}

/* The pass of the long callback, whatever shorter ones follow. */
static void keeps_the_longest_pass(void **state)
{
    struct loop_timer first = {0};

    assert_int_equal(loop.pass.longest_ns, 0);
    loop_timer_start(&loop, &first, 0, on_long_callback);
    loop_run(&loop);
    assert_true(loop.pass.longest_ns >= 30 * NSEC_PER_MSEC);
    assert_true(loop.pass.longest_processor_ns > 0);
    assert_true(loop.pass.longest_processor_ns <= loop.pass.longest_ns + NSEC_PER_MSEC);
}

/* Asleep for longer than is passed over in silence, with two things announced. */
static void on_stall(struct loop_timer *timer)
{
    loop_announce(timer->loop, "reading the file", "short");
    usleep(1000);
    loop_announce(timer->loop, "reading the file", "long");
    usleep(1010 * 1000);
    loop_announce(timer->loop, "reading the file", "short again");
    loop_stop(timer->loop);
}

static void a_stall_is_logged_with_what_took_it(void **state)
{
    struct loop_timer timer = {0}, next = {0};
    char text[512] = "";
    int ends[2];

    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    log_set_descriptor(ends[1]);
    loop_timer_start(&loop, &timer, 0, on_stall);
    loop_run(&loop);
    loop_timer_start(&loop, &next, 0, on_timer_stop); /* a pass ends where the next poll begins */
    loop_run(&loop);
    log_set_descriptor(STDERR_FILENO);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    assert_non_null(strstr(text, "the event loop was blocked for "));
    assert_non_null(strstr(text, " s of which went into reading the file long"));
    assert_true(loop.pass.longest_ns >= NSEC_PER_SEC);
    close(ends[0]);
    close(ends[1]);
}

static void starting_again_replaces(void **state)
{
    struct loop_timer timer = {0};

    loop_timer_start(&loop, &timer, 3600 * NSEC_PER_SEC, on_timer_stop);
    loop_timer_start(&loop, &timer, 0, on_timer_stop);
    loop_run(&loop);
    assert_int_equal(calls, 1);
    assert_false(loop_timer_is_active(&timer));
}

struct peer {
    struct loop_io io;
    struct peer *other; /* freed by whoever comes first */
    bool *gone;
};

static void on_peer(struct loop_io *io, int events)
{
    struct peer *peer = container_of(io, struct peer, io);

    assert_int_equal(events, LOOP_READ);
    calls++;
    loop_io_stop(&peer->other->io);
    *peer->other->gone = true;
    free(peer->other);
    loop_io_stop(io);
    free(peer);
}

/* Both are ready in the same turn; the one that runs frees the other, which is pending. */
static void callback_may_free_a_pending_source(void **state)
{
    struct peer *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    bool gone[2] = {false, false};
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    *a = (struct peer){.other = b, .gone = &gone[0]};
    *b = (struct peer){.other = a, .gone = &gone[1]};
    loop_io_start(&loop, &a->io, ends[0], LOOP_READ, on_peer);
    loop_io_start(&loop, &b->io, ends[0], LOOP_READ, on_peer);
    loop_run_once(&loop);
    assert_int_equal(calls, 1);
    assert_true(gone[0] != gone[1]);
    close(ends[0]);
    close(ends[1]);
}

static int seen_events;

static void on_events(struct loop_io *io, int events)
{
    seen_events = events;
    calls++;
}

static void io_changes_its_events(void **state)
{
    struct loop_io io = {.callback = NULL};
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    loop_io_stop(&io);
    loop_io_start(&loop, &io, ends[1], LOOP_READ, on_events);
    loop_io_start(&loop, &io, ends[1], LOOP_WRITE, on_events);
    loop_io_start(&loop, &io, ends[1], LOOP_WRITE, on_events);
    loop_run_once(&loop);
    assert_int_equal(seen_events, LOOP_WRITE);
    assert_int_equal(calls, 1);
    loop_io_stop(&io);
    loop_io_stop(&io);
    close(ends[0]);
    close(ends[1]);
}

static unsigned order[2], order_length;

static void on_ordered_timer(struct loop_timer *timer)
{
    order[order_length++] = 't';
}

static void on_ordered_io(struct loop_io *io, int events)
{
    order[order_length++] = 'i';
    loop_io_stop(io);
}

/* An answer that is here beats the deadline that passed in the same turn. */
static void io_comes_before_timers(void **state)
{
    struct loop_io io = {.callback = NULL};
    struct loop_timer timer = {.callback = NULL};
    int ends[2];

    order_length = 0;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    loop_timer_start(&loop, &timer, 0, on_ordered_timer);
    loop_io_start(&loop, &io, ends[0], LOOP_READ, on_ordered_io);
    loop_run(&loop);
    assert_int_equal(order_length, 2);
    assert_int_equal(order[0], 'i');
    close(ends[0]);
    close(ends[1]);
}

static void on_signal_count(struct loop_signal *source)
{
    calls++;
    loop_stop(source->loop);
}

static void signals_arrive(void **state)
{
    struct loop_signal source = {.callback = NULL};

    loop_signal_stop(&source);
    loop_signal_start(&loop, &source, SIGUSR1, on_signal_count);
    assert_int_equal(raise(SIGUSR1), 0);
    loop_run(&loop);
    assert_int_equal(calls, 1);
    loop_signal_stop(&source);
}

static struct loop_timer again;

static void on_nothing(struct loop_timer *timer)
{
}

static void on_prepare_turns(struct loop_prepare *prepare)
{
    if (++calls == 3)
        loop_stop(prepare->loop);
    else
        loop_timer_start(prepare->loop, &again, 0, on_nothing);
}

static void prepare_runs_every_turn(void **state)
{
    struct loop_prepare prepare = {.callback = NULL};

    memset(&again, 0, sizeof(again));
    loop_prepare_stop(&prepare);
    loop_prepare_start(&loop, &prepare, on_prepare_turns);
    loop_run(&loop);
    assert_int_equal(calls, 3);
    loop_prepare_stop(&prepare);
    loop_timer_stop(&again);
}

static void ignores_the_environment(void **state)
{
    struct loop other;

    setenv("LIBEV_FLAGS", "1", 1); /* select */
    assert_int_equal(loop_init(&other), 0);
    assert_int_equal(ev_backend(other.ev), EVBACKEND_EPOLL);
    unsetenv("LIBEV_FLAGS");
    loop_done(&other);
    loop_done(&other);
    loop_done(NULL);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_loop, close_loop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(timer_fires_once),
        TEST(timer_is_never_early),
        TEST(starting_again_replaces),
        TEST(callback_may_free_a_pending_source),
        TEST(io_changes_its_events),
        TEST(io_comes_before_timers),
        TEST(signals_arrive),
        TEST(prepare_runs_every_turn),
        TEST(ignores_the_environment),
        TEST(keeps_the_longest_pass),
        TEST(a_stall_is_logged_with_what_took_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
