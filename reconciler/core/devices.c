/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - see devices.h. */
#include "reconciler/core/devices.h"

#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/device_record.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

enum { RESTS = 9 };
static const uint64_t MOST_REST_NS = 5 * NSEC_PER_SEC;

/* ---- neighbours ---- */

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

    return volume->device_id ? store_each_volume_of_device_id(context->store, volume->device_id,
                                                              queue_neighbour, &neighbours)
                             : 0;
}

/* ---- the device ---- */

/* Queues the volumes on the device that it leaves and those on the device that it comes to. */
static int set_device(const struct context *context, struct store_volume *volume, int64_t device_id)
{
    struct store *store = context->store;
    bool changed = false;
    int r = store_set_volume_device(store, volume->volume_id, device_id, &changed);

    if (r == 0 && changed)
        r = devices_queue_neighbours(context, volume);
    if (r == 0 && changed && context->synced) /* until then, it is not decided */
        r = store_get_volume(store, volume->volume_id, volume);
    else if (r == 0 && changed)
        r = store_get_volume_itself(store, volume);
    return r == 0 && changed ? devices_queue_neighbours(context, volume) : r;
}

/* When a device shrinks, the store resets more than its size, so the whole row is read again. */
static int follow_size(const struct context *context, struct store_volume *volume, uint64_t bytes)
{
    return bytes < volume->device_bytes ? store_get_volume_itself(context->store, volume)
                                        : store_get_volume_device(context->store, volume);
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
    if (r == 0)
        r = device_id == volume->device_id
                ? (size_changed ? follow_size(context, volume, observed.size_bytes) : 0)
                : set_device(context, volume, device_id);
    if (r == 0 && device_id && observed.kind == DEVICE_KIND_BLOCK)
        r = lower_devices_refresh(context, volume, &observed);
    return r;
}

bool devices_observe_plain(const struct context *context, const char *path,
                           struct observed_device *ret_device)
{
    return observe_device_path(context->root, context->sysfs, path, ret_device) == OBSERVED &&
           (ret_device->kind != DEVICE_KIND_BLOCK || lower_devices_count(context, ret_device) == 0);
}

int devices_refresh_volume(const struct context *context, int64_t volume_id)
{
    struct store_volume volume = {.volume_id = volume_id};
    int r = store_get_volume_itself(context->store, &volume);

    return r == 0 && volume.status == STORE_PRESENT ? devices_refresh(context, &volume) : r;
}

int devices_note_event(const struct context *context, uint32_t major, uint32_t minor)
{
    int r = store_each_volume_of_device(context->store, major, minor, work_queue_add_volume,
                                        context->queue);

    /* The device may be the one that a volume's path has been waiting for. */
    return r < 0 ? r
                 : store_each_volume_without_device(context->store, work_queue_add_volume,
                                                    context->queue);
}

/* ---- what the host uses ---- */

static int read_mounts(const struct context *context, struct observed_mounts **ret_mounts)
{
    int r = observe_mounts(context->sysfs, ret_mounts);

    if (r < 0)
        log_warning(&(struct log_ids){.source = "mounts"}, "cannot read the host's mounts: %s",
                    strerror(-r));
    if (r < 0)
        *ret_mounts = NULL;
    return r;
}

const char *devices_host_use(struct devices *devices, uint32_t major, uint32_t minor)
{
    if (devices->is_outdated)
        devices_compare_mounts(devices);
    if (!devices->mounts && read_mounts(devices->context, &devices->mounts) < 0)
        return "(cannot tell)";
    return observed_mounts_find(devices->mounts, devices->context->sysfs, major, minor);
}

static void queue_device(void *userdata, uint32_t major, uint32_t minor)
{
    work_queue_add_device(userdata, major, minor);
}

static void queue_lower_devices(void *userdata, uint32_t major, uint32_t minor)
{
    const struct devices *devices = userdata;
    const struct context *context = devices->context;

    (void)observe_each_lower_device(context->sysfs, major, minor, queue_device, context->queue);
}

/* A user may change the mounts without end, and make their table a large one: then a tenth of the
 * time goes into comparing them. What is decided upon meanwhile reads it first. */
static void rest(struct devices *devices, uint64_t taken_ns)
{
    const uint64_t rest_ns = RESTS * taken_ns;

    devices->is_outdated = false;
    devices->rests_until_ns = clock_monotonic() + (rest_ns < MOST_REST_NS ? rest_ns : MOST_REST_NS);
    loop_timer_stop(&devices->rest);
}

void devices_compare_mounts(struct devices *devices)
{
    const struct context *context = devices->context;
    const uint64_t began_ns = clock_processor();
    struct observed_mounts *now;

    (void)read_mounts(context, &now);
    if (now && devices->mounts)
        observed_mounts_each_change(devices->mounts, now, queue_lower_devices, devices);
    else
        (void)store_each_bound_volume(context->store, work_queue_add_volume, context->queue);
    devices_forget_mounts(devices);
    devices->mounts = now;
    rest(devices, clock_processor() - began_ns);
}

static void on_rested(struct loop_timer *timer)
{
    devices_compare_mounts(container_of(timer, struct devices, rest));
}

void devices_note_mounts(struct devices *devices)
{
    const uint64_t now_ns = clock_monotonic();

    if (now_ns >= devices->rests_until_ns) {
        devices_compare_mounts(devices);
        return;
    }
    devices->is_outdated = true;
    if (!loop_timer_is_active(&devices->rest))
        loop_timer_start(devices->context->loop, &devices->rest, devices->rests_until_ns - now_ns,
                         on_rested);
}

void devices_forget_mounts(struct devices *devices)
{
    devices->mounts = observed_mounts_free(devices->mounts);
}

void devices_done(struct devices *devices)
{
    loop_timer_stop(&devices->rest);
    devices_forget_mounts(devices);
}
