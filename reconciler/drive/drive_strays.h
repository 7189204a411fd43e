/* SPDX-License-Identifier: Apache-2.0 */
/* drive_strays.h - drives that a VM has and the database does not. Private to reconciler/drive/. */
#pragma once

#include "reconciler/drive/drive_work.h"

/* Within the pass: all VMs are to be asked that were not asked yet, and with `again` those that
 * could not answer. 0, or a failure of the store. */
int drive_strays_ask(struct drives *drives, bool again);
/* Within the pass: puts the stray of this id on record, on its way out. 0, or a failure of the
 * store; ret_drive_ref stays as it is if there is none. */
int drive_strays_record(struct drives *drives, const char *drive_id, int64_t *ret_drive_ref);
/* After the commit. */
void drive_strays_go_on(struct drives *drives);

enum drive_strays_known {
    DRIVE_STRAYS_KNOWN,
    DRIVE_STRAYS_ASKED,   /* not yet */
    DRIVE_STRAYS_UNKNOWN, /* a VM could not be asked: error says which, and why */
};
/* Whether all VMs that were to be asked have answered: an enum drive_strays_known. */
int drive_strays_known(const struct drives *drives, struct error *error);
bool drive_strays_have(const struct drives *drives, const char *drive_id);
/* From now on a row has it. */
void drive_strays_forget(struct drives *drives, const char *sandbox_id, const char *drive_id);
bool drive_strays_use_vmm(const struct drives *drives, const char *sandbox_id);
bool drive_strays_are_idle(const struct drives *drives);
/* Ends what runs, and forgets all lists. */
void drive_strays_done(struct drives *drives);

/* The row was made for a stray: where the guest has it is not known. */
bool drive_is_stray(const struct store_drive_mount *row);
