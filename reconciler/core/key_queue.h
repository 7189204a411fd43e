/* SPDX-License-Identifier: Apache-2.0 */
/* key_queue.h - a queue of dirty keys, in the order in which they were first added, without
 * duplicates.
 *
 * An entry carries nothing but its key, so any number of events about one object costs one
 * observation, and the order of events cannot matter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dirty_key;

struct key_queue {
    struct dirty_key *first; /* a uthash table, which keeps insertion order */
    bool lost;               /* a key was dropped for want of memory: everything must be queued */
};

void key_queue_done(struct key_queue *queue);

void key_queue_add(struct key_queue *queue, const void *key, size_t length);
bool key_queue_is_empty(const struct key_queue *queue);
size_t key_queue_count(const struct key_queue *queue);

/* Takes the oldest key into ret_key (at most size bytes; a key longer than that is a programming
 * error). false if the queue is empty. */
bool key_queue_take(struct key_queue *queue, void *ret_key, size_t size, size_t *ret_length);

/* Numbers and names as keys. */
void key_queue_add_number(struct key_queue *queue, uint64_t number);
bool key_queue_take_number(struct key_queue *queue, uint64_t *ret_number);
void key_queue_add_name(struct key_queue *queue, const char *name);
bool key_queue_take_name(struct key_queue *queue, char *ret_name, size_t size);
void key_queue_remove_name(struct key_queue *queue, const char *name); /* if it is queued */
