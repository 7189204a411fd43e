/* SPDX-License-Identifier: Apache-2.0 */
/* event_queue_test.c - events that wait: equal ones are counted, too many and too old ones dropped.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "reconciler/kubernetes/kubernetes_events.h"

static const uint64_t WINDOW_NS = 600 * NSEC_PER_SEC, HOUR_NS = 3600 * NSEC_PER_SEC;

static struct event_queue queue;

static int tear_down(void **state)
{
    event_queue_clear(&queue);
    memset(&queue, 0, sizeof(queue));
    return 0;
}

static void add(const char *pod, const char *message, int64_t ms, uint64_t now_ns)
{
    struct event event = {.kind = EVENT_STALLED,
                          .object = {.kind = "Pod", .namespace = "n"},
                          .first_ms = ms,
                          .last_ms = ms,
                          .count = 1};

    (void)snprintf(event.object.name, sizeof(event.object.name), "%s", pod);
    (void)snprintf(event.message, sizeof(event.message), "%s", message);
    event_queue_add(&queue, &event, now_ns);
}

static void expect(const char *pod, const char *message, unsigned count, uint64_t now_ns)
{
    struct event event;

    assert_true(event_queue_take(&queue, now_ns, &event));
    assert_string_equal(event.object.name, pod);
    assert_string_equal(event.message, message);
    assert_int_equal(event.count, count);
}

static void expect_none(uint64_t now_ns)
{
    struct event event;

    assert_false(event_queue_take(&queue, now_ns, &event));
}

static void events_come_in_order(void **state)
{
    assert_int_equal(event_queue_when(&queue), UINT64_MAX);
    add("a", "x", 1, 10);
    add("b", "x", 2, 11);
    add("a", "y", 3, 12);
    assert_int_equal(event_queue_when(&queue), 10);
    expect("a", "x", 1, 12);
    expect("b", "x", 1, 12);
    expect("a", "y", 1, 12);
    expect_none(12);
    assert_int_equal(event_queue_when(&queue), UINT64_MAX);
    assert_int_equal(queue.merged + queue.dropped, 0);
}

static void equal_ones_that_wait_become_one(void **state)
{
    struct event event;

    add("a", "x", 1, 10);
    add("a", "x", 5, 20);
    add("a", "x", 9, 30);
    assert_true(event_queue_take(&queue, 30, &event));
    assert_int_equal(event.count, 3);
    assert_int_equal(event.first_ms, 1);
    assert_int_equal(event.last_ms, 9);
    assert_int_equal(queue.merged, 2);
    expect_none(30);
}

/* The first at once, the others together when the window is over. */
static void equal_ones_afterwards_are_counted_until_the_window_ends(void **state)
{
    struct event event;

    add("a", "x", 1, 10);
    expect("a", "x", 1, 10);
    add("a", "x", 2, 20);
    add("a", "x", 3, 30);
    expect_none(30);
    assert_int_equal(event_queue_when(&queue), 10 + WINDOW_NS);
    expect_none(9 + WINDOW_NS);
    assert_true(event_queue_take(&queue, 10 + WINDOW_NS, &event));
    assert_int_equal(event.count, 2);
    assert_int_equal(event.first_ms, 2);
    assert_int_equal(event.last_ms, 3);
    assert_int_equal(queue.merged, 1);
    /* And again, a window later. */
    add("a", "x", 4, 20 + WINDOW_NS);
    expect_none(20 + WINDOW_NS);
    expect("a", "x", 1, 10 + 2 * WINDOW_NS);
    /* After a quiet window, at once. */
    expect_none(10 + 3 * WINDOW_NS);
    add("a", "x", 2, 11 + 3 * WINDOW_NS);
    expect("a", "x", 1, 11 + 3 * WINDOW_NS);
    assert_int_equal(queue.count, 1);
}

static void oldest_gives_way(void **state)
{
    char name[16];

    add("taken", "x", 0, 1);
    expect("taken", "x", 1, 1);
    for (unsigned i = 0; i < EVENT_QUEUE_LENGTH; i++) {
        (void)snprintf(name, sizeof(name), "pod-%u", i);
        add(name, "x", i, 2 + i);
    }
    assert_int_equal(queue.dropped, 0);
    assert_int_equal(queue.count, EVENT_QUEUE_LENGTH);
    add("more", "x", 0, 1000);
    assert_int_equal(queue.count, EVENT_QUEUE_LENGTH);
    assert_int_equal(queue.dropped, 1);
    expect("pod-1", "x", 1, 1000);
}

static void events_an_hour_old_are_dropped(void **state)
{
    add("a", "x", 1, 10);
    add("b", "x", 1, 20);
    expect("b", "x", 1, 15 + HOUR_NS);
    assert_int_equal(queue.dropped, 1);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(events_come_in_order),
        TEST(equal_ones_that_wait_become_one),
        TEST(equal_ones_afterwards_are_counted_until_the_window_ends),
        TEST(oldest_gives_way),
        TEST(events_an_hour_old_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
