/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.h - metadata directories, the volumes that they make, and which sandbox has them. */
#pragma once

#include "model/reason.h"
#include "model/sandbox.h"
#include "model/volume.h"
#include "store/bounds.h"
#include "store/sandboxes.h"

struct store_device;

enum store_status { STORE_PRESENT, STORE_INVALID, STORE_QUARANTINED, STORE_REMOVED };

enum store_flag { STORE_UNSAID, STORE_NO, STORE_YES };

enum { STORE_ENTRY_SANDBOXES = 16 };

/* One metadata directory as it was read. `problem` set: it did not read well; then the volume keeps
 * its last good columns, becomes `invalid`, and only key, target_path and the sandboxes count. */
struct store_entry {
    enum volume_layout layout;
    const char *key;         /* the directory's name; of a raw block claim block:SHA256 */
    const char *target_path; /* NULL: name hides it (sha256) or does not decode */
    const char *problem;     /* NULL: fine */
    uint64_t directory_device, directory_inode;
    int64_t directory_born_ns; /* birth time, 0 unknown */
    const char *mount_info_sha256;
    const char *volume_type, *device, *fs_type; /* device as written */
    const char *options, *metadata;             /* JSON, secrets redacted already */
    enum resize_policy policy;
    bool read_only;         /* by its mount options */
    bool grows_file_system; /* the guest has a file system on it that is to be grown */
    const char *pv, *pod_uid, *driver, *volume_handle; /* NULL unknown */
    enum store_flag defer_fs_mount;
    const char *subpaths; /* directory below which parts of the volume would be bound; or NULL */
    const char *remark;   /* shown as its problem while it has none; NULL */
    unsigned sandboxes;
    const char *sandbox[STORE_ENTRY_SANDBOXES]; /* names of its sandbox-id files */
    const struct store_device *leads_to;        /* where `device` leads, if it was looked at */
};

/* A flood of directories fills the store only up to a bound. */
enum { STORE_VOLUMES = 16384 };

enum store_put {
    STORE_PUT,
    STORE_TOO_MANY, /* a new volume, and there are STORE_VOLUMES already: nothing was written */
};

/* One read finds an entry that is as it was, on the device that it was on; a volume that nothing is
 * known of is put on its device as it is made. Its state is unknown/none until store_set_state(). A
 * directory of another identity under a known name ends the old volume and begins a new one. */
struct store_entry_put {
    int64_t volume_id;
    bool changed;
    bool is_on; /* it is on that device, which has its recorded size and stands on nothing */
};
int store_put_entry_on_device(struct store *store, const struct store_entry *entry,
                              struct store_entry_put *ret_put);

/* The directory is gone: a volume without any entry left becomes `removed`. ret_volume_id 0 if the
 * entry was not known. */
int store_remove_entry(struct store *store, enum volume_layout layout, const char *key,
                       int64_t *ret_volume_id);

/* The key of a raw block claim that no live sandbox has any more; "" none. As long as one of them
 * cannot be read, it may have any of them. */
int store_find_unclaimed(struct store *store, char ret_key[static STORE_KEY_BYTES]);

/* The live sandbox that still has a volume whose metadata is gone; "": none. */
int store_find_unstaged(struct store *store, int64_t volume_id,
                        char ret_sandbox_id[static STORE_SANDBOX_ID_BYTES]);

/* A client named the sandbox of the volume: the sandbox-id file stands for that. */
int store_note_published(struct store *store, int64_t volume_id, const char *sandbox_id);

/* The live volume of this target path. ret_volume_id 0: none. */
int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id);

/* Every known entry of a layout, for the difference against a scan; young: the youngest ones of
 * kubelet volumes, STORE_YOUNG at most. The callback must not write. */
enum { STORE_YOUNG = 64 };
int store_each_entry(struct store *store, enum volume_layout layout, bool young,
                     int (*callback)(void *userdata, const char *key), void *userdata);

/* The name of its persistent volume, also of a removed one; "" if none is known. 0 or -errno. */
int store_get_pv(struct store *store, int64_t volume_id, char ret_pv[static STORE_KEY_BYTES]);

/* ---- one volume, whole ----------------------------------------------------------------------- */

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
    bool is_btrfs;          /* which may have several devices */
    bool is_block_claim;    /* a raw block claim, which has no metadata */
    bool grows_file_system; /* the guest has a file system on it that is to be grown */

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
    bool bypassed; /* one of them claims a part of it, and was not given the whole */
    bool orphaned; /* the VMM of one of them has outlived its shim */

    /* Of the sandbox, if exactly one is alive and has it whole; down to `carrier`. */
    int64_t sandbox_ref;
    char claim_source[32]; /* what says so: sandbox-file, api, bundle */
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

/* ---- volume state --------------------------------------------------------------------------- */

/* The only place that changes a volume's state. Journals "old -> new"; an open resize follows; one
 * that is in_sync, unmanaged or whose volume is removed is finished. The row follows. ret_changed
 * may be NULL. */
int store_set_state(struct store *store, struct store_volume *volume, enum volume_state state,
                    enum volume_reason reason, bool *ret_changed);

/* Whether crustd may only watch the volume's resizes: it then never counts as stalled or pending.
 */
int store_set_observed(struct store *store, int64_t volume_id, bool observed);

/* Whether a resize would reach the volume's file system: yes, no, unknown; NULL: nobody uses it.
 * reason: why not, or what was not seen. Journaled where it is or was "no".
 * ret_changed may be NULL. */
int store_set_resizable(struct store *store, const struct store_volume *volume,
                        const char *resizable, enum volume_reason reason, bool *ret_changed);

/* The evidence for why the volume is blocked; "" none. The row follows. */
int store_set_evidence(struct store *store, struct store_volume *volume, const char *evidence);

/* When it is tried again; next_attempt_ns 0: not until something changes. */
int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms);

/* Whether a next attempt is set that no failed one came before. */
bool store_awaits_stillness(struct store *store);

/* An operator asked for a resync: every waiting volume may try at once, by every route. The result
 * of the last attempt stays until the next one ends. */
int store_forget_waiting(struct store *store);
/* The same for the volumes bound to one sandbox, about which something changed. */
int store_forget_waiting_of(struct store *store, int64_t sandbox_ref);

/* ---- volume lists --------------------------------------------------------------------------- */

/* Which volumes an event concerns: those that are not removed and … */
enum store_volumes {
    STORE_VOLUMES_ALL,
    STORE_VOLUMES_OF_DEVICE,    /* whose path leads to this major:minor, or to what stands on it */
    STORE_VOLUMES_OF_FILE,      /* … to the regular file of this file_device and inode */
    STORE_VOLUMES_OF_DEVICE_ID, /* … to the device of this row */
    STORE_VOLUMES_BESIDE,       /* … to the device of the one whose directory has this name */
    STORE_VOLUMES_OF_SANDBOX,   /* whose directory names it, that is bound to or claimed by it */
    STORE_VOLUMES_BYPASSED,     /* that its containers mount something within, or any bypassed */
    STORE_VOLUMES_BOUND,        /* for the sweep: in a live sandbox, or in conflict about one */
    STORE_VOLUMES_WITHOUT_DEVICE, /* that are present, and lead to no device */
    STORE_VOLUMES_DUE,            /* whose next attempt is due at this time */
};

struct store_search {
    enum store_volumes of;
    const char *name; /* of a directory or a sandbox */
    uint32_t major, minor;
    uint64_t file_device, inode;
    int64_t device_id;
    uint64_t time_ns;
};

/* Must not write, nor start the walk that it is called from. Returning non-zero ends the walk and
 * is what it returns. */
typedef int store_volume_callback(void *userdata, int64_t volume_id);
int store_each_volume(struct store *store, const struct store_search *search,
                      store_volume_callback *callback, void *userdata);
#define STORE_SEARCH(which, ...)                                                                   \
    (&(const struct store_search){.of = STORE_VOLUMES_##which, ##__VA_ARGS__})

/* File systems, as metadata names them, that a guest has told the size of. The callback must not
 * write; returning non-zero ends the walk. */
int store_each_mounted_file_system(struct store *store,
                                   int (*callback)(void *userdata, const char *fs_type),
                                   void *userdata);

/* The earliest next attempt after that time; UINT64_MAX if there is none. */
int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns);

/* ---- resizes -------------------------------------------------------------------------------- */

/* Opens a resize or raises to_bytes of the open one (which also clears attempts and reasons). The
 * row follows. */
int store_open_resize(struct store *store, struct store_volume *volume, uint64_t from_bytes,
                      uint64_t to_bytes);

/* The device's size up to which the last guest that had the volume was grown; 0: not known, or the
 * volume is on another device now. */
int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes);

/* An act (by decide's name) is about to run: journaled as <act>_intended and counted in the open
 * resize. */
int store_intend(struct store *store, const struct store_volume *volume, const char *act);

/* ---- unresolved names ----------------------------------------------------------------------- */

/* A SHA-256 name is a volume of its own until its path is known. Every path that could be its own
 * is given to store_learn_path(), which compares the hash. */

/* Whether any live volume has an unresolved name. */
int store_has_unresolved(struct store *store, bool *ret_has);

/* The path that any volume, of whatever time, is known to have had under this hash; "" if none. */
int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES]);

/* If the path's hash is the name of a live volume whose path is not known, records the path;
 * `source` goes to the journal. ret_volume_id 0: no volume has that name. ret_key gets the name. */
int store_learn_path(struct store *store, const char *path, const char *source,
                     char ret_key[static STORE_KEY_BYTES], int64_t *ret_volume_id);

/* Paths that live sandboxes claim, each once and in their order, from the first one after `after`;
 * a bounded number per call. The callback must not put sandboxes. */
int store_each_claimed_path(struct store *store, const char *after,
                            int (*callback)(void *userdata, const char *path), void *userdata);

/* ---- bindings -------------------------------------------------------------------------------- */

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
bool store_is_binding_open(struct store *store, int64_t binding_id);
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

/* What a guest says of a volume's file system when it is polled. Only a change of the condition is
 * journaled; a first condition that is normal is none. */
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
