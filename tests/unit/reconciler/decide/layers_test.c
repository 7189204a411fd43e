/* SPDX-License-Identifier: Apache-2.0 */
/* layers_test.c - who has to follow whom, told by how much each grew. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/decide/bind.h"

#define MIB (UINT64_C(1) << 20)

/* One dm device over one disk, first seen with these sizes. */
static void begin(struct layer *layers, enum observed_layer_kind kind, uint64_t bytes,
                  uint64_t disk_bytes)
{
    layers[0] = (struct layer){.kind = kind, .name = "/dev/dm-0", .label = "it", .bytes = bytes};
    layers[1] =
        (struct layer){.kind = LAYER_DISK, .name = "/dev/sda", .label = "", .bytes = disk_bytes};
    layers_judge(layers, 2);
}

static void resize(struct layer *layers, uint64_t bytes, uint64_t disk_bytes)
{
    layers[0].bytes = bytes;
    layers[1].bytes = disk_bytes;
    layers_judge(layers, 2);
}

static void assert_in_step(const struct layer *layers)
{
    assert_int_equal(layers[0].state, LAYER_IN_STEP);
    assert_int_equal(layers[1].state, LAYER_IN_STEP);
    assert_string_equal(layers[0].remedy, "");
    assert_string_equal(layers[1].remedy, "");
}

/* A dm device over a disk, first seen with these sizes, and up to four changes of them: what helps
 * then, "" where the device has followed. */
static void a_device_follows_its_disk(void **state)
{
    static const struct {
        enum observed_layer_kind kind;
        uint64_t bytes, disk_bytes;
        struct {
            uint64_t bytes, disk_bytes;
            const char *remedy; /* NULL: no further change */
        } then[4];
    } cases[] = {
        /* a header is not missing space; and LUKS follows in whole, with larger sectors or not */
        {LAYER_CRYPT,
         84 * MIB,
         100 * MIB,
         {{84 * MIB, 100 * MIB, ""},
          {84 * MIB, 200 * MIB, "cryptsetup resize it"},
          {184 * MIB, 200 * MIB, ""},
          {184 * MIB, 201 * MIB, "cryptsetup resize it"}}},
        {LAYER_CRYPT,
         84 * MIB,
         100 * MIB,
         {{94 * MIB, 200 * MIB, "cryptsetup resize it"}, {184 * MIB - 3584, 200 * MIB, ""}}},
        /* a disk back at its old size was not resized */
        {LAYER_CRYPT, 84 * MIB, 100 * MIB, {{84 * MIB, 50 * MIB, ""}, {84 * MIB, 100 * MIB, ""}}},
        /* into space that was there */
        {LAYER_LVM,
         40 * MIB,
         100 * MIB,
         {{60 * MIB, 100 * MIB, ""},
          {60 * MIB, 200 * MIB, "pvresize /dev/sda, then lvextend --size SIZE /dev/mapper/it"},
          {64 * MIB, 200 * MIB, ""}}},
        /* these need not follow */
        {LAYER_PARTITION, 40 * MIB, 100 * MIB, {{40 * MIB, 200 * MIB, ""}}},
        {LAYER_OTHER, 40 * MIB, 100 * MIB, {{40 * MIB, 200 * MIB, ""}}},
        /* without a header it shows at first sight */
        {LAYER_MULTIPATH,
         100 * MIB,
         200 * MIB,
         {{100 * MIB, 200 * MIB, "multipathd resize map it"}, {200 * MIB, 200 * MIB, ""}}},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct layer layers[2];

        begin(layers, cases[i].kind, cases[i].bytes, cases[i].disk_bytes);
        for (unsigned k = 0; k < 4 && cases[i].then[k].remedy; k++) {
            resize(layers, cases[i].then[k].bytes, cases[i].then[k].disk_bytes);
            if (cases[i].then[k].remedy[0] == '\0') {
                assert_in_step(layers);
                continue;
            }
            assert_int_equal(layers[0].state, LAYER_PENDING);
            assert_int_equal(layers[1].state, LAYER_IN_STEP);
            assert_string_equal(layers[0].remedy, cases[i].then[k].remedy);
        }
    }
}

static void what_else_may_help_is_named(void **state)
{
    struct layer layers[2];

    begin(layers, LAYER_DM, 100 * MIB, 100 * MIB);
    resize(layers, 100 * MIB, 200 * MIB);
    assert_int_equal(layers[0].state, LAYER_PENDING);
    assert_non_null(strstr(layers[0].remedy, "dmsetup table it"));
    begin(layers, LAYER_LVM, 64 * MIB, 200 * MIB);
    layers[1].kind = LAYER_LVM; /* a leg of a mirror */
    resize(layers, 64 * MIB, 300 * MIB);
    assert_string_equal(layers[0].remedy, "lvextend --size SIZE /dev/mapper/it");
}

static void a_disk_that_announced_a_larger_size_is_stale(void **state)
{
    struct layer layers[2];

    begin(layers, LAYER_CRYPT, 84 * MIB, 100 * MIB);
    layers[1].announced = true;
    resize(layers, 84 * MIB, 100 * MIB);
    assert_int_equal(layers[0].state, LAYER_IN_STEP);
    assert_int_equal(layers[1].state, LAYER_STALE);
    assert_string_equal(layers[1].remedy, "echo 1 > /sys/block/sda/device/rescan");
    layers_judge(&layers[1], 1); /* on its own */
    assert_int_equal(layers[1].state, LAYER_STALE);
}

/* LVM on LUKS on a multipath device of two paths. */
static void begin_nested(struct layer *layers)
{
    layers[0] =
        (struct layer){.kind = LAYER_LVM, .name = "/dev/dm-2", .label = "vg-lv", .bytes = 80 * MIB};
    layers[1] = (struct layer){
        .kind = LAYER_CRYPT, .name = "/dev/dm-1", .label = "luks", .bytes = 84 * MIB, .above = 0};
    layers[2] = (struct layer){.kind = LAYER_MULTIPATH,
                               .name = "/dev/dm-0",
                               .label = "mpatha",
                               .bytes = 100 * MIB,
                               .above = 1};
    layers[3] = (struct layer){
        .kind = LAYER_DISK, .name = "/dev/sda", .label = "", .bytes = 100 * MIB, .above = 2};
    layers[4] = layers[3];
    layers[4].name = "/dev/sdb";
    layers_judge(layers, 5);
}

static void resize_comes_up_layer_by_layer(void **state)
{
    struct layer layers[5];

    begin_nested(layers);
    layers[3].bytes = 200 * MIB;
    layers_judge(layers, 5);
    assert_string_equal(layers[4].remedy, "echo 1 > /sys/block/sdb/device/rescan");
    assert_int_equal(layers[4].state, LAYER_PENDING);
    assert_int_equal(layers[3].state, LAYER_IN_STEP);
    assert_string_equal(layers[2].remedy, "multipathd resize map mpatha");
    layers[4].bytes = 200 * MIB;
    layers_judge(layers, 5);
    assert_int_equal(layers[4].state, LAYER_IN_STEP);
    assert_int_equal(layers[2].state, LAYER_PENDING);
    assert_int_equal(layers[1].state, LAYER_IN_STEP);
    layers[2].bytes = 200 * MIB;
    layers_judge(layers, 5);
    assert_int_equal(layers[2].state, LAYER_IN_STEP);
    assert_string_equal(layers[1].remedy, "cryptsetup resize luks");
    layers[1].bytes = 184 * MIB;
    layers_judge(layers, 5);
    assert_int_equal(layers[1].state, LAYER_IN_STEP);
    assert_string_equal(layers[0].remedy,
                        "pvresize /dev/mapper/luks, then lvextend --size SIZE /dev/mapper/vg-lv");
    layers[0].bytes = 180 * MIB;
    layers_judge(layers, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(layers[i].state, LAYER_IN_STEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_follows_its_disk),
        cmocka_unit_test(what_else_may_help_is_named),
        cmocka_unit_test(a_disk_that_announced_a_larger_size_is_stale),
        cmocka_unit_test(resize_comes_up_layer_by_layer),
    };

    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
