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

struct grpc_call_options {
    struct call_surroundings surroundings;
    const struct call_method *const *services; /* ends with NULL */
};

/* Answers a request, now or later; a later answer wakes the connection. */
void grpc_call_begin(const struct grpc_call_options *options, struct http2_request *request,
                     struct http2_connection *connection);

/* The request is gone: cancels its method. */
void grpc_call_cancel(struct http2_request *request);

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
 * Calls are unary, uncompressed, of at most 64 KiB. At stop, clients get GOAWAY, and calls in
 * flight get their reply.
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

/* ---- grpc codec ----------------------------------------------------------------------------- */

/* GRPC's own encodings over HTTP/2: text and bytes, no I/O.
 *
 * A message is a byte that says whether it is compressed, its length (4 bytes, big endian) and its
 * bytes; the boundaries of DATA frames have no meaning. Source: grpc/doc/PROTOCOL-HTTP2.md.
 */

enum {
    GRPC_PREFIX_BYTES = 5,
    GRPC_MESSAGE_BYTES = 64 * 1024, /* the limit of mountInfo.json */
};

/* "application/grpc", also with "+proto" or another suffix, or with parameters. */
bool grpc_is_content_type(const char *value);

/* "500m": one to eight digits and H, M, S, m, u or n. 0, -EINVAL. */
int grpc_parse_timeout(const char *text, uint64_t *ret_nanoseconds);

/* Outcomes of grpc_find_message(). */
enum {
    GRPC_MESSAGE,
    GRPC_EMPTY,      /* no message */
    GRPC_CUT,        /* shorter than its prefix announces */
    GRPC_OVERSIZE,   /* its prefix announces more than GRPC_MESSAGE_BYTES */
    GRPC_COMPRESSED, /* not offered by this server */
    GRPC_SEVERAL,    /* followed by more bytes */
};

/* Finds the one message in the whole body of a unary call. ret_message is borrowed from the body,
 * and only set for GRPC_MESSAGE. */
int grpc_find_message(const void *body, size_t length, const void **ret_message,
                      size_t *ret_length);

/* Begins a message of that many bytes, which follow. 0 or as buffer_append(). */
int grpc_append_prefix(struct buffer *body, size_t length);

/* Encodes grpc-message: bytes other than printable ASCII, and the percent sign, become %XX. A text
 * that does not fit into size (at least 1) is cut, but never within an escape. */
void grpc_escape_text(const char *text, char *ret_escaped, size_t size);
