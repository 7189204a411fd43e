/* SPDX-License-Identifier: Apache-2.0 */
/* drive_wait.h - the clients that wait for drives. Private to reconciler/drive/. */
#pragma once

#include "reconciler/drive/drives.h"
#include "store/drive_mounts.h"

enum drive_wait_kind { WAIT_ATTACH, WAIT_DETACH, WAIT_LIMIT };

bool drive_waits_have_room(const struct drives *drives);
/* drive_ref: the row that the client waits for; 0: the detach of an id without one. */
enum status_code drive_wait_begin(struct drives *drives, enum drive_wait_kind kind,
                                  const struct store_drive_mount_request *request,
                                  int64_t drive_ref, reconciler_drive_done *done, void *userdata,
                                  struct drive_wait **ret_wait, struct error *error);
/* The id is not on record, but a VM may have the drive: the VMs are asked first. */
void drive_wait_ask_vms(struct drive_wait *wait);
struct reconciler_drive drive_describe(const struct store_drive_mount *row);

/* Within the pass: handles detaches of ids that are not on record. 0, or a failure of the store. */
int drive_waits_record(struct drives *drives);
/* After the commit: whether any client can be answered; and, once that is synced, answers them. */
bool drive_waits_are_over(const struct drives *drives);
void drive_waits_tell(struct drives *drives);
void drive_waits_fail(struct drives *drives, enum status_code code, const char *why);
void drive_waits_done(struct drives *drives);
