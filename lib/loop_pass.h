/* SPDX-License-Identifier: Apache-2.0 */
/* loop_pass.h - how long the loop goes without polling.
 *
 * A pass is what runs between two polls. While it lasts nobody else is served, so its length is the
 * measure of every bound on outside content. The longest one is kept; one that lasts a second or
 * more is logged, with the piece of work that took most of it.
 */
#pragma once

#include <stdint.h>

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

void loop_pass_begin(struct loop_pass *pass);
void loop_pass_end(struct loop_pass *pass);

/* How long it has taken so far; 0 while the loop polls. */
uint64_t loop_pass_elapsed(const struct loop_pass *pass);

/* From now on this is done, until something else is announced or the pass ends. `name` may be
 * NULL. */
void loop_pass_announce(struct loop_pass *pass, const char *what, const char *name);
