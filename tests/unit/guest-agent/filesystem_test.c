/* SPDX-License-Identifier: Apache-2.0 */
/* filesystem_test.c - what a file system may say of itself: a kernel that answers as a crafted
 * btrfs would have it. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"

static struct {
    uint64_t max_id;
    uint64_t num_devices;
    uint64_t has; /* the only id that there is */
    char path[300];
    unsigned calls;
} kernel;

int fstatfs(int fd, struct statfs *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->f_type = BTRFS_SUPER_MAGIC;
    return 0;
}

static int tell_device(struct btrfs_ioctl_dev_info_args *device)
{
    if (device->devid != kernel.has) {
        errno = ENODEV;
        return -1;
    }
    device->total_bytes = 1 << 20;
    (void)snprintf((char *)device->path, sizeof(device->path), "%s", kernel.path);
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, request);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (++kernel.calls > 100000)
        fail_msg("it asks for ever");
    if (request != BTRFS_IOC_FS_INFO)
        return tell_device(argument);
    *(struct btrfs_ioctl_fs_info_args *)argument = (struct btrfs_ioctl_fs_info_args){
        .max_id = kernel.max_id, .num_devices = kernel.num_devices};
    return 0;
}

/* Any block device of this machine. */
static void name_a_device(void)
{
    cleanup(dir_closep) DIR *names = opendir("/sys/class/block");
    const struct dirent *name;

    while (names && (name = readdir(names)))
        if (name->d_name[0] != '.') {
            (void)snprintf(kernel.path, sizeof(kernel.path), "/dev/%s", name->d_name);
            return;
        }
    skip();
}

static void ids_of_devices_are_believed_within_bounds(void **state)
{
    static const struct {
        uint64_t max_id, num_devices, has;
        int r;
    } cases[] = {
        {7, 1, 7, 0},          /* with a gap before it */
        {UINT64_MAX, 1, 2, 0}, /* nobody looks for more than there are */
        {UINT64_MAX, 2, 1, -E2BIG},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, -E2BIG},
        {UINT64_MAX, 0, 1, -ENODEV},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct filesystem filesystem;

        memset(&kernel, 0, sizeof(kernel));
        kernel.max_id = cases[i].max_id;
        kernel.num_devices = cases[i].num_devices;
        kernel.has = cases[i].has;
        name_a_device();
        assert_int_equal(filesystem_inspect(0, FILESYSTEM_BTRFS, 0, &filesystem), cases[i].r);
        if (cases[i].r < 0)
            continue;
        assert_int_equal(filesystem.device_count, 1);
        assert_int_equal(filesystem.devices[0].id, cases[i].has);
        assert_int_equal(kernel.calls, 1 + cases[i].has);
    }
}

/* ---- sizes ---- */

struct superblock {
    uint32_t block_log, cluster_log, first_block, group_blocks, group_inodes, incompatible;
    uint64_t blocks;
};

static const struct superblock usual = {
    .block_log = 2,
    .cluster_log = 2,
    .group_blocks = 32768,
    .group_inodes = 8192,
    .blocks = 1 << 20,
};

static void put(uint8_t *bytes, size_t offset, uint64_t number)
{
    for (size_t i = 0; i < 4; i++)
        bytes[offset + i] = (uint8_t)(number >> 8 * i);
}

static int read_size(const struct superblock *from, struct filesystem_size *ret_size)
{
    uint8_t bytes[EXT_SUPERBLOCK_BYTES] = {0};

    put(bytes, 0x04, from->blocks);
    put(bytes, 0x14, from->first_block);
    put(bytes, 0x18, from->block_log);
    put(bytes, 0x1c, from->cluster_log);
    put(bytes, 0x20, from->group_blocks);
    put(bytes, 0x28, from->group_inodes);
    put(bytes, 0x38, 0xef53);
    put(bytes, 0x60, from->incompatible);
    put(bytes, 0x150, from->blocks >> 32);
    return filesystem_read_ext(bytes, ret_size);
}

static void ext4_has_a_limit_by_its_features(void **state)
{
    static const struct {
        uint32_t block_log, group_inodes, incompatible;
        uint64_t most_blocks;
    } cases[] = {
        {2, 8192, 0x2c2 & ~0x80, UINT32_MAX},
        {1, 4096, 0x242, UINT32_MAX},
        {0, 2048, 0x242, UINT32_MAX},
        {2, 8192, 0x2c2, UINT64_C(524287) * 32768},  /* 64 TiB: the inodes */
        {2, 32768, 0x2c2, UINT64_C(131071) * 32768}, /* the same below 2^32 blocks */
        {2, 32768, 0x242, UINT64_C(131071) * 32768},
        {2, 16, 0x2c2, UINT64_C(268435455) * 32768},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct superblock superblock = usual;
        struct filesystem_size size;

        superblock.block_log = superblock.cluster_log = cases[i].block_log;
        superblock.group_inodes = cases[i].group_inodes;
        superblock.incompatible = cases[i].incompatible;
        assert_int_equal(read_size(&superblock, &size), 0);
        assert_int_equal(size.block_bytes, 1024 << cases[i].block_log);
        assert_int_equal(size.most_blocks, cases[i].most_blocks);
    }
}

static void high_half_of_the_block_count_needs_64bit(void **state)
{
    struct superblock superblock = usual;
    struct filesystem_size size;

    superblock.blocks = (UINT64_C(5) << 32) + 7;
    assert_int_equal(read_size(&superblock, &size), 0);
    assert_int_equal(size.blocks, 7);
    superblock.incompatible = 0x80;
    assert_int_equal(read_size(&superblock, &size), 0);
    assert_int_equal(size.blocks, superblock.blocks);
}

static void what_is_no_superblock_is_refused(void **state)
{
    struct superblock wrong[5];
    struct filesystem_size size;
    uint8_t empty[EXT_SUPERBLOCK_BYTES] = {0};

    assert_int_equal(filesystem_read_ext(empty, &size), -EBADMSG);
    for (size_t i = 0; i < 5; i++)
        wrong[i] = usual;
    wrong[0].block_log = wrong[0].cluster_log = 7;
    wrong[1].cluster_log = 1;
    wrong[2].cluster_log = UINT32_MAX;
    wrong[3].group_blocks = 0;
    wrong[4].group_inodes = 0;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(read_size(&wrong[i], &size), -EBADMSG);
}

static void steps_end_with_groups(void **state)
{
    const struct filesystem_size size = {
        .blocks = 8192 * 3 + 100, /* in the fourth group */
        .most_blocks = UINT32_MAX,
        .block_bytes = 1024,
        .first_block = 1,
        .group_blocks = 8192,
        .unit_blocks = 1,
    };
    struct filesystem_size other = size;

    assert_int_equal(filesystem_next_size(&size, UINT64_C(1) << 40), 1 + (3 + 128) * 8192);
    assert_int_equal(filesystem_next_size(&size, 1024 * 30000 + 1023), 30000);
    assert_int_equal(filesystem_next_size(&size, 1024 * 100), 100); /* a device that shrank */
    other.blocks = UINT32_MAX - 10;
    assert_int_equal(filesystem_next_size(&other, UINT64_C(1) << 43), UINT32_MAX);
    other.blocks = UINT32_MAX;
    assert_int_equal(filesystem_next_size(&other, UINT64_C(1) << 43), UINT32_MAX);
    assert_int_equal(filesystem_next_size(&other, UINT64_C(1) << 42), UINT32_MAX);
    other.unit_blocks = 16; /* clusters */
    assert_int_equal(filesystem_next_size(&other, UINT64_C(1) << 43), UINT32_MAX - 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ext4_has_a_limit_by_its_features),
        cmocka_unit_test(high_half_of_the_block_count_needs_64bit),
        cmocka_unit_test(what_is_no_superblock_is_refused),
        cmocka_unit_test(steps_end_with_groups),
        cmocka_unit_test(ids_of_devices_are_believed_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
