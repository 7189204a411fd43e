/* SPDX-License-Identifier: Apache-2.0 */
/* publish_path_test.c - the kubelet's layout, in its own words and in others'. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/observe.h"
#include "tests/unit/scratch.h"

#define VOLUMES "/var/lib/kubelet/pods/uid-1/volumes/"
#define CSI     VOLUMES "kubernetes.io~csi/pv-1"

static const char *const kubelets[] = {"/other/kubelet", "/var/lib/kubelet/"};
static char scratch[SCRATCH_BYTES];
static int root = -1;
static struct observed_publish_path path;

static int start(void **state)
{
    if (scratch_directory_make(scratch) < 0 || path_open_root(scratch, &root) < 0)
        return -1;
    return path_make_directories(root, CSI, 0700);
}

static int stop(void **state)
{
    fd_close(root);
    return scratch_directory_remove(scratch);
}

static void write_file(const char *directory, const char *text)
{
    cleanup(fd_closep) int fd = openat(root, directory + 1, /* below the root */
                                       O_PATH | O_CLOEXEC);
    cleanup(fd_closep) int file =
        openat(fd, "vol_data.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
}

static void write_volume_data(const char *text)
{
    write_file(CSI, text);
}

static void observe(const char *target)
{
    assert_int_equal(observe_publish_path(root, kubelets, 2, target, &path), 0);
}

static void takes_a_publish_path_apart(void **state)
{
    write_volume_data("{\"driverName\":\"csi.example\",\"volumeHandle\":\"vol-7\"}");
    observe(CSI "/mount");
    assert_true(path.is_publish_path);
    assert_string_equal(path.pod_uid, "uid-1");
    assert_string_equal(path.pv, "pv-1");
    assert_string_equal(path.driver, "csi.example");
    assert_string_equal(path.volume_handle, "vol-7");
    assert_false(path.is_empty_dir);
}

static void needs_no_volume_data(void **state)
{
    observe(CSI "/mount");
    assert_true(path.is_publish_path);
    assert_string_equal(path.driver, "");
    write_volume_data("{\"driverName\":");
    observe(CSI "/mount");
    assert_true(path.is_publish_path);
    assert_string_equal(path.driver, "");
    write_volume_data("{\"driverName\":7,\"volumeHandle\":\"v\"}");
    observe(CSI "/mount");
    assert_string_equal(path.driver, "");
    assert_string_equal(path.volume_handle, "v");
}

static void subpath_directory_of_a_volume_is_found(void **state)
{
    observe(CSI "/mount");
    assert_string_equal(path.subpaths, "/var/lib/kubelet/pods/uid-1/volume-subpaths/pv-1");
    observe("/elsewhere");
    assert_string_equal(path.subpaths, "");
}

static void defer_fs_mount_is_read_in_both_spellings(void **state)
{
    static const struct {
        const char *text;
        enum observed_flag expected;
    } cases[] = {
        {"{}", OBSERVED_UNSAID},
        {"{\"deferFSMount\":\"true\"}", OBSERVED_YES},
        {"{\"deferFsMount\":\"true\"}", OBSERVED_YES},
        {"{\"deferFSMount\":true}", OBSERVED_YES},
        {"{\"deferFSMount\":\"false\"}", OBSERVED_NO},
        {"{\"deferFSMount\":false}", OBSERVED_NO},
        {"{\"deferFSMount\":1}", OBSERVED_UNSAID},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        write_volume_data(cases[i].text);
        observe(CSI "/mount");
        assert_int_equal(path.defer_fs_mount, cases[i].expected);
    }
}

static void sees_a_plugin_file_and_follows_none(void **state)
{
    observe(CSI "/mount");
    assert_false(path.has_plugin_file);
    assert_int_equal(path_make_directories(root, CSI "/mount", 0700), 0);
    observe(CSI "/mount");
    assert_false(path.has_plugin_file);
    assert_int_equal(symlinkat("/nowhere", root, &(CSI "/mount/csiPlugin.json")[1]), 0);
    observe(CSI "/mount");
    assert_true(path.has_plugin_file);
}

static void volume_data_that_others_can_write_is_a_problem(void **state)
{
    write_volume_data("{\"driverName\":\"csi.example\",\"volumeHandle\":\"vol-7\"}");
    observe(CSI "/mount");
    assert_string_equal(path.problem, "");
    assert_int_equal(fchmodat(root, &(CSI "/vol_data.json")[1], 0664, 0), 0);
    observe(CSI "/mount");
    assert_string_equal(path.driver, "");
    assert_string_equal(path.problem,
                        "vol_data.json: is writable by others than its owner: not read, so the "
                        "driver and the volume's handle are not known");
}

#define BLOCK "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices"

static void takes_the_path_of_a_raw_block_claim_apart(void **state)
{
    observe(BLOCK "/publish/pv-1/uid-1");
    assert_true(path.is_block);
    assert_false(path.is_publish_path);
    assert_string_equal(path.pod_uid, "uid-1");
    assert_string_equal(path.pv, "pv-1");
    assert_string_equal(path.driver, "");
    assert_string_equal(path.subpaths, "");
    assert_int_equal(path_make_directories(root, BLOCK "/pv-1/data", 0700), 0);
    write_file(BLOCK "/pv-1/data", "{\"driverName\":\"csi.example\",\"volumeHandle\":\"vol-7\"}");
    observe(BLOCK "/publish/pv-1/uid-1");
    assert_string_equal(path.driver, "csi.example");
    assert_string_equal(path.volume_handle, "vol-7");
}

static void knows_an_empty_dir(void **state)
{
    observe(VOLUMES "kubernetes.io~empty-dir/cache/disk.img");
    assert_true(path.is_empty_dir);
    assert_false(path.is_publish_path);
}

static void takes_nothing_else_for_one(void **state)
{
    static const char *const others[] = {
        "/",
        "/var/lib/kubelet",
        CSI,
        CSI "/mount/",
        CSI "/mount/sub",
        CSI "/vol_data.json",
        VOLUMES "kubernetes.io~csi/../mount",
        VOLUMES "kubernetes.io~csi//mount",
        VOLUMES "kubernetes.io~nfs/pv-1/mount",
        "/var/lib/kubeletx/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount",
        "/var/lib/kubelet/pods/../volumes/kubernetes.io~csi/pv-1/mount",
        "/host/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount",
        BLOCK "/publish/pv-1",
        BLOCK "/publish/pv-1/",
        BLOCK "/publish/pv-1/uid-1/x",
        BLOCK "/publish/pv-1/..",
        BLOCK "/publish/../uid-1",
        BLOCK "/publish//uid-1",
        BLOCK "/staging/pv-1/uid-1",
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        observe(others[i]);
        assert_false(path.is_publish_path);
        assert_false(path.is_empty_dir);
        assert_false(path.is_block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_a_publish_path_apart, start, stop),
        cmocka_unit_test_setup_teardown(needs_no_volume_data, start, stop),
        cmocka_unit_test_setup_teardown(subpath_directory_of_a_volume_is_found, start, stop),
        cmocka_unit_test_setup_teardown(defer_fs_mount_is_read_in_both_spellings, start, stop),
        cmocka_unit_test_setup_teardown(sees_a_plugin_file_and_follows_none, start, stop),
        cmocka_unit_test_setup_teardown(volume_data_that_others_can_write_is_a_problem, start,
                                        stop),
        cmocka_unit_test_setup_teardown(takes_the_path_of_a_raw_block_claim_apart, start, stop),
        cmocka_unit_test_setup_teardown(knows_an_empty_dir, start, stop),
        cmocka_unit_test_setup_teardown(takes_nothing_else_for_one, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
