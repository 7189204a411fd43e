/* SPDX-License-Identifier: Apache-2.0 */
/* http2_memory.c - malloc(3) with accounting: each block is preceded by its size. */
#include "api/http2_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* As wide as malloc's alignment. It is charged twice: once for itself, and once for malloc's own
 * header. */
union head {
    size_t size;
    max_align_t align;
};

static size_t cost_of(size_t size)
{
    return size + 2 * sizeof(union head);
}

static void *resize(void *block, size_t size, void *userdata)
{
    struct http2_memory *memory = userdata;
    union head *old = block ? (union head *)block - 1 : NULL;
    size_t before = old ? cost_of(old->size) : 0;
    union head *head;

    if (size > memory->limit || cost_of(size) > memory->limit - memory->used + before)
        return NULL;
    head = realloc(old, sizeof(*head) + size);
    if (!head)
        return NULL;
    memory->used += cost_of(size) - before;
    head->size = size;
    return head + 1;
}

static void *take(size_t size, void *userdata)
{
    return resize(NULL, size, userdata);
}

static void *take_zeroed(size_t count, size_t size, void *userdata)
{
    void *block = size && count > SIZE_MAX / size ? NULL : take(count * size, userdata);

    return block ? memset(block, 0, count * size) : NULL;
}

static void give_back(void *block, void *userdata)
{
    struct http2_memory *memory = userdata;
    union head *head;

    if (!block)
        return;
    head = (union head *)block - 1;
    memory->used -= cost_of(head->size);
    free(head);
}

nghttp2_mem http2_memory_use(struct http2_memory *memory)
{
    return (nghttp2_mem){memory, take, give_back, take_zeroed, resize};
}
