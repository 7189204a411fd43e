/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - block devices of the node: on the record, with their sizes, what they stand on, and
 * what of them the host uses.
 *
 * What is observed here goes to the store; the volumes that it touches are queued.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct context;
struct observed_device;
struct observed_mounts;
struct store_volume;

/* The fields are the module's own. */
struct devices {
    const struct context *context;
    struct observed_mounts *mounts; /* NULL: to be read before they are next needed */
};

void devices_done(struct devices *devices);

/* Outcomes of all: 0 or -errno of the store. */

/* Where the volume's path leads now, how large that is, and what it stands on; the row follows. */
int devices_refresh(const struct context *context, struct store_volume *volume);
/* Where a path leads, if that is to be had and stands on nothing else. */
bool devices_observe_plain(const struct context *context, const char *path,
                           struct observed_device *ret_device);
/* The same, of one that is on the record. */
int devices_refresh_volume(const struct context *context, int64_t volume_id);

/* The device changed in some way: its volumes are queued, and those that wait for one. */
int devices_note_event(const struct context *context, uint32_t major, uint32_t minor);

/* Queues the volumes that are on the same device, which may be touched by what becomes of this. */
int devices_queue_neighbours(const struct context *context, const struct store_volume *volume);

/* ---- lower_devices.c ---- */

/* What the device stands on; the row is read again if that changed. */
int lower_devices_refresh(const struct context *context, struct store_volume *volume,
                          const struct observed_device *device);

/* How many there are. */
unsigned lower_devices_count(const struct context *context, const struct observed_device *device);

/* A SCSI device, by its path below /sys, reported that its capacity changed: its disks are queued.
 * And one of these disks, in a pass. */
void lower_devices_announce(const struct context *context, const char *devpath);
int lower_devices_note_announcement(const struct context *context, uint32_t major, uint32_t minor);

/* ---- what the host uses ---- */

/* Where the host has mounted the device, or what stands on it; NULL nowhere. */
const char *devices_host_use(struct devices *devices, uint32_t major, uint32_t minor);

/* Mounts come and go with every pod, so only the devices whose use changed are queued. */
void devices_compare_mounts(struct devices *devices);
void devices_forget_mounts(struct devices *devices);
