/* SPDX-License-Identifier: Apache-2.0 */
/* drive_strays.h - strays: drives that a VM has and the database does not. Private to
 * reconciler/drive/. */
#pragma once

#include "reconciler/drive/drive_work.h"

/* Within the pass: requests the lists of all VMs that were not asked yet and, with `again`, of
 * those that failed to answer. 0, or a failure of the store. */
int drive_strays_ask(struct drives *drives, bool again);
/* Within the pass: makes a row for the stray of this id, in a state in which it is being removed.
 * 0, or a failure of the store; *ret_drive_ref is unchanged if there is no such stray. */
int drive_strays_record(struct drives *drives, const char *drive_id, int64_t *ret_drive_ref);
/* After the commit: starts to ask the VMs. */
void drive_strays_go_on(struct drives *drives);

enum drive_strays_known {
    DRIVE_STRAYS_KNOWN,
    DRIVE_STRAYS_ASKED,   /* not yet */
    DRIVE_STRAYS_UNKNOWN, /* a VM could not be asked: error says which, and why */
};
/* Whether all VMs have answered: an enum drive_strays_known. */
int drive_strays_known(const struct drives *drives, struct error *error);
bool drive_strays_have(const struct drives *drives, const char *drive_id);
/* To be called when a row has been made for the drive. */
void drive_strays_forget(struct drives *drives, const char *sandbox_id, const char *drive_id);
bool drive_strays_use_vmm(const struct drives *drives, const char *sandbox_id);
bool drive_strays_are_idle(const struct drives *drives);
/* Cancels running calls and forgets all lists. */
void drive_strays_done(struct drives *drives);

/* Whether the row was made for a stray, so that its place in the guest is unknown. */
bool drive_is_stray(const struct store_drive_mount *row);
