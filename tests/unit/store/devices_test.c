/* SPDX-License-Identifier: Apache-2.0 */
/* devices_test.c - what a device's identity is, and what may change about it. */
#include "tests/unit/store/fixture.h"

static void a_device_is_its_identity(void **state)
{
    struct store *store = store_of(state);
    struct store_device device = device_of(1, GIB);
    int64_t first = put_device(store, &device, true);
    int before = written(store);

    device.now_ns = 60;
    assert_int_equal(put_device(store, &device, false), first);
    assert_int_equal(written(store), before);
    device.diskseq = 4;
    assert_int_not_equal(put_device(store, &device, true), first);
    assert_int_equal(lines_of(store, "device_seen"), 2);
}

static void a_file_is_its_inode(void **state)
{
    struct store *store = store_of(state);
    struct store_device file = {.kind = DEVICE_KIND_FILE,
                                .name = "/data/disk.img",
                                .file_device = UINT64_MAX,
                                .inode = UINT64_MAX - 1,
                                .size_bytes = GIB};
    int64_t first = put_device(store, &file, true);

    file.major = 9; /* means nothing here */
    assert_int_equal(put_device(store, &file, false), first);
    file.name = "/data/renamed.img";
    assert_int_equal(put_device(store, &file, true), first);
    file.inode = 5;
    assert_int_not_equal(put_device(store, &file, true), first);
    assert_text_of(store, "SELECT major FROM audit_devices", NULL);
}

static void sizes_are_dated(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_device device = device_of(1, 2 * GIB);

    device.now_ns = 60;
    (void)put_device(store, &device, true);
    assert_int_equal(get_volume(store, bound.volume_id).device_bytes, 2 * GIB);
    assert_int_equal(get_volume(store, bound.volume_id).size_since_ns, 60);
    device.size_bytes = GIB;
    (void)put_device(store, &device, true);
    assert_int_equal(lines_of(store, "device_grown"), 1);
    assert_int_equal(lines_of(store, "device_shrunk"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_device_is_its_identity),
        MODEL(a_file_is_its_inode),
        MODEL(sizes_are_dated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
