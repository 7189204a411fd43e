/* SPDX-License-Identifier: Apache-2.0 */
/* drive_fsck.h - checks a file system before it is mounted, by the guest's e2fsck.
 *
 * xfs and btrfs repair themselves when they are mounted, so nothing is run for them (fsck.xfs(8),
 * fsck.btrfs(8)).
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"
#include "lib/status.h"

/* device: the path of the node. A read-only disk is checked and not repaired. OK;
 * FAILED_PRECONDITION: the guest has no e2fsck, or the file system has errors that e2fsck -p does
 * not repair; INTERNAL. Blocks for as long as e2fsck takes. */
enum status_code drive_fsck_run(const char *device, const char *filesystem_type, bool read_only,
                                enum drive_fsck_result *ret_result, struct error *error);
