/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.h - what is known about one metadata directory that may be stale, read now.
 *
 * First the cheap part, for every directory at every sweep: evidence_suspects() says whether it is
 * worth more. Then, with a census of the node's processes, all of it.
 */
#pragma once

#include "lib/buffer.h"
#include "lib/result.h"
#include "lib/sha256.h"
#include "reconciler/decide/stale.h"
#include "store/cleanups.h"

struct census;
struct cleanup;

/* What is the same for all directories of one pass. */
struct pass_view {
    uint64_t now_ns;
    uint64_t well_since_ns; /* visibility.h; 0: not now */
    bool sees_host;
    const struct census *census;
    enum stale_daemon daemon[2]; /* by enum volume_layout */
};

struct evidence {
    struct store_suspect suspect;
    char file[STORE_SANDBOX_ID_BYTES]; /* of a dead sandbox, beside a live one's; "": all of it */
    struct stale_facts facts;
    char fingerprint[SHA256_HEX_BYTES]; /* of the directory or the file */
    char state[SHA256_HEX_BYTES];       /* that, and what sandboxes and kubelet say */
    uint64_t since_ns;                  /* stale and unchanged since then */
    uint64_t settles_ns;                /* when it will have been so for long enough */
    struct error problem;               /* of the directory; text "": none */
    struct buffer json;
};

void evidence_done(struct evidence *evidence);

/* Whether it looks stale, as far as can be told without looking at processes, or did last time;
 * then its sandboxes are asked for in the census. any: all are suspects. 0 or -errno of the store
 * or for want of memory. */
int evidence_suspects(struct cleanup *cleanup, int64_t entry_id, bool any, struct census *census,
                      bool *ret_suspect);

/* Outcomes. */
enum {
    EVIDENCE_TAKEN,
    EVIDENCE_NONE, /* it is gone, or not as it is on the record: look at it first */
};
int evidence_take(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                  struct evidence *ret_evidence);

/* About each file in it that names a dead sandbox, where the volume is a live one's. 0, -errno. */
int evidence_each_file(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                       int (*callback)(void *userdata, struct evidence *evidence), void *userdata);
