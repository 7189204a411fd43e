/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the model: what crustd believes, in SQLite.
 *
 * The daemon is the only writer and holds no second copy of this in memory. The caller brackets
 * each turn of the loop with store_begin() and store_commit(); every other function runs inside
 * such a transaction, except where it says otherwise. An equal fact writes nothing, and whoever
 * puts a fact learns whether anything changed. Each change appends its row to the journal by
 * itself.
 *
 * Errors: negative errno only (SQLITE_FULL -ENOSPC, IOERR -EIO, CORRUPT/NOTADB -EUCLEAN, BUSY
 * -EBUSY, NOMEM -ENOMEM); store_error_text() has SQLite's own words. After an error inside a
 * transaction the caller rolls back and tries the turn again.
 *
 * Times passed in and out are milliseconds since 1970 UTC, for people; *_ns are CLOCK_BOOTTIME and
 * mean something only within the boot whose id the store was opened with.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/result.h"
#include "model/hypervisor.h"
#include "model/reason.h"
#include "model/route.h"
#include "model/runtime.h"
#include "model/volume.h"

struct store;

enum {
    STORE_SCHEMA_VERSION = 1,  /* the major version; minor ones: schema.h */
    STORE_PATH_BYTES = 4096,   /* a device as written in mountInfo.json */
    STORE_TARGET_BYTES = 4096, /* a volume path; in Kata's layout it has at most 189 bytes */
    STORE_KEY_BYTES = 256,     /* a directory's name */
    STORE_SANDBOX_ID_BYTES = 129,
    STORE_NAME_BYTES = 128,    /* kernel device names, drive ids */
    STORE_ADDRESS_BYTES = 384, /* sockets, agent addresses, guest paths */
    STORE_TEXT_BYTES = 256,    /* problems and errors */
};

/* ---- opening ---------------------------------------------------------------------------- */

/* Outcomes of store_open(). */
enum {
    STORE_OPENED,
    STORE_FOREIGN, /* another application's database: never touched */
    STORE_NEWER,   /* a newer major version than this program's: never touched */
};

struct store_options {
    const char *path; /* NULL: in memory, and there from the beginning */
    const char *boot_id;
    uint32_t keep_days; /* history bounds */
    uint32_t max_rows;
    struct store_opening *ret_opening; /* may be NULL */
};

/* A database whose minor version was brought up to this program's. */
struct schema_upgrade {
    bool upgraded;
    int64_t from_minor;
    uint64_t redacted; /* rows that held a secret */
    bool leftovers;    /* secrets may still stand in free pages: the next opening tries again */
};

struct store_opening {
    bool rebuilt;   /* it was corrupt: renamed to PATH.corrupt-N (two are kept) and begun anew */
    bool set_aside; /* there are such files */
    struct schema_upgrade upgrade;
};

/* Creates (0640, its directory must exist), migrates and checks the database. STORE_* or -errno.
 * Rows of another boot become history: their sandboxes are gone, their mappings closed. */
int store_open(const struct store_options *options, struct store **ret_store, struct error *error);
void store_close(struct store *store); /* checkpoints */
const char *store_error_text(const struct store *store);

int store_begin(struct store *store);
int store_commit(struct store *store); /* synchronous=NORMAL */
/* Synced to disk: before a removal or a promise. In memory there is no disk: see
 * store_is_degraded(). */
int store_commit_durable(struct store *store);
/* The second half of that, for several commits at once: what is committed is synced to disk. */
int store_sync(struct store *store);
void store_rollback(struct store *store);

/* Outside a transaction, when the daemon has nothing else to do: moves the WAL into the database if
 * it has grown past a bound, so that a slow disk never stands in a growth's way. */
int store_idle(struct store *store);

/* Outside a transaction, after each turn: the same for a daemon that is never idle, once the WAL is
 * very large; at_leisure: while no answer is waited for. Without leisure only at twice that size.
 */
int store_contain(struct store *store, bool at_leisure);

/* Trims history to its bounds, a bounded number of rows at a time. Outcome 1: there is more. */
int store_trim(struct store *store);

/* ---- when the file fails ---------------------------------------------------------------- */

/* Outside a transaction and any walk. Ids of before mean nothing afterwards, unless said so. */

/* Closes the file and goes on in memory, with nothing in it. On an error nothing has changed. */
int store_fall_back(struct store *store, struct error *error);

/* From memory to the file at path, as store_open() would open it; its journal says since when
 * history is missing, and why. Outcomes as store_open(); unless STORE_OPENED, memory is left as it
 * is. ret_same: it is the file that was left, and nothing was committed meanwhile, so that its ids
 * hold and nothing is missing. */
int store_return(struct store *store, const char *path, const char *why, bool *ret_same,
                 struct error *error);

bool store_is_in_memory(const struct store *store);

/* 0, or -ENOENT/-ESTALE when the file was removed or replaced under the daemon, -EUCLEAN when its
 * header is not ours any more, -EIO. In memory there is no file to be missed. */
int store_check_file(const struct store *store);

/* What is committed now, no later daemon will find: the store is in memory, or its file was removed
 * or replaced. Asked right before anything of the node is removed, which then is not. */
bool store_is_degraded(const struct store *store);

/* ---- metadata directories and volumes --------------------------------------------------- */

enum store_status { STORE_PRESENT, STORE_INVALID, STORE_QUARANTINED, STORE_REMOVED };

enum store_flag { STORE_UNSAID, STORE_NO, STORE_YES };

enum { STORE_ENTRY_SANDBOXES = 16 };

/* One metadata directory as it was read. `problem` set: it did not read well; then the volume keeps
 * its last good columns, becomes `invalid`, and only key, target_path and the sandboxes count. */
struct store_entry {
    enum volume_layout layout;
    const char *key;         /* the directory's name */
    const char *target_path; /* NULL: name hides it (sha256) or does not decode */
    const char *problem;     /* NULL: fine */
    uint64_t directory_device, directory_inode;
    int64_t directory_born_ns; /* birth time, 0 unknown */
    const char *mount_info_sha256;
    const char *volume_type, *device, *fs_type; /* device as written */
    const char *options, *metadata;             /* JSON, secrets redacted already */
    enum resize_policy policy;
    bool read_only;                                    /* by its mount options */
    const char *pv, *pod_uid, *driver, *volume_handle; /* NULL unknown */
    enum store_flag defer_fs_mount;
    const char *subpaths; /* directory below which parts of the volume would be bound; or NULL */
    const char *remark;   /* shown as its problem while it has none; NULL */
    unsigned sandboxes;
    const char *sandbox[STORE_ENTRY_SANDBOXES]; /* names of its sandbox-id files */
};

/* A new volume's state is unknown/none until store_set_state(). A directory of another identity
 * under a known name ends the old volume and begins a new one. */
/* A flood of directories fills the store up to a bound and no further. */
enum { STORE_VOLUMES = 16384 };

/* Outcomes of store_put_entry(). */
enum {
    STORE_PUT,
    STORE_TOO_MANY, /* a new volume, and there are STORE_VOLUMES already: nothing was written */
};

int store_put_entry(struct store *store, const struct store_entry *entry, int64_t *ret_volume_id,
                    bool *ret_changed);

/* The directory is gone: a volume without any entry left becomes `removed`. ret_volume_id 0 if the
 * entry was not known. */
int store_remove_entry(struct store *store, enum volume_layout layout, const char *key,
                       int64_t *ret_volume_id);

/* A client said that the volume is this sandbox's: its sandbox-id file stands for that word. */
int store_note_published(struct store *store, int64_t volume_id, const char *sandbox_id);

/* The live volume of this target path. ret_volume_id 0: none. */
int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id);

/* Every known entry of a layout, for the difference against a scan. The callback must not write. */
int store_each_entry(struct store *store, enum volume_layout layout,
                     int (*callback)(void *userdata, const char *key), void *userdata);

/* The youngest ones that stand for a volume of the kubelet's, STORE_YOUNG at most. */
enum { STORE_YOUNG = 64 };
int store_each_young_entry(struct store *store, enum volume_layout layout,
                           int (*callback)(void *userdata, const char *key), void *userdata);

/* ---- names that hide their path --------------------------------------------------------- */

/* A sha256 name is a volume of its own until its path is known. Whatever could be the path is
 * shown to store_learn_path(), which finds by its hash whether it is. */

/* Whether any live volume's path is hidden by its name. */
int store_has_hidden(struct store *store, bool *ret_has);

/* The path that any volume, of whatever time, is known to have had under this hash; "" if none. */
int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES]);

/* If the path's hash is the name of a live volume whose path is not known, it is now; `source` goes
 * to the journal. ret_volume_id 0: it is nobody's. ret_key gets the name. */
int store_learn_path(struct store *store, const char *path, const char *source,
                     char ret_key[static STORE_KEY_BYTES], int64_t *ret_volume_id);

/* Paths that live sandboxes claim, each once and in their order, from the first one after `after`;
 * a bounded number per call. The callback must not put sandboxes. */
int store_each_claimed_path(struct store *store, const char *after,
                            int (*callback)(void *userdata, const char *path), void *userdata);

/* ---- devices ---------------------------------------------------------------------------- */

struct store_device {
    enum device_kind kind;
    const char *name;            /* /dev/loop0, or the file's path */
    uint32_t major, minor;       /* block */
    uint64_t diskseq;            /* block; 0 unknown */
    uint64_t file_device, inode; /* file: st_dev and st_ino */
    uint64_t size_bytes;
    uint64_t now_ns;
};

/* Identity is (kind, major, minor, diskseq) or (kind, file_device, inode) within this boot; a new
 * identity is a new row. */
int store_put_device(struct store *store, const struct store_device *device, int64_t *ret_device_id,
                     bool *ret_changed);

/* A disk says that it has grown, and its size is the old one until it is rescanned. That may be
 * told along with the new size, so a size that changed after since_ns is taken for what it means,
 * but not the size that it was first seen with. A
 * new size, or store_forget_announcements(), ends it. ret_changed: it is news. */
int store_announce_growth(struct store *store, int64_t device_id, uint64_t since_ns,
                          bool *ret_changed);
int store_is_announced(struct store *store, int64_t device_id, bool *ret_announced);
int store_forget_announcements(struct store *store);

struct store_disk {
    int64_t device_id;
    char name[STORE_NAME_BYTES];
    uint32_t major, minor;
    uint64_t diskseq, size_bytes;
};
/* Outcomes 1: a disk that announced growth, which the device is or stands on and whose last rescan
 * is not younger than that; 0: there is none. */
int store_find_announced(struct store *store, int64_t device_id, uint64_t before_ns,
                         struct store_disk *ret_disk);
/* It is about to be rescanned: journaled as rescan_disk_intended. */
int store_intend_rescan(struct store *store, int64_t volume_id, const struct store_disk *disk,
                        uint64_t now_ns);
/* It was, and has so many bytes now. error "": that answers the announcement. */
int store_put_rescan_result(struct store *store, int64_t volume_id, const struct store_disk *disk,
                            uint64_t bytes, const char *error);

/* What a device stands on, itself first. */
enum { STORE_LAYERS = 32 };
struct store_layer {
    int64_t layer_id; /* a device */
    unsigned above;   /* position of what stands on it */
    const char *kind; /* static */
    char label[STORE_NAME_BYTES];
    uint64_t base_bytes, above_bytes; /* its size and that of the one above, when last in step */
    unsigned state;                   /* 0 in step, 1 pending, 2 stale: the worst is the device's */
    char remedy[STORE_TEXT_BYTES];    /* a command; "" */
};
/* What was put last; `kind` stays NULL. */
int store_get_layers(struct store *store, int64_t device_id,
                     struct store_layer ret_layer[static STORE_LAYERS], unsigned *ret_layers);
int store_put_layers(struct store *store, int64_t device_id, const struct store_layer *layer,
                     unsigned layers);

/* Which device a volume's path leads to now; 0: none. */
int store_set_volume_device(struct store *store, int64_t volume_id, int64_t device_id,
                            bool *ret_changed);

/* ---- sandboxes -------------------------------------------------------------------------- */

struct store_drive {
    const char *mount_source; /* persist.json's Mounts[].Source; NULL unknown */
    const char *file;         /* BlockDrive.File */
    int64_t major, minor;     /* -1: a regular file */
    const char *drive_id;     /* BlockDrive.ID */
    const char *guest_path;   /* NULL: not derivable */
};

/* What a container has in the place of a path that it mounts, as its runtime recorded it. */
enum store_carrier {
    STORE_CARRIER_ENDED,
    STORE_CARRIER_UNKNOWN,
    STORE_CARRIER_DIRECTORY,
    STORE_CARRIER_DEVICE,
};

/* A volume path that the sandbox's own records name. */
struct store_claim {
    const char *path;
    const char *source;     /* bundle, persist */
    const char *guest_path; /* NULL unknown */
    enum store_carrier carrier;
    int64_t drive; /* which of the sandbox's drives carries it; -1 unknown */
};

struct store_sandbox {
    const char *sandbox_id;
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    uint64_t vmm_start_ns;      /* when the VMM started, CLOCK_BOOTTIME */
    const char *control_socket; /* NULL: no monitor that crustd may use */
    const char *agent_address;  /* NULL unknown */
    const char *pod_namespace, *pod_name;
    unsigned drives;
    const struct store_drive *drive;
    unsigned claims;
    const struct store_claim *claim; /* no path twice */
};

/* A live sandbox. Identity is (id, VMM pid, start time): another VMM under the same id ends the old
 * row. A changed monitor or agent address forgets what the sandbox was remembered to be unable to.
 */
int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox,
                      int64_t *ret_sandbox_ref, bool *ret_changed);

/* No process of it is left. Closes its mappings. ret_changed false if it was not alive. */
int store_end_sandbox(struct store *store, const char *sandbox_id, bool *ret_changed);

int store_each_live_sandbox(struct store *store,
                            int (*callback)(void *userdata, const char *sandbox_id, pid_t vmm_pid),
                            void *userdata);

/* Where the agent listens, as the sandbox itself said. It stays while the records do not say. */
int store_set_agent_address(struct store *store, int64_t sandbox_ref, const char *address);

/* The VMM's version, as it said itself. */
int store_set_vmm_version(struct store *store, int64_t sandbox_ref, const char *version);

/* What a route into a guest turned out to be able to do: "", ROUTE_ABLE, or a reason. */
int store_set_ability(struct store *store, int64_t sandbox_ref, enum guest_route route,
                      const char *ability);

/* ---- helpers in guests ------------------------------------------------------------------ */

enum { STORE_HELPER_BYTES = 32 };

/* A helper that may be in a guest: its container and its directory have one name. */
struct store_helper_run {
    char name[STORE_HELPER_BYTES]; /* "" where a sandbox alone is meant */
    int64_t sandbox_ref;
    bool is_alive; /* the sandbox */
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    char control_socket[STORE_ADDRESS_BYTES];
    char agent_address[STORE_ADDRESS_BYTES];
};

/* Before anything of it is made; grows: it changes something, and is journaled. */
int store_put_helper_run(struct store *store, int64_t sandbox_ref, const char *name, bool grows);
/* Nothing of it is left. */
int store_forget_helper_run(struct store *store, const char *name);
/* What an earlier daemon had left of it was removed: a journal line alone. */
int store_note_helper_removed(struct store *store, int64_t sandbox_ref, const char *name);

/* Those that may be left, and all live sandboxes. The callback must not write; returning non-zero
 * ends the walk. */
typedef int store_helper_callback(void *userdata, const struct store_helper_run *run);
/* One sandbox, of whatever time; ret_run's sandbox_ref is 0 if it is not known any more. */
int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run);
int store_each_helper_run(struct store *store, store_helper_callback *callback, void *userdata);
int store_each_helper_sandbox(struct store *store, store_helper_callback *callback, void *userdata);

/* ---- who else is touched ---------------------------------------------------------------- */

/* Must not write, nor start the walk that it is called from. Returning non-zero ends the walk and
 * is what it returns. */
typedef int store_volume_callback(void *userdata, int64_t volume_id);

/* Volumes whose path leads to a device with this number or to one that stands on it, or whose
 * directory names this sandbox (or is bound to it, or is claimed by it), or all that are not
 * removed, or whose next attempt is due.
 */
int store_each_volume_of_device(struct store *store, uint32_t major, uint32_t minor,
                                store_volume_callback *callback, void *userdata);
int store_each_volume_of_device_id(struct store *store, int64_t device_id,
                                   store_volume_callback *callback, void *userdata);
/* Other volumes on the device of the one whose directory has this name. */
int store_each_volume_beside(struct store *store, const char *key, store_volume_callback *callback,
                             void *userdata);
int store_each_volume_of_sandbox(struct store *store, const char *sandbox_id,
                                 store_volume_callback *callback, void *userdata);
/* One of these, other than this volume, whose own metadata forbids to resize it. Outcome 1: there
 * is one, and ret_path and ret_policy say which and how; 0: there is none. */
int store_find_forbidding(struct store *store, const char *sandbox_id, int64_t volume_id,
                          char ret_path[static STORE_TARGET_BYTES], enum resize_policy *ret_policy);
/* Volumes that the sandbox's containers mount something within, and those that were last seen
 * bypassed by any. */
int store_each_bypassed_volume(struct store *store, const char *sandbox_id,
                               store_volume_callback *callback, void *userdata);
int store_each_volume(struct store *store, store_volume_callback *callback, void *userdata);
/* For the sweep: volumes with a live sandbox, or kept from it; and present ones whose path leads
 * nowhere. */
int store_each_bound_volume(struct store *store, store_volume_callback *callback, void *userdata);
int store_each_volume_without_device(struct store *store, store_volume_callback *callback,
                                     void *userdata);
int store_each_volume_due(struct store *store, uint64_t now_ns, store_volume_callback *callback,
                          void *userdata);

/* File systems, as metadata names them, that a guest has told the size of. The callback must not
 * write; returning non-zero ends the walk. */
int store_each_mounted_file_system(struct store *store,
                                   int (*callback)(void *userdata, const char *fs_type),
                                   void *userdata);

/* The earliest next attempt after that time; UINT64_MAX if there is none. */
int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns);

/* ---- one volume, whole ------------------------------------------------------------------ */

/* The name of its persistent volume, also of a removed one; "" if none is known. 0 or -errno. */
int store_get_pv(struct store *store, int64_t volume_id, char ret_pv[static STORE_KEY_BYTES]);

/* Whether the VMM's own list of drives has the volume's. */
enum store_list { STORE_LIST_UNREAD, STORE_LIST_HAS, STORE_LIST_LACKS };

/* Everything that is known about a volume, joined: what decide() needs and what an act needs.
 * Unknown text is "", unknown numbers 0. */
struct store_volume {
    int64_t volume_id;
    enum store_status status;
    enum resize_policy policy;
    bool read_only; /* all of its directories say so */
    char key[STORE_KEY_BYTES];
    char volume_type[STORE_NAME_BYTES];

    int64_t device_id; /* 0: missing */
    enum device_kind device_kind;
    uint32_t major, minor;
    uint64_t diskseq, file_device, inode;
    uint64_t device_bytes;
    uint64_t size_since_ns; /* the device has had this size at least since then */
    bool size_changed;      /* and had another one when it was first seen */
    bool device_announced;  /* it said that it grew, and has not yet */
    bool has_layers;        /* layers are on record for it */
    unsigned layers_state;  /* the worst of theirs */
    int64_t shared_with; /* another volume with a live sandbox that leads to it too, unless both are
                            read-only; 0 none */

    unsigned named_sandboxes; /* sandbox-id files */
    unsigned live_sandboxes;  /* alive, named by a file or claiming the volume or a part of it */
    bool bypassed;            /* one of them claims a part of it, and was not given the whole */
    char binding_source[32];  /* what says so: sandbox-file, api, bundle */

    int64_t sandbox_ref; /* 0 unless exactly one is alive, and has it whole */
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

    /* The open mapping; 0 if none. */
    int64_t mapping_id;
    int64_t mapping_device_id;
    uint32_t mapping_major, mapping_minor; /* of the mapping's device, 0:0 for a file */
    int64_t mapping_sandbox_ref;
    char drive_id[STORE_NAME_BYTES];
    char guest_path[STORE_ADDRESS_BYTES];
    char mapping_source[32];
    uint64_t first_bytes;        /* device size when the mapping began */
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
    bool obstacle_known;
    enum volume_reason obstacle;       /* what keeps the VMM from resizing it */
    char list_doubt[STORE_TEXT_BYTES]; /* it has the drive among others; which is not known; "" */

    /* The file system is known to fill this device at this size. 0: not known. */
    int64_t filled_device_id;
    uint64_t filled_bytes;

    int64_t resize_id; /* the open growth; 0 */
    uint64_t resize_from_bytes, resize_to_bytes;

    enum volume_state state;
    enum volume_reason reason;
    bool observed;                    /* crustd may only watch it (store_set_observed()) */
    char resizable[STORE_NAME_BYTES]; /* "" */
    enum volume_reason resizable_reason;
    uint32_t attempts;        /* failed in a row */
    uint64_t next_attempt_ns; /* 0: none waits */

    /* Four fifths of the whole, and last, so that a read of a volume need not clear them. */
    char target_path[STORE_TARGET_BYTES];
    char device_path[STORE_PATH_BYTES];
    char other_device_path[STORE_PATH_BYTES]; /* of another of its directories; "" the same */
    char device_name[STORE_PATH_BYTES];
};

/* Where it fails, *ret_volume is of no use. */
int store_get_volume(struct store *store, int64_t volume_id, struct store_volume *ret_volume);
/* Of volume->volume_id: everything but the sandboxes, their records and who shares the device,
 * which stay as they are in `volume`. */
int store_get_volume_itself(struct store *store, struct store_volume *volume);

/* ---- bindings and results --------------------------------------------------------------- */

struct store_mapping {
    int64_t volume_id, sandbox_ref, device_id;
    const char *drive_id, *guest_path; /* NULL unknown */
    const char *source;                /* sandbox-file, persist, bundle */
    uint64_t device_bytes;
    uint64_t guest_synced_bytes; /* that the file system is known to fill; 0 not known */
    uint64_t record;             /* of the runtime's records, for comparison */
};

/* Closes the volume's open mapping, if any, and opens this one. Clears attempts. An open growth
 * that was nobody's yet is this sandbox's. */
int store_open_mapping(struct store *store, const struct store_mapping *mapping);
/* Whether it is still its volume's open one. */
int store_is_mapping_open(struct store *store, int64_t mapping_id, bool *ret_open);
/* Better facts about the open mapping: drive and guest path (NULL keeps). */
int store_describe_mapping(struct store *store, int64_t volume_id, const char *drive_id,
                           const char *guest_path, const char *source);
int store_close_mapping(struct store *store, int64_t volume_id);
/* The runtime's records about the volume have changed: what the VMM's list said before is not
 * known any more, nor does the next attempt wait. */
int store_renew_record(struct store *store, int64_t volume_id, uint64_t record);
/* Somebody asks: the VMM's list is read again, for this volume or (0) for all. */
int store_want_list(struct store *store, int64_t volume_id);
/* The same for the other volumes of a sandbox. */
int store_want_lists_beside(struct store *store, int64_t sandbox_ref, int64_t volume_id);
/* Of these, those whose drive is not told from others. */
int store_want_doubtful_lists(struct store *store, int64_t sandbox_ref, int64_t volume_id);
/* The device of an open mapping was seen with this size: raises largest_bytes. */
int store_note_size(struct store *store, int64_t volume_id, uint64_t device_bytes);

/* The only place that changes a volume's state. Journals "old -> new"; an open growth follows; one
 * that is in_sync, unmanaged or whose volume is removed is finished. ret_changed may be NULL. */
int store_set_state(struct store *store, int64_t volume_id, enum volume_state state,
                    enum volume_reason reason, bool *ret_changed);

/* Whether crustd may only watch the volume's resizes: it then never counts as stalled or pending.
 */
int store_set_observed(struct store *store, int64_t volume_id, bool observed);

/* Whether a growth would reach the volume's file system: yes, no, unknown; NULL: nobody uses it.
 * reason: why not, or what was not seen. Journaled where it is or was "no".
 * ret_changed may be NULL. */
int store_set_resizable(struct store *store, const struct store_volume *volume,
                        const char *resizable, enum volume_reason reason, bool *ret_changed);

/* Opens a growth or raises to_bytes of the open one (which also clears attempts and reasons). */
int store_open_resize(struct store *store, int64_t volume_id, uint64_t from_bytes,
                      uint64_t to_bytes);

/* The device's size up to which the last guest that had the volume was grown; 0: not known, or the
 * volume is on another device now. */
int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes);

/* An act (decide's name for it) is about to run: journaled as <act>_intended, counted in the open
 * growth. */
int store_intend(struct store *store, int64_t volume_id, const char *act, uint64_t bytes);

/* What the hypervisor answered. bytes 0: not learned. reason NONE: it worked; told: it was resized
 * (not only asked), so that hypervisor_at is set. */
struct store_hypervisor_result {
    int64_t volume_id;
    enum volume_reason reason;
    const char *error;
    const char *doubt;      /* LIST_HAS: why it is not known which drive it is; NULL it is */
    const char *drive_id;   /* NULL keeps; where none was known its source is `hypervisor` */
    const char *guest_path; /* a disk's address, where no path is known; NULL keeps */
    uint64_t bytes;
    bool told;
    uint64_t record;      /* the records that the list was read under */
    enum store_list list; /* UNREAD: it was not read. LACKS: only what is on record remains known */
    const char *recorded_drive, *recorded_guest_path;
    bool obstacle_known;         /* else what is on record stays */
    enum volume_reason obstacle; /* what would keep a resize from working */
};
int store_put_hypervisor_result(struct store *store, const struct store_hypervisor_result *result);

struct store_guest_result {
    int64_t volume_id;
    enum volume_reason reason;
    const char *error;
    uint64_t synced_bytes; /* device size the guest was grown to; 0: it was not */
    uint64_t guest_bytes;  /* 0: not said */
};
int store_put_guest_result(struct store *store, const struct store_guest_result *result);

/* What shows why the volume is blocked; "" nothing. */
int store_set_evidence(struct store *store, int64_t volume_id, const char *evidence);

/* What a guest says of a volume's file system when it is polled. Nothing is journaled but a
 * condition that becomes another; a first one that is normal is no news. */
struct store_guest_stats {
    /* The binding that was asked. Nothing is written unless it is still open, and the volume is
     * neither bypassed nor detached: then the guest has something else at that place. */
    int64_t mapping_id;
    bool has_bytes;
    uint64_t total, used, available;
    bool abnormal;
    const char *message; /* of the condition; NULL or "" none */
    int64_t age_ms;      /* since the guest was read */
};
/* ret_changed: the condition did, and the change is journaled. */
int store_put_guest_stats(struct store *store, int64_t volume_id,
                          const struct store_guest_stats *stats, bool *ret_changed);
/* The guest did not answer: counted, up to a bound, until it does. What it said before stays. */
int store_note_guest_silent(struct store *store, int64_t volume_id);

/* Every volume that a sandbox has, with how often its guest did not answer. The callback must not
 * write. */
typedef int store_guest_callback(void *userdata, int64_t volume_id, int64_t mapping_id,
                                 uint32_t failures);
int store_each_guest(struct store *store, store_guest_callback *callback, void *userdata);

/* When it is tried again; next_attempt_ns 0: not until something changes. */
int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms);

/* Whether a next attempt is set that no failed one came before. */
bool store_awaits_stillness(struct store *store);

/* An operator asks to look again: every waiting volume may try at once, by every route.
 * What the last try ended with stays until the next one ends. */
int store_forget_waiting(struct store *store);
/* The same for the volumes bound to one sandbox, about which something changed. */
int store_forget_waiting_of(struct store *store, int64_t sandbox_ref);

/* A line of history. ids 0/NULL where it is about nothing in particular (a volume brings its own
 * sandbox and device); detail is JSON or NULL. The store itself writes these kinds:
 *
 *   store_opened                                            boot_id, rebuilt, in_memory
 *   history_missing                                         since, reason
 *   volume_added, volume_changed, volume_invalid, volume_removed   target_path, layout, key,
 * problem device_seen, device_grown, device_shrunk                from_bytes, to_bytes
 *   path_learned                                            target_path, key, source
 *   device_announced                                        bytes: it says that it grew from this
 *   device_found, device_missing                            where a volume's path leads
 *   sandbox_alive, sandbox_changed, sandbox_gone            vmm_pid, control_socket, agent_address
 *   mapping_opened, mapping_described, mapping_closed       source, drive_id, guest_path
 *   state_changed                                           from, to: "state/reason"
 *   resizable_changed                                       from, to: "yes", "no/reason"
 *   resize_opened, resize_raised, resize_finished           from_bytes, to_bytes, state
 *   query_hypervisor_intended, resize_hypervisor_intended, grow_guest_intended   bytes
 *   rescan_disk_intended, disk_rescanned                    from_bytes, to_bytes, error
 *   hypervisor_answered, guest_answered                     bytes, reason, error
 *   guest_condition_changed                                 from, to, message
 *   helper_intended, helper_removed                         name
 * and the reconciler:
 *   volume_staged, volume_unstaged                          layout
 *   volume_returned                                         from the trash
 *   runtime_cli_intended           command, program, required_bytes, limit_bytes
 *   runtime_cli_answered           command, capacity_bytes, total_bytes, used_bytes, error
 *   cleanup_kept, cleanup_intended, cleanup_removed, cleanup_put-back, cleanup_failed,
 *   cleanup_dropped, cleanup_restored, cleanup_expired      cleanup_id, key, reason
 */
int store_journal(struct store *store, const char *kind, int64_t volume_id, const char *sandbox_id,
                  const char *device, const char *detail);
