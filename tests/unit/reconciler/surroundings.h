/* SPDX-License-Identifier: Apache-2.0 */
/* surroundings.h - what a module of the reconciler is given: a context with a loop, a store and a
 * scratch node, and one volume on one device in one sandbox. */
#pragma once

#include "tests/unit/store/fixture.h"
#include "tests/unit/tree.h"

#include "config/config.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"

struct surroundings {
    struct loop loop;
    struct loop_timer watchdog;
    struct config config;
    struct work_queue queue;
    struct context context;
    struct bound bound;
};

static inline void surroundings_on_watchdog(struct loop_timer *timer)
{
    fail_msg("the loop hangs");
}

/* in_memory: a store that was opened because the file fails. */
static inline void surroundings_begin(struct surroundings *node, bool in_memory)
{
    char path[SCRATCH_BYTES + 16];

    memset(node, 0, sizeof(*node));
    assert_int_equal(tree_start(NULL), 0);
    assert_int_equal(loop_init(&node->loop), 0);
    config_defaults(&node->config);
    (void)snprintf(path, sizeof(path), "%s/crustd.db", scratch);
    node->context = (struct context){
        .loop = &node->loop,
        .store = fixture_open(in_memory ? NULL : path, "boot-1"),
        .config = &node->config,
        .root = root,
        .queue = &node->queue,
        .synced = true,
    };
    work_queue_init(&node->queue, &node->loop);
    work_queue_begin_volumes(&node->queue);
    tree_make(node->config.paths.kata_volumes);
    tree_make(node->config.paths.crust_volumes);
    tree_make(node->config.paths.kata_trash);
    tree_make(node->config.paths.crust_trash);
    tree_make(node->config.paths.sysfs);
    assert_int_equal(
        observe_open_sysfs(node->context.root, node->config.paths.sysfs, &node->context.sysfs), 0);
    assert_int_equal(observe_cache_new("", &node->context.cache), 0);
    loop_timer_start(&node->loop, &node->watchdog, 60 * NSEC_PER_SEC, surroundings_on_watchdog);
}

static inline void surroundings_bind(struct surroundings *node)
{
    assert_int_equal(store_begin(node->context.store), 0);
    node->bound = put_bound(node->context.store);
    assert_int_equal(store_commit(node->context.store), 0);
}

static inline void surroundings_on_turn(struct loop_timer *timer)
{
    loop_stop(timer->loop);
}

/* All that is due within so many milliseconds. */
static inline void surroundings_turn(struct surroundings *node, unsigned milliseconds)
{
    struct loop_timer timer = {0};

    loop_timer_start(&node->loop, &timer, milliseconds * NSEC_PER_MSEC, surroundings_on_turn);
    loop_run(&node->loop);
}

static inline void surroundings_end(struct surroundings *node)
{
    loop_timer_stop(&node->watchdog);
    work_queue_done(&node->queue);
    observe_cache_free(node->context.cache);
    store_close(node->context.store);
    fd_close(node->context.sysfs);
    loop_done(&node->loop);
    assert_int_equal(tree_stop(NULL), 0);
}
