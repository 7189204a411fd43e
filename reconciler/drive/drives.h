/* SPDX-License-Identifier: Apache-2.0 */
/* drives.h - drive mounts: brought in, kept, and taken out again, one act at a time.
 *
 * The rows of the store are the model. What this module has beside them is what this daemon last
 * read of the VMMs and the guests, which is unknown after a start, the acts that run, and the
 * clients that wait. A reconcile pass records what acts came to and decides what is next; the acts
 * start once that is committed, and clients are told once it is synced to disk.
 *
 * Calls of clients: reconciler/command/drives.h, which describes them.
 */
#pragma once

#include "reconciler/command/drives.h"
#include "reconciler/drive/guest.h"

struct context;
struct drives;

/* The guest's side, as guest.h describes it; tests have their own. */
struct drive_guest_ops {
    int (*call_new)(const struct context *context, const struct drive_guest_request *request,
                    drive_guest_done *done, void *userdata, struct drive_guest_call **ret_call);
    struct drive_guest_call *(*call_free)(struct drive_guest_call *call);
    bool (*call_must_end)(const struct drive_guest_call *call);
};

/* Both are borrowed. NULL: no memory. */
struct drives *drives_new(const struct context *context, const struct drive_guest_ops *guest);
struct drives *drives_free(struct drives *drives); /* nobody is told anything more */

/* ---- a reconcile pass ---- */

/* Whether a pass has anything to record or to decide. */
bool drives_are_due(const struct drives *drives);
/* Within the pass. 0, or a failure of the store. */
int drives_record(struct drives *drives);
/* After the commit: syncs what clients are to be told, tells them, and starts what was decided. 0,
 * or a failure of the store. */
int drives_go_on(struct drives *drives);
/* The store refused the pass: all that was read is read again. */
void drives_roll_back(struct drives *drives, const char *why);

/* No act runs. */
bool drives_are_idle(const struct drives *drives);

/* ---- events ---- */

/* Something about the sandbox changed: it may have ended. */
void drives_note_sandbox(struct drives *drives, const char *sandbox_id);
/* The device changed in some way: it may have grown. */
void drives_note_device(struct drives *drives, uint32_t major, uint32_t minor);
/* Devices that have grown without an event are looked for. */
void drives_sweep(struct drives *drives);
/* Failed acts are tried at once. */
void drives_retry(struct drives *drives);
/* Acts end where they are, and clients are told so. A later start finds what they came to. */
void drives_stop(struct drives *drives);
/* The store is another one: everything that holds ids of the old one is dropped. */
void drives_reset(struct drives *drives);

/* ---- clients ---- */

enum status_code drives_attach(struct drives *drives, const struct reconciler_drive_attach *attach,
                               reconciler_drive_done *done, void *userdata,
                               struct drive_wait **ret_wait, struct error *error);
enum status_code drives_detach(struct drives *drives, const char *drive_id,
                               reconciler_drive_done *done, void *userdata,
                               struct drive_wait **ret_wait, struct error *error);
enum status_code drives_limit(struct drives *drives, const char *drive_id,
                              const struct drive_limits *limits, reconciler_drive_done *done,
                              void *userdata, struct drive_wait **ret_wait, struct error *error);
enum status_code drives_get(struct drives *drives, const char *drive_id,
                            reconciler_drive_callback *callback, void *userdata,
                            struct error *error);
enum status_code drives_each(struct drives *drives, const char *sandbox_id,
                             reconciler_drive_callback *callback, void *userdata,
                             struct error *error);
