/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.h - what to observe or decide again: dirty keys, each queued once.
 *
 * A watcher's event only adds a key; nothing is concluded from what it says. So any number of
 * events about one thing costs one observation, their order cannot matter, and a lost one is made
 * up for by adding everything. Where a key finds no memory, work_queue_recover() says so, and
 * everything is to be added.
 *
 * A directory that was caught in mid-write is added again after 20 ms, 200 ms and 2 s before it is
 * believed to be bad.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/loop.h"
#include "reconciler/core/key_queue.h"
#include "reconciler/core/trees.h"

struct retry;

enum { WORK_NAME_BYTES = 256 };

/* The fields are the module's own. */
struct work_queue {
    struct loop *loop;
    struct key_queue directories[TREES]; /* names */
    struct key_queue sandboxes;          /* ids */
    struct key_queue exits;              /* "pid id" */
    struct key_queue devices;            /* major << 32 | minor */
    struct key_queue announced;          /* the same */
    struct key_queue announced_taken;    /* since the last commit */
    struct key_queue volumes;            /* ids */
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
void work_queue_add_device(struct work_queue *queue, uint32_t major, uint32_t minor);
/* A disk that says it grew. It says so once, so a rollback keeps it. */
void work_queue_add_announcement(struct work_queue *queue, uint32_t major, uint32_t minor);

/* Volumes are taken from the end of the first scan on, which adds them all. A
 * store_volume_callback, whose userdata is the queue. */
int work_queue_add_volume(void *userdata, int64_t volume_id);
void work_queue_add_all_volumes(struct work_queue *queue);
void work_queue_begin_volumes(struct work_queue *queue);
/* Ids are of another store now: no volume is taken until the next first scan. */
void work_queue_forget_volumes(struct work_queue *queue);
/* Somebody waits for it: its device is observed too, and the next pass begins at once. */
void work_queue_add_urgent_volume(struct work_queue *queue, int64_t volume_id);

/* Whether some key was lost since the last call. */
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

/* The next thing to observe, in the order in which facts build upon each other. */
bool work_queue_take(struct work_queue *queue, struct work *ret_work);
bool work_queue_take_volume(struct work_queue *queue, int64_t *ret_volume_id);
bool work_queue_take_all_volumes(struct work_queue *queue);

/* What was taken since the last call is on the record, or is not. */
void work_queue_commit(struct work_queue *queue);
void work_queue_roll_back(struct work_queue *queue);

bool work_queue_is_empty(const struct work_queue *queue);
/* No metadata directory and no sandbox waits. */
bool work_queue_is_observed(const struct work_queue *queue);
/* Few enough wait that a scan may add more of this tree. */
bool work_queue_has_room(const struct work_queue *queue, enum reconciler_tree tree);

/* Whether every device has been observed by the first scan and none was heard of since: then the
 * first decisions need not observe them again. It ends with the last of these decisions. */
bool work_queue_devices_are_fresh(const struct work_queue *queue);
void work_queue_note_decision(struct work_queue *queue);
void work_queue_doubt_devices(struct work_queue *queue);

/* ---- the next pass ---- */

/* Whoever takes from the queue does so before the loop sleeps; this wakes the loop. */
void work_queue_wake(struct work_queue *queue, uint64_t delay_ns);
bool work_queue_is_waking(const struct work_queue *queue);

/* ---- reading again ---- */

/* false: it has been read often enough, believe it. Bad readings that events cause while it waits
 * do not count: a writer may be slow. */
bool work_queue_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name);
void work_queue_forget_retry(struct work_queue *queue, enum reconciler_tree tree, const char *name);
bool work_queue_has_retries(const struct work_queue *queue);
