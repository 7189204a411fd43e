/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.h - HTTP/1.1 for people and tools: libmicrohttpd on the loop, no threads.
 *
 * The unix socket (0600 root, or 0660 with paths.socket_group; the peer's credentials are checked
 * as well) serves everything, http.listen the read-only part, metrics.listen only /metrics,
 * /healthz and /readyz. Requests are bounded in size, number of connections and idle time.
 *
 *   GET  /                    the status page, for a browser; it loads /status.css and /status.js
 *   GET  /healthz             200 "ok" while the loop runs
 *   GET  /readyz              200 once the first scan is done and nothing is degraded, else 503
 *   GET  /metrics             in Prometheus' text format
 *   GET  /v1/VIEW             JSON array of a view's rows: volumes, sandboxes, devices, layers,
 *                             mappings, resizes, cleanups, journal, drives.
 *                             ?id= ?volume= ?after= ?last= ?live=1
 *   GET  /v1/volumes/ID       the row of one volume; with /explain all that explains it
 *   GET  /v1/status           the summary that crustctl status shows
 *   GET  /v1/doctor           the doctor's findings
 *   POST /v1/resync           202; socket only
 *   POST /v1/gc               what looks stale and what is done about it; ?dry_run=1; socket only
 *   POST /v1/cleanups/ID/restore   puts back what was removed; socket only
 *
 * The socket also serves the requests that http_asked.h lists, stats and resize of one volume, and
 * those of http_asked_drive.h.
 *
 * On http.listen a request with an unknown name in Host gets 403, and GET /v1/doctor may return
 * earlier findings.
 *
 * Errors are JSON {"code","reason","message"}: code is gRPC's name (NOT_FOUND, …), and the HTTP
 * status follows gRPC's mapping.
 */
#pragma once

#include "api/http_host.h"
#include "api/operations.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

struct http_server;

struct http_server_options {
    int root;                      /* O_PATH of --root */
    const char *socket_path;       /* below root; its directory is made (0755) if absent */
    const char *socket_group;      /* "" or NULL: root only */
    const char *listen;            /* "" or ADDRESS:PORT */
    const char *metrics_listen;    /* likewise */
    struct http_hosts hosts;       /* names that http.listen accepts in Host besides its own */
    struct operations *operations; /* where calls are counted; shown by /metrics */
};

/* A stale socket (one that nothing listens on) is replaced. 0 or -errno with a text. */
int http_server_new(struct loop *loop, struct reconciler *reconciler,
                    const struct http_server_options *options, struct http_server **ret_server,
                    struct error *error);
struct http_server *http_server_free(struct http_server *server);
