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
    work_queue_add_directory(&reconciler->queue, TREE_GO_SANDBOXES, "sandbox-1");
    settle();
}

/* ---- metadata ---- */

static void both_layouts_may_name_the_same_file(void **state)
{
    put_file(0, IMAGE, 9);
    put_file(1, "/srv/link.img", 9);
    stage_both(IMAGE, "/srv/link.img");
    assert_int_not_equal(volume_of(run_in_a_sandbox()).reason, REASON_ENTRIES_DISAGREE);
}

/* Two files, a file and a disk, and a device that is not there. */
static void other_devices_disagree(void **state)
{
    static const char *const pairs[][2] = {
        {IMAGE, "/srv/other.img"}, {DISK, IMAGE}, {DISK, "/dev/nothing"}};

    for (size_t i = 0; i < array_length(pairs); i++) {
        if (i > 0)
            assert_int_equal(node_stop(state) | node_start(state), 0);
        put_file(0, IMAGE, 9);
        put_file(1, "/srv/other.img", 10);
        put_disk(2, DISK, 1, GIB);
        stage_both(pairs[i][0], pairs[i][1]);
        assert_is(run_in_a_sandbox(), STATE_BLOCKED, REASON_ENTRIES_DISAGREE);
    }
}

/* Kata's type of an emptyDir, which is a file of the shim's; but a driver may say "blk" too. */
static void blk_is_managed_if_it_is_a_disk(void **state)
{
    int64_t volume_id;

    put_disk(0, DISK, 1, GIB);
    write_metadata(TARGET, "{\"volume-type\":\"blk\",\"device\":\"" DISK "\"}");
    volume_id = run_in_a_sandbox();
    assert_int_not_equal(volume_of(volume_id).state, STATE_UNMANAGED);
    put_file(0, DISK, 9);
    queue_all_volumes();
    settle();
    assert_is(volume_id, STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

static void an_empty_dir_is_unmanaged(void **state)
{
    static const char target[] = PODS "/uid-1/volumes/kubernetes.io~empty-dir/cache";

    put_disk(0, DISK, 1, GIB);
    write_metadata(target, "{\"volume-type\":\"blk\",\"device\":\"" DISK "\"}");
    assert_is(run_in_a_sandbox(), STATE_UNMANAGED, REASON_NOT_A_BLOCK_DEVICE);
}

/* ---- records ---- */

static void a_record_that_comes_later_completes_the_binding(void **state)
{
    int64_t volume_id, binding_id;

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
        NODE(other_devices_disagree),
        NODE(blk_is_managed_if_it_is_a_disk),
        NODE(an_empty_dir_is_unmanaged),
        NODE(a_record_that_comes_later_completes_the_binding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
