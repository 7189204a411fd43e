/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked.h - requests about one volume: for its stats, or for a resize. Private to api/.
 * http_asked.h has those about a drive.
 *
 *   POST /v1/volumes/ID/resize           {"required_bytes":N,"limit_bytes":N}, both optional; or
 *                                        nothing at all
 *   GET  /v1/volumes/ID/stats
 *   GET  /direct-volume/stats?path=P     as Kata's shim has it: P is a volume path, or a device
 *   GET  /direct-volume/stats/URLSAFE    the same, P in padded base64url
 *   POST /direct-volume/resize           {"volumePath":P,"size":N}
 *   PUT  /fs-stats                       {"block-device":D,"pod-id":SANDBOX}
 *   PUT  /fs-resize                      {"block-device":D,"pod-id":SANDBOX,"volume-size":N}
 *
 * D is a path, or a name below /dev. Keys may have any letter case. A size is a number or a text:
 * digits or a Kubernetes quantity ("8Gi"). The last two requests were proposed for a shim, which
 * knows its sandbox; here pod-id names the sandbox, and may be omitted if only one volume is on the
 * device. A requested size is a minimum: a volume is resized to the size of its device.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drives.h"

enum { HTTP_PATH_BYTES = 4096, HTTP_SANDBOX_BYTES = 256 };

struct drive_asked;

/* Includes the texts that `expand` borrows. */
struct http_asked {
    const char *method;        /* a constant, for metrics */
    struct drive_asked *drive; /* NULL: it is about a volume */
    bool resizes;              /* otherwise stats, for which only the target counts */
    struct reconciler_expand expand;
    char path[HTTP_PATH_BYTES]; /* of the volume or its device */
    char sandbox_id[HTTP_SANDBOX_BYTES];
};

/* Path and argument without their NUL; the body may be any bytes. */
struct http_question {
    const char *path;     /* of the URL, decoded */
    const char *argument; /* ?path=, decoded; NULL: none */
    const char *body;
    size_t body_length;
};

/* Frees what a reader allocated, also one that refused. */
void http_asked_done(struct http_asked *asked);

/* ret_asked is all zero before. */
typedef enum status_code http_asked_read(const struct http_question *question,
                                         struct http_asked *ret_asked, struct error *error);

http_asked_read http_asked_volume_resize, http_asked_volume_stats, http_asked_shim_stats,
    http_asked_shim_resize, http_asked_fs_stats, http_asked_fs_resize;

/* ---- http asked drive ----------------------------------------------------------------------- */

/* Drives over HTTP, with the names that they have in crust.drive.v1. Private
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

http_asked_read http_asked_drive_attach, http_asked_drive_detach, http_asked_drive_limits;

/* A drive as an object with its fields in crust.drive.v1, except for state and status, which are
 * words. 0 or as buffer_append(). */
int http_append_drive(struct buffer *json, const struct reconciler_drive *drive);
