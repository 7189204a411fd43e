/* SPDX-License-Identifier: Apache-2.0 */
/* drive_wait.h - the clients that wait for drives. Private to reconciler/drive/. */
#pragma once

#include "reconciler/drive/drives.h"

/* Within the pass: handles detaches of ids that are not on record. 0, or a failure of the store. */
int drive_waits_record(struct drives *drives);
/* After the commit: whether any client can be answered; and, once that is synced, answers them. */
bool drive_waits_are_over(const struct drives *drives);
void drive_waits_tell(struct drives *drives);
void drive_waits_fail(struct drives *drives, enum status_code code, const char *why);
void drive_waits_done(struct drives *drives);
