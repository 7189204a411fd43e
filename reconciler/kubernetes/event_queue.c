/* SPDX-License-Identifier: Apache-2.0 */
/* event_queue.c - see event_queue.h.
 *
 * An event that was taken stays for the length of a window and counts its equals; it becomes an
 * event again if there were any, and is forgotten if not. So counting needs no right to change
 * what is on the server.
 */
#include "reconciler/kubernetes/event_queue.h"

#include <stdlib.h>

#include "lib/clock.h"

static const uint64_t WINDOW_NS = 600 * NSEC_PER_SEC;
/* An API server forgets events after an hour. */
static const uint64_t AGE_NS = 3600 * NSEC_PER_SEC;

static void remove_at(struct event_queue *queue, unsigned i)
{
    free(queue->item[i]);
    queue->count--;
    for (; i < queue->count; i++)
        queue->item[i] = queue->item[i + 1];
}

void event_queue_clear(struct event_queue *queue)
{
    while (queue->count)
        remove_at(queue, queue->count - 1);
}

/* It has to be sent, now or when its window is over. */
static bool is_due(const struct queued_event *item)
{
    return item->event.count > 0;
}

static void forget_old(struct event_queue *queue, uint64_t now_ns)
{
    for (unsigned i = queue->count; i-- > 0;) {
        struct queued_event *item = queue->item[i];
        bool is_over = item->ready_ns <= now_ns;

        if (!is_due(item) ? is_over : is_over && now_ns - item->since_ns > AGE_NS) {
            queue->dropped += item->event.count > 0;
            remove_at(queue, i);
        }
    }
}

static struct queued_event *find(const struct event_queue *queue, const struct event *event)
{
    for (unsigned i = 0; i < queue->count; i++)
        if (event_equals(&queue->item[i]->event, event))
            return queue->item[i];
    return NULL;
}

static void merge(struct event_queue *queue, struct queued_event *item, const struct event *event,
                  uint64_t now_ns)
{
    if (!is_due(item)) {
        item->event.first_ms = event->first_ms;
        item->since_ns = now_ns;
    } else {
        queue->merged++;
    }
    item->event.last_ms = event->last_ms;
    item->event.count += event->count;
}

/* The one that is missed least: taken already, else the oldest. */
static void make_room(struct event_queue *queue)
{
    unsigned victim = 0;

    if (queue->count < EVENT_QUEUE_LENGTH)
        return;
    for (unsigned i = queue->count; i-- > 0;)
        if (!is_due(queue->item[i]))
            victim = i;
    queue->dropped += is_due(queue->item[victim]);
    remove_at(queue, victim);
}

void event_queue_add(struct event_queue *queue, const struct event *event, uint64_t now_ns)
{
    struct queued_event *item;

    forget_old(queue, now_ns);
    item = find(queue, event);
    if (item) {
        merge(queue, item, event, now_ns);
        return;
    }
    item = calloc(1, sizeof(*item));
    if (!item) {
        queue->dropped++;
        return;
    }
    make_room(queue);
    *item = (struct queued_event){.event = *event, .since_ns = now_ns, .ready_ns = now_ns};
    queue->item[queue->count++] = item;
}

/* The index of the event that is ready first; queue->count: there is none. */
static unsigned find_first(const struct event_queue *queue)
{
    unsigned first = queue->count;

    for (unsigned i = 0; i < queue->count; i++)
        if (is_due(queue->item[i]) &&
            (first == queue->count || queue->item[i]->ready_ns < queue->item[first]->ready_ns))
            first = i;
    return first;
}

uint64_t event_queue_when(const struct event_queue *queue)
{
    unsigned first = find_first(queue);

    return first < queue->count ? queue->item[first]->ready_ns : UINT64_MAX;
}

bool event_queue_take(struct event_queue *queue, uint64_t now_ns, struct event *ret_event)
{
    struct queued_event *item;
    unsigned first;

    forget_old(queue, now_ns);
    first = find_first(queue);
    if (first == queue->count || queue->item[first]->ready_ns > now_ns)
        return false;
    item = queue->item[first];
    *ret_event = item->event;
    item->event.count = 0;
    item->ready_ns = now_ns + WINDOW_NS;
    return true;
}
