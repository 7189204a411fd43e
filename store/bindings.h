/* SPDX-License-Identifier: Apache-2.0 */
/* bindings.h - which sandbox has a volume, and what its VMM and its guest answered. */
#pragma once

#include "store/bounds.h"
#include "store/volumes.h"

struct store_binding {
    int64_t volume_id, sandbox_ref, device_id;
    const char *drive_id, *guest_path; /* NULL unknown */
    const char *source;                /* sandbox-file, persist, bundle */
    uint64_t device_bytes;
    uint64_t guest_synced_bytes; /* that the file system is known to fill; 0 not known */
    uint64_t record;             /* of the runtime's records, for comparison */
};

/* Closes the volume's open binding, if any, and opens this one. Clears attempts. An open resize
 * without a sandbox becomes this sandbox's. */
int store_open_binding(struct store *store, const struct store_binding *binding);
/* Whether it is still its volume's open one. */
int store_is_binding_open(struct store *store, int64_t binding_id, bool *ret_open);
/* Better facts about the open binding: drive and guest path (NULL keeps). */
int store_describe_binding(struct store *store, int64_t volume_id, const char *drive_id,
                           const char *guest_path, const char *source);
int store_close_binding(struct store *store, int64_t volume_id);
/* The runtime's records about the volume have changed: the VMM's list has to be read again, and the
 * next attempt does not wait. */
int store_renew_record(struct store *store, int64_t volume_id, uint64_t record);
/* On request: the VMM's list is read again, for this volume or (0) for all. */
int store_want_list(struct store *store, int64_t volume_id);
/* One in `turns`, and those of volumes that were resized since then. */
int store_want_lists_in_turn(struct store *store, unsigned turn, unsigned turns,
                             int64_t resized_since_ms);
/* The device of an open binding was seen with this size: raises largest_bytes. */
int store_note_size(struct store *store, int64_t volume_id, uint64_t device_bytes);

/* The hypervisor's answer. bytes 0: not learned. reason NONE: success. told: the drive was resized
 * (not only queried), so that hypervisor_at is set. */
struct store_hypervisor_result {
    int64_t volume_id;
    const char *sandbox_id, *device; /* for the journal; NULL: they are looked up */
    enum volume_reason reason;
    const char *error;
    const char *drive_id;   /* NULL keeps; where none was known its source is `hypervisor` */
    const char *guest_path; /* a disk's address, where no path is known; NULL keeps */
    uint64_t bytes;
    bool told;
    bool undone;          /* it had more, which its device still has */
    uint64_t record;      /* the records that the list was read under */
    enum store_list list; /* UNREAD: it was not read. LACKS: only what is on record remains known */
    const char *recorded_drive, *recorded_guest_path;
    bool obstacle_known;         /* else what is on record stays */
    enum volume_reason obstacle; /* what would keep a resize from working */
};
int store_put_hypervisor_result(struct store *store, const struct store_hypervisor_result *result);

struct store_guest_result {
    int64_t volume_id;
    const char *sandbox_id, *device; /* as above */
    enum volume_reason reason;
    const char *error;
    uint64_t synced_bytes; /* device size the guest was grown to; 0: it was not */
    uint64_t guest_bytes;  /* 0: not said */
};
int store_put_guest_result(struct store *store, const struct store_guest_result *result);

/* ---- guest stats ---------------------------------------------------------------------------- */

/* What a guest says of a volume's file system when it is polled. */

/* A guest's answer to a poll. Only a change of the condition is journaled; a first condition that
 * is normal is none. */
struct store_guest_stats {
    /* The binding that was asked. Nothing is written unless it is still open and the volume is
     * neither bypassed nor detached, because the guest would then have something else at that
     * place. */
    int64_t binding_id;
    bool has_bytes;
    uint64_t total, used, available;
    bool abnormal;
    const char *message; /* of the condition; NULL or "" none */
    /* Since the guest was read, at the most; what is older than the last answer is dropped. */
    int64_t age_ms;
};
/* ret_changed: the condition did, and the change is journaled. */
int store_put_guest_stats(struct store *store, int64_t volume_id,
                          const struct store_guest_stats *stats, bool *ret_changed);
/* The guest did not answer: counted, up to a bound, until it does. Its last answer stays. */
int store_note_guest_silent(struct store *store, int64_t volume_id);

/* Every volume that is in a sandbox, with the number of polls in a row that its guest did not
 * answer. The callback must not write. */
typedef int store_guest_callback(void *userdata, int64_t volume_id, int64_t binding_id,
                                 uint32_t failures);
int store_each_guest(struct store *store, store_guest_callback *callback, void *userdata);
