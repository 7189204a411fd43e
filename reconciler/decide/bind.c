/* SPDX-License-Identifier: Apache-2.0 */
/* bind.c - the decision table for bindings, which are rows of audit_mappings.
 *
 * First whether exactly one sandbox has the volume, then whether the VMM's device can still be the
 * one that the path leads to. If records contradict each other, an open binding is kept, because
 * the VMM holds its device whatever the path does, and none is begun.
 */
#include "reconciler/decide/bind.h"

#include <stdio.h>
#include <string.h>

static struct binding say(enum bind_action action, bool mismatch)
{
    return (struct binding){action, mismatch};
}

static struct binding end(const struct bind_facts *facts, bool mismatch)
{
    return say(facts->binding == BIND_NONE ? BIND_NOTHING : BIND_CLOSE, mismatch);
}

struct binding bind_decide(const struct bind_facts *facts)
{
    if (!facts->present || facts->sandbox != BIND_ONE_SANDBOX)
        return end(facts, false);
    if (facts->device == BIND_DEVICE_MISSING)
        return facts->binding == BIND_HERE ? say(BIND_KEEP, false) : end(facts, false);
    if (facts->device == BIND_DEVICE_UNSUITABLE)
        return end(facts, false);
    if (facts->binding == BIND_HERE && facts->disk != BIND_ANOTHER_DISK)
        return say(BIND_KEEP, facts->contradicted || facts->disk == BIND_REPLACED_DISK);
    if (facts->binding == BIND_HERE)
        return facts->contradicted ? say(BIND_KEEP, true) : say(BIND_OPEN, false);
    return facts->contradicted ? end(facts, true) : say(BIND_OPEN, false);
}

/* ---- attachment ----------------------------------------------------------------------------- */

/* The decision table for drives that a VM does not have, or has lost.
 *
 * A drive that is missing while the runtime plugs or unplugs it is not reported, so the list alone
 * decides only if no container could be waiting for the drive. A shared directory in the runtime's
 * record is decisive at once: the runtime wrote it when it had made the container.
 */

enum attachment attachment_decide(const struct attachment_facts *facts)
{
    bool lacks = facts->list == LIST_LACKS;

    if (facts->record == RECORD_DIRECTORY)
        return lacks || facts->list == LIST_REFUSED ? ATTACHMENT_BYPASSED : ATTACHMENT_OPEN;
    if (lacks && facts->record == RECORD_DEVICE && facts->is_lasting)
        return ATTACHMENT_UNPLUGGED;
    if (lacks && facts->record == RECORD_SILENT && !facts->has_container)
        return ATTACHMENT_DETACHED;
    return ATTACHMENT_OPEN;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* See bind.h.
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
        if (layer->kind == LAYER_LVM)
            (void)snprintf(upper->remedy, sizeof(upper->remedy),
                           "lvextend --size SIZE /dev/mapper/%s", upper->label);
        else
            (void)snprintf(upper->remedy, sizeof(upper->remedy),
                           "pvresize %s%s, then lvextend --size SIZE /dev/mapper/%s",
                           layer->label[0] ? "/dev/mapper/" : "",
                           layer->label[0] ? layer->label : layer->name, upper->label);
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
        if (layer->base_bytes && !has_followed(upper, layer)) {
            say_pending(upper, layer);
        } else {
            if (layer->bytes > layer->base_bytes)
                layer->base_bytes = layer->bytes;
            layer->above_bytes = upper->bytes;
        }
        /* A path that is smaller than another one of the same device. */
        for (unsigned j = 1; is_path && layer->state == LAYER_IN_STEP && j < count; j++)
            if (layers[j].above == layer->above && layers[j].bytes > layer->bytes)
                say_rescan(layer, LAYER_PENDING);
    }
}
