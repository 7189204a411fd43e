/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass.c - load → refresh → bind → decide → record. */
#include "reconciler/core/volume_pass.h"

#include <inttypes.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/act/actor.h"
#include "reconciler/core/context.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/bind.h"

static struct log_ids ids_of(const struct store_volume *volume)
{
    return (struct log_ids){volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                            volume->pv};
}

static struct bind_facts bind_facts_of(const struct store_volume *volume)
{
    return (struct bind_facts){
        .present = volume->status == STORE_PRESENT,
        .sandbox = volume->sandbox_ref          ? BIND_ONE_SANDBOX
                   : volume->live_sandboxes > 1 ? BIND_SEVERAL_SANDBOXES
                                                : BIND_NO_SANDBOX,
        .device = !volume->device_id                         ? BIND_DEVICE_MISSING
                  : volume->device_kind == DEVICE_KIND_OTHER ? BIND_DEVICE_UNSUITABLE
                                                             : BIND_DEVICE_SUITABLE,
        .binding = !volume->binding_id                                  ? BIND_NONE
                   : volume->binding_sandbox_ref == volume->sandbox_ref ? BIND_HERE
                                                                        : BIND_ELSEWHERE,
        .disk = volume->binding_device_id == volume->device_id ? BIND_SAME_DISK
                : volume->device_kind == DEVICE_KIND_BLOCK &&
                        volume->binding_major == volume->major &&
                        volume->binding_minor == volume->minor
                    ? BIND_REPLACED_DISK
                    : BIND_ANOTHER_DISK,
        .contradicted = volume->record_contradicts,
    };
}

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3; /* FNV-1a */
    return hash * 0x100000001B3;
}

/* A hash of everything in the runtime's records that could mean another drive. When it changes, the
 * VMM's list is read again, because drives come and go with containers. */
static uint64_t hash_of_records(const struct store_volume *volume)
{
    uint64_t hash = 0xCBF29CE484222325 ^ volume->carrier;

    hash = mix(hash, volume->recorded_drive_id);
    return mix(hash, volume->recorded_guest_path) >> 1; /* the database is signed */
}

/* The bytes that the guest reported in an earlier binding; the store resets them when the device
 * shrinks. */
static uint64_t filled_bytes(const struct store_volume *volume)
{
    return volume->filled_device_id == volume->device_id ? volume->filled_bytes : 0;
}

/* If the volume was published over the API, that is the source of everything. Otherwise a record
 * that knows the drive outranks one that only names the sandbox. */
static const char *source_of(const struct store_volume *volume)
{
    bool is_published = strcmp(volume->claim_source, "api") == 0;

    return volume->recorded_drive_id[0] && !is_published ? "persist" : volume->claim_source;
}

static int open_binding(const struct context *context, const struct store_volume *volume)
{
    struct store_binding binding = {
        .volume_id = volume->volume_id,
        .sandbox_ref = volume->sandbox_ref,
        .device_id = volume->device_id,
        .drive_id = volume->recorded_drive_id[0] ? volume->recorded_drive_id : NULL,
        .guest_path = volume->recorded_guest_path[0] ? volume->recorded_guest_path : NULL,
        .source = source_of(volume),
        .device_bytes = volume->device_bytes,
        .guest_synced_bytes = filled_bytes(volume),
        .record = hash_of_records(volume),
    };
    const struct log_ids ids = ids_of(volume);

    log_info(&ids, "bound to the sandbox at %" PRIu64 " bytes", volume->device_bytes);
    return store_open_binding(context->store, &binding);
}

/* The binding itself is unchanged; only what is known about it may have improved. */
static int update_binding(const struct context *context, struct store_volume *volume, bool mismatch)
{
    const char *drive = volume->recorded_drive_id[0] ? volume->recorded_drive_id : NULL;
    const char *path = volume->recorded_guest_path[0] ? volume->recorded_guest_path : NULL;
    bool changed = false;
    int r = 0;

    if (volume->device_bytes > volume->largest_bytes && !mismatch) {
        r = store_note_size(context->store, volume->volume_id, volume->device_bytes);
        volume->largest_bytes = volume->device_bytes;
        volume->undone = 0;
    }
    if (r == 0 &&
        ((drive && !volume->drive_id[0]) || (path && strcmp(path, volume->guest_path) != 0))) {
        r = store_describe_binding(context->store, volume->volume_id, drive, path,
                                   drive ? source_of(volume) : NULL);
        changed = true;
    }
    if (r == 0 && volume->record != hash_of_records(volume)) {
        r = store_renew_record(context->store, volume->volume_id, hash_of_records(volume));
        changed = true;
    }
    return r == 0 && changed ? store_get_volume_itself(context->store, volume) : r;
}

static int refresh_binding(const struct context *context, struct store_volume *volume,
                           bool *ret_mismatch)
{
    struct bind_facts facts = bind_facts_of(volume);
    struct binding binding = bind_decide(&facts);
    int r = 0;

    *ret_mismatch = binding.mismatch;
    switch (binding.action) {
    case BIND_NOTHING:
        return 0;
    case BIND_KEEP:
        return update_binding(context, volume, binding.mismatch);
    case BIND_OPEN:
        r = open_binding(context, volume);
        break;
    case BIND_CLOSE:
        r = store_close_binding(context->store, volume->volume_id);
        break;
    }
    if (r == 0)
        r = devices_queue_neighbours(context, volume);
    return r < 0 ? r : store_get_volume_itself(context->store, volume);
}

/* A new or ended binding, or a new resize, is recorded before the volume is decided. */
static int bind_and_decide(const struct context *context, struct store_volume *volume,
                           struct decide_facts *ret_facts, struct decision *ret_decision)
{
    const struct log_ids ids = ids_of(volume);
    enum decide_conflict conflict;
    struct store_disk disk;
    uint64_t from;
    bool mismatch = false;
    int r = refresh_binding(context, volume, &mismatch);

    if (r < 0)
        return r;
    actor_cancel_stale(context->actor, volume);
    conflict = volume_facts_conflict(context, volume, mismatch);
    *ret_facts = volume_facts_of(context, volume, conflict);
    if (ret_facts->lower == LOWER_STALE && context->config->resize.scsi_rescan) {
        r = act_rescan_find(context->store, volume, &disk);
        ret_facts->may_rescan = r == STORE_FOUND;
    }
    if (r < 0)
        return r;
    *ret_decision = decide(ret_facts);
    if (!ret_decision->opens_resize)
        return 0;
    /* That forgets the failures of an older one. */
    from = decide_baseline(volume->hypervisor_bytes, volume->first_bytes);
    r = store_open_resize(context->store, volume, from, volume->device_bytes);
    if (r == 0)
        log_info(&ids, "device grew from %" PRIu64 " to %" PRIu64 " bytes", from,
                 volume->device_bytes);
    *ret_facts = volume_facts_of(context, volume, conflict);
    *ret_decision = decide(ret_facts);
    return r;
}

static int record_state(const struct context *context, struct store_volume *volume,
                        const struct decision *decision)
{
    const struct log_ids ids = ids_of(volume);
    enum volume_state state = volume->state;
    enum volume_reason reason = volume->reason;
    enum resize_policy policy = resize_policy_of(context->config, volume);
    /* Of a regular file crustd resizes nothing but a file system that is behind its disk. */
    bool observed = policy == POLICY_OBSERVE || policy == POLICY_FIXED ||
                    (policy == POLICY_GUEST && decision->state != STATE_BLOCK_GROWN);
    bool changed = false;
    int r = store_set_state(context->store, volume, decision->state, decision->reason, &changed);

    if (r == 0 && volume->observed != observed)
        r = store_set_observed(context->store, volume->volume_id, observed);
    if (r == 0 && changed)
        log_info(&ids, "%s/%s -> %s/%s", state_name(state), reason_name(reason),
                 state_name(decision->state), reason_name(decision->reason));
    return r == 0 && changed ? devices_queue_neighbours(context, volume) : r;
}

static int record(const struct context *context, struct store_volume *volume,
                  const struct decide_facts *facts, const struct decision *decision)
{
    uint64_t due = volume_facts_still_from(context, volume), now = clock_boottime();
    int r;

    actor_withdraw(context->actor, volume->volume_id, decision->action);
    r = record_state(context, volume, decision);
    if (r == 0)
        r = blocked_detail_record(context, volume, decision);
    if (r == 0)
        r = resizable_record(context, volume, facts);
    if (r < 0)
        return r;
    /* The device may grow further; the timer of attempts will have the volume decided again. */
    if (decision->action == ACTION_WAIT && volume->next_attempt_ns != due)
        return store_set_attempts(context->store, volume->volume_id, 0, due,
                                  clock_realtime_ms() +
                                      (int64_t)(due > now ? (due - now) / NSEC_PER_MSEC : 0));
    if (decision->action != ACTION_WAIT && decision->action != ACTION_NONE)
        return context->stopping ? 0 : actor_decide(context->actor, volume, decision->action);
    /* A volume that is due and has nothing to try stops waiting: its state says what it lacks. */
    return decision->action == ACTION_NONE && volume->next_attempt_ns &&
                   (facts->may_try || facts->conflict == CONFLICT_DETACHED)
               ? store_set_attempts(context->store, volume->volume_id, 0, 0, 0)
               : 0;
}

int volume_pass_run(const struct context *context, int64_t volume_id)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    struct store_volume volume;
    struct decide_facts facts;
    struct decision decision;
    int r = store_get_volume(context->store, volume_id, &volume);

    if (r == STORE_NO_VOLUME)
        return 0;
    if (r == 0 && volume.status == STORE_PRESENT && !work_queue_devices_are_fresh(context->queue))
        r = devices_refresh(context, &volume);
    if (r == 0)
        r = bind_and_decide(context, &volume, &facts, &decision);
    if (r == 0 && decision.action == ACTION_RESIZE_GUEST && volume.guest_path[0] != '/' &&
        !volume.is_block_claim && !actor_is_acting(context->actor, volume_id)) {
        /* Kata's Rust runtime makes the directory that shows the guest path when the container
         * exists, long after its bundle. */
        memcpy(sandbox_id, volume.sandbox_id, sizeof(sandbox_id));
        r = observer_observe_sandbox(context, sandbox_id);
        if (r == 0)
            r = store_reload_volume(context->store, &volume);
        if (r == 0)
            r = bind_and_decide(context, &volume, &facts, &decision);
    }
    return r < 0 ? r : record(context, &volume, &facts, &decision);
}
