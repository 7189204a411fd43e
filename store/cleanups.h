/* SPDX-License-Identifier: Apache-2.0 */
/* cleanups.h - stale metadata in the model: its evidence, what was done about it, and the trash.
 *
 * Everything but the reading functions runs inside a transaction (store.h). A directory is moved
 * away in steps. store_intend_cleanup() is committed durably before it is moved to the trash, which
 * store_set_trash_step() says afterwards, because a late writer shows within seconds. Then
 * store_finish_cleanup() decides: `removed`, and the bytes stay for keep_hours, or `put-back` or
 * `failed`. Later they are restored for a person, or deleted because their time is up.
 *
 * After a crash the disk shows how far a row came: any recorded step may turn out not to be done.
 * While a volume's directory is in the trash the volume is `quarantined`, afterwards `removed`. A
 * directory that comes back with the identity that it had is the same volume again.
 */
#pragma once

#include "model/stale_reason.h"
#include "store/store.h"

enum { STORE_FINGERPRINT_BYTES = 65, STORE_TRASH_NAME_BYTES = 64 };

/* ---- what looks stale -------------------------------------------------------------------- */

/* A metadata directory, as its staleness is judged. Unknown text is "", unknown numbers 0. */
struct store_suspect {
    int64_t entry_id, volume_id;
    enum volume_layout layout;
    char key[STORE_KEY_BYTES];
    char target_path[STORE_TARGET_BYTES];
    char device_path[STORE_PATH_BYTES];
    char volume_type[STORE_NAME_BYTES];
    char mount_info_sha256[STORE_FINGERPRINT_BYTES];
    bool invalid;
    uint64_t directory_device, directory_inode;
    unsigned named_sandboxes;
    bool live; /* a live sandbox has the volume, by any record */

    enum stale_reason stale_reason; /* NONE: it did not look stale when last judged */
    char fingerprint[STORE_FINGERPRINT_BYTES];
    uint64_t since_ns; /* unchanged and stale since then; 0: not known in this boot */
    char restored[STORE_FINGERPRINT_BYTES]; /* as a person had it put back */
    bool held;                              /* by the breaker, until a person confirms */
};

/* Present entries of one volume, or of all (0); the callback must not write. */
int store_each_entry_id(struct store *store, int64_t volume_id,
                        int (*callback)(void *userdata, int64_t entry_id), void *userdata);

/* An enum store_found, or a failure. */
int store_get_suspect(struct store *store, int64_t entry_id, struct store_suspect *ret_suspect);

/* A sandbox that a volume is or was used by: named by a file in one of its directories, or bound to
 * it in this boot. */
struct store_user {
    const char *sandbox_id; /* borrowed for the call */
    bool alive;
    bool exit_seen; /* the end of the VMM that it was last seen with was witnessed */
    pid_t vmm_pid;  /* last known; 0 never seen */
    uint64_t vmm_start_ns;

    /* Of its file, if entry_id is set. */
    uint64_t stale_since_ns; /* beside a live one since then; 0 not known in this boot */
    bool restored;           /* a person had the file put back */
};
/* Those of the volume; with an entry_id, those that a file of this very entry names. */
int store_each_user(struct store *store, int64_t volume_id, int64_t entry_id,
                    int (*callback)(void *userdata, const struct store_user *user), void *userdata);

/* The end of a live sandbox's VMM was observed (pidfd). */
int store_note_exit(struct store *store, const char *sandbox_id, pid_t vmm_pid);

/* Volumes that are not removed. */
int store_count_volumes(struct store *store, uint64_t *ret_count);

/* How an entry looks now. A reason other than last time's becomes a `kept` row; NONE writes no row.
 */
struct store_stale {
    enum stale_reason reason; /* NONE: it does not look stale */
    const char *fingerprint;
    uint64_t since_ns;
    bool held;            /* not of a file: by the breaker, until a person confirms */
    const char *evidence; /* JSON, for the row */
};
int store_note_stale(struct store *store, int64_t entry_id, const struct store_stale *stale);

/* The same about the file of one sandbox; a row's evidence has the member "file". */
int store_note_stale_file(struct store *store, int64_t entry_id, const char *file,
                          const struct store_stale *stale);

/* ---- the trash --------------------------------------------------------------------------- */

enum store_trash_step {
    STORE_TRASH_INTENDED,
    STORE_TRASH_MOVED,
    STORE_TRASH_STORED, /* the row says "kept", as release 0.1.0 does */
    STORE_TRASH_RESTORING,
    STORE_TRASH_DELETING,
};

struct store_trash {
    int64_t cleanup_id, volume_id;
    enum volume_layout layout;
    char key[STORE_KEY_BYTES];
    char file[STORE_KEY_BYTES];        /* one file of the directory; "": all of it */
    char directory[STORE_PATH_BYTES];  /* the trash, below root */
    char name[STORE_TRASH_NAME_BYTES]; /* in it, never used twice */
    enum store_trash_step step;
    char fingerprint[STORE_FINGERPRINT_BYTES]; /* of what is moved, before it was */
    uint64_t since_ns;                         /* of this step; 0: of a boot before */
};

struct store_cleanup_intent {
    enum stale_reason reason;
    const char *evidence; /* JSON */
    const char *fingerprint;
    const char *directory; /* the trash */
    const char *file;      /* NULL: the whole directory */
    uint64_t now_ns;
};
int store_intend_cleanup(struct store *store, int64_t entry_id,
                         const struct store_cleanup_intent *intent, int64_t *ret_cleanup_id);

/* Rows that are under way, or whose bytes have been kept since before that time. */
int store_each_trash(struct store *store, int64_t kept_before_ns,
                     int (*callback)(void *userdata, int64_t cleanup_id), void *userdata);
/* Since when the oldest bytes are kept; UINT64_MAX: there are none. */
int store_oldest_trash(struct store *store, uint64_t *ret_since_ns);
int store_get_trash(struct store *store, int64_t cleanup_id, struct store_trash *ret_trash);

int store_set_trash_step(struct store *store, int64_t cleanup_id, enum store_trash_step step,
                         uint64_t now_ns);

/* The result of an intent: REMOVED, PUT_BACK or FAILED. reason NONE: the one that it was intended
 * for. */
int store_finish_cleanup(struct store *store, int64_t cleanup_id, enum cleanup_decision decision,
                         enum stale_reason reason, uint64_t now_ns);

/* Nothing has been moved: as if the cleanup had never been intended. */
int store_drop_cleanup(struct store *store, int64_t cleanup_id);

/* The directory is back in its place: a row says so, and it is kept until it changes. */
int store_record_restore(struct store *store, int64_t cleanup_id, enum stale_reason reason);

/* The bytes are no longer in the trash. */
int store_forget_trash(struct store *store, int64_t cleanup_id);

/* How a cleanup was decided ("removed", …): STORE_FOUND, STORE_NOT_FOUND. */
int store_get_cleanup(struct store *store, int64_t cleanup_id,
                      char ret_decision[static STORE_NAME_BYTES]);
