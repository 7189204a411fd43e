/* SPDX-License-Identifier: Apache-2.0 */
/* drive_request.h - a client's request: checked, prepared for the record, and compared. Private to
 * reconciler/drive/. */
#pragma once

#include "lib/result.h"
#include "model/hypervisor.h"
#include "reconciler/command/drives.h"
#include "store/drive_mounts.h"

struct config;

/* Checks the request against the configuration. STATUS_OK: ret_request, whose options and
 * containers the caller frees. */
enum status_code drive_request_check(const struct config *config,
                                     const struct reconciler_drive_attach *attach,
                                     struct store_drive_mount_request *ret_request,
                                     struct error *error);

/* Checks whether VMMs of this kind can enforce the limits. */
enum status_code drive_request_check_limits(enum hypervisor_kind kind,
                                            const struct drive_limits *limits, struct error *error);

/* But for the limits, which may have been changed since they were asked for. */
bool drive_request_is_equal(const struct store_drive_mount_request *a,
                            const struct store_drive_mount_request *b);
bool drive_limits_are_equal(const struct drive_limits *a, const struct drive_limits *b);
