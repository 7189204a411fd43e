/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.h - HTTP/1.1 for people and tools: libmicrohttpd on the loop, no threads.
 *
 * The unix socket (0600 root, or 0660 with paths.socket_group; the peer's credentials are checked
 * as well) serves everything, http.listen the read-only part, metrics.listen only /metrics,
 * /healthz and /readyz. Requests are bounded in size, number of connections and idle time.
 *
 * docs/reference/http.md has the paths; GET /v1/doctor on http.listen may return earlier findings.
 *
 * Errors are JSON {"code","reason","message"}: code is gRPC's name (NOT_FOUND, …), and the HTTP
 * status follows gRPC's mapping.
 */
#pragma once

#include <stdbool.h>

#include "api/listen.h"
#include "api/metrics.h"
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
