/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked_drive.h - drives over HTTP, with the names that they have in crust.drive.v1. Private
 * to api/.
 *
 *   POST /v1/drives              {"drive_id":D,"sandbox_id":S,"host_path":P,"vm_path":P,
 *                                 "filesystem_type":F,"options":[O,…],"is_writable":B,
 *                                 "rate_limiter":L,"fsck":"none"|"preen","fs_group":N,
 *                                 "fs_group_change_policy":"Always"|"OnRootMismatch",
 *                                 "containers":[{"container_id":C,"path":P,"sub_path":P,
 *                                                "read_only":B},…]}
 *   POST /v1/drives/ID/detach    {} or nothing at all
 *   POST /v1/drives/ID/limits    {"rate_limiter":L}
 *
 * L is {"bandwidth":T,"ops":T}, T is {"size":N,"refill_time_ms":N,"one_time_burst":N}. Keys may
 * have any letter case; one that is not listed is refused, because a misspelt "is_writable" would
 * be taken for a read-only drive. null is the same as nothing. A size or burst of the bandwidth is
 * a number or a Kubernetes quantity.
 */
#pragma once

#include "api/http_asked.h"
#include "lib/buffer.h"
#include "reconciler/command/drives.h"

http_asked_read http_asked_drive_attach, http_asked_drive_detach, http_asked_drive_limits;

/* A drive as an object with its fields in crust.drive.v1, except for state and status, which are
 * words. 0 or as buffer_append(). */
int http_append_drive(struct buffer *json, const struct reconciler_drive *drive);
