/* SPDX-License-Identifier: Apache-2.0 */
/* pass_test.c - reconcile passes over volumes whose devices and sandboxes come, change and go. */
#include "reconciler/core/reconciler_internal.h"
#include "tests/unit/missing_database.h"
#include "tests/unit/reconciler/fake_node.h"

#include "lib/encode.h"
#include "lib/process.h"

/* Each may take as long as one pass may. */
static void what_is_read_unasked_waits_after_a_slow_pass(void **state)
{
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    fake_unread = 3;
    fake_sandbox[0].is_slow = true;
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    while (fake_slow == 0)
        loop_run_once(&loop);
    assert_int_equal(fake_unread, 3);
    for (unsigned i = 0; fake_unread && i < 10; i++)
        loop_run_once(&loop);
    assert_int_equal(fake_unread, 0);
}

static void a_device_that_cannot_be_read_for_now_is_kept(void **state)
{
    int64_t volume_id = bind_one();

    fake_device_failure = -EMFILE; /* teaches nothing */
    queue_all_volumes();
    settle();
    assert_true(volume_of(volume_id).device_id != 0);
}

/* Its VMM opens the device without asking anybody. */
static void a_volume_on_a_drives_device_is_blocked(void **state)
{
    const struct store_drive_mount_request request = {.drive_id = "data",
                                                      .sandbox_id = "sandbox-1",
                                                      .host_path = DISK,
                                                      .vm_path = "/vm",
                                                      .fs_type = "ext4"};
    const struct store_drive_mount_disk disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1};
    int64_t volume_id = bind_one(), drive_ref;

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_add_drive_mount(store, &request, "serial", &drive_ref), 0);
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &disk), 0);
    assert_int_equal(store_set_drive_mount_state(store, drive_ref, DRIVE_ATTACHED, STATUS_OK, ""),
                     0);
    assert_int_equal(store_commit(store), 0);
    queue_all_volumes();
    settle();
    assert_is(volume_id, STATE_BLOCKED, REASON_DEVICE_SHARED);
}

static void stage_on_other_disks(void)
{
    stage(TARGET, "/dev/disk-2", NULL);
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(TARGET));
    stage(OTHER_TARGET, "/dev/disk-3", NULL);
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(OTHER_TARGET));
}

static void a_volume_staged_before_the_first_decisions_is_on_its_device(void **state)
{
    stage(TARGET, DISK, NULL);
    for (unsigned i = 0; i < 3; i++)
        put_disk(i, ((const char *[]){DISK, "/dev/disk-2", "/dev/disk-3"})[i], i + 1,
                 GIB * (i + 1));
    fake_when_synced = stage_on_other_disks;
    run_node();
    assert_string_equal(volume_of(1).device_name, "/dev/disk-2");
    assert_int_equal(volume_of(1).device_bytes, 2 * GIB);
    assert_string_equal(volume_of(2).device_name, "/dev/disk-3");
    assert_is(2, STATE_UNBOUND, REASON_NONE);
}

static void unstage_from_kata(void)
{
    unstage(KATA_VOLUMES, TARGET);
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(TARGET));
}

static void
a_layout_that_goes_before_the_first_decisions_leaves_the_device_of_the_other(void **state)
{
    put_disk(0, DISK, 1, GIB);
    put_disk(1, "/dev/disk-2", 2, 2 * GIB);
    stage(TARGET, DISK, NULL);
    stage_at(CRUST_VOLUMES, TARGET, "/dev/disk-2", NULL);
    fake_when_synced = unstage_from_kata;
    run_node();
    assert_string_equal(volume_of(last_volume()).device_name, "/dev/disk-2");
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
}

static void a_vmm_that_dies_while_it_is_read_is_gone(void **state)
{
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_pin_fails = true;
    run_node();
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
}

static void a_sandbox_that_cannot_be_read_is_read_again(void **state)
{
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].failure = -EMFILE;
    make_reconciler(NULL);
    reconciler_start(reconciler);
    while (!fake_synced)
        loop_run_once(&loop);
    assert_int_equal(fake_settled, 0); /* it waits for another reading */
    fake_sandbox[0].failure = 0;
    settle();
    assert_true(volume_of(last_volume()).binding_id != 0);
}

static void a_sandbox_in_mid_write_is_believed_at_last(void **state)
{
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].try_again = true;
    run_node();
    assert_true(volume_of(last_volume()).binding_id != 0);
}

/* Not for ever. What a sweep itself queues does not count. */
static void a_sweep_waits_for_the_one_before(void **state)
{
    unsigned put_off = 0;

    tree_make(KATA_VOLUMES "/no-key"); /* doubtful: each sweep queues it */
    start_sandbox(0, "sandbox-1");
    run_node();
    reconciler_on_sweep(&reconciler->sweep);
    assert_false(scan_is_done(&reconciler->scan));
    settle();
    work_queue_add_sandbox(&reconciler->queue, "sandbox-1");
    for (; scan_is_done(&reconciler->scan); put_off++)
        reconciler_on_sweep(&reconciler->sweep);
    assert_in_range(put_off, 2, 100);
    settle();
    reconciler_on_sweep(&reconciler->sweep);
    assert_false(scan_is_done(&reconciler->scan));
    settle();
}

/* Whether the VMM's list is to be read again; then it has been. */
static bool asks_again(int64_t volume_id)
{
    const struct store_volume volume = volume_of(volume_id);
    const struct store_hypervisor_result result = {
        .volume_id = volume_id, .record = volume.record, .list = STORE_LIST_HAS, .bytes = GIB};

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_int_equal(store_commit(store), 0);
    return volume.list_again;
}

static void vmms_are_asked_again_within_an_hour_and_at_a_start(void **state)
{
    const int64_t volume_id = bind_one();
    unsigned asked = 0;

    (void)asks_again(volume_id);
    for (unsigned seconds = 0; seconds < 3600; seconds += config.resize.sweep_seconds) {
        reconciler_on_sweep(&reconciler->sweep);
        asked += asks_again(volume_id);
    }
    assert_int_equal(asked, 1);
    reconciler = reconciler_free(reconciler);
    run_node();
    assert_true(asks_again(volume_id));
}

/* Whoever changes the metadata may have resized the drive as well. */
static void changed_metadata_have_the_vmm_asked_again(void **state)
{
    const int64_t volume_id = bind_one();

    (void)asks_again(volume_id);
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_false(asks_again(volume_id));
    stage(TARGET, DISK, "sandbox-2");
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_true(asks_again(volume_id));
}

static void end_vmm(unsigned place, const char *sandbox_id)
{
    fake_sandbox[place].ended = true;
    work_queue_add_exit(&reconciler->queue, sandbox_id, fake_sandbox[place].pid);
}

/* Two share a directory of bundles. The third's directory cannot be watched beside it, and takes
 * its place. A container's name may still be queued when its directory is no longer watched. */
static void bundles_are_watched_until_their_last_sandbox_ends(void **state)
{
    static const char *const ids[] = {"sandbox-1", "sandbox-2", "sandbox-3"};

    for (unsigned i = 0; i < 2; i++) {
        start_sandbox(i, ids[i]);
        fake_sandbox[i].bundles = "/run/bundles";
    }
    run_node();
    assert_string_equal(fake_watched, "/run/bundles");
    start_sandbox(2, ids[2]);
    fake_sandbox[2].bundles = "/run/others";
    end_vmm(0, ids[0]);
    work_queue_add_exit(&reconciler->queue, ids[2], 1); /* of another VMM: it is observed */
    settle();
    assert_string_equal(fake_watched, "/run/bundles");
    end_vmm(1, ids[1]);
    scan_want(&reconciler->scan, TREE_BUNDLES);
    settle();
    assert_string_equal(fake_watched, "/run/others");
    end_vmm(2, ids[2]);
    settle();
    assert_string_equal(fake_watched, "");
    work_queue_add_directory(&reconciler->queue, TREE_BUNDLES, "container-1");
    settle();
    assert_string_equal(fake_watched, "");
}

static void metadata_that_goes_ends_the_volume(void **state)
{
    int64_t volume_id = bind_one();

    unstage(KATA_VOLUMES, TARGET);
    work_queue_add_directory(&reconciler->queue, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_int_equal(volume_of(volume_id).status, STORE_REMOVED);
    assert_int_equal(volume_of(volume_id).binding_id, 0);
    stage(TARGET, DISK, "sandbox-1");
    scan_want(&reconciler->scan, TREE_KATA_VOLUMES);
    settle();
    volume_id = last_volume();
    assert_true(volume_of(volume_id).binding_id != 0);
    unstage(KATA_VOLUMES, TARGET);
    scan_want(&reconciler->scan, TREE_KATA_VOLUMES); /* known, and no longer there */
    settle();
    assert_int_equal(volume_of(volume_id).status, STORE_REMOVED);
}

static void a_capacity_change_of_a_disk_is_recorded(void **state)
{
    int64_t volume_id;

    put_disk(1, "/dev/sda", 2, GIB);
    stage(TARGET, DISK, "sandbox-1");
    fake_device[0] = (struct fake_device){DISK, DEVICE_KIND_BLOCK, 1, GIB, 2, false};
    start_sandbox(0, "sandbox-1");
    run_node();
    volume_id = last_volume();
    assert_true(volume_of(volume_id).has_layers);
    (void)usleep(1000);
    lower_devices_announce(&reconciler->context, "99"); /* nothing stands on it */
    settle();
    put_disk(1, "/dev/sda", 2, 2 * GIB);
    work_queue_add_device(&reconciler->queue, 7, 2);
    settle();
    assert_int_equal(volume_of(volume_id).layers_state, 1); /* the upper one has not followed */
    assert_is(volume_id, STATE_UNKNOWN, REASON_MONITOR_MISSING);
    lower_devices_announce(&reconciler->context, "2");
    settle();
    reconciler_resync(reconciler);
    settle();
}

/* A volume on the disk, whose sandbox has this process for its VMM. */
static int64_t bind_to_this_process(void)
{
    struct process process;

    assert_int_equal(process_read(getpid(), &process), 0);
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].pid = getpid();
    fake_sandbox[0].start_ns = process.start_ns;
    run_node();
    return last_volume();
}

static void observe_again(const char *sandbox_id)
{
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, sandbox_id);
    settle();
}

/* Its process could not be read, or its records go while its shim runs. */
static void a_vmm_that_lives_has_not_ended(void **state)
{
    int64_t volume_id;

    volume_id = bind_to_this_process();
    fake_sandbox[0].ended = true;
    observe_again("sandbox-1");
    assert_true(volume_of(volume_id).sandbox_ref != 0);
    fake_sandbox[0].is_there = false;
    observe_again("sandbox-1");
    assert_true(volume_of(volume_id).sandbox_ref != 0);
    assert_false(volume_of(volume_id).orphaned);
}

static void a_vmm_that_outlives_its_shim_is_an_orphan(void **state)
{
    int64_t volume_id;

    volume_id = bind_to_this_process();
    fake_sandbox[0].is_there = false;
    fake_shim = OBSERVED_SHIM_UNKNOWN;
    observe_again("sandbox-1");
    assert_false(volume_of(volume_id).orphaned);
    fake_shim = OBSERVED_SHIM_ENDED; /* and what it has open cannot be read */
    observe_again("sandbox-1");
    assert_is(volume_id, STATE_BLOCKED, REASON_SANDBOX_ORPHANED);
    fake_shim = OBSERVED_SHIM_UNKNOWN; /* nor the processes now */
    observe_again("sandbox-1");
    assert_is(volume_id, STATE_BLOCKED, REASON_SANDBOX_ORPHANED);
    fake_shim = OBSERVED_SHIM_ENDED;
    fake_held_minor = 1;
    observe_again("sandbox-1");
    assert_true(volume_of(volume_id).orphaned);
    assert_int_equal(volume_of(volume_id).live_sandboxes, 1);
    fake_shim = OBSERVED_SHIM_RUNS;
    fake_sandbox[0].is_there = true;
    fake_sandbox[0].ended = false;
    observe_again("sandbox-1");
    assert_false(volume_of(volume_id).orphaned);
}

/* The recorded process is gone, whatever else cannot be read. */
static void a_vmm_that_is_gone_has_ended(void **state)
{
    int64_t volume_id = bind_one();

    assert_true(volume_of(volume_id).sandbox_ref != 0);
    fake_sandbox[0].ended = true;
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_int_equal(volume_of(volume_id).sandbox_ref, 0);
}

/* Its number is this process', which started at another time. */
static void a_vmm_whose_number_another_process_has_got_has_ended(void **state)
{
    struct process process;
    int64_t volume_id;

    assert_int_equal(process_read(getpid(), &process), 0);
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].pid = getpid();
    fake_sandbox[0].start_ns = process.start_ns;
    run_node();
    volume_id = last_volume();
    fake_sandbox[0].failure = PROCESS_HANGS;
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_true(volume_of(volume_id).sandbox_ref != 0);
    fake_sandbox[0].failure = 0;
    fake_sandbox[0].start_ns = process.start_ns - NSEC_PER_SEC;
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    fake_sandbox[0].failure = PROCESS_HANGS;
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_int_equal(volume_of(volume_id).sandbox_ref, 0);
}

/* ENOENT is about the database's file, and no volume's absence. */
static void a_file_that_is_missing_in_a_pass_is_no_missing_volume(void **state)
{
    (void)bind_one();
    missing_for = "m.guest_synced_bytes";
    missing_times = 1;
    put_disk(0, DISK, 1, 2 * GIB);
    work_queue_add_device(&reconciler->queue, 7, 1);
    settle();
    assert_int_equal(missing_times, 0);
    assert_int_equal(fake_failure, STORE_MISSING);
    assert_int_equal(volume_of(last_volume()).resize_to_bytes, 2 * GIB);
    assert_int_equal(volume_of(last_volume()).resize_from_bytes, GIB);
}

static void a_stop_waits_for_nothing_that_is_not_running(void **state)
{
    bind_one();
    reconciler_stop(reconciler);
    put_disk(0, DISK, 1, 2 * GIB);
    work_queue_add_device(&reconciler->queue, 7, 1);
    settle();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(what_is_read_unasked_waits_after_a_slow_pass),
        NODE(a_device_that_cannot_be_read_for_now_is_kept),
        NODE(a_volume_on_a_drives_device_is_blocked),
        NODE(a_volume_staged_before_the_first_decisions_is_on_its_device),
        NODE(a_layout_that_goes_before_the_first_decisions_leaves_the_device_of_the_other),
        NODE(a_vmm_that_dies_while_it_is_read_is_gone),
        NODE(a_sandbox_that_cannot_be_read_is_read_again),
        NODE(a_sandbox_in_mid_write_is_believed_at_last),
        NODE(a_sweep_waits_for_the_one_before),
        NODE(vmms_are_asked_again_within_an_hour_and_at_a_start),
        NODE(changed_metadata_have_the_vmm_asked_again),
        NODE(bundles_are_watched_until_their_last_sandbox_ends),
        NODE(metadata_that_goes_ends_the_volume),
        NODE(a_capacity_change_of_a_disk_is_recorded),
        NODE(a_vmm_that_lives_has_not_ended),
        NODE(a_vmm_that_outlives_its_shim_is_an_orphan),
        NODE(a_vmm_that_is_gone_has_ended),
        NODE(a_vmm_whose_number_another_process_has_got_has_ended),
        NODE(a_file_that_is_missing_in_a_pass_is_no_missing_volume),
        NODE(a_stop_waits_for_nothing_that_is_not_running),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
