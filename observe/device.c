/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what a device path leads to, without ever opening the device.
 *
 * stat(2) yields the identity, sysfs the size. Opening a block device has side effects (it can load
 * a module, wait for media, delay a removal) and needs privileges that observing does not.
 *
 * `size` counts 512-byte sectors whatever the device's block size is
 * (Documentation/ABI/stable/sysfs-block). `diskseq` belongs to the disk and is new for each disk
 * that ever uses the number (Linux 5.15); a partition has its disk's.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/quantity.h"
#include "observe/observe.h"

enum { SECTOR_BYTES = 512 };

int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device)
{
    struct observed_device device = {.kind = DEVICE_KIND_BLOCK, .major = major, .minor = minor};
    char path[SYSFS_PATH_BYTES], uevent[SYSFS_TEXT_BYTES] = "", type[16];
    char name[sizeof(device.name) - sizeof("/dev/")];
    bool is_partition;
    uint64_t sectors;
    int r;

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/size", major, minor);
    r = sysfs_read_number(sysfs, path, &sectors);
    if (r < 0)
        return r == SYSFS_MISSING ? OBSERVED_ABSENT : r;
    if (__builtin_mul_overflow(sectors, SECTOR_BYTES, &device.size_bytes))
        return -EBADMSG;
    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/uevent", major, minor);
    r = sysfs_read_text(sysfs, path, uevent, sizeof(uevent));
    if (r == SYSFS_MISSING)
        uevent[0] = '\0';
    else if (r < 0)
        return r;
    is_partition =
        sysfs_uevent_value(uevent, "DEVTYPE", type, sizeof(type)) && strcmp(type, "partition") == 0;
    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/%sdiskseq", major, minor,
                   is_partition ? "../" : "");
    r = sysfs_read_number(sysfs, path, &device.diskseq);
    if (r == SYSFS_MISSING)
        device.diskseq = 0; /* of an older kernel */
    else if (r < 0)
        return r;
    /* The kernel's name may contain a directory ("cciss/c0d0"). */
    if (sysfs_uevent_value(uevent, "DEVNAME", name, sizeof(name)))
        (void)snprintf(device.name, sizeof(device.name), "/dev/%s", name);
    else
        (void)snprintf(device.name, sizeof(device.name), "/dev/block/%u:%u", major, minor);
    *ret_device = device;
    return OBSERVED;
}

int observe_device_path(int root, int sysfs, const char *path, struct observed_device *ret_device)
{
    struct stat st;
    int r = path_stat_in_root(root, path, &st);

    if (path_leads_nowhere(r) || r == PATH_MAY_HANG)
        return OBSERVED_ABSENT;
    if (r < 0)
        return r;
    if (S_ISBLK(st.st_mode))
        return observe_device_number(sysfs, major(st.st_rdev), minor(st.st_rdev), ret_device);
    *ret_device = (struct observed_device){
        .kind = S_ISREG(st.st_mode) ? DEVICE_KIND_FILE : DEVICE_KIND_OTHER,
        .file_device = st.st_dev,
        .inode = st.st_ino,
        .size_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
    };
    (void)snprintf(ret_device->name, sizeof(ret_device->name), "%s", path);
    return OBSERVED;
}

int observe_open_sysfs(int root, const char *path, int *ret_fd)
{
    int r = path_open_directory_in_root(root, path, ret_fd);
    int fd;

    if (r != PATH_MISSING)
        return r;
    fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* ---- sysfs ---------------------------------------------------------------------------------- */

/* The kernel returns an attribute in one read(2) (Documentation/filesystems/sysfs.rst), and a disk
 * is read before each command to its VMM. So an attribute is read right after it is opened, without
 * the checks that files of other writers need. */

/* The errors of reading an attribute while its device goes away. */
enum { ITS_DEVICE_GOES = -ENODEV, ITS_DEVICE_WENT = -ENXIO };

static int error_of_attribute(int r)
{
    switch (r) {
    case ITS_DEVICE_GOES:
    case ITS_DEVICE_WENT:
        return SYSFS_MISSING;
    case PATH_BEHIND_A_LINK:
    case PATH_LEADS_OUT:
    case PATH_BELOW_A_FILE:
    case PATH_IS_A_DIRECTORY:
        return SYSFS_WRONG;
    default:
        return r;
    }
}

int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size)
{
    cleanup(fd_closep) int fd = -1;
    ssize_t length = 0;
    int r = path_open_file_in_root(sysfs, path, &fd);

    if (r == 0) {
        do
            length = read(fd, ret_text, size);
        while (length < 0 && errno == EINTR);
        r = length < 0 ? -errno : 0;
    }
    if (r < 0)
        return error_of_attribute(r);
    if ((size_t)length == size)
        return SYSFS_TOO_LONG;
    if (length && ret_text[length - 1] == '\n')
        length--;
    ret_text[length] = '\0';
    return 0;
}

int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number)
{
    char text[32];
    uint64_t number = 0;
    int r = sysfs_read_text(sysfs, path, text, sizeof(text));

    if (r < 0)
        return r;
    for (const char *at = text; *at || at == text; at++)
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return SYSFS_WRONG;
    *ret_number = number;
    return 0;
}

int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor)
{
    char text[32];
    uint32_t numbers[2];
    const char *end;
    int r = sysfs_read_text(sysfs, path, text, sizeof(text));

    if (r < 0)
        return r;
    end = numbers_read(text, ":", 10, numbers);
    if (!end || *end)
        return SYSFS_WRONG;
    *ret_major = numbers[0];
    *ret_minor = numbers[1];
    return 0;
}

bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size)
{
    size_t length = strlen(key);

    while (*text) {
        size_t line = strcspn(text, "\n");

        if (line > length && strncmp(text, key, length) == 0 && text[length] == '=') {
            int written =
                snprintf(ret_value, size, "%.*s", (int)(line - length - 1), text + length + 1);

            return written > 0 && (size_t)written < size;
        }
        text += line + (text[line] == '\n');
    }
    return false;
}

/* ---- partitions ----------------------------------------------------------------------------- */

/* A disk's directory has other entries with device numbers, such as an NVMe disk's controller, so
 * what has no attribute `partition` is none. Most names are ruled out without a read, because the
 * kernel names a partition after its disk, followed by a number (block/partitions/core.c). */

enum { NAMES = 512 };

/* false: it is none, or vanishes. */
static bool read_partition(int sysfs, const char *directory, uint32_t *ret_major,
                           uint32_t *ret_minor)
{
    char path[SYSFS_PATH_BYTES + NAME_MAX + sizeof("/partition")];
    uint64_t number;

    (void)snprintf(path, sizeof(path), "%s/partition", directory);
    if (sysfs_read_number(sysfs, path, &number) < 0)
        return false;
    (void)snprintf(path, sizeof(path), "%s/dev", directory);
    return sysfs_read_device_number(sysfs, path, ret_major, ret_minor) == 0;
}

int observe_each_partition(int sysfs, uint32_t major, uint32_t minor,
                           observe_partition_callback *visit, void *userdata)
{
    char disk[SYSFS_PATH_BYTES / 4], target[PATH_MAX], directory[SYSFS_PATH_BYTES + NAME_MAX];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name, *disk_name;
    ssize_t length;
    int r;

    (void)snprintf(disk, sizeof(disk), "dev/block/%u:%u", major, minor);
    r = directory_list_in_root(sysfs, disk, &names);
    if (r < 0)
        return path_is_missing(r) ? 0 : r;
    /* It is a link to the disk's own directory. */
    length = readlinkat(sysfs, disk, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    disk_name = basename(target);
    for (unsigned count = 0; r == 0 && (name = directory_next(names)); count++) {
        if (count == NAMES)
            return -E2BIG;
        if (strncmp(name, disk_name, strlen(disk_name)) != 0)
            continue;
        (void)snprintf(directory, sizeof(directory), "%s/%s", disk, name);
        if (read_partition(sysfs, directory, &major, &minor))
            r = visit(userdata, directory, major, minor);
    }
    return r == 0 ? -errno : r;
}

/* ---- holder --------------------------------------------------------------------------------- */

/* The kernel lists in `holders` what has claimed a device: device-mapper, md, bcache. A volume may
 * be such a device itself (a logical volume, an open LUKS container); only holders of the device in
 * question count. A disk is held if any of its partitions is. */

/* For example "dm-3 (vg-data)" or "md0". */
static int find_in(int sysfs, const char *directory, char *ret_text, size_t size)
{
    char path[SYSFS_PATH_BYTES + 2 * NAME_MAX], label[128];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list_in_root(sysfs, directory, &names);

    if (r < 0)
        return path_is_missing(r) ? OBSERVED_ABSENT : r;
    name = directory_next(names);
    if (!name)
        return OBSERVED_ABSENT;
    (void)snprintf(path, sizeof(path), "%s/%s/dm/name", directory, name);
    if (sysfs_read_text(sysfs, path, label, sizeof(label)) == 0)
        (void)snprintf(ret_text, size, "%s (%s)", name, label);
    else
        (void)snprintf(ret_text, size, "%s", name);
    return OBSERVED;
}

struct search {
    int sysfs;
    char *ret_text;
    size_t size;
};

/* ABSENT, for which the walk goes on, has to be 0 here. */
enum { GO_ON = 0, FOUND = 1 };

static int find_on_partition(void *userdata, const char *directory, uint32_t major, uint32_t minor)
{
    const struct search *search = userdata;
    char path[SYSFS_PATH_BYTES + NAME_MAX + sizeof("/holders")];
    int r;

    (void)major;
    (void)minor;
    (void)snprintf(path, sizeof(path), "%s/holders", directory);
    r = find_in(search->sysfs, path, search->ret_text, search->size);
    return r == OBSERVED ? FOUND : r == OBSERVED_ABSENT ? GO_ON : r;
}

int observe_holder(int sysfs, uint32_t major, uint32_t minor, char *ret_text, size_t size)
{
    struct search search = {.sysfs = sysfs, .ret_text = ret_text, .size = size};
    char path[SYSFS_PATH_BYTES];
    int r;

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/holders", major, minor);
    r = find_in(sysfs, path, ret_text, size);
    if (r != OBSERVED_ABSENT)
        return r;
    r = observe_each_partition(sysfs, major, minor, find_on_partition, &search);
    return r == FOUND ? OBSERVED : r == GO_ON ? OBSERVED_ABSENT : r;
}

/* ---- lower devices -------------------------------------------------------------------------- */

/* The disk of a partition, the slaves of a dm, md or bcache device, and their lower devices.
 *
 * process_mounts.c searches in the other direction (the devices above a disk). The walk goes level
 * by level and ends at OBSERVE_LAYERS layers, which bounds its depth and its width; layers beyond
 * that are not seen, and callers that must know all of them are told so.
 *
 * The uuid of a dm device tells what made it: cryptsetup, LVM and multipathd use the prefixes
 * "CRYPT-", "LVM-" and "mpath-", kpartx "part1-mpath-". An LVM uuid that ends in "-tpool" or
 * "-vpool" is a pool. The size of a volume in a pool does not depend on the pool's size, so such a
 * volume counts as having no lower device.
 */

enum { STACK_NAMES = 64, UUID_BYTES = 160 };

struct stack {
    int sysfs;
    unsigned count;
    bool is_cut; /* there may be more layers */
    struct observed_layer *layer;
};

/* false if it is not a dm device. A dm device without a uuid has an empty one. */
static bool read_dm(int sysfs, uint32_t major, uint32_t minor, const char *attribute,
                    char *ret_text, size_t size)
{
    char path[SYSFS_PATH_BYTES];

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/dm/%s", major, minor, attribute);
    return sysfs_read_text(sysfs, path, ret_text, size) == 0;
}

static void add_layer(struct stack *stack, unsigned above, const char *path)
{
    struct observed_layer *layer = &stack->layer[stack->count];
    char uuid[UUID_BYTES] = "";
    const char *last_dash;
    uint32_t major, minor;

    stack->is_cut = stack->is_cut || stack->count == OBSERVE_LAYERS;
    if (stack->count == OBSERVE_LAYERS ||
        sysfs_read_device_number(stack->sysfs, path, &major, &minor) < 0)
        return;
    last_dash =
        read_dm(stack->sysfs, major, minor, "uuid", uuid, sizeof(uuid)) ? strrchr(uuid, '-') : NULL;
    if ((last_dash && strncmp(uuid, "LVM-", 4) == 0 &&
         (strcmp(last_dash, "-tpool") == 0 || strcmp(last_dash, "-vpool") == 0)) ||
        observe_device_number(stack->sysfs, major, minor, &layer->device) != OBSERVED)
        return;
    layer->kind = LAYER_DISK;
    layer->above = above;
    layer->label[0] = '\0';
    stack->count++;
}

static enum observed_layer_kind kind_of_uuid(const char *uuid)
{
    if (strncmp(uuid, "CRYPT-", 6) == 0)
        return LAYER_CRYPT;
    if (strncmp(uuid, "LVM-", 4) == 0)
        return LAYER_LVM;
    if (strncmp(uuid, "mpath-", 6) == 0)
        return LAYER_MULTIPATH;
    return strncmp(uuid, "part", 4) == 0 && isdigit((unsigned char)uuid[4]) ? LAYER_PARTITION
                                                                            : LAYER_DM;
}

/* Names a layer that has slaves. */
static void name_layer(int sysfs, struct observed_layer *layer)
{
    uint32_t major = layer->device.major, minor = layer->device.minor;
    char uuid[UUID_BYTES];

    layer->kind = LAYER_OTHER;
    if (!read_dm(sysfs, major, minor, "uuid", uuid, sizeof(uuid)))
        return;
    layer->kind = kind_of_uuid(uuid);
    if (!read_dm(sysfs, major, minor, "name", layer->label, sizeof(layer->label)))
        layer->label[0] = '\0';
}

static void add_slaves(struct stack *stack, unsigned above)
{
    struct observed_layer *layer = &stack->layer[above];
    char directory[SYSFS_PATH_BYTES / 2], path[SYSFS_PATH_BYTES + NAME_MAX];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    unsigned count;

    (void)snprintf(directory, sizeof(directory), "dev/block/%u:%u/slaves", layer->device.major,
                   layer->device.minor);
    (void)directory_list_in_root(stack->sysfs, directory, &names);
    for (count = 0; names && count < STACK_NAMES && (name = directory_next(names)); count++) {
        if (layer->kind == LAYER_DISK)
            name_layer(stack->sysfs, layer);
        (void)snprintf(path, sizeof(path), "%s/%s/dev", directory, name);
        add_layer(stack, above, path);
    }
    stack->is_cut = stack->is_cut || count == STACK_NAMES;
}

static void add_lower_devices(struct stack *stack, unsigned above)
{
    struct observed_layer *layer = &stack->layer[above];
    char path[SYSFS_PATH_BYTES];
    uint64_t number;

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/partition", layer->device.major,
                   layer->device.minor);
    if (sysfs_read_number(stack->sysfs, path, &number) < 0) {
        add_slaves(stack, above);
        return;
    }
    layer->kind = LAYER_PARTITION;
    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/../dev", layer->device.major,
                   layer->device.minor);
    add_layer(stack, above, path);
}

/* Whether these are all. */
static bool walk_stack(int sysfs, const struct observed_device *device,
                       struct observed_layer layer[static OBSERVE_LAYERS], unsigned *ret_count)
{
    struct stack stack = {.sysfs = sysfs, .count = 1, .layer = layer};

    layer[0] = (struct observed_layer){.kind = LAYER_DISK, .device = *device};
    for (unsigned i = 0; i < stack.count; i++)
        add_lower_devices(&stack, i);
    *ret_count = stack.count;
    return !stack.is_cut;
}

unsigned observe_stack(int sysfs, const struct observed_device *device,
                       struct observed_layer ret_layer[static OBSERVE_LAYERS])
{
    unsigned count;

    (void)walk_stack(sysfs, device, ret_layer, &count);
    return count;
}

bool observe_each_lower_device(int sysfs, uint32_t major, uint32_t minor,
                               observe_device_callback *callback, void *userdata)
{
    struct observed_layer layer[OBSERVE_LAYERS];
    struct observed_device device;
    unsigned count;
    bool is_all;

    callback(userdata, major, minor);
    if (observe_device_number(sysfs, major, minor, &device) != OBSERVED)
        return true;
    is_all = walk_stack(sysfs, &device, layer, &count);
    for (unsigned i = 1; i < count; i++)
        callback(userdata, layer[i].device.major, layer[i].device.minor);
    return is_all;
}

void observe_scsi_disks(int sysfs, const char *devpath, observe_device_callback *callback,
                        void *userdata)
{
    char directory[SYSFS_PATH_BYTES], path[SYSFS_PATH_BYTES + NAME_MAX + 8];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    uint32_t major, minor;

    if (snprintf(directory, sizeof(directory), "%s/block", devpath) >= (int)sizeof(directory))
        return;
    (void)directory_list_in_root(sysfs, directory, &names);
    for (unsigned count = 0; names && count < STACK_NAMES && (name = directory_next(names));
         count++) {
        (void)snprintf(path, sizeof(path), "%s/%s/dev", directory, name);
        if (sysfs_read_device_number(sysfs, path, &major, &minor) == 0)
            callback(userdata, major, minor);
    }
}
