/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_server.h - gRPC on a unix socket of the node, for CSI drivers.
 *
 *   crust.v1.Runtime              crust_ops of KEP-2857, for CSI drivers: a volume by its path
 *   crust.management.v1.RuntimeAssistedStorageManagement
 *                                 CRUST, for a kubelet: a volume by its sandbox and device
 *   crust.drive.v1.Drives         a disk of the node, mounted in a running VM
 *   grpc.health.v1.Health         Check
 *
 * Root and the processes of one group have access (by SO_PEERCRED as well as the socket's mode).
 * Calls are unary, uncompressed, of at most 64 KiB. At stop, clients get GOAWAY, and calls in
 * flight get their reply.
 */
#pragma once

#include "api/operations.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

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
