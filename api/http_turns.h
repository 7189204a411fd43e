/* SPDX-License-Identifier: Apache-2.0 */
/* http_turns.h - costly answers take turns. Private to api/.
 *
 * An answer that reads the database or examines the node takes milliseconds of the only loop. At
 * most one of them, or a piece of one, is made in a pass of the loop, so that a resize never waits
 * for more than that.
 * Clients over TCP also share a budget: after each of their answers they must wait for three times
 * as long as it took, so that together they get at most a quarter of the loop's time. The unix
 * socket has no such wait, and goes first.
 */
#pragma once

#include <stdbool.h>

#include "api/http_routes.h"
#include "lib/loop.h"

/* A request for a turn; zero-initialise before use. */
struct http_turn {
    struct http_turn *next;
    enum http_listener listener;
    enum { TURN_NONE, TURN_WAITS, TURN_GIVEN } state;
    uint64_t began_ns;
    void (*on_turn)(struct http_turn *turn);
};

struct http_turns {
    struct loop *loop;
    struct loop_timer timer;
    bool taken;          /* a turn was given in this pass, or is still in use */
    uint64_t tcp_due_ns; /* when clients over TCP may have the next turn */
    enum http_listener last_tcp;
    struct http_turn *waiting[HTTP_LISTENERS]; /* the first waiting one, by listener */
};

void http_turns_init(struct http_turns *turns, struct loop *loop);
void http_turns_done(struct http_turns *turns);

/* Whether the answer may be made now. If not, on_turn() is called in a later pass; the caller then
 * calls this again, and gets its turn. */
bool http_turn_take(struct http_turns *turns, struct http_turn *turn, enum http_listener listener,
                    void (*on_turn)(struct http_turn *turn));

/* A piece of the answer is made: on_turn() is called in a later pass, to make the next one. Of its
 * listener's answers it stays the first, but another listener's may come before it. */
void http_turn_pause(struct http_turns *turns, struct http_turn *turn,
                     void (*on_turn)(struct http_turn *turn));

/* The answer is made, or no longer wanted. Has no effect on a request without a turn. */
void http_turn_end(struct http_turns *turns, struct http_turn *turn);
