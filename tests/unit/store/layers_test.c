/* SPDX-License-Identifier: Apache-2.0 */
/* layers_test.c - what devices stand on, and which volumes an event of a disk touches. */
#include "tests/unit/store/fixture.h"

static const struct store_layer *layer_of(int64_t device_id, unsigned above, unsigned state,
                                          const char *remedy)
{
    static struct store_layer layer;

    layer = (struct store_layer){.layer_id = device_id,
                                 .above = above,
                                 .kind = "disk",
                                 .base_bytes = GIB,
                                 .above_bytes = GIB,
                                 .state = state};
    (void)snprintf(layer.remedy, sizeof(layer.remedy), "%s", remedy);
    return &layer;
}

/* A bound volume whose device 7:1 stands on the disk 7:2. */
static struct bound put_stack(struct store *store, int64_t *ret_disk)
{
    struct bound bound = put_bound(store);
    struct store_device disk = device_of(2, GIB);
    struct store_layer layers[2];

    *ret_disk = put_device(store, &disk, true);
    layers[0] = *layer_of(bound.device_id, 0, 1, "cryptsetup resize it");
    layers[1] = *layer_of(*ret_disk, 0, 0, "");
    assert_int_equal(store_put_layers(store, bound.device_id, layers, 2), 0);
    return bound;
}

static void an_announcement_ends_with_a_new_size(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_device device = device_of(1, GIB);
    bool announced, changed;

    assert_int_equal(store_note_capacity_change(store, bound.device_id, 49, &changed), 0);
    assert_true(changed); /* it was first seen after that, with a size that may be old */
    assert_int_equal(store_note_capacity_change(store, bound.device_id, 50, &changed), 0);
    assert_false(changed);
    assert_int_equal(lines_of(store, "device_announced"), 1);
    assert_true(get_volume(store, bound.volume_id).device_announced);
    device.name = "/dev/renamed";
    (void)put_device(store, &device, true);
    assert_int_equal(store_is_announced(store, bound.device_id, &announced), 0);
    assert_true(announced);
    device.size_bytes = 2 * GIB;
    (void)put_device(store, &device, true);
    assert_int_equal(store_is_announced(store, bound.device_id, &announced), 0);
    assert_false(announced);
    assert_int_equal(store_note_capacity_change(store, bound.device_id, 49, &changed), 0);
    assert_false(changed); /* told along with the size that it has now */
}

/* What nothing stands on any more goes with its age, from the top. */
static void history_keeps_what_something_stands_on(void **state)
{
    struct store *store = store_of(state);
    int64_t disk, removed;
    struct bound bound = put_stack(store, &disk);
    bool changed;

    pass_time(store, store->keep_ms + 1000);
    trim_for_days(store, 1);
    assert_int_equal(number_of(store, "SELECT count(*) FROM devices"), 2);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(removed, bound.volume_id);
    pass_time(store, store->keep_ms + 1000);
    trim_for_days(store, 20);
    assert_int_equal(number_of(store, "SELECT count(*) FROM devices"), 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM layers"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_announcement_ends_with_a_new_size),
        MODEL(history_keeps_what_something_stands_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
