/* SPDX-License-Identifier: Apache-2.0 */
/* drive_wait.h - clients that wait for drives. Private to reconciler/drive/. */
#pragma once

#include "reconciler/drive/drives.h"

/* Within the pass: detaches of ids that are not on record. 0, or a failure of the store. */
int drive_waits_record(struct drives *drives);
/* After the commit: whether any client is to be told something; and, when that is synced, tells
 * them. */
bool drive_waits_are_over(const struct drives *drives);
void drive_waits_tell(struct drives *drives);
void drive_waits_fail(struct drives *drives, enum status_code code, const char *why);
void drive_waits_done(struct drives *drives);
