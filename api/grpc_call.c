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

#include "api/grpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/proto.h"

enum { REPLY_BYTES = 2 * 1024, ESCAPED_BYTES = 3 * ERROR_TEXT_BYTES };

/* For clients that set no grpc-timeout. The kubelet and CSI's sidecars give up after two
 * minutes. */
static const uint64_t TIMEOUT_NS = 120 * NSEC_PER_SEC;

struct grpc_call {
    const struct grpc_call_options *options;
    struct http2_connection *connection;
    struct http2_request *request;
    const char *method;  /* its path */
    uint64_t timeout_ns; /* from the beginning of the request */
    struct loop_timer deadline;
    void (*cancel)(void *work); /* set while the method has yet to reply */
    void *work;
};

/* What a command stores until it answers is smaller than the reply that follows, so it needs no
 * term of its own. */
_Static_assert(sizeof(struct http2_request) + sizeof(struct grpc_call) + REPLY_BYTES <=
                   HTTP2_REQUEST_BYTES,
               "the bound on what clients take (http2_session.h) holds no more");

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

static int append_reply(struct buffer *body, const void *packed, size_t length)
{
    size_t start = 0;
    int r = grpc_begin_message(body, &start);

    if (r == 0)
        r = buffer_append(body, packed, length);
    if (r == 0)
        grpc_end_message(body, start);
    return r;
}

/* Returns the status that was sent. */
static enum status_code send_packed(struct http2_request *request, const void *packed,
                                    size_t length)
{
    static const struct http2_field trailer = {"grpc-status", "0"};
    const size_t bytes = GRPC_PREFIX_BYTES + length;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(bytes);

    if (bytes > REPLY_BYTES && !http2_reserve_reply(request, bytes)) {
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "too many large replies at a time");
        return STATUS_RESOURCE_EXHAUSTED;
    }
    if (append_reply(&body, packed, length) < 0) {
        send_error(request, STATUS_INTERNAL, "the reply does not fit into memory");
        return STATUS_INTERNAL;
    }
    log_call(request, STATUS_OK, "");
    http2_reply(request, "200", &content_type, 1, &body, &trailer);
    return STATUS_OK;
}

static enum status_code send_message(struct http2_request *request, const ProtobufCMessage *message)
{
    cleanup(buffer_done) struct buffer packed = BUFFER_INIT(REPLY_BYTES);

    if (proto_append(&packed, message) < 0) {
        send_error(request, STATUS_INTERNAL, "the reply does not fit into memory");
        return STATUS_INTERNAL;
    }
    return send_packed(request, packed.data, packed.length);
}

/* ---- a call ends ---- */

static void forget(struct grpc_call *call)
{
    if (call->cancel)
        http2_connection_wake(call->connection);
    loop_timer_stop(&call->deadline);
    call->request->userdata = NULL;
    free(call);
}

static void note(const struct grpc_call *call, enum status_code code)
{
    operations_note(call->options->operations, call->method, code, call->request->began_ns);
}

void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message)
{
    note(call, send_message(call->request, message));
    forget(call);
}

void grpc_call_reply_packed(struct grpc_call *call, const void *packed, size_t length)
{
    note(call, send_packed(call->request, packed, length));
    forget(call);
}

void grpc_call_fail(struct grpc_call *call, enum status_code code, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    send_error(call->request, code, text);
    note(call, code);
    forget(call);
}

void grpc_call_cancel(struct http2_request *request)
{
    struct grpc_call *call = request->userdata;

    if (!call)
        return;
    call->cancel(call->work);
    call->cancel = NULL;
    note(call, STATUS_CANCELLED);
    forget(call);
}

/* ---- what methods use ---- */

struct reconciler *grpc_call_reconciler(const struct grpc_call *call)
{
    return call->options->reconciler;
}

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

bool grpc_call_has_service(const struct grpc_call *call, const char *name)
{
    for (const struct grpc_method *const *service = call->options->services; *service; service++) {
        const char *path = (*service)[0].path;

        if (begins_with_service(path + 1, name) || begins_with_service(without_package(path), name))
            return true;
    }
    return false;
}

static void on_deadline(struct loop_timer *timer)
{
    struct grpc_call *call = container_of(timer, struct grpc_call, deadline);

    call->cancel(call->work);
    grpc_call_fail(call, STATUS_DEADLINE_EXCEEDED, "not done within the time of the call");
}

void grpc_call_wait(struct grpc_call *call, void (*cancel)(void *work), void *work)
{
    uint64_t passed = clock_boottime() - call->request->began_ns;

    call->cancel = cancel;
    call->work = work;
    loop_timer_start(call->options->loop, &call->deadline,
                     call->timeout_ns > passed ? call->timeout_ns - passed : 0, on_deadline);
}

int grpc_copy_text(const ProtobufCBinaryData *member, char *ret_text, size_t size)
{
    if (member->len >= size)
        return GRPC_TEXT_TOO_LONG;
    if (member->len) { /* an empty member has no bytes, and its pointer is not valid */
        if (!json_is_text((const char *)member->data, member->len))
            return GRPC_TEXT_WRONG;
        memcpy(ret_text, member->data, member->len);
    }
    ret_text[member->len] = '\0';
    return 0;
}

/* ---- a call begins ---- */

static bool is_path_of(const char *path, const struct grpc_method *method)
{
    const char *bare = without_package(method->path);

    return strcmp(method->path, path) == 0 ||
           (bare && path[0] == '/' && strcmp(bare, path + 1) == 0);
}

static const struct grpc_method *find_method(const struct grpc_call_options *options,
                                             const char *path)
{
    for (const struct grpc_method *const *service = options->services; *service; service++)
        for (const struct grpc_method *method = *service; method->path; method++)
            if (is_path_of(path, method))
                return method;
    return NULL;
}

/* true: the request was refused. */
static bool refuse_fault(struct http2_request *request)
{
    switch (request->fault) {
    case HTTP2_FINE:
        return false;
    case HTTP2_FIELDS_TOO_LONG:
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "the request's fields are too long");
        return true;
    case HTTP2_BODY_TOO_LONG:
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "a message has at most 64 KiB");
        return true;
    case HTTP2_NO_ROOM:
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "too many large requests at a time");
        return true;
    case HTTP2_TOO_SLOW:
        break;
    }
    send_error(request, STATUS_DEADLINE_EXCEEDED, "the request did not come within its time");
    return true;
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

/* true: the body is not a single message, and the request was refused. */
static bool refuse_body(struct http2_request *request, const void **ret_message, size_t *ret_length)
{
    switch (grpc_find_message(request->body.data, request->body.length, ret_message, ret_length)) {
    case GRPC_MESSAGE:
        return false;
    case GRPC_EMPTY:
    case GRPC_SEVERAL:
        send_error(request, STATUS_UNIMPLEMENTED, "the method takes exactly one message");
        return true;
    case GRPC_OVERSIZE:
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "a message has at most 64 KiB");
        return true;
    case GRPC_COMPRESSED:
        send_error(request, STATUS_INTERNAL, "the message is compressed, without grpc-encoding");
        return true;
    default:
        send_error(request, STATUS_INTERNAL, "the message is shorter than it says");
        return true;
    }
}

static int read_timeout(const struct http2_request *request, uint64_t *ret_nanoseconds)
{
    if (*request->timeout)
        return grpc_parse_timeout(request->timeout, ret_nanoseconds);
    *ret_nanoseconds = TIMEOUT_NS;
    return 0;
}

static void answer(const struct grpc_method *method, struct grpc_call *call, const void *bytes,
                   size_t length)
{
    ProtobufCMessage *message = NULL;

    if (proto_unpack(method->request, bytes, length, &message) < 0) {
        grpc_call_fail(call, STATUS_INTERNAL, "this is no %s", method->request->name);
        return;
    }
    method->answer(call, message);
    (void)proto_free(message);
}

void grpc_call_begin(const struct grpc_call_options *options, struct http2_request *request,
                     struct http2_connection *connection)
{
    const struct grpc_method *method;
    struct grpc_call *call;
    const void *message;
    uint64_t timeout;
    size_t length;

    if (refuse_fault(request) || refuse_protocol(request))
        return;
    method = find_method(options, request->path);
    if (!method) {
        send_error(request, STATUS_UNIMPLEMENTED, "there is no such method here");
        return;
    }
    if (refuse_body(request, &message, &length))
        return;
    if (read_timeout(request, &timeout) < 0) {
        send_error(request, STATUS_INTERNAL, "grpc-timeout is not understood");
        return;
    }
    call = calloc(1, sizeof(*call));
    if (!call) {
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *call = (struct grpc_call){.options = options,
                               .connection = connection,
                               .request = request,
                               .method = method->path,
                               .timeout_ns = timeout};
    request->userdata = call;
    if (clock_boottime() - request->began_ns < timeout)
        answer(method, call, message, length);
    else
        grpc_call_fail(call, STATUS_DEADLINE_EXCEEDED, "the request took all the time of the call");
}
