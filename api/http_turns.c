/* SPDX-License-Identifier: Apache-2.0 */
/* http_turns.c - gives one turn at a time; a timer of zero length fires in the loop's next pass. */
#include "api/http_turns.h"

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"

enum { REST_FACTOR = 3 };

void http_turns_init(struct http_turns *turns, struct loop *loop)
{
    *turns = (struct http_turns){.loop = loop, .last_tcp = HTTP_LISTENER_METRICS};
}

void http_turns_done(struct http_turns *turns)
{
    loop_timer_stop(&turns->timer);
}

static bool is_tcp(enum http_listener listener)
{
    return listener != HTTP_LISTENER_SOCKET;
}

static bool tcp_rests(const struct http_turns *turns)
{
    return clock_boottime() < turns->tcp_due_ns;
}

/* The two TCP listeners alternate, so that neither waits behind all clients of the other. */
static struct http_turn *first_waiting(struct http_turns *turns)
{
    const enum http_listener other =
        turns->last_tcp == HTTP_LISTENER_PAGES ? HTTP_LISTENER_METRICS : HTTP_LISTENER_PAGES;

    if (turns->waiting[HTTP_LISTENER_SOCKET])
        return turns->waiting[HTTP_LISTENER_SOCKET];
    return turns->waiting[other] ? turns->waiting[other] : turns->waiting[turns->last_tcp];
}

static void on_timer(struct loop_timer *timer);

static void arm(struct http_turns *turns)
{
    const struct http_turn *next = first_waiting(turns);
    uint64_t now = clock_boottime(), wait = 0;

    if (next && is_tcp(next->listener) && turns->tcp_due_ns > now)
        wait = turns->tcp_due_ns - now;
    loop_timer_start(turns->loop, &turns->timer, wait, on_timer);
}

static void give(struct http_turns *turns, struct http_turn *turn)
{
    turn->state = TURN_GIVEN;
    turn->began_ns = clock_boottime();
    turns->taken = true;
    if (is_tcp(turn->listener))
        turns->last_tcp = turn->listener;
}

static void on_timer(struct loop_timer *timer)
{
    struct http_turns *turns = container_of(timer, struct http_turns, timer);
    struct http_turn *turn = first_waiting(turns);

    turns->taken = false;
    if (!turn)
        return;
    if (is_tcp(turn->listener) && tcp_rests(turns)) {
        arm(turns);
        return;
    }
    turns->waiting[turn->listener] = turn->next;
    give(turns, turn);
    turn->on_turn(turn);
}

static void wait_for_turn(struct http_turns *turns, struct http_turn *turn)
{
    LL_APPEND(turns->waiting[turn->listener], turn);
    turn->state = TURN_WAITS;
    if (!turns->taken)
        arm(turns);
}

bool http_turn_take(struct http_turns *turns, struct http_turn *turn, enum http_listener listener,
                    void (*on_turn)(struct http_turn *turn))
{
    if (turn->state == TURN_GIVEN) {
        turn->began_ns = clock_boottime(); /* the time until here does not count as the answer's */
        return true;
    }
    turn->listener = listener;
    turn->on_turn = on_turn;
    if (turns->taken || turns->waiting[listener] || (is_tcp(listener) && tcp_rests(turns))) {
        wait_for_turn(turns, turn);
        return false;
    }
    give(turns, turn);
    return true;
}

/* Clients over TCP rest for a while after each of their turns. */
static void end_turn(struct http_turns *turns, const struct http_turn *turn)
{
    const uint64_t now = clock_boottime();

    if (is_tcp(turn->listener))
        turns->tcp_due_ns = now + REST_FACTOR * (now - turn->began_ns);
    loop_timer_start(turns->loop, &turns->timer, 0, on_timer);
}

void http_turn_pause(struct http_turns *turns, struct http_turn *turn,
                     void (*on_turn)(struct http_turn *turn))
{
    end_turn(turns, turn);
    turn->next = turns->waiting[turn->listener];
    turns->waiting[turn->listener] = turn;
    turn->state = TURN_WAITS;
    turn->on_turn = on_turn;
}

void http_turn_end(struct http_turns *turns, struct http_turn *turn)
{
    if (turn->state == TURN_WAITS)
        LL_DELETE(turns->waiting[turn->listener], turn);
    if (turn->state == TURN_GIVEN)
        end_turn(turns, turn);
    turn->state = TURN_NONE;
}
