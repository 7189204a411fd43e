/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_call.h - unary calls over gRPC. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "api/http2.h"
#include "api/metrics.h"
#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

struct grpc_connection;

struct grpc_call_options {
    struct call_surroundings surroundings;
    const struct call_method *const *services; /* ends with NULL */
    /* A reply was queued outside of grpc_call_begin(), and is to be sent. */
    void (*wake)(struct grpc_connection *connection);
};

/* Answers a request, now or later; a later answer wakes the connection. */
void grpc_call_begin(const struct grpc_call_options *options, struct http2_request *request,
                     struct grpc_connection *connection);

/* The request is gone: cancels its method. */
void grpc_call_cancel(struct http2_request *request, void *ignored);

/* Whether the server of this call offers a service of this name. */
bool grpc_call_has_service(struct call *call, const char *name);

/* ---- grpc server ---------------------------------------------------------------------------- */

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
