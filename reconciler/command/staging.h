/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h - a call that stages or unstages a volume, and the volumes that are published as drives
 * instead. Private to reconciler/command/. */
#pragma once

#include "observe/observe.h"
#include "reconciler/command/clients_state.h"
#include "store/store.h"

/* The possible places of a volume's directory: those of stage.c. */
enum { RUNTIMES_SPOTS = 2, SPOTS = 4 };

enum deed { NOTHING_ASKED, UNCHANGED, DONE };

struct staging {
    struct staging *next;
    struct clients *clients;
    struct drive_wait *wait;                 /* for a drive; then it is in no list */
    char sandbox_id[STORE_SANDBOX_ID_BYTES]; /* whom it is published for, or "" */
    bool takes_away;
    bool read_only;
    struct observed_device device; /* of a stage; no name: unknown */
    enum deed deed[SPOTS];
    bool recorded;
    /* Of an unstage, when it came: an observation may find the directory gone before the call is
     * recorded. */
    int64_t known_volume_id;
    int64_t volume_id;
    enum status_code code;
    struct error error;
    reconciler_staged *done; /* NULL: the client is gone */
    void *userdata;
    char target_path[];
};

/* stage.c: one that nothing is known of yet. It is refused while the opposite call for its volume
 * waits. */
enum status_code staging_begin(struct clients *clients, const char *target_path, bool takes_away,
                               struct staging **ret_staging, struct error *error);

/* stage.c: takes the metadata away. The staging waits, or is freed where this fails. */
enum status_code unstage_go_on(struct staging *staging, struct error *error);

/* ---- publish.c ---- */

/* The id of the drive that the volume of this path becomes. */
void publish_drive_id(const char *target_path, char ret_id[static DRIVE_ID_CHARS + 1]);

/* Whether a drive has to be detached before the volume counts as unpublished: it is one on record,
 * or nothing of the volume is on record, so that a VM may have it since before the database was
 * lost. */
enum status_code publish_must_detach(struct clients *clients, const char *target_path,
                                     bool *ret_must, struct error *error);

/* Which way a volume is to be published (docs/decisions.md). */
enum status_code publish_find_way(struct clients *clients, const struct reconciler_stage *stage,
                                  bool *ret_is_drive, struct error *error);

/* Has it attached and mounted in its sandbox. As stage_begin(). */
enum status_code publish_attach(struct clients *clients, const struct reconciler_stage *stage,
                                reconciler_staged *done, void *userdata,
                                struct staging **ret_staging, struct error *error);

/* Has it unmounted and detached, then goes on with unstage_go_on(). The staging is freed where this
 * fails. */
enum status_code publish_detach(struct staging *staging, struct error *error);

/* Its client is gone; the drive goes on. Frees it. Returns NULL. */
struct staging *publish_cancel(struct staging *staging);
