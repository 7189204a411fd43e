/* SPDX-License-Identifier: Apache-2.0 */
/* pass_test.c - reconcile passes over volumes whose devices and sandboxes come, change and go. */
#include "reconciler/core/internal.h"
#include "tests/unit/reconciler/fake_node.h"

#include "lib/process.h"
#include "lib/sha256.h"

static void an_empty_node_settles(void **state)
{
    struct reconciler_health health;
    struct reconciler_modes modes;

    (void)state;
    run_node();
    assert_int_equal(fake_synced, 1);
    assert_int_equal(last_volume(), 0);
    reconciler_get_health(reconciler, &health);
    assert_true(health.synced);
    assert_false(health.degraded);
    assert_int_equal(health.sources, 1);
    reconciler_get_modes(reconciler, &modes);
    assert_string_equal(modes.resize, "grow");
    assert_non_null(reconciler_reader(reconciler));
}

static void a_reading_of_the_processes_goes_on_by_itself(void **state)
{
    (void)state;
    run_node();
    fake_unread = 3;
    reconciler_queue_all_volumes(reconciler);
    settle();
    for (unsigned i = 0; fake_unread && i < 3; i++)
        loop_run_once(&loop);
    assert_int_equal(fake_unread, 0);
}

/* Each may take as long as one pass may. */
static void what_is_read_unasked_waits_after_a_slow_pass(void **state)
{
    (void)state;
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    fake_unread = 3;
    fake_sandbox[0].is_slow = true;
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    while (fake_slow == 0)
        loop_run_once(&loop);
    assert_int_equal(fake_unread, 3);
    for (unsigned i = 0; fake_unread && i < 10; i++)
        loop_run_once(&loop);
    assert_int_equal(fake_unread, 0);
}

static void a_volume_without_a_sandbox_waits_for_one(void **state)
{
    (void)state;
    stage(TARGET, DISK, NULL);
    put_disk(0, DISK, 1, GIB);
    run_node();
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
    assert_int_equal(volume_of(last_volume()).device_bytes, GIB);
}

static void a_resize_is_on_record_although_the_vmm_is_silent(void **state)
{
    struct store_volume volume;
    int64_t volume_id = bind_one();

    (void)state;
    assert_is(volume_id, STATE_UNKNOWN, REASON_MONITOR_MISSING);
    put_disk(0, DISK, 1, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_is(volume_id, STATE_BLOCKED, REASON_MONITOR_MISSING);
    volume = volume_of(volume_id);
    assert_int_equal(volume.resize_from_bytes, GIB);
    assert_int_equal(volume.resize_to_bytes, 2 * GIB);
    assert_int_equal(volume.largest_bytes, 2 * GIB);
}

static void a_device_that_comes_later_is_found(void **state)
{
    int64_t volume_id;

    (void)state;
    stage(TARGET, DISK, "sandbox-1");
    start_sandbox(0, "sandbox-1");
    run_node();
    volume_id = last_volume();
    assert_is(volume_id, STATE_BLOCKED, REASON_NO_DEVICE);
    put_disk(0, DISK, 1, GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_true(volume_of(volume_id).binding_id != 0);
    fake_device_failure = -EMFILE; /* teaches nothing */
    reconciler_queue_all_volumes(reconciler);
    settle();
    assert_true(volume_of(volume_id).device_id != 0);
}

static void a_disk_behind_the_same_number_is_another_one(void **state)
{
    int64_t volume_id = bind_one();

    (void)state;
    fake_device[0] = (struct fake_device){DISK, DEVICE_KIND_OTHER, 1, GIB, 0, false};
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_is(volume_id, STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

static void two_volumes_of_one_device_block_each_other(void **state)
{
    int64_t volume_id;
    struct store_volume volume;

    (void)state;
    stage(OTHER_TARGET, DISK, "sandbox-2");
    start_sandbox(1, "sandbox-2");
    volume_id = bind_one();
    volume = volume_of(volume_id);
    assert_true(volume.shared_with != 0);
    assert_is(volume_id, STATE_BLOCKED, REASON_DEVICE_SHARED);
    assert_is(volume.shared_with, STATE_BLOCKED, REASON_DEVICE_SHARED);
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

    (void)state;
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_add_drive_mount(store, &request, "serial", &drive_ref), 0);
    assert_int_equal(store_set_drive_mount_disk(store, drive_ref, &disk), 0);
    assert_int_equal(store_set_drive_mount_state(store, drive_ref, DRIVE_ATTACHED, STATUS_OK, ""),
                     0);
    assert_int_equal(store_commit(store), 0);
    reconciler_queue_all_volumes(reconciler);
    settle();
    assert_is(volume_id, STATE_BLOCKED, REASON_DEVICE_SHARED);
}

static void two_sandboxes_of_one_volume_block_it(void **state)
{
    int64_t volume_id = bind_one();

    (void)state;
    start_sandbox(1, "sandbox-2");
    stage(TARGET, DISK, "sandbox-2");
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_is(volume_id, STATE_BLOCKED, REASON_MULTIPLE_SANDBOXES);
    assert_int_equal(volume_of(volume_id).binding_id, 0);
}

static void layouts_that_name_two_devices_disagree(void **state)
{
    (void)state;
    put_disk(1, "/dev/disk-2", 2, GIB);
    stage_at(CRUST_VOLUMES, TARGET, "/dev/disk-2", NULL);
    bind_one();
    assert_is(last_volume(), STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
}

static void stage_on_other_disks(void)
{
    stage(TARGET, "/dev/disk-2", NULL);
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
    stage(OTHER_TARGET, "/dev/disk-3", NULL);
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(OTHER_TARGET));
}

static void a_volume_staged_before_the_first_decisions_is_on_its_device(void **state)
{
    (void)state;
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
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
}

static void
a_layout_that_goes_before_the_first_decisions_leaves_the_device_of_the_other(void **state)
{
    (void)state;
    put_disk(0, DISK, 1, GIB);
    put_disk(1, "/dev/disk-2", 2, 2 * GIB);
    stage(TARGET, DISK, NULL);
    stage_at(CRUST_VOLUMES, TARGET, "/dev/disk-2", NULL);
    fake_when_synced = unstage_from_kata;
    run_node();
    assert_string_equal(volume_of(last_volume()).device_name, "/dev/disk-2");
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
}

static void a_volume_that_is_only_observed_is_not_acted_on(void **state)
{
    int64_t volume_id;

    (void)state;
    config.resize.mode = RESIZE_OBSERVE;
    volume_id = bind_one();
    put_disk(0, DISK, 1, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_true(volume_of(volume_id).observed);
    assert_true(volume_of(volume_id).resize_id != 0);
    config.resize.mode = RESIZE_NEVER;
    reconciler_configure(reconciler, &config);
    settle();
    assert_is(volume_id, STATE_UNMANAGED, REASON_POLICY);
    assert_true(fake_checks > 0);
}

static void a_file_is_observed_only(void **state)
{
    int64_t volume_id;

    (void)state;
    stage(TARGET, "/srv/disk.img", "sandbox-1");
    fake_device[0] = (struct fake_device){"/srv/disk.img", DEVICE_KIND_FILE, 9, GIB, 0, false};
    start_sandbox(0, "sandbox-1");
    run_node();
    volume_id = last_volume();
    assert_int_equal(volume_of(volume_id).device_kind, DEVICE_KIND_FILE);
    assert_true(volume_of(volume_id).observed);
}

static void a_sandbox_that_ends_gives_its_volume_back(void **state)
{
    int64_t volume_id = bind_one();

    (void)state;
    fake_sandbox[0].is_there = false;
    fake_unpinned = 4000000;
    reconciler_queue_exit(reconciler, "sandbox-1", 4000000);
    settle();
    assert_int_equal(volume_of(volume_id).binding_id, 0);
    assert_is(volume_id, STATE_UNBOUND, REASON_NONE);
}

static void a_vmm_that_dies_while_it_is_read_is_gone(void **state)
{
    (void)state;
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_pin_fails = true;
    run_node();
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
}

static void a_sandbox_that_cannot_be_read_is_read_again(void **state)
{
    (void)state;
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
    (void)state;
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].try_again = true;
    run_node();
    assert_true(volume_of(last_volume()).binding_id != 0);
}

static void a_container_that_mounts_the_volume_binds_it(void **state)
{
    (void)state;
    stage(TARGET, DISK, NULL);
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].claims = TARGET;
    run_node();
    assert_string_equal(volume_of(last_volume()).sandbox_id, "sandbox-1");
}

static void bundles_that_appear_are_watched(void **state)
{
    int64_t volume_id;

    (void)state;
    stage(TARGET, DISK, NULL);
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].bundles = "/run/bundles";
    tree_make("/run/bundles/container-1");
    run_node();
    volume_id = last_volume();
    assert_int_equal(volume_of(volume_id).binding_id, 0);
    fake_sandbox[0].claims = TARGET;
    fake_owner = "sandbox-1";
    reconciler_queue_tree(reconciler, TREE_BUNDLES);
    settle();
    assert_true(volume_of(volume_id).binding_id != 0);
    fake_owner_result = -EMFILE;
    reconciler_queue_directory(reconciler, TREE_BUNDLES, "container-1");
    loop_run_once(&loop);
    fake_owner_result = 0;
    settle();
}

/* Not for ever. What a sweep itself queues does not count. */
static void a_sweep_waits_for_the_one_before(void **state)
{
    unsigned put_off = 0;

    (void)state;
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

    (void)state;
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

    (void)state;
    (void)asks_again(volume_id);
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_false(asks_again(volume_id));
    stage(TARGET, DISK, "sandbox-2");
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_true(asks_again(volume_id));
}

static void end_vmm(unsigned place, const char *sandbox_id)
{
    fake_sandbox[place].ended = true;
    reconciler_queue_exit(reconciler, sandbox_id, fake_sandbox[place].pid);
}

/* Two share a directory of bundles. The third's directory cannot be watched beside it, and takes
 * its place. A container's name may still be queued when its directory is no longer watched. */
static void bundles_are_watched_until_their_last_sandbox_ends(void **state)
{
    static const char *const ids[] = {"sandbox-1", "sandbox-2", "sandbox-3"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        start_sandbox(i, ids[i]);
        fake_sandbox[i].bundles = "/run/bundles";
    }
    run_node();
    assert_string_equal(fake_watched, "/run/bundles");
    start_sandbox(2, ids[2]);
    fake_sandbox[2].bundles = "/run/others";
    end_vmm(0, ids[0]);
    reconciler_queue_exit(reconciler, ids[2], 1); /* of another VMM: it is observed */
    settle();
    assert_string_equal(fake_watched, "/run/bundles");
    end_vmm(1, ids[1]);
    reconciler_queue_tree(reconciler, TREE_BUNDLES);
    settle();
    assert_string_equal(fake_watched, "/run/others");
    end_vmm(2, ids[2]);
    settle();
    assert_string_equal(fake_watched, "");
    reconciler_queue_directory(reconciler, TREE_BUNDLES, "container-1");
    settle();
    assert_string_equal(fake_watched, "");
}

static void metadata_that_goes_ends_the_volume(void **state)
{
    int64_t volume_id = bind_one();

    (void)state;
    unstage(KATA_VOLUMES, TARGET);
    reconciler_queue_directory(reconciler, TREE_KATA_VOLUMES, key_of(TARGET));
    settle();
    assert_int_equal(volume_of(volume_id).status, STORE_REMOVED);
    assert_int_equal(volume_of(volume_id).binding_id, 0);
    stage(TARGET, DISK, "sandbox-1");
    reconciler_queue_tree(reconciler, TREE_KATA_VOLUMES);
    settle();
    volume_id = last_volume();
    assert_true(volume_of(volume_id).binding_id != 0);
    unstage(KATA_VOLUMES, TARGET);
    reconciler_queue_tree(reconciler, TREE_KATA_VOLUMES); /* known, and no longer there */
    settle();
    assert_int_equal(volume_of(volume_id).status, STORE_REMOVED);
}

static void metadata_in_mid_write_is_read_four_times(void **state)
{
    char path[600];
    uint64_t before = clock_boottime();

    (void)state;
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s", key_of(TARGET));
    tree_make(path);
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", key_of(TARGET));
    tree_write(path, "{\"device\":");
    run_node();
    assert_true(clock_boottime() - before > 2200 * NSEC_PER_MSEC);
    assert_int_equal(volume_of(last_volume()).status, STORE_INVALID);
}

static void a_name_that_is_a_hash_is_resolved(void **state)
{
    char hash[SHA256_HEX_BYTES], path[600];

    (void)state;
    sha256_hex(TARGET, strlen(TARGET), hash);
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s", hash);
    tree_make(path);
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", hash);
    tree_write(path, "{\"volume-type\":\"block\",\"device\":\"" DISK "\",\"fstype\":\"ext4\"}");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].claims = TARGET "/subpath";
    run_node();
    assert_string_equal(volume_of(last_volume()).target_path, TARGET);
}

static void a_publish_path_resolves_a_hash_too(void **state)
{
    char hash[SHA256_HEX_BYTES], path[600];

    (void)state;
    tree_make(TARGET);
    sha256_hex(TARGET, strlen(TARGET), hash);
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s", hash);
    tree_make(path);
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", hash);
    tree_write(path, "{\"volume-type\":\"block\",\"device\":\"" DISK "\",\"fstype\":\"ext4\"}");
    run_node();
    assert_string_equal(volume_of(last_volume()).target_path, TARGET);
}

static void a_capacity_change_of_a_disk_is_recorded(void **state)
{
    int64_t volume_id;

    (void)state;
    put_disk(1, "/dev/sda", 2, GIB);
    stage(TARGET, DISK, "sandbox-1");
    fake_device[0] = (struct fake_device){DISK, DEVICE_KIND_BLOCK, 1, GIB, 2, false};
    start_sandbox(0, "sandbox-1");
    run_node();
    volume_id = last_volume();
    assert_true(volume_of(volume_id).has_layers);
    (void)usleep(1000);
    reconciler_queue_announcement(reconciler, "99"); /* nothing stands on it */
    settle();
    put_disk(1, "/dev/sda", 2, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 2);
    settle();
    assert_int_equal(volume_of(volume_id).layers_state, 1); /* the upper one has not followed */
    assert_is(volume_id, STATE_UNKNOWN, REASON_MONITOR_MISSING);
    reconciler_queue_announcement(reconciler, "2");
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
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, sandbox_id);
    settle();
}

/* Its process could not be read, or its records go while its shim runs. */
static void a_vmm_that_lives_has_not_ended(void **state)
{
    int64_t volume_id;

    (void)state;
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

    (void)state;
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

/* It counts only if it has the device of a volume, and if its shim is known to have ended. */
static void an_orphan_that_was_never_on_record_is_found(void **state)
{
    struct process process;
    int64_t volume_id;

    (void)state;
    assert_int_equal(process_read(getpid(), &process), 0);
    stage(TARGET, DISK, NULL);
    put_disk(0, DISK, 1, GIB);
    fake_sandbox[0] = (struct fake_sandbox){.id = "sandbox-1",
                                            .is_there = true,
                                            .unrecorded = true,
                                            .pid = getpid(),
                                            .start_ns = process.start_ns};
    fake_held_minor = 1;
    run_node();
    volume_id = last_volume();
    observe_again("sandbox-1");
    assert_is(volume_id, STATE_UNBOUND, REASON_NONE);
    fake_shim = OBSERVED_SHIM_ENDED;
    fake_held_minor = 2;
    observe_again("sandbox-1");
    assert_is(volume_id, STATE_UNBOUND, REASON_NONE);
    fake_held_minor = 1;
    observe_again("sandbox-1");
    assert_is(volume_id, STATE_BLOCKED, REASON_SANDBOX_ORPHANED);
}

/* The recorded process is gone, whatever else cannot be read. */
static void a_vmm_that_is_gone_has_ended(void **state)
{
    int64_t volume_id = bind_one();

    (void)state;
    assert_true(volume_of(volume_id).sandbox_ref != 0);
    fake_sandbox[0].ended = true;
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_int_equal(volume_of(volume_id).sandbox_ref, 0);
}

/* Its number is this process', which started at another time. */
static void a_vmm_whose_number_another_process_has_got_has_ended(void **state)
{
    struct process process;
    int64_t volume_id;

    (void)state;
    assert_int_equal(process_read(getpid(), &process), 0);
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].pid = getpid();
    fake_sandbox[0].start_ns = process.start_ns;
    run_node();
    volume_id = last_volume();
    fake_sandbox[0].failure = PROCESS_HANGS;
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_true(volume_of(volume_id).sandbox_ref != 0);
    fake_sandbox[0].failure = 0;
    fake_sandbox[0].start_ns = process.start_ns - NSEC_PER_SEC;
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    fake_sandbox[0].failure = PROCESS_HANGS;
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
    assert_int_equal(volume_of(volume_id).sandbox_ref, 0);
}

static void a_stop_waits_for_nothing_that_is_not_running(void **state)
{
    (void)state;
    bind_one();
    reconciler_stop(reconciler);
    put_disk(0, DISK, 1, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
}

static void a_device_that_still_grows_is_waited_for(void **state)
{
    int64_t volume_id;

    (void)state;
    config.resize.settle_ms = 300;
    volume_id = bind_one();
    put_disk(0, DISK, 1, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle(); /* not before it has been still */
    assert_is(volume_id, STATE_BLOCKED, REASON_MONITOR_MISSING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(an_empty_node_settles),
        NODE(a_reading_of_the_processes_goes_on_by_itself),
        NODE(what_is_read_unasked_waits_after_a_slow_pass),
        NODE(a_volume_without_a_sandbox_waits_for_one),
        NODE(a_resize_is_on_record_although_the_vmm_is_silent),
        NODE(a_device_that_comes_later_is_found),
        NODE(a_disk_behind_the_same_number_is_another_one),
        NODE(two_volumes_of_one_device_block_each_other),
        NODE(a_volume_on_a_drives_device_is_blocked),
        NODE(two_sandboxes_of_one_volume_block_it),
        NODE(layouts_that_name_two_devices_disagree),
        NODE(a_volume_staged_before_the_first_decisions_is_on_its_device),
        NODE(a_layout_that_goes_before_the_first_decisions_leaves_the_device_of_the_other),
        NODE(a_volume_that_is_only_observed_is_not_acted_on),
        NODE(a_file_is_observed_only),
        NODE(a_sandbox_that_ends_gives_its_volume_back),
        NODE(a_vmm_that_dies_while_it_is_read_is_gone),
        NODE(a_sandbox_that_cannot_be_read_is_read_again),
        NODE(a_sandbox_in_mid_write_is_believed_at_last),
        NODE(a_container_that_mounts_the_volume_binds_it),
        NODE(bundles_that_appear_are_watched),
        NODE(a_sweep_waits_for_the_one_before),
        NODE(vmms_are_asked_again_within_an_hour_and_at_a_start),
        NODE(changed_metadata_have_the_vmm_asked_again),
        NODE(bundles_are_watched_until_their_last_sandbox_ends),
        NODE(metadata_that_goes_ends_the_volume),
        NODE(metadata_in_mid_write_is_read_four_times),
        NODE(a_name_that_is_a_hash_is_resolved),
        NODE(a_publish_path_resolves_a_hash_too),
        NODE(a_capacity_change_of_a_disk_is_recorded),
        NODE(a_vmm_that_lives_has_not_ended),
        NODE(a_vmm_that_outlives_its_shim_is_an_orphan),
        NODE(an_orphan_that_was_never_on_record_is_found),
        NODE(a_vmm_that_is_gone_has_ended),
        NODE(a_vmm_whose_number_another_process_has_got_has_ended),
        NODE(a_stop_waits_for_nothing_that_is_not_running),
        NODE(a_device_that_still_grows_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
