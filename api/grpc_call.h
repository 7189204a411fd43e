/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_call.h - one unary call, from its request to its one reply. Private to api/.
 *
 * A method reads the message and either replies at once, or calls grpc_call_wait() with the
 * function to call when the client gives up or its time is over, and replies later.
 */
#pragma once

#include <errno.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/http2_connection.h"
#include "api/operations.h"
#include "lib/loop.h"
#include "lib/result.h"

struct grpc_call;
struct reconciler;

struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *request;
    void (*answer)(struct grpc_call *call, const ProtobufCMessage *request);
};

/* Ends with a row whose path is NULL. */
extern const struct grpc_method health_methods[];
extern const struct grpc_method crust_runtime_methods[];
extern const struct grpc_method crust_management_methods[];
extern const struct grpc_method crust_drives_methods[];

struct grpc_call_options {
    struct loop *loop;
    struct reconciler *reconciler;
    const struct grpc_method *const *services; /* ends with NULL */
    struct operations *operations;
};

/* Answers a request, now or later; a later answer wakes the connection. */
void grpc_call_begin(const struct grpc_call_options *options, struct http2_request *request,
                     struct http2_connection *connection);

/* The request is gone: cancels its method. */
void grpc_call_cancel(struct http2_request *request);

/* ---- for methods ---- */

struct reconciler *grpc_call_reconciler(const struct grpc_call *call);

/* Whether this server offers a service of this name. */
bool grpc_call_has_service(const struct grpc_call *call, const char *name);

/* The method will reply later. `cancel` is called once if the reply is no longer wanted: the client
 * gave up, or grpc-timeout (or crustd's own limit) passed. Then the method must not reply. */
void grpc_call_wait(struct grpc_call *call, void (*cancel)(void *work), void *work);

/* Each of these ends the call. A message that was packed already may be long: it draws on the room
 * for bodies, and the client gets RESOURCE_EXHAUSTED where none is left. */
void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message);
void grpc_call_reply_packed(struct grpc_call *call, const void *packed, size_t length);
void grpc_call_fail(struct grpc_call *call, enum status_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum grpc_text_failure {
    GRPC_TEXT_WRONG = -EINVAL, /* not UTF-8, or contains a NUL */
    GRPC_TEXT_TOO_LONG = -EMSGSIZE,
};

/* Copies a member of a request as text, shorter than size. 0 or an enum grpc_text_failure. */
int grpc_copy_text(const ProtobufCBinaryData *member, char *ret_text, size_t size);
