/* SPDX-License-Identifier: Apache-2.0 */
/* devices_mounts_test.c - when the host's mounts are read, and how much of them at once. */
#include <sys/sysmacros.h>

#include "lib/buffer.h"
#include "lib/mount_table.h"
#include "reconciler/core/reconciler_internal.h"
#include "tests/unit/few_descriptors.h"
#include "tests/unit/reconciler/fake_node.h"

/* A settled node would stop the loop before the timer is due. */
static void run_until_compared(const struct devices *devices)
{
    typeof(reconciler->options.settled) settled = reconciler->options.settled;

    reconciler->options.settled = NULL;
    while (devices->is_outdated)
        loop_run_once(&loop);
    reconciler->options.settled = settled;
}

/* Users can change the mounts as often as they like. */
static void mounts_are_compared_once_in_a_while(void **state)
{
    struct devices *devices;
    int64_t volume_id = bind_one();

    devices = &reconciler->devices;
    devices_compare_mounts(devices);
    devices->rests_until_ns = UINT64_MAX / 2;
    devices_note_mounts(&reconciler->devices);
    assert_true(devices->is_outdated);
    assert_true(devices_know_mounts(devices)); /* what is asked about is never out of date */
    assert_false(devices->is_outdated);
    devices->rests_until_ns = clock_monotonic() + 20 * NSEC_PER_MSEC;
    devices_note_mounts(&reconciler->devices);
    devices_note_mounts(&reconciler->devices);
    assert_true(devices->is_outdated);
    run_until_compared(devices);
    settle();
    assert_true(volume_of(volume_id).binding_id != 0);
}

/* Others' work goes on between the parts; a user who changes the table without end holds up
 * nothing, and what changes during the reading is read after it. */
static void a_large_table_is_read_in_parts(void **state)
{
    struct devices *devices;
    int64_t volume_id = bind_one();

    devices = &reconciler->devices;
    devices->part_ns = 0;
    devices_forget_mounts(devices);
    assert_false(devices_know_mounts(devices));
    assert_string_equal(devices_host_use(devices, 7, 1), "(cannot tell)");
    devices_forget_mounts(devices);
    assert_string_equal(devices_host_use_for_client(devices, 7, 1),
                        "(the host's mounts are being read)");
    assert_true(devices_are_reading(devices));
    devices_note_mounts(&reconciler->devices);
    assert_true(devices->is_outdated);
    put_disk(0, DISK, 1, 2 * GIB);
    queue_all_volumes();
    settle();
    assert_int_equal(volume_of(volume_id).device_bytes, 2 * GIB);
    assert_true(devices->is_outdated && devices->is_large);
    assert_true(loop_timer_is_active(&devices->rest)); /* so that it is compared */
    assert_true(devices_know_mounts(devices));         /* as they were a moment ago */
    devices->rests_until_ns = 0;
    assert_false(devices_know_mounts(devices));
    settle();
    assert_false(devices_are_reading(devices));
    assert_false(devices->is_outdated);
}

/* Each decision tries again. If that queued volumes, there would always be one to decide upon. */
static void a_table_that_cannot_be_read_queues_volumes_once(void **state)
{
    struct devices *devices;
    struct rlimit limit;
    int64_t taken, volume_id = bind_one();
    int filler;

    devices = &reconciler->devices;
    limit = leave_free(&filler, 1);
    devices_compare_mounts(devices);
    assert_true(work_queue_take_volume(&reconciler->queue, &taken) && taken == volume_id);
    assert_true(devices_know_mounts(devices));
    assert_string_equal(devices_host_use(devices, 7, 1), "(cannot tell)");
    assert_true(work_queue_is_empty(&reconciler->queue));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(devices_know_mounts(devices));
    assert_true(work_queue_take_volume(&reconciler->queue, &taken) && taken == volume_id);
    assert_null(devices_host_use(devices, 7, 1));
}

/* Any that the machine has mounted. */
static bool find_used(const struct devices *devices, uint32_t *ret_major, uint32_t *ret_minor)
{
    cleanup(buffer_done) struct buffer table = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry mount;
    bool found = false;
    char *cursor;

    assert_int_equal(mount_table_read(&table), 0);
    cursor = table.data;
    while (!found && mount_table_next(&cursor, &mount)) {
        *ret_major = major(mount.device);
        *ret_minor = minor(mount.device);
        found = major(mount.device) && devices_host_use(devices, *ret_major, *ret_minor);
    }
    return found;
}

/* The event of its end may be a moment late, and the client who has ended it has not waited. */
static void an_obstacle_is_looked_for_again(void **state)
{
    const struct observed_mounts *mounts;
    struct devices *devices;
    uint32_t major = 0, minor = 0;

    (void)bind_one();
    devices = &reconciler->devices;
    assert_true(devices_know_mounts(devices));
    if (!find_used(devices, &major, &minor))
        skip();
    mounts = devices->mounts;
    assert_null(devices_host_use_for_client(devices, 7, 1));
    assert_ptr_equal(devices->mounts, mounts);
    assert_non_null(devices_host_use_for_client(devices, major, minor));
    assert_ptr_not_equal(devices->mounts, mounts);
    devices->is_large = true;
    mounts = devices->mounts;
    assert_non_null(devices_host_use_for_client(devices, major, minor));
    assert_ptr_equal(devices->mounts, mounts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(mounts_are_compared_once_in_a_while),
        NODE(a_large_table_is_read_in_parts),
        NODE(an_obstacle_is_looked_for_again),
        NODE(a_table_that_cannot_be_read_queues_volumes_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
