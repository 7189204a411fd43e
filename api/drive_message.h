/* SPDX-License-Identifier: Apache-2.0 */
/* drive_message.h - messages of crust.drive.v1: what a request asks, and what a drive is. Private
 * to api/. */
#pragma once

#include "api/drive_asked.h"
#include "api/proto/crust_drive_v1.pb-c.h"
#include "lib/buffer.h"

/* Each takes all of a request and checks it. STATUS_OK, or the refusal. */
enum status_code drive_message_take_attach(const Crust__Drive__V1__AttachDriveRequest *request,
                                           struct drive_asked *asked, struct error *error);
enum status_code
drive_message_take_limits(const Crust__Drive__V1__UpdateDriveLimitsRequest *request,
                          struct drive_asked *asked, struct error *error);

/* Appends the packed ListDrivesResponse of one drive, which is the same as the packed response of
 * each call that answers a drive. Several of them in a row are the response of all. 0, or as
 * buffer_append(). */
int drive_message_append(struct buffer *bytes, const struct reconciler_drive *drive);
