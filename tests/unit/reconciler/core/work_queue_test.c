/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue_test.c - what is taken from the queue, in which order, and what a rollback keeps. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/loop.h"
#include "reconciler/core/work_queue.h"

static struct loop loop;
static struct work_queue queue;

static int start(void **state)
{
    if (loop_init(&loop) < 0)
        return -1;
    work_queue_init(&queue, &loop);
    return 0;
}

static int stop(void **state)
{
    work_queue_done(&queue);
    loop_done(&loop);
    return 0;
}

static struct work take(enum work_kind kind)
{
    struct work work;

    assert_true(work_queue_take(&queue, &work));
    assert_int_equal(work.kind, kind);
    return work;
}

static void facts_come_before_what_builds_upon_them(void **state)
{
    struct work work;

    work_queue_add_device(&queue, 7, 1);
    work_queue_add_exit(&queue, "sandbox-1", 42);
    work_queue_add_directory(&queue, TREE_BUNDLES, "container-1");
    work_queue_add_directory(&queue, TREE_GO_VMS, "sandbox-2");
    work_queue_add_directory(&queue, TREE_GO_VMS, "../no-sandbox");
    work_queue_add_directory(&queue, TREE_CRUST_VOLUMES, "volume-1");
    work_queue_add_directory(&queue, TREE_CRUST_VOLUMES, "volume-1");
    assert_false(work_queue_is_observed(&queue));
    assert_string_equal(take(WORK_ENTRY).name, "volume-1");
    assert_int_equal(take(WORK_BUNDLE).tree, TREE_BUNDLES);
    work = take(WORK_EXIT);
    assert_int_equal(work.pid, 42);
    assert_string_equal(work.name, "sandbox-1");
    assert_string_equal(take(WORK_SANDBOX).name, "sandbox-1");
    assert_string_equal(take(WORK_SANDBOX).name, "sandbox-2");
    assert_true(work_queue_is_observed(&queue));
    assert_true(work_queue_devices_are_fresh(&queue));
    assert_int_equal(take(WORK_DEVICE).minor, 1);
    assert_false(work_queue_devices_are_fresh(&queue));
    assert_false(work_queue_take(&queue, &work));
    assert_true(work_queue_is_empty(&queue));
}

static void devices_are_fresh_until_the_last_first_decision(void **state)
{
    int64_t id;

    work_queue_begin_volumes(&queue);
    assert_true(work_queue_take_all_volumes(&queue));
    (void)work_queue_add_volume(&queue, 1);
    (void)work_queue_add_volume(&queue, 2);
    work_queue_note_decision(&queue);
    assert_true(work_queue_take_volume(&queue, &id));
    work_queue_note_decision(&queue);
    assert_true(work_queue_devices_are_fresh(&queue));
    assert_true(work_queue_take_volume(&queue, &id));
    assert_true(work_queue_devices_are_fresh(&queue)); /* while it is decided */
    work_queue_note_decision(&queue);
    assert_false(work_queue_devices_are_fresh(&queue));
}

static void an_announcement_outlives_a_rollback(void **state)
{
    struct work work;

    work_queue_add_announcement(&queue, 8, 3);
    assert_false(work_queue_take(&queue, &work)); /* not before the first scan */
    work_queue_begin_volumes(&queue);
    assert_int_equal(take(WORK_ANNOUNCEMENT).major, 8);
    work_queue_roll_back(&queue);
    assert_int_equal(take(WORK_ANNOUNCEMENT).minor, 3);
    work_queue_commit(&queue);
    work_queue_roll_back(&queue);
    assert_false(work_queue_take(&queue, &work));
}

static void volumes_wait_for_the_first_scan(void **state)
{
    int64_t volume_id;

    assert_int_equal(work_queue_add_volume(&queue, 5), 0);
    assert_true(work_queue_is_empty(&queue));
    work_queue_begin_volumes(&queue);
    assert_true(work_queue_take_all_volumes(&queue));
    assert_false(work_queue_take_all_volumes(&queue));
    (void)work_queue_add_volume(&queue, 5);
    work_queue_add_urgent_volume(&queue, 6);
    assert_true(work_queue_is_waking(&queue));
    assert_true(work_queue_take_volume(&queue, &volume_id));
    assert_int_equal(volume_id, 5);
    assert_true(work_queue_take_volume(&queue, &volume_id));
    assert_int_equal(volume_id, 6);
    assert_false(work_queue_take_volume(&queue, &volume_id));
}

static void lost_keys_are_reported_once(void **state)
{
    assert_false(work_queue_recover(&queue));
    queue.keys[KEYS_DEVICES].lost = queue.keys[TREE_KATA_VOLUMES].lost = true;
    assert_true(work_queue_recover(&queue));
    assert_false(work_queue_recover(&queue));
}

static void a_reading_is_repeated_three_times(void **state)
{
    struct work work;

    for (unsigned i = 0; i < 3; i++) {
        assert_true(work_queue_retry(&queue, TREE_KATA_VOLUMES, "volume-1"));
        assert_true(work_queue_retry(&queue, TREE_KATA_VOLUMES, "volume-1")); /* counts once */
        while (!work_queue_take(&queue, &work))
            loop_run_once(&loop);
    }
    assert_false(work_queue_retry(&queue, TREE_KATA_VOLUMES, "volume-1"));
    assert_false(work_queue_has_retries(&queue));
    assert_true(work_queue_retry(&queue, TREE_KATA_VOLUMES, "volume-2"));
    work_queue_forget_retry(&queue, TREE_KATA_VOLUMES, "volume-2");
    assert_false(work_queue_has_retries(&queue));
}

static void a_scan_finds_no_room_behind_many_names(void **state)
{
    char name[16];

    for (unsigned i = 0; work_queue_has_room(&queue, TREE_KATA_VOLUMES); i++) {
        assert_true(i < 1000);
        (void)snprintf(name, sizeof(name), "volume-%u", i);
        work_queue_add_directory(&queue, TREE_KATA_VOLUMES, name);
    }
    work_queue_remove_directory(&queue, TREE_KATA_VOLUMES, name);
    assert_true(work_queue_has_room(&queue, TREE_KATA_VOLUMES));
}

#define QUEUE(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUEUE(devices_are_fresh_until_the_last_first_decision),
        QUEUE(facts_come_before_what_builds_upon_them),
        QUEUE(an_announcement_outlives_a_rollback),
        QUEUE(volumes_wait_for_the_first_scan),
        QUEUE(lost_keys_are_reported_once),
        QUEUE(a_reading_is_repeated_three_times),
        QUEUE(a_scan_finds_no_room_behind_many_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
