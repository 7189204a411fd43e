/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - see layers.h.
 *
 * How much a layer has to grow with its lower device depends on its kind. LUKS and multipath take
 * all of it, less a header of constant size, so both must grow by the same amount. LVM takes what
 * it is told to, so any increase counts as having followed. A partition, and a layer of unknown
 * kind that is no dm device, need not follow: nobody expects the first of three partitions to grow
 * with its disk.
 *
 * A multipath device has the size of its paths, without a header: there the two are in step only if
 * they are equal. All paths must be; those that are smaller than the largest have not been
 * rescanned.
 */
#include "reconciler/decide/layers.h"

#include <stdio.h>
#include <string.h>

/* A layer of LUKS2 is a multiple of its sectors. */
enum { ROUNDING_BYTES = 4096 };

const char *layer_kind_name(enum observed_layer_kind kind)
{
    static const char *const names[] = {
        [LAYER_DISK] = "disk",   [LAYER_PARTITION] = "partition", [LAYER_CRYPT] = "crypt",
        [LAYER_LVM] = "lvm",     [LAYER_MULTIPATH] = "multipath", [LAYER_DM] = "dm",
        [LAYER_OTHER] = "other",
    };

    return names[kind];
}

static void remember(struct layer *layer, const struct layer *upper)
{
    if (!layer->base_bytes || layer->bytes > layer->base_bytes)
        layer->base_bytes = layer->bytes;
    layer->above_bytes = upper->bytes;
}

static bool has_followed(const struct layer *upper, const struct layer *layer)
{
    uint64_t followed = upper->bytes > layer->above_bytes ? upper->bytes - layer->above_bytes : 0;

    if (layer->bytes <= layer->base_bytes)
        return true;
    switch (upper->kind) {
    case LAYER_CRYPT:
    case LAYER_MULTIPATH:
        return followed + ROUNDING_BYTES > layer->bytes - layer->base_bytes;
    case LAYER_LVM:
    case LAYER_DM:
        return followed > 0;
    case LAYER_DISK:
    case LAYER_PARTITION:
    case LAYER_OTHER:
        break;
    }
    return true;
}

/* How a tool of LVM's is told which device is meant. */
static void say_path(const struct layer *layer, char *text, size_t size)
{
    (void)snprintf(text, size, layer->label[0] ? "/dev/mapper/%s" : "%s",
                   layer->label[0] ? layer->label : layer->name);
}

static void say_lvm(struct layer *upper, const struct layer *layer)
{
    char physical[LAYER_REMEDY_BYTES / 2];

    say_path(layer, physical, sizeof(physical));
    if (layer->kind == LAYER_LVM)
        (void)snprintf(upper->remedy, sizeof(upper->remedy), "lvextend --size SIZE /dev/mapper/%s",
                       upper->label);
    else
        (void)snprintf(upper->remedy, sizeof(upper->remedy),
                       "pvresize %s, then lvextend --size SIZE /dev/mapper/%s", physical,
                       upper->label);
}

static void say_pending(struct layer *upper, const struct layer *layer)
{
    upper->state = LAYER_PENDING;
    switch (upper->kind) {
    case LAYER_CRYPT:
        (void)snprintf(upper->remedy, sizeof(upper->remedy), "cryptsetup resize %s", upper->label);
        break;
    case LAYER_MULTIPATH:
        (void)snprintf(upper->remedy, sizeof(upper->remedy), "multipathd resize map %s",
                       upper->label);
        break;
    case LAYER_LVM:
        say_lvm(upper, layer);
        break;
    case LAYER_DM:
    case LAYER_DISK:
    case LAYER_PARTITION:
    case LAYER_OTHER:
        (void)snprintf(upper->remedy, sizeof(upper->remedy),
                       "a larger table for /dev/mapper/%s, by what made it: dmsetup table %s",
                       upper->label, upper->label);
    }
}

static void say_rescan(struct layer *layer, enum layer_state state)
{
    layer->state = state;
    (void)snprintf(layer->remedy, sizeof(layer->remedy), "echo 1 > /sys/block/%s/device/rescan",
                   layer->name + (strncmp(layer->name, "/dev/", 5) == 0 ? 5 : 0));
}

static uint64_t largest_path(const struct layer *layers, unsigned count, unsigned above)
{
    uint64_t largest = 0;

    for (unsigned i = above + 1; i < count; i++)
        if (layers[i].above == above && layers[i].bytes > largest)
            largest = layers[i].bytes;
    return largest;
}

void layers_judge(struct layer *layers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        layers[i].state = LAYER_IN_STEP;
        layers[i].remedy[0] = '\0';
        if (layers[i].announced)
            say_rescan(&layers[i], LAYER_STALE);
    }
    for (unsigned i = 1; i < count; i++) {
        struct layer *layer = &layers[i], *upper = &layers[layer->above];
        bool is_path = upper->kind == LAYER_MULTIPATH;

        if (is_path && !layer->base_bytes)
            layer->base_bytes = layer->above_bytes = upper->bytes;
        if (!layer->base_bytes || has_followed(upper, layer))
            remember(layer, upper);
        else
            say_pending(upper, layer);
        if (is_path && layer->state == LAYER_IN_STEP &&
            layer->bytes < largest_path(layers, count, layer->above))
            say_rescan(layer, LAYER_PENDING);
    }
}
