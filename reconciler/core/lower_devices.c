/* SPDX-License-Identifier: Apache-2.0 */
/* lower_devices.c - see lower_devices.h. */
#include "reconciler/core/lower_devices.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/bind.h"
#include "store/store.h"

enum { RESTS = 9 }; /* as many times as long as it was read: a tenth of the time is for that */
static const uint64_t MOST_REST_NS = 5 * NSEC_PER_SEC;

/* Of a table that takes longer, this much processor time in each pass; others' work goes on. */
static const uint64_t PART_NS = 5 * NSEC_PER_MSEC;
/* Longer than a client waits that is told to ask again. */
static const uint64_t LEAST_REST_OF_LARGE_NS = 2 * NSEC_PER_SEC;

struct neighbours {
    const struct context *context;
    int64_t volume_id; /* the volume whose neighbours they are */
};

static int queue_neighbour(void *userdata, int64_t volume_id)
{
    const struct neighbours *neighbours = userdata;

    return volume_id == neighbours->volume_id
               ? 0
               : work_queue_add_volume(neighbours->context->queue, volume_id);
}

int devices_queue_neighbours(const struct context *context, const struct store_volume *volume)
{
    struct neighbours neighbours = {context, volume->volume_id};

    return volume->device_id
               ? store_each_volume(context->store,
                                   STORE_SEARCH(OF_DEVICE_ID, .device_id = volume->device_id),
                                   queue_neighbour, &neighbours)
               : 0;
}

struct store_device device_to_record(const struct observed_device *observed)
{
    return (struct store_device){
        .kind = observed->kind,
        .name = observed->name,
        .major = observed->major,
        .minor = observed->minor,
        .diskseq = observed->diskseq,
        .file_device = observed->file_device,
        .inode = observed->inode,
        .size_bytes = observed->size_bytes,
        .now_ns = clock_boottime(),
    };
}

int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed)
{
    const struct store_device device = device_to_record(observed);

    return store_put_device(store, &device, ret_device_id, ret_changed);
}

/* ---- lower devices -------------------------------------------------------------------------- */

/* The lower devices of a volume's device, from sysfs into the store.
 *
 * Most devices have none: then nothing is recorded, and observing the device costs two small reads.
 * Otherwise each layer is recorded as a device, so that an event of a disk leads to the volumes
 * above it, and a disk that announced a new capacity is remembered. bind.c judges the layers.
 *
 * A SCSI disk announces a new capacity once, when some command happens to meet it, and keeps its
 * old size; nothing but the announcement shows the change. So an announcement that a pass could not
 * commit is kept for the next pass. When it was a rescan that met the new capacity, the
 * announcement can arrive before, after or between the events of the new size.
 */

/* An announcement this soon after a new size is about that size. */
static const uint64_t SAME_CHANGE_NS = 2 * NSEC_PER_SEC;

struct stack {
    unsigned count;
    struct observed_layer seen[OBSERVE_LAYERS];
    struct layer layer[OBSERVE_LAYERS];
    struct store_layer row[OBSERVE_LAYERS];
    unsigned known;
    struct store_layer before[STORE_LAYERS];
};

_Static_assert((int)OBSERVE_LAYERS == (int)STORE_LAYERS, "every layer can be kept");
_Static_assert((int)LAYER_REMEDY_BYTES == (int)STORE_TEXT_BYTES, "a remedy is copied as it is");

/* Records each layer's device and fills in what is known about it. */
static int record_layer(const struct context *context, struct stack *stack, unsigned position)
{
    const struct observed_layer *seen = &stack->seen[position];
    struct store_layer *row = &stack->row[position];
    struct layer *layer = &stack->layer[position];
    bool changed, announced;
    int r = record_device(context->store, &seen->device, &row->layer_id, &changed);

    if (r == 0)
        r = store_is_announced(context->store, row->layer_id, &announced);
    if (r < 0)
        return r;
    row->above = seen->above;
    *layer = (struct layer){.kind = seen->kind,
                            .above = seen->above,
                            .name = seen->device.name,
                            .label = seen->label,
                            .bytes = seen->device.size_bytes,
                            .announced = announced};
    /* As it was before, below the same layer. */
    for (unsigned i = 1; i < stack->known; i++) {
        const struct store_layer *before = &stack->before[i];

        if (before->layer_id == row->layer_id && before->above < stack->known &&
            stack->before[before->above].layer_id == stack->row[row->above].layer_id) {
            layer->base_bytes = before->base_bytes;
            layer->above_bytes = before->above_bytes;
            break;
        }
    }
    return 0;
}

static bool is_unchanged(const struct stack *stack, unsigned rows)
{
    if (rows != stack->known)
        return false;
    for (unsigned i = 0; i < rows; i++) {
        const struct store_layer *row = &stack->row[i], *before = &stack->before[i];

        if (row->layer_id != before->layer_id || row->above != before->above ||
            row->base_bytes != before->base_bytes || row->above_bytes != before->above_bytes ||
            row->state != before->state || strcmp(row->label, before->label) != 0 ||
            strcmp(row->remedy, before->remedy) != 0)
            return false;
    }
    return true;
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
    for (unsigned i = 0; i < stack->count; i++) {
        const struct layer *layer = &stack->layer[i];
        struct store_layer *row = &stack->row[i];

        row->kind = layer_kind_name(layer->kind);
        row->base_bytes = layer->base_bytes;
        row->above_bytes = layer->above_bytes;
        row->state = layer->state;
        (void)snprintf(row->label, sizeof(row->label), "%s", layer->label);
        memcpy(row->remedy, layer->remedy, sizeof(row->remedy)); /* as long as each other */
    }
    rows = stack->count > 1 || stack->layer[0].state != LAYER_IN_STEP ? stack->count : 0;
    if (is_unchanged(stack, rows))
        return 0;
    for (unsigned i = 0; i < stack->count; i++)
        if (stack->row[i].remedy[0] &&
            (i >= stack->known || strcmp(stack->row[i].remedy, stack->before[i].remedy) != 0))
            log_warning(&(struct log_ids){.volume = volume->volume_id,
                                          .device = stack->seen[i].device.name},
                        "underlying storage grew; run: %s", stack->row[i].remedy);
    r = store_put_layers(context->store, volume->device_id, stack->row, rows);
    return r < 0 ? r : store_reload_volume(context->store, volume);
}

static struct stack stack; /* too large for the call stack; every part in use is filled anew */

/* Queues the volumes on the device that it leaves and those on the device that it comes to. */
static int set_device(const struct context *context, struct store_volume *volume, int64_t device_id)
{
    struct store *store = context->store;
    bool changed = false;
    int r = store_set_volume_device(store, volume->volume_id, device_id, &changed);

    if (r == 0 && changed)
        r = devices_queue_neighbours(context, volume);
    if (r == 0 && changed && context->synced) /* until then, it is not decided */
        r = store_reload_volume(store, volume);
    else if (r == 0 && changed)
        r = store_get_volume_itself(store, volume);
    return r == 0 && changed ? devices_queue_neighbours(context, volume) : r;
}

int devices_refresh(const struct context *context, struct store_volume *volume)
{
    struct observed_device observed;
    bool size_changed = false;
    int64_t device_id = 0;
    int r;

    if (!volume->device_path[0])
        return 0;
    r = observe_device_path(context->root, context->sysfs, volume->device_path, &observed);
    if (r < 0) {
        log_warning(&(struct log_ids){.volume = volume->volume_id}, "cannot observe device %s: %s",
                    volume->device_path, strerror(-r));
        return 0;
    }
    r = r == OBSERVED ? record_device(context->store, &observed, &device_id, &size_changed) : 0;
    if (r == 0 && device_id != volume->device_id)
        r = set_device(context, volume, device_id);
    else if (r == 0 && size_changed) /* When it shrinks, the store resets more than its size. */
        r = observed.size_bytes < volume->device_bytes
                ? store_get_volume_itself(context->store, volume)
                : store_get_volume_device(context->store, volume);
    if (r < 0 || !device_id || observed.kind != DEVICE_KIND_BLOCK)
        return r;
    stack.count = observe_stack(context->sysfs, &observed, stack.seen);
    return stack.count == 1 && !volume->has_layers && !volume->device_announced
               ? 0
               : put_layers(context, volume, &stack);
}

bool devices_observe_plain(const struct context *context, const char *path,
                           struct observed_device *ret_device)
{
    return observe_device_path(context->root, context->sysfs, path, ret_device) == OBSERVED &&
           (ret_device->kind != DEVICE_KIND_BLOCK ||
            observe_stack(context->sysfs, ret_device, stack.seen) == 1);
}

int devices_refresh_volume(const struct context *context, int64_t volume_id)
{
    struct store_volume volume = {.volume_id = volume_id};
    int r = store_get_volume_itself(context->store, &volume);

    return r == 0 && volume.status == STORE_PRESENT ? devices_refresh(context, &volume) : r;
}

int devices_note_event(const struct context *context, uint32_t major, uint32_t minor)
{
    int r =
        store_each_volume(context->store, STORE_SEARCH(OF_DEVICE, .major = major, .minor = minor),
                          work_queue_add_volume, context->queue);

    /* The device may be the one that a volume's path has been waiting for. */
    return r < 0 ? r
                 : store_each_volume(context->store, STORE_SEARCH(WITHOUT_DEVICE),
                                     work_queue_add_volume, context->queue);
}

void lower_devices_announce(const struct context *context, const char *devpath)
{
    observe_scsi_disks(context->sysfs, devpath, work_queue_add_announcement, context->queue);
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
    int r =
        store_each_volume(context->store, STORE_SEARCH(OF_DEVICE, .major = major, .minor = minor),
                          queue_above, &above);

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

/* ---- what the host uses ---- */

const char *devices_host_use(const struct devices *devices, uint32_t major, uint32_t minor)
{
    return devices->mounts
               ? observed_mounts_find(devices->mounts, devices->context->sysfs, major, minor)
               : "(cannot tell)";
}

const char *devices_host_use_for_client(struct devices *devices, uint32_t major, uint32_t minor)
{
    const char *use;

    if (!devices_know_mounts(devices))
        return "(the host's mounts are being read)";
    use = devices_host_use(devices, major, minor);
    if (!use || devices->is_large)
        return use;
    devices->is_outdated = true; /* the event may be a moment late */
    return devices_know_mounts(devices) ? devices_host_use(devices, major, minor) : use;
}

static void queue_lower_devices(void *userdata, uint32_t major, uint32_t minor)
{
    const struct devices *devices = userdata;
    const struct context *context = devices->context;

    (void)observe_each_lower_device(context->sysfs, major, minor, work_queue_add_device,
                                    context->queue);
}

static void on_rested(struct loop_timer *timer)
{
    devices_compare_mounts(container_of(timer, struct devices, rest));
}

static void wait_for_rest(struct devices *devices)
{
    const uint64_t now_ns = clock_monotonic();

    if (!loop_timer_is_active(&devices->rest))
        loop_timer_start(devices->context->loop, &devices->rest,
                         devices->rests_until_ns > now_ns ? devices->rests_until_ns - now_ns : 0,
                         on_rested);
}

/* A user may change the mounts without end, and make their table a large one: then a tenth of the
 * time goes into comparing them. */
static void rest(struct devices *devices)
{
    uint64_t rest_ns = RESTS * devices->reading_ns;

    if (devices->is_large && rest_ns < LEAST_REST_OF_LARGE_NS)
        rest_ns = LEAST_REST_OF_LARGE_NS;
    if (rest_ns > MOST_REST_NS)
        rest_ns = MOST_REST_NS;
    devices->rests_until_ns = clock_monotonic() + rest_ns;
    loop_timer_stop(&devices->rest);
    if (devices->is_outdated) /* by a change during the reading */
        wait_for_rest(devices);
}

/* Whether the reading has ended. */
static bool read_part(struct devices *devices)
{
    const uint64_t began_ns = clock_processor();
    struct observed_mounts *now = NULL;
    int r = 0;

    if (!devices->reading) {
        devices->is_outdated = false;
        devices->reading_ns = 0;
        devices->parts = 0;
        r = mounts_reading_new(devices->context->sysfs, &devices->reading);
    }
    if (r == 0)
        r = mounts_reading_go_on(devices->reading, began_ns + devices->part_ns, &now);
    devices->reading_ns += clock_processor() - began_ns;
    devices->parts++;
    if (r == PROGRESS_MORE)
        return false;
    if (r < 0)
        log_warning(&(struct log_ids){.source = "mounts"}, "cannot read the host's mounts: %s",
                    strerror(-r));
    devices->reading = mounts_reading_free(devices->reading);
    devices->is_large = devices->parts > 1;
    /* While the table cannot be read, nothing is queued: every decision tries again, and would
     * bring about the next. */
    if (now && devices->mounts)
        observed_mounts_each_change(devices->mounts, now, queue_lower_devices, devices);
    else if (now || devices->mounts)
        (void)store_each_volume(devices->context->store, STORE_SEARCH(BOUND), work_queue_add_volume,
                                devices->context->queue);
    (void)observed_mounts_free(devices->mounts);
    devices->mounts = now;
    rest(devices);
    return true;
}

/* Before a decision a changed table is read again, a large one only if it was not read just now:
 * otherwise a user who changes it without end would hold up all decisions. */
bool devices_know_mounts(struct devices *devices)
{
    if (!devices->reading && devices->mounts &&
        (!devices->is_outdated ||
         (devices->is_large && clock_monotonic() < devices->rests_until_ns)))
        return true;
    return read_part(devices);
}

bool devices_are_reading(const struct devices *devices)
{
    return devices->reading != NULL;
}

void devices_compare_mounts(struct devices *devices)
{
    if (devices->reading)
        devices->is_outdated = true;
    else
        (void)read_part(devices);
}

void devices_note_mounts(struct devices *devices)
{
    if (!devices->reading && clock_monotonic() >= devices->rests_until_ns) {
        devices_compare_mounts(devices);
        return;
    }
    devices->is_outdated = true;
    if (!devices->reading)
        wait_for_rest(devices);
}

void devices_forget_mounts(struct devices *devices)
{
    devices->reading = mounts_reading_free(devices->reading);
    devices->mounts = observed_mounts_free(devices->mounts);
}

void devices_init(struct devices *devices, const struct context *context)
{
    *devices = (struct devices){.context = context, .part_ns = PART_NS};
}

void devices_done(struct devices *devices)
{
    loop_timer_stop(&devices->rest);
    devices_forget_mounts(devices);
}
