/* SPDX-License-Identifier: Apache-2.0 */
/* http_routes.h - what each path answers, separate from the HTTP protocol. Private to api/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

enum {
    HTTP_ARGUMENTS = 8,
    HTTP_EXAMINATION_SECONDS = 30,
};

struct operations;

/* The listening socket of a request; each serves a different set of paths. */
enum http_listener {
    HTTP_LISTENER_SOCKET,
    HTTP_LISTENER_PAGES,
    HTTP_LISTENER_METRICS,
    HTTP_LISTENERS
};

/* The doctor's last findings, for clients over TCP. */
struct http_examination {
    struct buffer findings; /* empty: none yet */
    uint64_t made_ns;
};

struct http_argument {
    const char *name;
    const char *value;
};

struct http_request {
    struct reconciler *reconciler;
    const char *method;
    const char *path;
    unsigned arguments;
    struct http_argument argument[HTTP_ARGUMENTS];
    const char *body; /* the bytes after the head */
    size_t body_length;
    enum http_listener listener;
    const struct operations *operations; /* shown as metrics */
    struct http_examination *examination;
    bool is_crowded; /* other answers have a part of the memory for all of the listener */
};

struct http_reply {
    unsigned status;
    const char *content_type;
    const char *allow;    /* NULL, or the methods that the path supports */
    const char *policy;   /* NULL, or the page's Content-Security-Policy */
    uint64_t age_seconds; /* since the answer was made, if it is not new */
    struct buffer body;   /* the caller sets the limit and owns the bytes */
};

/* Whether the answer reads the database or examines the node. */
bool http_routes_is_costly(const struct http_request *request);

enum http_routes_result {
    HTTP_ROUTES_REPLY, /* it can be sent */
    HTTP_ROUTES_CALL,  /* http_routes_call() answers it */
};

/* An enum http_routes_result. -ENOMEM: the caller has to reply. */
int http_routes_answer(const struct http_request *request, struct http_reply *reply);

/* Ends the call, now or later. Its method's name is filled in. */
void http_routes_call(const struct http_request *request, struct call *call);

/* The answer of a call. 0 or -ENOMEM. */
int http_routes_write(struct http_reply *reply, const struct call *call,
                      const struct call_answer *answer);

/* An error in JSON, with the code's HTTP status; reason NULL: the code's usual one. 0 or -ENOMEM.
 */
int http_routes_refuse(struct http_reply *reply, enum status_code code, const char *reason,
                       const char *message);

/* ---- requests about one volume --------------------------------------------------------------- */

/* For its stats, or for a resize:
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

enum { HTTP_PATH_BYTES = 4096, HTTP_SANDBOX_BYTES = 256 };

/* Includes the texts that `expand` borrows. */
struct http_asked {
    bool resizes; /* otherwise stats, for which only the target counts */
    struct reconciler_expand expand;
    char path[HTTP_PATH_BYTES]; /* of the volume or its device */
    char sandbox_id[HTTP_SANDBOX_BYTES];
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

/* From the request's path, its one argument and its body. ret_asked is all zero before. STATUS_OK
 * or STATUS_INVALID_ARGUMENT. */
enum status_code http_asked_read(enum http_dialect dialect, const struct http_request *request,
                                 struct http_asked *ret_asked, struct error *error);

/* ---- status page ---------------------------------------------------------------------------- */

/* The files of the status page, which a browser fills over the API.
 *
 * The Makefile makes these texts from api/status.html and the files that it loads.
 */

/* What the browser may load: only crustd's own files and answers. */
#define STATUS_PAGE_POLICY                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

extern const char status_html[], status_css[], status_js[];
