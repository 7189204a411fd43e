/* SPDX-License-Identifier: Apache-2.0 */
/* clients.h - clients that wait for an answer to a stage, resize or stats call.
 *
 * The calls themselves are command.h's, and are described there. A pass tells them what it did by
 * the functions below.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "model/volume.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drive_form.h"
#include "reconciler/core/context.h"

struct doctor_abilities;
struct store_volume;

/* ---- resizes (expand.c) ---- */

/* The volume was decided, within the pass, so that a debt can be recorded: 0 or -errno. */
int expansions_note(struct reconciler *reconciler, int64_t volume_id);
/* The pass was rolled back; it was committed. */
void expansions_forget(struct reconciler *reconciler);
void expansions_answer(struct reconciler *reconciler);

/* ---- metadata put in place and taken away (stage.c) ---- */

/* Volumes that were staged or unstaged and are not recorded yet, oldest first. */
struct stagings {
    struct staging *first;
    struct loop_timer timer;
    bool due; /* the events about them have been read */
};

/* Whether a pass has any to record; records a bounded number of them, within the pass; after the
 * commit, syncs their changes and answers them. 0 or -errno of the store. */
bool stagings_are_due(const struct reconciler *reconciler);
int stagings_record(struct reconciler *reconciler);
int stagings_answer(struct reconciler *reconciler);
bool stagings_wait(const struct reconciler *reconciler);
/* The store failed: all that wait are told so. */
void stagings_fail(struct reconciler *reconciler, const char *why);
/* Removes directories that were unstaged, or left half done by a daemon that was killed. */
void stagings_sweep(const struct reconciler *reconciler);

/* ---- the node (examine.c) ---- */

/* An examination that is kept: for metrics, status and the service manager. */
struct examination {
    struct loop_timer timer;
    struct reconciler_findings findings;
};

/* Examines the node now, and again every hour. */
void examination_begin(struct reconciler *reconciler);

/* ---- what the calls share ----------------------------------------------------------------------
 */

/* Nobody of these is answered any more. */
void expansions_done(struct reconciler *reconciler);
void stagings_done(struct reconciler *reconciler);
void stats_done(struct reconciler *reconciler);

/* stage_files.c: whether a path that a driver names can be a volume's. */
enum status_code check_target_path(const char *path, struct error *error);

/* find_volume.c: the volume that a client names; `unknown` is the answer where there is none. */
enum status_code find_volume(struct reconciler *reconciler, const struct reconciler_target *target,
                             enum answer unknown, int64_t *ret_volume_id, struct error *error);

/* examine.c: what an examination of the node shows. 0 or -errno with a text. */
int examine_abilities(const struct context *context, struct doctor_abilities *ret_abilities,
                      struct error *error);

/* find_volume.c: the device's size, with what a LUKS header takes of its lower device. */
uint64_t volume_usable_bytes(const struct context *context, const struct store_volume *volume);

/* ---- the answer to a resize (expand.c) ---- */

struct expand_facts {
    const struct store_volume
        *volume; /* decided since the client asked, nothing in flight for it */
    enum resize_policy policy;
    uint64_t usable_bytes;                /* volume_usable_bytes() */
    uint64_t required_bytes, limit_bytes; /* 0: any */
};

/* Outcomes beside enum status_code. */
enum { EXPAND_WAIT = -1, EXPAND_LATER = -2 };

/* STATUS_OK: the guest has it. EXPAND_LATER: no sandbox has the volume yet, and its file system
 * will be grown when one does: STATUS_OK once that debt is recorded. EXPAND_WAIT: something is yet
 * to be tried. Else error says why. Pure. */
int expand_answer(const struct expand_facts *facts, struct error *error);

/* Whether something forbids the resize that no attempt changes: then no answer may be OK. */
bool expand_is_barred(const struct store_volume *volume);

/* ---- stats poll ----------------------------------------------------------------------------- */

/* Asks guests, at a steady pace, for usage and condition of their file systems.
 *
 * Each bound volume is asked once in guest.stats_seconds. When follows from its binding's number,
 * so that the questions are spread evenly. One sandbox is asked one question at a time, and the
 * node at most STATS_POLLS; a guest that hangs costs one of these until resize.call_timeout_seconds
 * are over. A guest that did not answer is asked at every second, fourth … 32nd of its moments.
 *
 * Each answer is recorded at once; if the store fails, the next poll asks again.
 */

enum { STATS_POLLS = 16 };

/* Time that has passed, in CLOCK_BOOTTIME, and guest.stats_seconds. */
struct stats_span {
    uint64_t from_ns, to_ns, period_ns;
};

/* Whether a binding's moment came within it, of a guest that did not answer so often in a row. */
bool stats_poll_is_moment(const struct stats_span *span, int64_t binding_id, uint32_t failures);

struct stats_poll {
    struct loop_timer timer;
    uint64_t polled_ns;   /* volumes whose moment came before are asked */
    struct key_queue due; /* volume ids */
    struct slots slots;
    struct stats_question *questions;
};

/* Begins, or continues with another configuration; guests are asked once the first scan is
 * complete. */
void stats_poll_start(struct reconciler *reconciler);
void stats_poll_done(struct reconciler *reconciler);
