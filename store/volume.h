/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - one volume, whole. */
#pragma once

#include <errno.h>

#include "model/reason.h"
#include "model/route.h"
#include "model/volume.h"
#include "store/bounds.h"
#include "store/entries.h"
#include "store/sandboxes.h"

/* Whether the VMM's list of drives has the volume's drive. */
enum store_list { STORE_LIST_UNREAD, STORE_LIST_HAS, STORE_LIST_LACKS };

/* Everything that is known about a volume, joined, for decide() and for the acts. Unknown text is
 * "", unknown numbers 0. */
struct store_volume {
    int64_t volume_id;
    enum store_status status;
    enum resize_policy policy;
    bool read_only; /* all of its directories say so */
    char key[STORE_KEY_BYTES];
    char pv[STORE_KEY_BYTES]; /* the PV's name; "" */
    char volume_type[STORE_NAME_BYTES];
    bool is_btrfs; /* which may have several devices */

    int64_t device_id; /* 0: missing */
    enum device_kind device_kind;
    uint32_t major, minor;
    uint64_t file_device, inode;
    uint64_t device_bytes;
    uint64_t size_since_ns; /* the device has had this size at least since then */
    bool device_announced;  /* it announced a new size, and still has the old one */
    bool has_layers;        /* layers are on record for it */
    unsigned layers_state;  /* the worst of theirs */
    int64_t shared_with; /* another volume with a live sandbox that leads to it too, unless both are
                            read-only; 0 none */
    int64_t shared_drive; /* a drive mount of it that a VMM may have, likewise; 0 none */

    unsigned live_sandboxes; /* alive, named by a file or claiming the volume or a part of it */
    /* If there is none: a live sandbox that may have it, and why that is not known; "" none. */
    char hiding[STORE_SANDBOX_ID_BYTES + 2 * STORE_TEXT_BYTES];
    bool bypassed;         /* one of them claims a part of it, and was not given the whole */
    char claim_source[32]; /* what says so: sandbox-file, api, bundle */

    int64_t sandbox_ref; /* 0 unless exactly one is alive, and has it whole */
    bool orphaned;       /* the VMM of one of them has outlived its shim */
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    uint64_t vmm_start_ns;
    char control_socket[STORE_ADDRESS_BYTES];
    char agent_address[STORE_ADDRESS_BYTES];
    char ability[GUEST_ROUTES][STORE_NAME_BYTES];

    /* What the sandbox's own records say about this device: its drive and where the guest has it.
     */
    char recorded_drive_id[STORE_NAME_BYTES];
    char recorded_guest_path[STORE_ADDRESS_BYTES];
    bool record_contradicts; /* it was given another device for this volume than this one */
    char recorded_file[STORE_NAME_BYTES]; /* which one, where it contradicts */
    enum store_carrier carrier;           /* what its containers have; ENDED: no container has it */
    bool is_recorded; /* a drive on record is this device, or given by this path */

    /* The open binding; 0 if none. */
    int64_t binding_id;
    int64_t binding_device_id;
    uint32_t binding_major, binding_minor; /* of its device, 0:0 for a file */
    int64_t binding_sandbox_ref;
    char drive_id[STORE_NAME_BYTES];
    char guest_path[STORE_ADDRESS_BYTES];
    char binding_source[32];
    uint64_t first_bytes;        /* device size when the binding began */
    uint64_t largest_bytes;      /* largest device size seen since */
    uint64_t hypervisor_bytes;   /* what the VMM said or acknowledged; 0 unknown */
    uint64_t guest_bytes;        /* the file system's own total, as the guest said; 0 unknown */
    uint64_t guest_synced_bytes; /* device size up to which the guest has been grown; 0 none */
    enum volume_reason hypervisor_reason;    /* why the last call failed; NONE */
    char hypervisor_error[STORE_TEXT_BYTES]; /* the same, in words */
    enum volume_reason guest_reason;
    bool guest_proven;    /* the last call had the guest grow the file system */
    uint64_t record;      /* the runtime's records under which the list was read; 0 none */
    enum store_list list; /* what the VMM's own list of drives said of this one */
    bool list_again;      /* it is to be read again */
    unsigned list_misses; /* how often in a row it was missing */
    char list_error[STORE_TEXT_BYTES]; /* why it had not, when it was read last; "" it had */
    unsigned undone;                   /* how often it was found with less than it had */
    bool obstacle_known;
    enum volume_reason obstacle; /* what keeps the VMM from resizing it */

    /* The file system is known to fill this device at this size. 0: not known. */
    int64_t filled_device_id;
    uint64_t filled_bytes;

    int64_t resize_id; /* the open resize; 0 */
    uint64_t resize_from_bytes, resize_to_bytes;

    enum volume_state state;
    enum volume_reason reason;
    bool has_unknown_words; /* on record stands a state or a reason of another version's */
    bool has_evidence;      /* store_set_evidence() */
    bool observed;          /* crustd may only watch it (store_set_observed()) */
    char resizable[STORE_NAME_BYTES]; /* "" */
    enum volume_reason resizable_reason;
    uint32_t attempts;        /* failed in a row */
    uint64_t next_attempt_ns; /* 0: none waits */

    /* Four fifths of the struct, and last, so that reading a volume need not clear them. */
    char target_path[STORE_TARGET_BYTES];
    char device_path[STORE_PATH_BYTES];
    char other_device_path[STORE_PATH_BYTES]; /* of another of its directories; "" the same */
    char device_name[STORE_PATH_BYTES];
};

/* Copies only as much of the paths as is in use. */
void store_volume_copy(struct store_volume *ret_copy, const struct store_volume *volume);

enum store_volume_outcome { STORE_NO_VOLUME = 1 /* there is none of that number */ };

/* 0, STORE_NO_VOLUME or an enum store_failure. Unless it is 0, *ret_volume is of no use. */
int store_get_volume(struct store *store, int64_t volume_id, struct store_volume *ret_volume);
/* Reads the volume of a row that is known to exist again. */
int store_reload_volume(struct store *store, struct store_volume *volume);
/* The same without the sandboxes, their records and the sharing of the device, which stay as they
 * are in `volume`. */
int store_get_volume_itself(struct store *store, struct store_volume *volume);
/* Reads name and size of its device again, which must be the same device as before. */
int store_get_volume_device(struct store *store, struct store_volume *volume);
