/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass_test.c - what a pass makes of a volume's metadata, devices and records as they
 * differ from each other and as they change. */
#include "tests/unit/reconciler/fake_node.h"

#define IMAGE "/srv/disk.img"

/* Both layouts' metadata of the volume; NULL: none in that layout. */
static void stage_both(const char *kata_device, const char *crust_device)
{
    stage_at(KATA_VOLUMES, TARGET, kata_device, "sandbox-1");
    if (crust_device)
        stage_at(CRUST_VOLUMES, TARGET, crust_device, NULL);
}

static void put_file(unsigned place, const char *path, uint32_t inode)
{
    fake_device[place] = (struct fake_device){path, DEVICE_KIND_FILE, inode, GIB, 0, false};
}

/* The volume in a sandbox, whatever its metadata says. */
static int64_t run_in_a_sandbox(void)
{
    start_sandbox(0, "sandbox-1");
    run_node();
    return last_volume();
}

static void write_metadata(const char *target, const char *json)
{
    char path[600];

    stage(target, DISK, "sandbox-1");
    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", key_of(target));
    tree_write(path, json);
}

static void read_sandbox_again(void)
{
    reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
}

/* ---- metadata ---- */

static void both_layouts_may_name_the_same_file(void **state)
{
    (void)state;
    put_file(0, IMAGE, 9);
    put_file(1, "/srv/link.img", 9);
    stage_both(IMAGE, "/srv/link.img");
    assert_int_not_equal(volume_of(run_in_a_sandbox()).reason, REASON_ENTRIES_DISAGREE);
}

static void two_files_disagree(void **state)
{
    (void)state;
    put_file(0, IMAGE, 9);
    put_file(1, "/srv/other.img", 10);
    stage_both(IMAGE, "/srv/other.img");
    assert_is(run_in_a_sandbox(), STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
}

static void a_file_and_a_disk_disagree(void **state)
{
    (void)state;
    put_file(0, IMAGE, 1);
    put_disk(1, DISK, 1, GIB);
    stage_both(DISK, IMAGE);
    assert_is(run_in_a_sandbox(), STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
}

static void a_device_that_is_not_there_disagrees(void **state)
{
    (void)state;
    put_disk(0, DISK, 1, GIB);
    stage_both(DISK, "/dev/nothing");
    assert_is(run_in_a_sandbox(), STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
}

/* VFIO, SPDK and the like are no block devices of the node, whatever their path leads to. */
static void types_without_a_block_device_are_unmanaged(void **state)
{
    (void)state;
    put_disk(0, DISK, 1, GIB);
    write_metadata(TARGET, "{\"volume-type\":\"VFIO\",\"device\":\"" DISK "\"}");
    assert_is(run_in_a_sandbox(), STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

/* Kata's type of an emptyDir, which is a file of the shim's; but a driver may say "blk" too. */
static void blk_is_managed_if_it_is_a_disk(void **state)
{
    int64_t volume_id;

    (void)state;
    put_disk(0, DISK, 1, GIB);
    write_metadata(TARGET, "{\"volume-type\":\"blk\",\"device\":\"" DISK "\"}");
    volume_id = run_in_a_sandbox();
    assert_int_not_equal(volume_of(volume_id).state, STATE_UNMANAGED);
    put_file(0, DISK, 9);
    reconciler_queue_all_volumes(reconciler);
    settle();
    assert_is(volume_id, STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

static void an_empty_dir_is_unmanaged(void **state)
{
    static const char target[] = PODS "/uid-1/volumes/kubernetes.io~empty-dir/cache";

    (void)state;
    put_disk(0, DISK, 1, GIB);
    write_metadata(target, "{\"volume-type\":\"blk\",\"device\":\"" DISK "\"}");
    assert_is(run_in_a_sandbox(), STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

/* ---- devices ---- */

/* A node with a volume that waits is never settled. */
static struct store_volume grow_to(int64_t volume_id, uint64_t bytes)
{
    put_disk(0, DISK, 1, bytes);
    reconciler_queue_device(reconciler, 7, 1);
    while (volume_of(volume_id).device_bytes != bytes)
        loop_run_once(&loop);
    assert_is(volume_id, STATE_HOST_GROWN, REASON_NONE);
    return volume_of(volume_id);
}

static void a_resize_waits_until_the_device_is_still(void **state)
{
    int64_t volume_id;
    uint64_t due;

    (void)state;
    config.resize.settle_ms = 600 * 1000;
    put_disk(0, DISK, 1, GIB);
    stage(TARGET, DISK, "sandbox-1");
    volume_id = run_in_a_sandbox();
    due = grow_to(volume_id, 2 * GIB).next_attempt_ns;
    assert_true(due > clock_boottime());
    reconciler_queue_all_volumes(reconciler);
    loop_run_once(&loop);
    assert_true(volume_of(volume_id).next_attempt_ns == due);
    assert_true(grow_to(volume_id, 3 * GIB).next_attempt_ns > due);
}

static void a_device_that_shrinks_is_on_record(void **state)
{
    int64_t volume_id;

    (void)state;
    put_disk(0, DISK, 1, 2 * GIB);
    stage(TARGET, DISK, "sandbox-1");
    volume_id = run_in_a_sandbox();
    put_disk(0, DISK, 1, GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_int_equal(volume_of(volume_id).device_bytes, GIB);
    assert_int_equal(volume_of(volume_id).largest_bytes, 2 * GIB);
}

/* ---- records ---- */

static void a_record_that_comes_later_completes_the_binding(void **state)
{
    int64_t volume_id, binding_id;

    (void)state;
    put_disk(0, DISK, 1, GIB);
    stage(TARGET, DISK, NULL);
    start_sandbox(0, "sandbox-1");
    fake_sandbox[0].claims = TARGET;
    run_node();
    volume_id = last_volume();
    binding_id = volume_of(volume_id).binding_id;
    assert_true(binding_id != 0);
    assert_string_equal(volume_of(volume_id).guest_path, "");
    fake_sandbox[0].guest_path = "/run/kata-containers/shared/1";
    read_sandbox_again();
    assert_string_equal(volume_of(volume_id).guest_path, "/run/kata-containers/shared/1");
    assert_int_equal(volume_of(volume_id).binding_id, binding_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(both_layouts_may_name_the_same_file),
        NODE(two_files_disagree),
        NODE(a_file_and_a_disk_disagree),
        NODE(a_device_that_is_not_there_disagrees),
        NODE(types_without_a_block_device_are_unmanaged),
        NODE(blk_is_managed_if_it_is_a_disk),
        NODE(an_empty_dir_is_unmanaged),
        NODE(a_resize_waits_until_the_device_is_still),
        NODE(a_device_that_shrinks_is_on_record),
        NODE(a_record_that_comes_later_completes_the_binding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
