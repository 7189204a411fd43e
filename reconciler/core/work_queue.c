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
    for (enum reconciler_tree tree = 0; tree < TREES; tree++) {
        key_queue_done(&queue->directories[tree]);
        while (queue->retries[tree])
            retry_free(queue->retries[tree]);
    }
    key_queue_done(&queue->sandboxes);
    key_queue_done(&queue->exits);
    key_queue_done(&queue->devices);
    key_queue_done(&queue->announced);
    key_queue_done(&queue->announced_taken);
    key_queue_done(&queue->volumes);
}

/* ---- adding ---- */

void work_queue_add_directory(struct work_queue *queue, enum reconciler_tree tree, const char *name)
{
    if (!tree_has_sandboxes(tree))
        key_queue_add_name(&queue->directories[tree], name);
    else if (observe_is_sandbox_id(name))
        key_queue_add_name(&queue->sandboxes, name);
}

void work_queue_remove_directory(struct work_queue *queue, enum reconciler_tree tree,
                                 const char *name)
{
    key_queue_remove_name(&queue->directories[tree], name);
}

void work_queue_add_sandbox(struct work_queue *queue, const char *sandbox_id)
{
    key_queue_add_name(&queue->sandboxes, sandbox_id);
}

void work_queue_add_exit(struct work_queue *queue, const char *sandbox_id, pid_t pid)
{
    char exit[WORK_NAME_BYTES];

    (void)snprintf(exit, sizeof(exit), "%d %s", (int)pid, sandbox_id);
    key_queue_add_name(&queue->exits, exit);
    key_queue_add_name(&queue->sandboxes, sandbox_id);
}

static uint64_t pack_number(uint32_t major, uint32_t minor)
{
    return (uint64_t)major << 32 | minor;
}

void work_queue_add_device(void *userdata, uint32_t major, uint32_t minor)
{
    struct work_queue *queue = userdata;

    key_queue_add_number(&queue->devices, pack_number(major, minor));
}

void work_queue_add_announcement(void *userdata, uint32_t major, uint32_t minor)
{
    struct work_queue *queue = userdata;

    key_queue_add_number(&queue->announced, pack_number(major, minor));
}

int work_queue_add_volume(void *userdata, int64_t volume_id)
{
    struct work_queue *queue = userdata;

    if (queue->takes_volumes)
        key_queue_add_number(&queue->volumes, (uint64_t)volume_id);
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
    struct key_queue *const others[] = {&queue->sandboxes, &queue->exits,
                                        &queue->devices,   &queue->announced,
                                        &queue->volumes,   &queue->announced_taken};
    bool lost = false;

    for (enum reconciler_tree tree = 0; tree < TREES; tree++) {
        lost |= queue->directories[tree].lost;
        queue->directories[tree].lost = false;
    }
    for (unsigned i = 0; i < array_length(others); i++) {
        lost |= others[i]->lost;
        others[i]->lost = false;
    }
    return lost;
}

/* ---- taking ---- */

static bool take_directory(struct work_queue *queue, struct work *work)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (key_queue_take_name(&queue->directories[tree], work->name, sizeof(work->name))) {
            work->kind = tree_has_volumes(tree) ? WORK_ENTRY : WORK_BUNDLE;
            work->tree = tree;
            return true;
        }
    return false;
}

/* Taken before the sandbox is observed and found to be gone. */
static bool take_exit(struct work_queue *queue, struct work *work)
{
    char exit[WORK_NAME_BYTES];
    char *sandbox_id;

    if (!key_queue_take_name(&queue->exits, exit, sizeof(exit)))
        return false;
    work->kind = WORK_EXIT;
    work->pid = (pid_t)strtol(exit, &sandbox_id, 10);
    (void)snprintf(work->name, sizeof(work->name), "%s", sandbox_id + 1);
    return true;
}

static bool take_device(struct work_queue *queue, struct work *work)
{
    uint64_t number;

    /* Which volumes use a disk is known only after the first scan. */
    if (queue->takes_volumes && key_queue_take_number(&queue->announced, &number)) {
        key_queue_add_number(&queue->announced_taken, number);
        work->kind = WORK_ANNOUNCEMENT;
    } else if (key_queue_take_number(&queue->devices, &number)) {
        work->kind = WORK_DEVICE;
    } else {
        return false;
    }
    queue->devices_are_fresh = false;
    work->major = (uint32_t)(number >> 32);
    work->minor = (uint32_t)number;
    return true;
}

bool work_queue_take(struct work_queue *queue, struct work *ret_work)
{
    if (take_directory(queue, ret_work) || take_exit(queue, ret_work))
        return true;
    if (!key_queue_take_name(&queue->sandboxes, ret_work->name, sizeof(ret_work->name)))
        return take_device(queue, ret_work);
    ret_work->kind = WORK_SANDBOX;
    return true;
}

bool work_queue_take_volume(struct work_queue *queue, int64_t *ret_volume_id)
{
    uint64_t number;

    if (!key_queue_take_number(&queue->volumes, &number))
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
    key_queue_done(&queue->announced_taken);
}

void work_queue_roll_back(struct work_queue *queue)
{
    uint64_t number;

    while (key_queue_take_number(&queue->announced_taken, &number))
        key_queue_add_number(&queue->announced, number);
    queue->devices_are_fresh = false;
}

bool work_queue_is_observed(const struct work_queue *queue)
{
    return key_queue_is_empty(&queue->sandboxes) &&
           key_queue_is_empty(&queue->directories[TREE_KATA_VOLUMES]) &&
           key_queue_is_empty(&queue->directories[TREE_CRUST_VOLUMES]);
}

bool work_queue_is_empty(const struct work_queue *queue)
{
    for (enum reconciler_tree tree = TREE_BUNDLES; tree < TREES; tree++)
        if (!key_queue_is_empty(&queue->directories[tree]))
            return false;
    return work_queue_is_observed(queue) && key_queue_is_empty(&queue->exits) &&
           key_queue_is_empty(&queue->devices) && key_queue_is_empty(&queue->announced) &&
           key_queue_is_empty(&queue->volumes) && !queue->all_volumes;
}

bool work_queue_has_room(const struct work_queue *queue, enum reconciler_tree tree)
{
    return key_queue_count(&queue->directories[tree]) < ROOM &&
           key_queue_count(&queue->sandboxes) < ROOM;
}

bool work_queue_devices_are_fresh(const struct work_queue *queue)
{
    return queue->devices_are_fresh;
}

void work_queue_note_decision(struct work_queue *queue)
{
    queue->devices_are_fresh &= !key_queue_is_empty(&queue->volumes);
}

void work_queue_doubt_devices(struct work_queue *queue)
{
    queue->devices_are_fresh = false;
}

/* ---- the next pass ---- */

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

static struct retry *retry_new(struct work_queue *queue, enum reconciler_tree tree,
                               const char *name)
{
    struct retry *retry = calloc(1, sizeof(*retry) + strlen(name) + 1);

    if (!retry)
        return NULL;
    retry->queue = queue;
    retry->tree = tree;
    strcpy(retry->name, name);
    HASH_ADD_STR(queue->retries[tree], name, retry);
    if (retry->hh.tbl)
        return retry;
    free(retry);
    return NULL;
}

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
    if (!retry)
        retry = retry_new(queue, tree, name);
    if (!retry)
        return false;
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

void key_queue_done(struct key_queue *queue)
{
    struct dirty_key *dirty, *next;

    HASH_ITER (hh, queue->first, dirty, next) {
        HASH_DEL(queue->first, dirty);
        free(dirty);
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
    HASH_DEL(queue->first, dirty);
    free(dirty);
    return true;
}

void key_queue_remove_name(struct key_queue *queue, const char *name)
{
    struct dirty_key *dirty;

    HASH_FIND(hh, queue->first, name, strlen(name), dirty);
    if (!dirty)
        return;
    HASH_DEL(queue->first, dirty);
    free(dirty);
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

void key_queue_add_name(struct key_queue *queue, const char *name)
{
    add_key(queue, name, strlen(name));
}

bool key_queue_take_name(struct key_queue *queue, char *ret_name, size_t size)
{
    size_t length;

    if (!take_key(queue, ret_name, size - 1, &length))
        return false;
    ret_name[length] = '\0';
    return true;
}
