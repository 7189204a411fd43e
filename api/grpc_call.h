/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_call.h - unary calls over gRPC. Private to api/. */
#pragma once

#include <stdbool.h>

#include "api/call.h"
#include "api/http2.h"

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
