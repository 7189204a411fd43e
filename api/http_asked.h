/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked.h - requests about one volume: for its stats, or for a resize. Private to api/.
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

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

enum { HTTP_PATH_BYTES = 4096, HTTP_SANDBOX_BYTES = 256 };

/* Includes the texts that `expand` borrows. */
struct http_asked {
    bool resizes; /* otherwise stats, for which only the target counts */
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

enum http_dialect {
    HTTP_VOLUME_RESIZE,
    HTTP_VOLUME_STATS,
    HTTP_SHIM_RESIZE,
    HTTP_SHIM_STATS,
    HTTP_FS_RESIZE,
    HTTP_FS_STATS,
    HTTP_DIALECTS,
};

/* ret_asked is all zero before. STATUS_OK or STATUS_INVALID_ARGUMENT. */
enum status_code http_asked_read(enum http_dialect dialect, const struct http_question *question,
                                 struct http_asked *ret_asked, struct error *error);

/* ---- http volume ---------------------------------------------------------------------------- */

/* One volume: its row, and all that explains it. */

struct reconciler;
struct store_reader;

enum http_volume_failure { HTTP_VOLUME_UNKNOWN = -ENOENT /* there is no such volume */ };

/* Each appends a JSON object about the volume with this id. 0, HTTP_VOLUME_UNKNOWN, another -errno
 * with a text. */
int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error);

/* {"volume_id","target_path","state","reason","resizable","resizable_reason", the members of
 * advice_append(), "volume":{…},"mapping","sandbox","resize","cleanup":{…}|null,"layers":[…],
 * "journal":[…],"judged":[…]|null}: the explanation, and the newest rows of the views. judge:
 * whether its metadata is judged now, which costs a look at the node; else "judged" is missing. */
int http_volume_explain(struct reconciler *reconciler, int64_t volume_id, bool judge,
                        struct buffer *json, struct error *error);
