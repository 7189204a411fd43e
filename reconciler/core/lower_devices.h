/* SPDX-License-Identifier: Apache-2.0 */
/* lower_devices.h - block devices of the node, as recorded in the store: their sizes, their lower
 * devices, and their use by the host.
 *
 * Observations go to the store, and the volumes that they affect are queued.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "store/devices.h"

struct context;
struct observed_device;
struct observed_mounts;
struct store;
struct store_volume;

/* The fields are private to the module. */
struct devices {
    const struct context *context;
    struct observed_mounts *mounts; /* NULL: must be read before the next use */
    bool is_outdated; /* they have changed since: read again before the next decision, a large
                         table not before it has rested */
    struct mounts_reading *reading; /* under way */
    uint64_t part_ns;               /* the processor time of one part */
    uint64_t reading_ns;            /* of this or the last reading */
    unsigned parts;                 /* of it */
    bool is_large;                  /* the last one took several */
    uint64_t rests_until_ns;        /* clock_monotonic() */
    struct loop_timer rest;
};

void devices_init(struct devices *devices, const struct context *context);
void devices_done(struct devices *devices);

/* All that return int: 0 or -errno of the store. */

/* Observes which device the volume's path leads to now, its size and its lower devices, records
 * them, and brings the row up to date. */
int devices_refresh(const struct context *context, struct store_volume *volume);
/* Observes where a path leads. false if that fails, or if the device has lower devices. */
bool devices_observe_plain(const struct context *context, const char *path,
                           struct observed_device *ret_device);
/* devices_refresh() for a volume that is on record. */
int devices_refresh_volume(const struct context *context, int64_t volume_id);

/* The device changed in some way: queues its volumes, and those that wait for a device. */
int devices_note_event(const struct context *context, uint32_t major, uint32_t minor);

/* Queues the other volumes on the same device, whose state may depend on this one's. */
int devices_queue_neighbours(const struct context *context, const struct store_volume *volume);

/* lower_devices_announce(): a SCSI device, given by its path below /sys, reported a capacity
 * change; queues its disks. lower_devices_note_announcement(): records it for one of these disks,
 * in a pass. */
void lower_devices_announce(const struct context *context, const char *devpath);
int lower_devices_note_announcement(const struct context *context, uint32_t major, uint32_t minor);

/* ---- what the host uses ---- */

/* Whether volumes can be decided upon. If not, a part of a large mount table was read, and the next
 * call reads the next part. */
bool devices_know_mounts(struct devices *devices);
/* A reading is under way: devices_know_mounts() is to be called even if no volume waits. */
bool devices_are_reading(const struct devices *devices);

/* Where the host has mounted the device, or which device of the host uses it; NULL if the host does
 * not use it. Of the mounts that are known. */
const char *devices_host_use(const struct devices *devices, uint32_t major, uint32_t minor);
/* The same at any time. Also not NULL while the mounts are not known; then the client asks again.
 */
const char *devices_host_use_for_client(struct devices *devices, uint32_t major, uint32_t minor);

/* Queues only devices whose use changed, because mounts come and go with every pod. */
void devices_compare_mounts(struct devices *devices);

/* The mounts have changed: compares them, in a while if they were compared just now. */
void devices_note_mounts(struct devices *devices);
void devices_forget_mounts(struct devices *devices);

/* Converts to the store's type; the name stays borrowed from `observed`. */
struct store_device device_to_record(const struct observed_device *observed);
/* Records it. Returns as store_put_device(). */
int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed);
