/* SPDX-License-Identifier: Apache-2.0 */
/* key_queue.c - an insertion-ordered set of keys, on uthash.
 *
 * A key that finds no memory is dropped, but its change is not lost: `lost` makes the caller queue
 * everything.
 */
#include "reconciler/core/key_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"

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

void key_queue_add(struct key_queue *queue, const void *key, size_t length)
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

bool key_queue_take(struct key_queue *queue, void *ret_key, size_t size, size_t *ret_length)
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
    key_queue_add(queue, &number, sizeof(number));
}

bool key_queue_take_number(struct key_queue *queue, uint64_t *ret_number)
{
    size_t length;

    return key_queue_take(queue, ret_number, sizeof(*ret_number), &length);
}

void key_queue_add_name(struct key_queue *queue, const char *name)
{
    key_queue_add(queue, name, strlen(name));
}

bool key_queue_take_name(struct key_queue *queue, char *ret_name, size_t size)
{
    size_t length;

    if (!key_queue_take(queue, ret_name, size - 1, &length))
        return false;
    ret_name[length] = '\0';
    return true;
}
