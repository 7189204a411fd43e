/* SPDX-License-Identifier: Apache-2.0 */
/* stack.c - the lower devices of a device: the disk of a partition, the slaves of a dm, md or
 * bcache device, and their lower devices.
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
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "observe/observe.h"

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
