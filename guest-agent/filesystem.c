/* SPDX-License-Identifier: Apache-2.0 */
/* filesystem.c - three ioctls, and the checks before them.
 *
 * ext4 and xfs grow in steps: a process cannot be killed within one, and xfs keeps the headers of
 * all new groups of a step in memory, some 30 KiB each. What a step has added stays, so whoever is
 * next goes on from there. btrfs only notes the new size.
 *
 * The kernel's headers for user space lack those of ext4 and xfs, so numbers and layouts stand
 * here; they are kernel ABI (fs/ext4/ext4.h, fs/xfs/libxfs/xfs_fs.h).
 *
 * Never smaller: ext4 refuses a size below its own. xfs may accept a smaller one and btrfs always
 * does, so the present size is read first (statfs(2) would not do: it leaves out the file system's
 * own overhead). An equal size is success for all three, so growing is idempotent.
 */
#include "guest-agent/guest_volume.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "guest-agent/guest_drive.h"
#include "lib/cleanup.h"
#include "lib/quantity.h"

/* The argument is the new number of the file system's own blocks. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

struct xfs_geometry_v1 {
    uint32_t block_bytes;
    uint32_t realtime_extent_blocks;
    uint32_t group_blocks;
    uint32_t group_count;
    uint32_t log_blocks;
    uint32_t sector_bytes;
    uint32_t inode_bytes;
    uint32_t inode_percent; /* how much of the space inodes may take */
    uint64_t data_blocks;
    uint64_t realtime_blocks;
    uint64_t realtime_extents;
    uint64_t log_start;
    uint8_t uuid[16];
    uint32_t stripe_unit;
    uint32_t stripe_width;
    int32_t version;
    uint32_t flags;
    uint32_t log_sector_bytes;
    uint32_t realtime_sector_bytes;
    uint32_t directory_block_bytes;
};

/* On a 32-bit x86 the kernel packs this to 12 bytes; this program is built for 64 bits. */
struct xfs_growth {
    uint64_t new_blocks;
    uint32_t inode_percent; /* 0 would be taken at its word */
};

#define XFS_IOC_FSGEOMETRY_V1 _IOR('X', 100, struct xfs_geometry_v1)
#define XFS_IOC_FSGROWFSDATA  _IOW('X', 110, struct xfs_growth)

#if _IOC_WRITE == 1 /* some architectures number their ioctls differently */
_Static_assert(EXT4_IOC_RESIZE_FS == 0x40086610, "ext4's resize ioctl");
_Static_assert(XFS_IOC_FSGEOMETRY_V1 == 0x80705864, "xfs's geometry ioctl");
_Static_assert(XFS_IOC_FSGROWFSDATA == 0x4010586e, "the ioctl that grows xfs");
_Static_assert(BTRFS_IOC_RESIZE == 0x50009403, "btrfs's resize ioctl");
#endif

/* A last group smaller than this is left unused, and btrfs counts in units of this many bytes. */
enum { XFS_SMALLEST_GROUP_BLOCKS = 64, BTRFS_UNIT_BYTES = 4096 };

enum { STEP_GROUPS = 128, EXT_64BIT = 0x80, EXT_MAGIC = 0xef53 };

static const struct {
    const char *name;
    enum filesystem_kind kind;
    unsigned long magic;
    unsigned capability;
    const char *capability_name;
} kinds[] = {
    {"ext4", FILESYSTEM_EXT, EXT4_SUPER_MAGIC, CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
    {"ext3", FILESYSTEM_EXT, EXT4_SUPER_MAGIC, CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
    {"ext2", FILESYSTEM_EXT, EXT4_SUPER_MAGIC, CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
    {"xfs", FILESYSTEM_XFS, 0x58465342, CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
    {"btrfs", FILESYSTEM_BTRFS, BTRFS_SUPER_MAGIC, CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
};

enum filesystem_kind filesystem_kind_from_name(const char *name)
{
    for (size_t i = 0; i < array_length(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    }
    return FILESYSTEM_OTHER;
}

/* btrfs names its devices by the path they were found at. A container may not have that node, but
 * the last part of the path is the kernel's name for anything that is a plain disk. */
static int device_from_path(const char *path, dev_t *ret_device)
{
    struct stat status;

    if (stat(path, &status) == 0 && S_ISBLK(status.st_mode)) {
        *ret_device = status.st_rdev;
        return 0;
    }
    return device_by_name(basename(path), ret_device);
}

/* max_id is what the superblock says, and whoever wrote that may say anything. A file system gets
 * an id more with each device that is added in its life. */
enum { BTRFS_IDS = 4096 };

static int inspect_btrfs(int directory, struct filesystem *filesystem)
{
    struct btrfs_ioctl_fs_info_args info = {0};

    if (ioctl(directory, BTRFS_IOC_FS_INFO, &info) < 0)
        return -errno;
    for (uint64_t id = 1; id <= info.max_id && filesystem->device_count < info.num_devices; id++) {
        struct btrfs_ioctl_dev_info_args device = {.devid = id};
        struct filesystem_device *next = &filesystem->devices[filesystem->device_count];
        int r;

        if (id > BTRFS_IDS)
            return -E2BIG;
        if (ioctl(directory, BTRFS_IOC_DEV_INFO, &device) < 0) {
            if (errno == ENODEV)
                continue; /* removed earlier: ids have gaps */
            return -errno;
        }
        if (filesystem->device_count == FILESYSTEM_DEVICES)
            return -E2BIG;
        device.path[sizeof(device.path) - 1] = '\0';
        r = device_from_path((const char *)device.path, &next->device);
        if (r < 0)
            return r;
        next->id = id;
        next->bytes = device.total_bytes;
        filesystem->device_count++;
    }
    return filesystem->device_count ? 0 : -ENODEV;
}

int filesystem_inspect(int directory, enum filesystem_kind kind, dev_t device,
                       struct filesystem *ret_filesystem)
{
    struct filesystem filesystem = {.kind = kind};
    struct statfs statistics;
    struct stat status;
    bool expected = false;

    if (fstatfs(directory, &statistics) < 0 || fstat(directory, &status) < 0)
        return -errno;
    for (size_t i = 0; i < array_length(kinds); i++)
        expected |= kinds[i].kind == kind && (unsigned long)statistics.f_type == kinds[i].magic;
    if (!expected || (kind != FILESYSTEM_BTRFS && status.st_dev != device))
        return -ESTALE;
    if (kind == FILESYSTEM_BTRFS) {
        int r = inspect_btrfs(directory, &filesystem);

        if (r < 0)
            return r;
    } else {
        filesystem.device_count = 1;
        filesystem.devices[0].device = device;
    }
    *ret_filesystem = filesystem;
    return 0;
}

static uint32_t number_at(const uint8_t *superblock, size_t offset)
{
    const uint8_t *bytes = superblock + offset;

    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* The offsets are those of struct ext4_super_block in fs/ext4/ext4.h. */
int filesystem_read_ext(const uint8_t superblock[static EXT_SUPERBLOCK_BYTES],
                        struct filesystem_size *ret_size)
{
    uint32_t log_block = number_at(superblock, 0x18), log_cluster = number_at(superblock, 0x1c);
    uint32_t group_inodes = number_at(superblock, 0x28), incompatible = number_at(superblock, 0x60);
    struct filesystem_size size = {
        .blocks = number_at(superblock, 0x04),
        .block_bytes = UINT32_C(1024) << (log_block & 15),
        .first_block = number_at(superblock, 0x14),
        .group_blocks = number_at(superblock, 0x20),
    };

    if ((number_at(superblock, 0x38) & 0xffff) != EXT_MAGIC || log_block > 6 ||
        log_cluster < log_block || log_cluster > 20 || !group_inodes || !size.group_blocks)
        return -EBADMSG;
    if (incompatible & EXT_64BIT)
        size.blocks |= (uint64_t)number_at(superblock, 0x150) << 32;
    /* The kernel refuses a last group whose number is not below this quotient, because inode
     * numbers have 32 bits. With it, no size reaches the 2^48 blocks of an extent. */
    size.most_blocks = size.first_block + (uint64_t)(UINT32_MAX / group_inodes) * size.group_blocks;
    /* Without 64bit the descriptors have no room for more, and the kernel does not look (Linux 6.1:
     * it writes wrong descriptors, then meets a BUG). */
    if (!(incompatible & EXT_64BIT) && size.most_blocks > UINT32_MAX)
        size.most_blocks = UINT32_MAX;
    /* Older kernels let a file system end within a cluster, and then do not mount it. */
    size.unit_blocks = UINT32_C(1) << (log_cluster - log_block);
    *ret_size = size;
    return 0;
}

/* In the kernel's own devtmpfs, mounted nowhere, because the /dev of a container is empty. */
static int open_device(dev_t device, int *ret_fd)
{
    cleanup(fd_closep) int context = fsopen("devtmpfs", FSOPEN_CLOEXEC);
    cleanup(fd_closep) int devices = -1;
    char name[DEVICE_NAME_BYTES];
    int fd;

    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    devices = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    device_name(device, name);
    fd = openat(devices, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == EPERM && device_cgroup_allow(device) == 0)
        fd = openat(devices, name, O_RDONLY | O_CLOEXEC);
    *ret_fd = fd;
    return fd < 0 ? -errno : 0;
}

/* The kernel changes the superblock where this reads it, in the device's page cache. One that
 * cannot be read may lack 64bit; statfs(2), which leaves out the file system's own blocks, then
 * says how large it is at least. */
static int read_ext(int directory, dev_t device, struct filesystem_size *ret_size)
{
    cleanup(fd_closep) int fd = -1;
    uint8_t superblock[EXT_SUPERBLOCK_BYTES];
    struct statfs statistics;

    if (open_device(device, &fd) == 0 &&
        pread(fd, superblock, sizeof(superblock), EXT_SUPERBLOCK_BYTES) == sizeof(superblock) &&
        filesystem_read_ext(superblock, ret_size) == 0)
        return 0;
    if (fstatfs(directory, &statistics) < 0)
        return -errno;
    *ret_size = (struct filesystem_size){
        .blocks = statistics.f_blocks,
        .block_bytes = (uint32_t)statistics.f_bsize, /* ext4 reports its own block size there */
        .most_blocks = statistics.f_blocks > UINT32_MAX ? UINT64_MAX : UINT32_MAX,
        .group_blocks = UINT32_MAX, /* all in one step */
        .unit_blocks = 1,
        .is_guess = true,
    };
    return 0;
}

uint64_t filesystem_next_size(const struct filesystem_size *size, uint64_t bytes)
{
    uint64_t goal = bytes / size->block_bytes;
    uint64_t groups = (size->blocks - size->first_block) / size->group_blocks + STEP_GROUPS;
    uint64_t step = size->first_block + groups * size->group_blocks;

    if (goal > size->most_blocks)
        goal = size->most_blocks;
    goal -= goal % size->unit_blocks;
    return goal < step ? goal : step;
}

static int say_limit(const struct filesystem_size *size, uint64_t bytes, struct error *error)
{
    if (bytes / size->block_bytes <= size->most_blocks)
        return FILESYSTEM_GROWN;
    return error_set(
        error, FILESYSTEM_LIMIT,
        "at most %" PRIu64 " bytes%s, and its device has %" PRIu64
        ": only a new file system can be larger",
        size->most_blocks * size->block_bytes,
        size->is_guess ? " unless it has 64bit, which needs CAP_SYS_ADMIN to be seen" : "", bytes);
}

/* Whether there is room for more: whole groups, or a last one of the smallest size. */
static bool xfs_has_room(const struct filesystem_size *size, uint64_t blocks)
{
    if (blocks <= size->blocks)
        return false;
    return size->blocks % size->group_blocks != 0 ||
           blocks - size->blocks >= XFS_SMALLEST_GROUP_BLOCKS;
}

static int read_xfs(int directory, struct xfs_growth *growth, struct filesystem_size *ret_size)
{
    struct xfs_geometry_v1 geometry;

    if (ioctl(directory, XFS_IOC_FSGEOMETRY_V1, &geometry) < 0)
        return -errno;
    if (geometry.block_bytes == 0 || geometry.group_blocks == 0)
        return -EBADMSG;
    growth->inode_percent = geometry.inode_percent;
    *ret_size = (struct filesystem_size){
        .blocks = geometry.data_blocks,
        .block_bytes = geometry.block_bytes,
        .group_blocks = geometry.group_blocks,
        /* XFS_MAX_AGNUMBER + 1 groups; older kernels do not look. */
        .most_blocks = (uint64_t)UINT32_MAX * geometry.group_blocks,
        .unit_blocks = 1,
    };
    return 0;
}

/* ext4 or xfs. ext4 is asked once even if it fills its device, which shows whether it may be
 * asked. The kernel leaves out a last group that is too small. It refuses a step that somebody else
 * was ahead of, as if it were to shrink. */
static int grow_in_steps(int directory, enum filesystem_kind kind, dev_t device,
                         struct error *error)
{
    struct filesystem_size size;
    struct xfs_growth growth = {0};
    uint64_t bytes, before = UINT64_MAX; /* the first time */
    int r, failure = 0;
    bool is_done;

    for (;;) {
        r = device_size(device, &bytes);
        if (r == 0)
            r = kind == FILESYSTEM_EXT ? read_ext(directory, device, &size)
                                       : read_xfs(directory, &growth, &size);
        if (r < 0)
            return r;
        if (failure && (failure != EINVAL || before >= size.blocks))
            return -failure;
        growth.new_blocks = filesystem_next_size(&size, bytes);
        is_done = kind == FILESYSTEM_XFS ? !xfs_has_room(&size, growth.new_blocks)
                                         : before != UINT64_MAX && growth.new_blocks <= size.blocks;
        if (is_done || size.blocks == before)
            return say_limit(&size, bytes, error);
        before = size.blocks;
        /* ext4 converts to meta_bg by itself once no descriptor blocks are left in reserve. */
        r = kind == FILESYSTEM_EXT ? ioctl(directory, EXT4_IOC_RESIZE_FS, &growth.new_blocks)
                                   : ioctl(directory, XFS_IOC_FSGROWFSDATA, &growth);
        failure = r < 0 ? errno : 0;
    }
}

/* "max" and not a number of bytes: a number that is too small would shrink it. It has no limit
 * below that of block devices, 2^63 bytes. */
static int grow_btrfs(int directory, const struct filesystem_device *device)
{
    struct btrfs_ioctl_vol_args arguments = {0};
    uint64_t bytes;
    int r = device_size(device->device, &bytes);

    if (r < 0)
        return r;
    if (bytes / BTRFS_UNIT_BYTES * BTRFS_UNIT_BYTES <= device->bytes)
        return 0;
    (void)snprintf(arguments.name, sizeof(arguments.name), "%" PRIu64 ":max", device->id);
    r = ioctl(directory, BTRFS_IOC_RESIZE, &arguments);
    if (r > 0)
        return -EINPROGRESS; /* an exclusive operation is going on */
    return r < 0 ? -errno : 0;
}

static bool has_capability(unsigned capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[capability / 32].effective & (UINT32_C(1) << capability % 32));
}

static int explain_permission(enum filesystem_kind kind, struct error *error)
{
    cleanup(fd_closep) int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    char text[64] = "";
    uint32_t range[3]; /* the first id inside, the first outside, how many */

    for (size_t i = 0; i < array_length(kinds); i++) {
        if (kinds[i].kind == kind && !has_capability(kinds[i].capability))
            return error_set(error, FILESYSTEM_DENIED,
                             "growing %s needs %s, which this agent lacks", kinds[i].name,
                             kinds[i].capability_name);
    }
    /* Any user namespace but the initial one maps fewer ids (user_namespaces(7)). */
    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 &&
        (!numbers_read(text + strspn(text, " "), "  ", 10, range) || range[0] != 0 ||
         range[1] != 0 || range[2] != UINT32_MAX))
        return error_set(error, FILESYSTEM_DENIED,
                         "growing needs a capability in the initial user namespace, and this agent "
                         "runs in another one");
    return error_set(error, FILESYSTEM_ERRORS,
                     "the kernel does not permit it: the file system has recorded errors and needs "
                     "fsck");
}

static int explain(enum filesystem_kind kind, int code, struct error *error)
{
    switch (-code) {
    case EBUSY:
    case EAGAIN:
    case EINPROGRESS:
        return error_set(error, FILESYSTEM_BUSY, "the file system is being resized by another");
    case EROFS:
        return error_set(error, FILESYSTEM_READ_ONLY, AGENT_READ_ONLY_TEXT);
    case EPERM:
        return explain_permission(kind, error);
    case ENOTTY:
    case EOPNOTSUPP:
        return error_set(error, FILESYSTEM_UNSUPPORTED,
                         "this file system cannot grow while mounted");
    case EINVAL:
        return error_set(error, FILESYSTEM_REFUSED,
                         "the file system refuses its device's size (a feature of it, or a device "
                         "that has shrunk)");
    default:
        return error_set_errno(error, code, "cannot grow the file system");
    }
}

int filesystem_grow(int directory, const struct filesystem *filesystem, struct error *error)
{
    for (unsigned i = 0; i < filesystem->device_count; i++) {
        const struct filesystem_device *device = &filesystem->devices[i];
        int r = filesystem->kind == FILESYSTEM_BTRFS
                    ? grow_btrfs(directory, device)
                    : grow_in_steps(directory, filesystem->kind, device->device, error);

        if (r != FILESYSTEM_GROWN)
            return r < 0 ? explain(filesystem->kind, r, error) : r;
    }
    return FILESYSTEM_GROWN;
}
