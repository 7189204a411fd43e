/* SPDX-License-Identifier: Apache-2.0 */
/* http_turns.h - costly answers take turns. Private to api/.
 *
 * An answer that reads the database or examines the node takes milliseconds of the one loop. One of
 * them is made in a pass of the loop, so that a resize never waits for more than one. Clients over
 * TCP have a budget besides: after an answer theirs rest for three times as long as it took, so
 * that they have a fourth of the loop's time at most, however many they are. The unix socket does
 * not wait for that, and goes first.
 */
#pragma once

#include <stdbool.h>

#include "api/http_routes.h"
#include "lib/loop.h"

/* What wants to answer; zero-initialise before use. */
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
    bool taken;          /* one was given in this pass, or is not over */
    uint64_t tcp_due_ns; /* when a client over TCP may have the next one */
    enum http_listener last_tcp;
    struct http_turn *waiting[HTTP_LISTENERS]; /* the first, by listener */
};

void http_turns_init(struct http_turns *turns, struct loop *loop);
void http_turns_done(struct http_turns *turns);

/* Whether the answer may be made now. If not, on_turn() is called in a later pass; the caller then
 * takes its turn again, which it gets. */
bool http_turn_take(struct http_turns *turns, struct http_turn *turn, enum http_listener listener,
                    void (*on_turn)(struct http_turn *turn));

/* The answer is made, or nobody wants it any more. Fine for one that took none. */
void http_turn_end(struct http_turns *turns, struct http_turn *turn);
