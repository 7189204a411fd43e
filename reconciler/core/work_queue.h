/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.h - what to observe or decide again: dirty keys, each queued once.
 *
 * A watcher's event only adds a key; its content is not used. So any number of events about one
 * object costs one observation, their order cannot matter, and a lost event is made up for by
 * adding everything. If there was no memory for a key, work_queue_recover() returns true, and the
 * caller has to add everything.
 *
 * A directory that was caught in mid-write is added again after 20 ms, 200 ms and 2 s before its
 * content is taken to be invalid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/loop.h"
#include "reconciler/core/context.h"

/* ---- key queue ------------------------------------------------------------------------------ */

/* A queue of dirty keys, in the order in which they were first added, without duplicates. */

struct dirty_key;

struct key_queue {
    struct dirty_key *first; /* a uthash table, which keeps insertion order */
    bool lost;               /* a key was dropped for want of memory: everything must be queued */
};

void key_queue_done(struct key_queue *queue);

bool key_queue_is_empty(const struct key_queue *queue);
size_t key_queue_count(const struct key_queue *queue);

/* Numbers as keys. The oldest is taken; false if the queue is empty. */
void key_queue_add_number(struct key_queue *queue, uint64_t number);
bool key_queue_take_number(struct key_queue *queue, uint64_t *ret_number);

struct retry;

enum { WORK_NAME_BYTES = 256 };

/* The queues of a work queue: the names of each tree's directories, by enum reconciler_tree, and
 * then these. They are taken in this order. */
enum work_keys {
    KEYS_EXITS = TREES,   /* "pid id" */
    KEYS_SANDBOXES,       /* ids */
    KEYS_ANNOUNCED,       /* major << 32 | minor */
    KEYS_DEVICES,         /* likewise */
    KEYS_VOLUMES,         /* ids */
    KEYS_ANNOUNCED_TAKEN, /* taken since the last commit */
    WORK_KEYS,
};

/* The fields are private to the module. */
struct work_queue {
    struct loop *loop;
    struct key_queue keys[WORK_KEYS];
    bool all_volumes;
    bool takes_volumes;
    bool devices_are_fresh;
    struct retry *retries[TREES]; /* by name */
    struct loop_timer wake;
};

void work_queue_init(struct work_queue *queue, struct loop *loop);
void work_queue_done(struct work_queue *queue);

/* ---- adding ---- */

void work_queue_add_directory(struct work_queue *queue, enum reconciler_tree tree,
                              const char *name);
void work_queue_remove_directory(struct work_queue *queue, enum reconciler_tree tree,
                                 const char *name);
void work_queue_add_sandbox(struct work_queue *queue, const char *sandbox_id);
/* A VMM whose exit was observed, and its sandbox. */
void work_queue_add_exit(struct work_queue *queue, const char *sandbox_id, pid_t pid);
/* These two are callbacks of observe.h; their userdata is the queue. The second: a disk that
 * reported a larger capacity. It reports that once, so a rollback keeps the key. */
void work_queue_add_device(void *userdata, uint32_t major, uint32_t minor);
void work_queue_add_announcement(void *userdata, uint32_t major, uint32_t minor);

/* Volumes are taken only after the first scan, whose end adds them all. This is a
 * store_volume_callback; its userdata is the queue. */
int work_queue_add_volume(void *userdata, int64_t volume_id);
void work_queue_add_all_volumes(struct work_queue *queue);
void work_queue_begin_volumes(struct work_queue *queue);
/* A client waits for the volume: its device is observed too, and the next pass begins at once. */
void work_queue_add_urgent_volume(struct work_queue *queue, int64_t volume_id);

/* Whether a key was lost since the last call. */
bool work_queue_recover(struct work_queue *queue);

/* ---- taking ---- */

enum work_kind { WORK_ENTRY, WORK_BUNDLE, WORK_EXIT, WORK_SANDBOX, WORK_ANNOUNCEMENT, WORK_DEVICE };

struct work {
    enum work_kind kind;
    enum reconciler_tree tree;  /* ENTRY, BUNDLE */
    char name[WORK_NAME_BYTES]; /* of the directory; EXIT, SANDBOX: the sandbox's id */
    pid_t pid;                  /* EXIT */
    uint32_t major, minor;      /* ANNOUNCEMENT, DEVICE */
};

/* The next object to observe, in the order in which facts build upon each other. */
bool work_queue_take(struct work_queue *queue, struct work *ret_work);
bool work_queue_take_volume(struct work_queue *queue, int64_t *ret_volume_id);
bool work_queue_take_all_volumes(struct work_queue *queue);

/* What was taken since the last call was recorded, or was rolled back. */
void work_queue_commit(struct work_queue *queue);
void work_queue_roll_back(struct work_queue *queue);

bool work_queue_is_empty(const struct work_queue *queue);
/* No metadata directory and no sandbox is queued. */
bool work_queue_is_observed(const struct work_queue *queue);
/* The queue is short enough for a scan to add more of this tree. */
bool work_queue_has_room(const struct work_queue *queue, enum reconciler_tree tree);

/* True from the end of the first scan until its volumes are decided or an event names a device:
 * decisions meanwhile do not observe devices again. */
bool work_queue_devices_are_fresh(const struct work_queue *queue);
void work_queue_note_decision(struct work_queue *queue);
void work_queue_doubt_devices(struct work_queue *queue);

/* ---- the next pass ---- */

/* Work is taken from the queue before the loop sleeps; this wakes the loop. */
void work_queue_wake(struct work_queue *queue, uint64_t delay_ns);
bool work_queue_is_waking(const struct work_queue *queue);

/* ---- reading again ---- */

/* false: it has been read often enough, and its content counts as it is. Further events that find
 * it bad while it waits do not count, because a writer may be slow. */
bool work_queue_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name);
void work_queue_forget_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name);
bool work_queue_has_retries(const struct work_queue *queue);
