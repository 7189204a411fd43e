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

#include "api/metrics.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

/* ---- http host ------------------------------------------------------------------------------ */

/* The names by which a browser may request the pages.
 *
 * A page of some website can make its own name resolve to this machine (DNS rebinding), and then
 * read what http.listen serves as if it were its own. The name in the Host header reveals this,
 * because a browser always sends the name that it used.
 */

enum {
    HTTP_HOSTS = 20,
    HTTP_HOST_BYTES = 256, /* a DNS name has at most 253 */
};

struct http_hosts {
    unsigned count;
    char name[HTTP_HOSTS][HTTP_HOST_BYTES];
};

/* Adds a name. A name that does not fit is ignored: no Host header can match it. */
void http_hosts_add(struct http_hosts *hosts, const char *name);

/* Adds this machine's own name, with and without its domain. */
void http_hosts_add_own(struct http_hosts *hosts);

/* Whether a Host header's value, with or without a port, is an address, localhost, or one of the
 * names in any letter case. NULL is allowed: HTTP/1.0 clients omit the header, browsers do not. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);

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

/* ---- http listen ---------------------------------------------------------------------------- */

/* A TCP socket of the HTTP server. */

/* Listens on "ADDRESS:PORT", "[ADDRESS]:PORT" or ":PORT" (numbers only, so that nothing waits for a
 * name server). "[::]" means every address of either family. `key` is the configuration key, for
 * the error text. 0 or -errno with a text. */
int http_listen_tcp(const char *key, const char *address, int *ret_fd, struct error *error);
