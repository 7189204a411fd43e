/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.h - the evidence about one metadata directory that may be stale, read now.
 *
 * At every sweep evidence_suspects() makes the cheap checks for every directory. The full evidence,
 * with a census of the node's processes, is taken only for the suspects.
 */
#pragma once

#include "lib/buffer.h"
#include "lib/result.h"
#include "lib/sha256.h"
#include "reconciler/decide/stale.h"
#include "store/cleanups.h"

struct census;
struct cleanup;

/* What is common to all directories of one pass. */
struct pass_view {
    uint64_t now_ns;
    uint64_t well_since_ns; /* visibility.h; 0: not at present */
    bool sees_host;
    const struct census *census;
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
 * sandboxes are added to the census. any: all are suspects. 0, -errno of the store, or -ENOMEM. */
int evidence_suspects(struct cleanup *cleanup, int64_t entry_id, bool any, struct census *census,
                      bool *ret_suspect);

/* Outcomes. */
enum {
    EVIDENCE_TAKEN,
    EVIDENCE_NONE, /* it is gone or differs from the record, and must be observed first */
};
int evidence_take(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                  struct evidence *ret_evidence);

/* Calls back for each file that names a dead sandbox, if the volume is used by a live one. 0,
 * -errno. */
int evidence_each_file(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                       int (*callback)(void *userdata, struct evidence *evidence), void *userdata);
