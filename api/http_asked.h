/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked.h - requests about one volume: for its stats, or for a resize. Private to api/.
 * http_asked_drive.h has those about a drive.
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

#include "lib/result.h"
#include "lib/status.h"
#include "reconciler/command/command.h"

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
