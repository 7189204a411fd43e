/* SPDX-License-Identifier: Apache-2.0 */
/* lower_devices.c - the lower devices of a volume's device, from sysfs into the store.
 *
 * Most devices have none: then nothing is recorded, and observing the device costs two small reads.
 * Otherwise each layer is recorded as a device, so that an event of a disk leads to the volumes
 * above it, and a disk that announced a new capacity is remembered. layers.c judges the layers.
 *
 * A SCSI disk announces a new capacity once, when some command happens to meet it, and keeps its
 * old size; nothing but the announcement shows the change. So an announcement that a pass could not
 * commit is kept for the next pass. When it was a rescan that met the new capacity, the
 * announcement can arrive before, after or between the events of the new size.
 */
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/device_record.h"
#include "reconciler/core/devices.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/layers.h"
#include "store/store.h"

/* An announcement this soon after a new size is about that size. */
static const uint64_t SAME_CHANGE_NS = 2 * NSEC_PER_SEC;

/* ---- layers ---- */

struct stack {
    unsigned count;
    struct observed_layer seen[OBSERVE_LAYERS];
    struct layer layer[OBSERVE_LAYERS];
    struct store_layer row[OBSERVE_LAYERS];
    unsigned known;
    struct store_layer before[STORE_LAYERS];
};

_Static_assert((int)OBSERVE_LAYERS == (int)STORE_LAYERS, "every layer can be kept");

static const struct store_layer *find_before(const struct stack *stack, unsigned position)
{
    const struct store_layer *row = &stack->row[position];

    for (unsigned i = 1; i < stack->known; i++)
        if (stack->before[i].layer_id == row->layer_id && stack->before[i].above < stack->known &&
            stack->before[stack->before[i].above].layer_id == stack->row[row->above].layer_id)
            return &stack->before[i];
    return NULL;
}

/* Records each layer's device and fills in what is known about it. */
static int record_layer(const struct context *context, struct stack *stack, unsigned position)
{
    const struct observed_layer *seen = &stack->seen[position];
    struct store_layer *row = &stack->row[position];
    struct layer *layer = &stack->layer[position];
    const struct store_layer *before;
    bool changed;
    int r = record_device(context->store, &seen->device, &row->layer_id, &changed);

    if (r == 0)
        r = store_is_announced(context->store, row->layer_id, &layer->announced);
    if (r < 0)
        return r;
    row->above = layer->above = seen->above;
    before = find_before(stack, position);
    layer->kind = seen->kind;
    layer->name = seen->device.name;
    layer->label = seen->label;
    layer->bytes = seen->device.size_bytes;
    layer->base_bytes = before ? before->base_bytes : 0;
    layer->above_bytes = before ? before->above_bytes : 0;
    return 0;
}

/* Copied as a whole, and as bytes: gcc's sanitizer mistakes two members of one object for each
 * other. */
_Static_assert((int)LAYER_REMEDY_BYTES == (int)STORE_TEXT_BYTES, "a remedy is copied as it is");

static void fill_row(struct store_layer *row, const struct layer *layer)
{
    row->kind = layer_kind_name(layer->kind);
    row->base_bytes = layer->base_bytes;
    row->above_bytes = layer->above_bytes;
    row->state = layer->state;
    (void)snprintf(row->label, sizeof(row->label), "%s", layer->label);
    memcpy(row->remedy, layer->remedy, sizeof(row->remedy));
}

static bool is_same(const struct store_layer *row, const struct store_layer *before)
{
    return row->layer_id == before->layer_id && row->above == before->above &&
           row->base_bytes == before->base_bytes && row->above_bytes == before->above_bytes &&
           row->state == before->state && strcmp(row->label, before->label) == 0 &&
           strcmp(row->remedy, before->remedy) == 0;
}

static bool is_unchanged(const struct stack *stack, unsigned rows)
{
    if (rows != stack->known)
        return false;
    for (unsigned i = 0; i < rows; i++)
        if (!is_same(&stack->row[i], &stack->before[i]))
            return false;
    return true;
}

static void log_remedies(const struct stack *stack, const struct store_volume *volume)
{
    for (unsigned i = 0; i < stack->count; i++)
        if (stack->row[i].remedy[0] &&
            (i >= stack->known || strcmp(stack->row[i].remedy, stack->before[i].remedy) != 0))
            log_warning(&(struct log_ids){.volume = volume->volume_id,
                                          .device = stack->seen[i].device.name},
                        "underlying storage grew; run: %s", stack->row[i].remedy);
}

static int put_layers(const struct context *context, struct store_volume *volume,
                      struct stack *stack)
{
    unsigned rows;
    int r = store_get_layers(context->store, volume->device_id, stack->before, &stack->known);

    for (unsigned i = 0; r == 0 && i < stack->count; i++)
        r = record_layer(context, stack, i);
    if (r < 0)
        return r;
    layers_judge(stack->layer, stack->count);
    for (unsigned i = 0; i < stack->count; i++)
        fill_row(&stack->row[i], &stack->layer[i]);
    rows = stack->count > 1 || stack->layer[0].state != LAYER_IN_STEP ? stack->count : 0;
    if (is_unchanged(stack, rows))
        return 0;
    log_remedies(stack, volume);
    r = store_put_layers(context->store, volume->device_id, stack->row, rows);
    return r < 0 ? r : store_reload_volume(context->store, volume);
}

static struct stack stack; /* too large for the call stack; every part in use is filled anew */

unsigned lower_devices_count(const struct context *context, const struct observed_device *device)
{
    return observe_stack(context->sysfs, device, stack.seen) - 1;
}

int lower_devices_refresh(const struct context *context, struct store_volume *volume,
                          const struct observed_device *device)
{
    stack.count = observe_stack(context->sysfs, device, stack.seen);
    if (stack.count == 1 && !volume->has_layers && !volume->device_announced)
        return 0;
    return put_layers(context, volume, &stack);
}

/* ---- announcements ---- */

static void queue_announcement(void *userdata, uint32_t major, uint32_t minor)
{
    work_queue_add_announcement(userdata, major, minor);
}

void lower_devices_announce(const struct context *context, const char *devpath)
{
    observe_scsi_disks(context->sysfs, devpath, queue_announcement, context->queue);
}

struct above {
    struct work_queue *queue;
    unsigned volumes;
};

static int queue_above(void *userdata, int64_t volume_id)
{
    struct above *above = userdata;

    above->volumes++;
    return work_queue_add_volume(above->queue, volume_id);
}

/* A disk under no volume is ignored: the program that attaches it rescans it. */
int lower_devices_note_announcement(const struct context *context, uint32_t major, uint32_t minor)
{
    struct above above = {.queue = context->queue};
    struct observed_device device;
    int64_t device_id;
    bool changed;
    int r = store_each_volume_of_device(context->store, major, minor, queue_above, &above);

    if (r < 0 || above.volumes == 0 ||
        observe_device_number(context->sysfs, major, minor, &device) != OBSERVED)
        return r;
    r = record_device(context->store, &device, &device_id, &changed);
    if (r == 0)
        r = store_note_capacity_change(context->store, device_id, clock_boottime() - SAME_CHANGE_NS,
                                       &changed);
    if (r == 0 && changed)
        log_info(
            &(struct log_ids){.source = "uevent", .device = device.name},
            "the disk says that its capacity changed; it keeps its size until it is rescanned");
    return r;
}
