/* SPDX-License-Identifier: Apache-2.0 */
/* binding.c - the binding of one volume: turns its row into facts for bind_decide(), and carries
 * out the result.
 *
 * What the runtime's records say about a volume is hashed. When the hash changes, the VMM's list of
 * drives is read again, because drives come and go with the containers of a sandbox.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/core/devices.h"
#include "reconciler/core/volume_steps.h"
#include "reconciler/decide/bind.h"

/* ---- the facts ---- */

static enum bind_sandbox sandbox_of(const struct store_volume *volume)
{
    if (volume->sandbox_ref)
        return BIND_ONE_SANDBOX;
    return volume->live_sandboxes > 1 ? BIND_SEVERAL_SANDBOXES : BIND_NO_SANDBOX;
}

static enum bind_device device_of(const struct store_volume *volume)
{
    if (!volume->device_id)
        return BIND_DEVICE_MISSING;
    return volume->device_kind == DEVICE_KIND_OTHER ? BIND_DEVICE_UNSUITABLE : BIND_DEVICE_SUITABLE;
}

static enum bind_present binding_of(const struct store_volume *volume)
{
    if (!volume->binding_id)
        return BIND_NONE;
    return volume->binding_sandbox_ref == volume->sandbox_ref ? BIND_HERE : BIND_ELSEWHERE;
}

static enum bind_disk disk_of(const struct store_volume *volume)
{
    if (volume->binding_device_id == volume->device_id)
        return BIND_SAME_DISK;
    return volume->device_kind == DEVICE_KIND_BLOCK && volume->binding_major == volume->major &&
                   volume->binding_minor == volume->minor
               ? BIND_REPLACED_DISK
               : BIND_ANOTHER_DISK;
}

static struct bind_facts facts_of(const struct store_volume *volume)
{
    return (struct bind_facts){
        .present = volume->status == STORE_PRESENT,
        .sandbox = sandbox_of(volume),
        .device = device_of(volume),
        .binding = binding_of(volume),
        .disk = disk_of(volume),
        .contradicted = volume->record_contradicts,
    };
}

/* ---- the actions ---- */

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3; /* FNV-1a */
    return hash * 0x100000001B3;
}

/* A hash of everything in the records that could mean another drive. */
static uint64_t record_of(const struct store_volume *volume)
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
        .record = record_of(volume),
    };
    const struct log_ids ids = {.volume = volume->volume_id,
                                .sandbox = volume->sandbox_id,
                                .device = volume->device_name,
                                .pv = volume->pv};

    log_info(&ids, "bound to the sandbox at %" PRIu64 " bytes", volume->device_bytes);
    return store_open_binding(context->store, &binding);
}

static bool is_described(const struct store_volume *volume)
{
    return (!volume->recorded_drive_id[0] || volume->drive_id[0]) &&
           (!volume->recorded_guest_path[0] ||
            strcmp(volume->recorded_guest_path, volume->guest_path) == 0);
}

static int describe_binding(const struct context *context, const struct store_volume *volume)
{
    return store_describe_binding(context->store, volume->volume_id,
                                  volume->recorded_drive_id[0] ? volume->recorded_drive_id : NULL,
                                  volume->recorded_guest_path[0] ? volume->recorded_guest_path
                                                                 : NULL,
                                  volume->recorded_drive_id[0] ? source_of(volume) : NULL);
}

/* The binding itself is unchanged; only what is known about it may have improved. */
static int update_binding(const struct context *context, struct store_volume *volume, bool mismatch)
{
    bool changed = false;
    int r = 0;

    if (volume->device_bytes > volume->largest_bytes && !mismatch) {
        r = store_note_size(context->store, volume->volume_id, volume->device_bytes);
        volume->largest_bytes = volume->device_bytes;
        volume->undone = 0;
    }
    if (r == 0 && !is_described(volume)) {
        r = describe_binding(context, volume);
        changed = true;
    }
    if (r == 0 && volume->record != record_of(volume)) {
        r = store_renew_record(context->store, volume->volume_id, record_of(volume));
        changed = true;
    }
    return r == 0 && changed ? store_get_volume_itself(context->store, volume) : r;
}

int binding_refresh(const struct context *context, struct store_volume *volume, bool *ret_mismatch)
{
    struct bind_facts facts = facts_of(volume);
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
