/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass.h - one check of all metadata, and its consequences. Private to
 * reconciler/cleanup/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/encode.h"
#include "lib/result.h"
#include "reconciler/decide/stale.h"
#include "store/cleanups.h"
#include "store/store.h"

struct process_scan;
struct cleanup;
struct cleanup_pass;
struct key_queue;

/* A person's request. dry: nothing is removed; otherwise the request confirms what the limits hold
 * back. volume_id: only about this volume, dry, and also if it does not look stale; 0: all that
 * look stale. */
struct cleanup_question {
    bool dry;
    int64_t volume_id;
};

/* question NULL: crustd's own pass. */
int cleanup_pass_new(struct cleanup *cleanup, const struct cleanup_question *question,
                     struct cleanup_pass **ret_pass);
struct cleanup_pass *cleanup_pass_free(struct cleanup_pass *pass);

/* One small step before the decision. 1: there are more, 0: that was the last, -errno. */
int cleanup_pass_prepare(struct cleanup_pass *pass);

/* Decides, records and moves away. 0, or -errno of the store: then none of it is on record. */
int cleanup_pass_finish(struct cleanup_pass *pass);

/* The decisions as a JSON array; to be called before the trash is advanced. What exceeds the buffer
 * is left out. */
int cleanup_pass_report(struct cleanup_pass *pass, struct buffer *json);

/* When another pass would have a different result (CLOCK_BOOTTIME); UINT64_MAX: only after a
 * change. */
uint64_t cleanup_pass_wake(const struct cleanup_pass *pass);

/* ---- evidence ------------------------------------------------------------------------------- */

/* The evidence about one metadata directory that may be stale, read now.
 *
 * At every sweep evidence_suspects() makes the cheap checks for every directory. The full evidence,
 * with a process scan of the node's processes, is taken only for the suspects.
 */

/* What is common to all directories of one pass. */
struct pass_view {
    uint64_t now_ns;
    uint64_t well_since_ns; /* cleaner.h; 0: not at present */
    bool sees_host;
    const struct process_scan *process_scan;
    enum stale_daemon daemon[2]; /* by enum volume_layout */
};

struct evidence {
    struct store_suspect suspect;
    char file[STORE_SANDBOX_ID_BYTES]; /* of a dead sandbox, beside a live one's; "": all of it */
    struct stale_facts facts;
    char fingerprint[SHA256_HEX_BYTES]; /* of the directory or the file */
    char state[SHA256_HEX_BYTES];       /* that, with the state of sandboxes and kubelet */
    uint64_t since_ns;                  /* stale and unchanged since then */
    uint64_t settles_ns;                /* when that will have lasted long enough */
    struct error problem;               /* of the directory; text "": none */
    struct buffer json;
};

void evidence_done(struct evidence *evidence);

/* Whether the directory looks stale without a check of processes, or did last time; then its
 * sandboxes are added to the process scan. any: all are suspects. 0, -errno of the store, or
 * -ENOMEM. */
int evidence_suspects(struct cleanup *cleanup, int64_t entry_id, bool any,
                      struct process_scan *process_scan, bool *ret_suspect);

/* Outcomes. */
enum {
    EVIDENCE_TAKEN,
    EVIDENCE_NONE, /* it is gone or differs from the record, and must be observed first */
};
/* ret_evidence: zeroed by the caller, who frees it whatever the outcome. */
int evidence_take(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                  struct evidence *ret_evidence);

/* Calls back for each file that names a dead sandbox, if the volume is used by a live one. 0,
 * -errno. */
int evidence_each_file(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                       int (*callback)(void *userdata, struct evidence *evidence), void *userdata);

/* ---- quarantine ----------------------------------------------------------------------------- */

/* Moves metadata out of a watched directory and back, without losing a concurrent
 * write.
 *
 * The trash is a directory on the same mount, outside of everything that is watched:
 *
 *   TRASH/NAME/KEY          a whole metadata directory, under its own name
 *   TRASH/NAME/SANDBOX_ID   or one file of it
 *
 * NAME is never reused. Nothing else is ever made: no name of crustd's appears in a watched
 * directory, because Kata takes the first unknown name there for a sandbox's id. Every function may
 * be repeated after a kill at any point, and none depends on the store.
 */

struct quarantine {
    int volumes; /* the watched directory; -1 */
    int trash;
};

#define QUARANTINE_INIT                                                                            \
    {                                                                                              \
        -1, -1                                                                                     \
    }

/* Outcomes of quarantine_open(). */
enum {
    QUARANTINE_READY,
    QUARANTINE_UNFIT, /* the trash is unusable; the error has the reason, and the key to change */
};

/* Opens both, below root; the trash is made (0700) if it does not exist. watched: directories that
 * must not contain it, ended by NULL. */
int quarantine_open(int root, const char *volumes, const char *trash, const char *const *watched,
                    struct quarantine *ret_quarantine, struct error *error);
void quarantine_done(struct quarantine *quarantine);

struct quarantine_item {
    const char *key;
    const char *file; /* NULL: the directory itself */
    const char *name; /* in the trash */
    const char *fingerprint;
};

/* Outcomes of the others. */
enum {
    QUARANTINE_DONE,
    QUARANTINE_ABSENT, /* there is nothing to move */
    QUARANTINE_TAKEN,  /* something newer is in its place */
};

/* Moves the item into the trash. DONE, ABSENT, -errno. */
int quarantine_take(const struct quarantine *quarantine, const struct quarantine_item *item);

struct quarantine_state {
    bool in_trash;
    bool unchanged; /* in the trash, with the item's fingerprint */
    bool in_place;  /* something exists in the place that it was taken from */
};

/* Finds out where the item is. 0, or -errno: unknown. */
int quarantine_observe(const struct quarantine *quarantine, const struct quarantine_item *item,
                       struct quarantine_state *ret_state);

/* Moves the item back. DONE, TAKEN (for a file also: its directory is gone), ABSENT, -errno. */
int quarantine_put_back(const struct quarantine *quarantine, const struct quarantine_item *item);

/* Deletes the item in the trash: metadata only, regular files of one directory (lib/directory.h).
 * DONE, -errno. */
int quarantine_delete(const struct quarantine *quarantine, const struct quarantine_item *item,
                      struct error *error);

/* Removes what an interrupted move left behind, which can only be an empty directory. */
void quarantine_tidy(const struct quarantine *quarantine, const struct quarantine_item *item);

/* ---- trash ---------------------------------------------------------------------------------- */

/* What was moved away, from the intent to the end: a row and a directory, step by step.
 *
 * A row of the store says what was to be done, and the disk shows how far it got. trash_advance()
 * compares the two and takes the next step of each, also for rows of an earlier daemon that was
 * killed.
 */

/* Whether the layout has a usable trash; fills the error if not. */
bool trash_is_usable(struct cleanup *cleanup, enum volume_layout layout, struct error *error);

/* Moves what was intended, after the intents have been committed durably: the ids of cleanups, as
 * numbers. trash_advance() then records the results. */
void trash_take(struct cleanup *cleanup, struct key_queue *cleanup_ids);

/* Runs until nothing can be done now; ret_wake_ns: when more is due (CLOCK_BOOTTIME), or
 * UINT64_MAX. -errno of the store: none of it is on record, call again. */
int trash_advance(struct cleanup *cleanup, uint64_t *ret_wake_ns);

/* Outcomes of trash_restore(); the error's text has details. */
enum {
    TRASH_RESTORED,
    TRASH_UNKNOWN, /* there is no such cleanup */
    TRASH_REFUSED, /* it removed nothing, or the files are gone */
    TRASH_TAKEN,   /* another directory exists in the place */
    TRASH_BUSY,    /* not possible now */
};
int trash_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error);
