/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - the servers, and what they count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/listen.h"
#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

/* Calls of clients, with their result and duration, for metrics. */

struct operation {
    struct operation *next;
    const char *method; /* a constant */
    enum status_code code;
    struct histogram spans;
};

/* One entry per pair of method and code; zero-initialise. */
struct operations {
    struct operation *first;
};

/* method: a constant, identified by its address. The call took from began_ns (CLOCK_BOOTTIME) until
 * now. */
void operations_note(struct operations *operations, const char *method, enum status_code code,
                     uint64_t began_ns);
void operations_done(struct operations *operations);

/* The content of /metrics. Unless metrics.per_volume is on, no volume, sandbox or device is a
 * label: the number of lines is bounded by the names of states, reasons, runtimes, methods and
 * codes. 0 or -errno with a text. */
int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error);

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* ---- HTTP ----------------------------------------------------------------------------------- */

/* HTTP/1.1 for people and tools: libmicrohttpd on the loop, no threads.
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

/* ---- gRPC ----------------------------------------------------------------------------------- */

/* GRPC on a unix socket of the node, for CSI drivers.
 *
 *   crust.v1.Runtime              crust_ops of KEP-2857, for CSI drivers: a volume by its path
 *   crust.management.v1.RuntimeAssistedStorageManagement
 *                                 CRUST, for a kubelet: a volume by its sandbox and device
 *   crust.drive.v1.Drives         a disk of the node, mounted in a running VM
 *   grpc.health.v1.Health         Check
 *
 * Root and the processes of one group have access (by SO_PEERCRED as well as the socket's mode).
 * Calls are unary, uncompressed, of at most 64 KiB. A client must begin within 10 s, complete a
 * request within 10 s, read without a pause of 30 s, and send a request at least every 5 minutes. A
 * reply that is held up by the client's flow control does not keep the connection open for longer.
 * Memory is bounded as in http2.h, beside the bytes that are gathered for one write. At stop,
 * clients get GOAWAY, and calls in flight get their reply.
 */

struct grpc_server;

struct grpc_server_options {
    int root;                      /* O_PATH of --root */
    const char *socket_path;       /* below root; its directory is made (0755) if absent */
    const char *socket_group;      /* "" or NULL: root only */
    struct operations *operations; /* where calls are counted */
};

/* 0 or -errno with a text. */
int grpc_server_new(struct loop *loop, struct reconciler *reconciler,
                    const struct grpc_server_options *options, struct grpc_server **ret_server,
                    struct error *error);

/* Accepts no new connections and calls. */
void grpc_server_shut_down(struct grpc_server *server);

/* Sends the replies that are ready, cancels the other calls, closes. Accepts NULL; returns NULL. */
struct grpc_server *grpc_server_free(struct grpc_server *server);
