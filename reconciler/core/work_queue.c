/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.c - see work_queue.h. */
#include "reconciler/core/work_queue.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "observe/observe.h"

/* ---- key queue ------------------------------------------------------------------------------ */

/* An insertion-ordered set of keys, on uthash.
 *
 * A key that finds no memory is dropped, but its change is not lost: `lost` makes the caller queue
 * everything.
 */

struct dirty_key {
    UT_hash_handle hh;
    size_t length;
    char key[];
};

static void remove_key(struct key_queue *queue, struct dirty_key *dirty)
{
    HASH_DEL(queue->first, dirty);
    free(dirty);
}

void key_queue_done(struct key_queue *queue)
{
    struct dirty_key *dirty, *next;

    HASH_ITER (hh, queue->first, dirty, next) {
        remove_key(queue, dirty);
    }
    *queue = (struct key_queue){0};
}

static void add_key(struct key_queue *queue, const void *key, size_t length)
{
    struct dirty_key *dirty;

    HASH_FIND(hh, queue->first, key, length, dirty);
    if (dirty)
        return;
    dirty = malloc(sizeof(*dirty) + length);
    if (!dirty) {
        queue->lost = true;
        return;
    }
    dirty->length = length;
    memcpy(dirty->key, key, length);
    HASH_ADD_KEYPTR(hh, queue->first, dirty->key, length, dirty);
    if (!dirty->hh.tbl) {
        queue->lost = true;
        free(dirty);
    }
}

bool key_queue_is_empty(const struct key_queue *queue)
{
    return !queue->first;
}

size_t key_queue_count(const struct key_queue *queue)
{
    return HASH_COUNT(queue->first);
}

static bool take_key(struct key_queue *queue, void *ret_key, size_t size, size_t *ret_length)
{
    struct dirty_key *dirty = queue->first;

    if (!dirty)
        return false;
    assert(dirty->length <= size);
    memcpy(ret_key, dirty->key, dirty->length);
    *ret_length = dirty->length;
    remove_key(queue, dirty);
    return true;
}

void key_queue_add_number(struct key_queue *queue, uint64_t number)
{
    add_key(queue, &number, sizeof(number));
}

bool key_queue_take_number(struct key_queue *queue, uint64_t *ret_number)
{
    size_t length;

    return take_key(queue, ret_number, sizeof(*ret_number), &length);
}

static void add_name(struct key_queue *queue, const char *name)
{
    add_key(queue, name, strlen(name));
}

/* ---- work queue ----------------------------------------------------------------------------- */

/* A retry lives from the first bad reading to the next good one, or to the last bad one. There may
 * be as many as there are directories, so they are found by name, per tree. */
struct retry {
    UT_hash_handle hh;
    struct work_queue *queue;
    struct loop_timer timer;
    enum reconciler_tree tree;
    unsigned tries;
    char name[];
};

static const uint64_t delays[] = {20 * NSEC_PER_MSEC, 200 * NSEC_PER_MSEC, 2 * NSEC_PER_SEC};

/* Limits the queue, so that a large tree does not become one large list in memory. */
enum { ROOM = 64 };

static void retry_free(struct retry *retry)
{
    loop_timer_stop(&retry->timer);
    HASH_DEL(retry->queue->retries[retry->tree], retry);
    free(retry);
}

void work_queue_init(struct work_queue *queue, struct loop *loop)
{
    *queue = (struct work_queue){.loop = loop, .devices_are_fresh = true};
}

void work_queue_done(struct work_queue *queue)
{
    loop_timer_stop(&queue->wake);
    for (enum work_keys i = 0; i < WORK_KEYS; i++)
        key_queue_done(&queue->keys[i]);
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        while (queue->retries[tree])
            retry_free(queue->retries[tree]);
}

/* ---- adding ---- */

void work_queue_add_directory(struct work_queue *queue, enum reconciler_tree tree, const char *name)
{
    if (!tree_has_sandboxes(tree))
        add_name(&queue->keys[tree], name);
    else if (observe_is_sandbox_id(name))
        add_name(&queue->keys[KEYS_SANDBOXES], name);
}

void work_queue_remove_directory(struct work_queue *queue, enum reconciler_tree tree,
                                 const char *name)
{
    struct dirty_key *dirty;

    HASH_FIND(hh, queue->keys[tree].first, name, strlen(name), dirty);
    if (dirty)
        remove_key(&queue->keys[tree], dirty);
}

void work_queue_add_sandbox(struct work_queue *queue, const char *sandbox_id)
{
    add_name(&queue->keys[KEYS_SANDBOXES], sandbox_id);
}

void work_queue_add_exit(struct work_queue *queue, const char *sandbox_id, pid_t pid)
{
    char exit[WORK_NAME_BYTES];

    (void)snprintf(exit, sizeof(exit), "%d %s", (int)pid, sandbox_id);
    add_name(&queue->keys[KEYS_EXITS], exit);
    add_name(&queue->keys[KEYS_SANDBOXES], sandbox_id);
}

static uint64_t pack_number(uint32_t major, uint32_t minor)
{
    return (uint64_t)major << 32 | minor;
}

void work_queue_add_device(void *userdata, uint32_t major, uint32_t minor)
{
    struct work_queue *queue = userdata;

    key_queue_add_number(&queue->keys[KEYS_DEVICES], pack_number(major, minor));
}

void work_queue_add_announcement(void *userdata, uint32_t major, uint32_t minor)
{
    struct work_queue *queue = userdata;

    key_queue_add_number(&queue->keys[KEYS_ANNOUNCED], pack_number(major, minor));
}

int work_queue_add_volume(void *userdata, int64_t volume_id)
{
    struct work_queue *queue = userdata;

    if (queue->takes_volumes)
        key_queue_add_number(&queue->keys[KEYS_VOLUMES], (uint64_t)volume_id);
    return 0;
}

void work_queue_add_all_volumes(struct work_queue *queue)
{
    queue->all_volumes = true;
}

void work_queue_begin_volumes(struct work_queue *queue)
{
    queue->takes_volumes = queue->all_volumes = true;
}

void work_queue_add_urgent_volume(struct work_queue *queue, int64_t volume_id)
{
    queue->devices_are_fresh = false;
    (void)work_queue_add_volume(queue, volume_id);
    work_queue_wake(queue, 0);
}

bool work_queue_recover(struct work_queue *queue)
{
    bool lost = false;

    for (enum work_keys i = 0; i < WORK_KEYS; i++) {
        lost |= queue->keys[i].lost;
        queue->keys[i].lost = false;
    }
    return lost;
}

/* ---- taking ---- */

static bool take_name(struct work_queue *queue, unsigned keys, char ret_name[WORK_NAME_BYTES])
{
    size_t length;

    if (!take_key(&queue->keys[keys], ret_name, WORK_NAME_BYTES - 1, &length))
        return false;
    ret_name[length] = '\0';
    return true;
}

bool work_queue_take(struct work_queue *queue, struct work *work)
{
    char exit[WORK_NAME_BYTES], *sandbox_id;
    uint64_t number;

    for (work->tree = 0; work->tree < TREES; work->tree++)
        if (take_name(queue, work->tree, work->name)) {
            work->kind = tree_has_volumes(work->tree) ? WORK_ENTRY : WORK_BUNDLE;
            return true;
        }
    if (take_name(queue, KEYS_EXITS, exit)) { /* before the sandbox is found to be gone */
        work->kind = WORK_EXIT;
        work->pid = (pid_t)strtol(exit, &sandbox_id, 10);
        (void)snprintf(work->name, sizeof(work->name), "%s", sandbox_id + 1);
        return true;
    }
    work->kind = WORK_SANDBOX;
    if (take_name(queue, KEYS_SANDBOXES, work->name))
        return true;
    /* Which volumes use a disk is known only after the first scan. */
    if (queue->takes_volumes && key_queue_take_number(&queue->keys[KEYS_ANNOUNCED], &number)) {
        key_queue_add_number(&queue->keys[KEYS_ANNOUNCED_TAKEN], number);
        work->kind = WORK_ANNOUNCEMENT;
    } else if (key_queue_take_number(&queue->keys[KEYS_DEVICES], &number)) {
        work->kind = WORK_DEVICE;
    } else {
        return false;
    }
    queue->devices_are_fresh = false;
    work->major = (uint32_t)(number >> 32);
    work->minor = (uint32_t)number;
    return true;
}

bool work_queue_take_volume(struct work_queue *queue, int64_t *ret_volume_id)
{
    uint64_t number;

    if (!key_queue_take_number(&queue->keys[KEYS_VOLUMES], &number))
        return false;
    *ret_volume_id = (int64_t)number;
    return true;
}

bool work_queue_take_all_volumes(struct work_queue *queue)
{
    bool all = queue->all_volumes;

    queue->all_volumes = false;
    return all;
}

void work_queue_commit(struct work_queue *queue)
{
    key_queue_done(&queue->keys[KEYS_ANNOUNCED_TAKEN]);
}

void work_queue_roll_back(struct work_queue *queue)
{
    uint64_t number;

    while (key_queue_take_number(&queue->keys[KEYS_ANNOUNCED_TAKEN], &number))
        key_queue_add_number(&queue->keys[KEYS_ANNOUNCED], number);
    queue->devices_are_fresh = false;
}

bool work_queue_is_observed(const struct work_queue *queue)
{
    return key_queue_is_empty(&queue->keys[KEYS_SANDBOXES]) &&
           key_queue_is_empty(&queue->keys[TREE_KATA_VOLUMES]) &&
           key_queue_is_empty(&queue->keys[TREE_CRUST_VOLUMES]);
}

bool work_queue_is_empty(const struct work_queue *queue)
{
    for (enum work_keys i = 0; i < KEYS_ANNOUNCED_TAKEN; i++)
        if (!key_queue_is_empty(&queue->keys[i]))
            return false;
    return !queue->all_volumes;
}

bool work_queue_has_room(const struct work_queue *queue, enum reconciler_tree tree)
{
    return key_queue_count(&queue->keys[tree]) < ROOM &&
           key_queue_count(&queue->keys[KEYS_SANDBOXES]) < ROOM;
}

bool work_queue_devices_are_fresh(const struct work_queue *queue)
{
    return queue->devices_are_fresh;
}

void work_queue_note_decision(struct work_queue *queue)
{
    queue->devices_are_fresh &= !key_queue_is_empty(&queue->keys[KEYS_VOLUMES]);
}

void work_queue_doubt_devices(struct work_queue *queue)
{
    queue->devices_are_fresh = false;
}

static void on_wake(struct loop_timer *timer)
{
    (void)timer; /* the loop is awake now; the pass follows */
}

void work_queue_wake(struct work_queue *queue, uint64_t delay_ns)
{
    loop_timer_start(queue->loop, &queue->wake, delay_ns, on_wake);
}

bool work_queue_is_waking(const struct work_queue *queue)
{
    return loop_timer_is_active(&queue->wake);
}

/* ---- reading again ---- */

static void on_due(struct loop_timer *timer)
{
    struct retry *retry = container_of(timer, struct retry, timer);

    work_queue_add_directory(retry->queue, retry->tree, retry->name);
}

bool work_queue_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name)
{
    struct retry *retry;

    HASH_FIND_STR(queue->retries[tree], name, retry);
    if (retry && loop_timer_is_active(&retry->timer))
        return true;
    if (!retry) {
        retry = calloc(1, sizeof(*retry) + strlen(name) + 1);
        if (!retry)
            return false;
        retry->queue = queue;
        retry->tree = tree;
        strcpy(retry->name, name);
        HASH_ADD_STR(queue->retries[tree], name, retry);
        if (!retry->hh.tbl) {
            free(retry);
            return false;
        }
    }
    if (retry->tries == array_length(delays)) {
        retry_free(retry);
        return false;
    }
    loop_timer_start(queue->loop, &retry->timer, delays[retry->tries++], on_due);
    return true;
}

void work_queue_forget_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name)
{
    struct retry *retry;

    HASH_FIND_STR(queue->retries[tree], name, retry);
    if (retry)
        retry_free(retry);
}

bool work_queue_has_retries(const struct work_queue *queue)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (queue->retries[tree])
            return true;
    return false;
}
