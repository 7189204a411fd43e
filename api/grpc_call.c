/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_call.c - gRPC's requirements on a request, and its replies.
 *
 * Requests that are not gRPC's (another method than POST, another content type) get an HTTP status,
 * because their sender is not a gRPC client. All others get HTTP 200: a successful reply is a
 * message and the trailer grpc-status 0, any other reply is trailers only, in one HEADERS frame.
 *
 * A message is unpacked with a bound on memory and passed to the method as protobuf-c's structure.
 */
#include "api/grpc_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/message.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proto.h"

enum { REPLY_BYTES = 2 * 1024, ESCAPED_BYTES = 3 * ERROR_TEXT_BYTES };

struct grpc_call {
    struct call call;
    const struct grpc_call_options *options;
    struct http2_connection *connection;
    struct http2_request *request;
};

/* What a command stores until it answers is smaller than the reply that follows, so it needs no
 * term of its own. */
_Static_assert(sizeof(struct http2_request) + sizeof(struct grpc_call) + REPLY_BYTES <=
                   HTTP2_REQUEST_BYTES,
               "the bound on what clients take (http2.h) holds no more");

static const struct http2_field content_type = {"content-type", "application/grpc"};

/* ---- replies ---- */

static void log_call(const struct http2_request *request, enum status_code code, const char *text)
{
    log_debug(&(struct log_ids){.source = "grpc"}, "%s: %d %s", request->path, (int)code, text);
}

static void send_error(struct http2_request *request, enum status_code code, const char *text)
{
    char number[16], escaped[ESCAPED_BYTES];
    const struct http2_field fields[] = {
        content_type,
        {"grpc-status", number},
        {"grpc-message", escaped},
        {"grpc-accept-encoding", "identity"},
    };

    (void)snprintf(number, sizeof(number), "%d", (int)code);
    grpc_escape_text(text, escaped, sizeof(escaped));
    log_call(request, code, text);
    http2_reply(request, "200", fields, array_length(fields), NULL, NULL);
}

/* A long reply draws on the room for bodies. Returns the status that was sent. */
static enum status_code send_reply(struct http2_request *request, const struct call_answer *answer)
{
    static const struct http2_field trailer = {"grpc-status", "0"};
    const size_t length =
        answer->reply ? protobuf_c_message_get_packed_size(answer->reply) : answer->packed->length;
    const size_t bytes = GRPC_PREFIX_BYTES + length;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(bytes);

    if (bytes > REPLY_BYTES && !http2_reserve_reply(request, bytes)) {
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "too many large replies at a time");
        return STATUS_RESOURCE_EXHAUSTED;
    }
    (void)grpc_append_prefix(&body, length);
    if (answer->reply)
        (void)buffer_fail(&body, proto_append(&body, answer->reply));
    else
        (void)buffer_append(&body, answer->packed->data, length);
    if (buffer_error(&body) < 0) {
        send_error(request, STATUS_INTERNAL, "the reply does not fit into memory");
        return STATUS_INTERNAL;
    }
    log_call(request, STATUS_OK, "");
    http2_reply(request, "200", &content_type, 1, &body, &trailer);
    return STATUS_OK;
}

/* ---- a call ends ---- */

static void forget(struct grpc_call *call)
{
    call->request->userdata = NULL;
    free(call);
}

static enum status_code finish_call(struct call *call, const struct call_answer *answer)
{
    struct grpc_call *grpc = container_of(call, struct grpc_call, call);
    enum status_code code = answer->code;

    if (code == STATUS_OK)
        code = send_reply(grpc->request, answer);
    else
        send_error(grpc->request, code, answer->text);
    if (call->cancel)
        http2_connection_wake(grpc->connection);
    forget(grpc);
    return code;
}

void grpc_call_cancel(struct http2_request *request)
{
    struct grpc_call *call = request->userdata;

    if (!call)
        return;
    call_cancel(&call->call);
    forget(call);
}

/* ---- what methods use ---- */

/* The documents that propose these services name no package, so clients generated from them call
 * "/Runtime/…". NULL: the path is not that of a crust service. */
static const char *without_package(const char *path)
{
    static const char package[] = "/crust.";
    size_t length = strcspn(path + 1, "/") + 1;

    if (strncmp(path, package, strlen(package)) != 0)
        return NULL;
    while (path[length] != '.')
        length--;
    return path + length + 1;
}

static bool begins_with_service(const char *path, const char *name)
{
    size_t length = strlen(name);

    return path && strncmp(path, name, length) == 0 && path[length] == '/';
}

bool grpc_call_has_service(struct call *call, const char *name)
{
    const struct grpc_call *grpc = container_of(call, struct grpc_call, call);

    for (const struct call_method *const *service = grpc->options->services; *service; service++) {
        const char *path = (*service)[0].path;

        if (begins_with_service(path + 1, name) || begins_with_service(without_package(path), name))
            return true;
    }
    return false;
}

/* ---- a call begins ---- */

static bool is_path_of(const char *path, const struct call_method *method)
{
    const char *bare = without_package(method->path);

    return strcmp(method->path, path) == 0 ||
           (bare && path[0] == '/' && strcmp(bare, path + 1) == 0);
}

static const struct call_method *find_method(const struct grpc_call_options *options,
                                             const char *path)
{
    for (const struct call_method *const *service = options->services; *service; service++)
        for (const struct call_method *method = *service; method->path; method++)
            if (is_path_of(path, method))
                return method;
    return NULL;
}

struct refusal {
    enum status_code code;
    const char *text; /* NULL: it is not refused */
};

static const struct refusal faults[] = {
    [HTTP2_FINE] = {STATUS_OK, NULL},
    [HTTP2_FIELDS_TOO_LONG] = {STATUS_RESOURCE_EXHAUSTED, "the request's fields are too long"},
    [HTTP2_BODY_TOO_LONG] = {STATUS_RESOURCE_EXHAUSTED, "a message has at most 64 KiB"},
    [HTTP2_NO_ROOM] = {STATUS_RESOURCE_EXHAUSTED, "too many large requests at a time"},
    [HTTP2_TOO_SLOW] = {STATUS_DEADLINE_EXCEEDED, "the request did not come within its time"},
};

static const struct refusal bodies[] = {
    [GRPC_MESSAGE] = {STATUS_OK, NULL},
    [GRPC_EMPTY] = {STATUS_UNIMPLEMENTED, "the method takes exactly one message"},
    [GRPC_CUT] = {STATUS_INTERNAL, "the message is shorter than it says"},
    [GRPC_OVERSIZE] = {STATUS_RESOURCE_EXHAUSTED, "a message has at most 64 KiB"},
    [GRPC_COMPRESSED] = {STATUS_INTERNAL, "the message is compressed, without grpc-encoding"},
    [GRPC_SEVERAL] = {STATUS_UNIMPLEMENTED, "the method takes exactly one message"},
};

/* Each is true if it refused the request. */
static bool refuse(struct http2_request *request, const struct refusal *refusal)
{
    if (refusal->text)
        send_error(request, refusal->code, refusal->text);
    return refusal->text;
}

static bool refuse_protocol(struct http2_request *request)
{
    static const struct http2_field allow = {"allow", "POST"};

    if (strcmp(request->method, "POST") != 0)
        http2_reply(request, "405", &allow, 1, NULL, NULL);
    else if (!grpc_is_content_type(request->content_type))
        http2_reply(request, "415", NULL, 0, NULL, NULL);
    else if (*request->encoding && strcmp(request->encoding, "identity") != 0)
        send_error(request, STATUS_UNIMPLEMENTED, "messages are taken uncompressed only");
    else
        return false;
    return true;
}

static int read_timeout(const struct http2_request *request, uint64_t *ret_nanoseconds)
{
    if (*request->timeout)
        return grpc_parse_timeout(request->timeout, ret_nanoseconds);
    *ret_nanoseconds = CALL_TIMEOUT_NS;
    return 0;
}

static void answer(const struct call_method *method, struct call *call, const void *bytes,
                   size_t length)
{
    ProtobufCMessage *message = NULL;
    struct error error = {0};
    enum status_code code;

    if (proto_unpack(method->request, bytes, length, &message) < 0) {
        call_fail(call, STATUS_INTERNAL, "this is no %s", method->request->name);
        return;
    }
    code = message_check(message, &error);
    if (code == STATUS_OK)
        method->answer(call, message);
    else
        call_fail(call, code, "%s", error.text);
    (void)proto_free(message);
}

void grpc_call_begin(const struct grpc_call_options *options, struct http2_request *request,
                     struct http2_connection *connection)
{
    const struct call_method *method;
    struct grpc_call *grpc;
    const void *message;
    uint64_t timeout;
    size_t length;

    if (refuse(request, &faults[request->fault]) || refuse_protocol(request))
        return;
    method = find_method(options, request->path);
    if (!method) {
        send_error(request, STATUS_UNIMPLEMENTED, "there is no such method here");
        return;
    }
    if (refuse(request, &bodies[grpc_find_message(request->body.data, request->body.length,
                                                  &message, &length)]))
        return;
    if (read_timeout(request, &timeout) < 0) {
        send_error(request, STATUS_INTERNAL, "grpc-timeout is not understood");
        return;
    }
    grpc = calloc(1, sizeof(*grpc));
    if (!grpc) {
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *grpc = (struct grpc_call){.call = {.surroundings = &options->surroundings,
                                        .finish = finish_call,
                                        .method = method->path,
                                        .began_ns = request->began_ns,
                                        .timeout_ns = timeout},
                               .options = options,
                               .connection = connection,
                               .request = request};
    request->userdata = grpc;
    if (clock_boottime() - request->began_ns < timeout)
        answer(method, &grpc->call, message, length);
    else
        call_fail(&grpc->call, STATUS_DEADLINE_EXCEEDED,
                  "the request took all the time of the call");
}
