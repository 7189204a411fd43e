/* SPDX-License-Identifier: Apache-2.0 */
/* drives.h - attaches, keeps and detaches drive mounts, one act at a time.
 *
 * The rows of the store are the model. Beside them this module keeps what was last read from the
 * VMMs and the guests (unknown after a start), the running acts and the waiting clients. A
 * reconcile pass records the results of acts and decides the next ones; the acts start once that is
 * committed, and clients are answered once it is synced to disk.
 *
 * The calls of clients are described in reconciler/command/drive_form.h.
 */
#pragma once

#include "model/sandbox.h"
#include "reconciler/command/drive_form.h"

struct context;
struct drives;

/* NULL: no memory. */
struct drives *drives_new(const struct context *context);
struct drives *drives_free(struct drives *drives); /* no client is answered any more */

/* ---- a reconcile pass ---- */

/* Whether a pass has anything to record or decide. */
bool drives_are_due(const struct drives *drives);
/* Within the pass. 0, or a failure of the store. */
int drives_record(struct drives *drives);
/* After the commit: syncs the store if clients have to be answered, answers them, and starts what
 * was decided. 0, or a failure of the store. */
int drives_go_on(struct drives *drives);
/* The store refused the pass: everything is read again. */
void drives_roll_back(struct drives *drives, const char *why);

/* Whether no act runs. */
bool drives_are_idle(const struct drives *drives);

/* ---- events ---- */

/* The sandbox changed and may have ended. */
void drives_note_sandbox(struct drives *drives, const char *sandbox_id);
/* The device changed and may have grown. */
void drives_note_device(struct drives *drives, uint32_t major, uint32_t minor);
/* Checks for devices that have grown without an event. */
void drives_sweep(struct drives *drives);
/* Tries failed acts again at once. */
void drives_retry(struct drives *drives);
/* Cancels the acts and answers clients that crustd is stopping. The next start finds out how far
 * the acts came. */
void drives_stop(struct drives *drives);
