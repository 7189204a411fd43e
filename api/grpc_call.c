/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_call.c - gRPC's requirements on a request, and its replies.
 *
 * A message is a byte that says whether it is compressed, its length (4 bytes, big endian) and its
 * bytes; the boundaries of DATA frames have no meaning. Source: grpc/doc/PROTOCOL-HTTP2.md.
 *
 * Requests that are not gRPC's (another method than POST, another content type) get an HTTP status,
 * because their sender is not a gRPC client. All others get HTTP 200: a successful reply is a
 * message and the trailer grpc-status 0, any other reply is trailers only, in one HEADERS frame.
 *
 * A message is unpacked with a bound on memory and passed to the method as protobuf-c's structure.
 */
#include "api/grpc_call.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proto.h"

enum {
    PREFIX_BYTES = 5,
    MESSAGE_BYTES_MOST = 64 * 1024, /* the limit of mountInfo.json */
    REPLY_BYTES = 2 * 1024,
    ESCAPED_BYTES = 3 * ERROR_TEXT_BYTES,
    TIMEOUT_DIGITS = 8,
};

struct grpc_call {
    struct call call;
    const struct grpc_call_options *options;
    struct grpc_connection *connection;
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

/* Bytes other than printable ASCII, and the percent sign, become %XX. */
static void escape_text(const char *text, char ret_escaped[static ESCAPED_BYTES])
{
    size_t used = 0;

    for (; *text && used < ESCAPED_BYTES - 4; text++) {
        const uint8_t byte = (uint8_t)*text;

        if (byte >= ' ' && byte <= '~' && byte != '%')
            ret_escaped[used++] = *text;
        else
            used += (size_t)snprintf(ret_escaped + used, 4, "%%%02X", byte);
    }
    ret_escaped[used] = '\0';
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
    escape_text(text, escaped);
    log_call(request, code, text);
    http2_reply(request, "200", fields, array_length(fields), NULL, NULL);
}

/* A long reply draws on the room for bodies. Returns the status that was sent. */
static enum status_code send_reply(struct http2_request *request, const struct call_answer *answer)
{
    static const struct http2_field trailer = {"grpc-status", "0"};
    const size_t length =
        answer->reply ? protobuf_c_message_get_packed_size(answer->reply) : answer->packed->length;
    const size_t bytes = PREFIX_BYTES + length;
    const uint32_t announced = htobe32((uint32_t)length);
    char prefix[PREFIX_BYTES] = "";
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(bytes);

    if (bytes > REPLY_BYTES && !http2_reserve_reply(request, bytes)) {
        send_error(request, STATUS_RESOURCE_EXHAUSTED, "too many large replies at a time");
        return STATUS_RESOURCE_EXHAUSTED;
    }
    memcpy(prefix + 1, &announced, sizeof(announced));
    (void)buffer_append(&body, prefix, sizeof(prefix));
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
        grpc->options->wake(grpc->connection);
    forget(grpc);
    return code;
}

void grpc_call_cancel(struct http2_request *request, void *ignored)
{
    struct grpc_call *call = request->userdata;

    (void)ignored;
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

static const struct call_method *find_method(const struct grpc_call_options *options,
                                             const char *path)
{
    for (const struct call_method *const *service = options->services; *service; service++)
        for (const struct call_method *method = *service; method->path; method++) {
            const char *bare = without_package(method->path);

            if (strcmp(method->path, path) == 0 ||
                (bare && path[0] == '/' && strcmp(bare, path + 1) == 0))
                return method;
        }
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

/* The one message in the whole body of a unary call, borrowed from it. */
static struct refusal find_message(const struct buffer *body, const void **ret_message,
                                   size_t *ret_length)
{
    static const char one[] = "the method takes exactly one message",
                      cut[] = "the message is shorter than it says";
    const size_t length = body->length - PREFIX_BYTES;
    uint32_t announced;

    if (body->length == 0)
        return (struct refusal){STATUS_UNIMPLEMENTED, one};
    if (body->length < PREFIX_BYTES)
        return (struct refusal){STATUS_INTERNAL, cut};
    memcpy(&announced, body->data + 1, sizeof(announced));
    announced = be32toh(announced);
    if (announced > MESSAGE_BYTES_MOST)
        return (struct refusal){STATUS_RESOURCE_EXHAUSTED, "a message has at most 64 KiB"};
    if (body->data[0])
        return (struct refusal){STATUS_INTERNAL,
                                "the message is compressed, without grpc-encoding"};
    if (length != announced)
        return length < announced ? (struct refusal){STATUS_INTERNAL, cut}
                                  : (struct refusal){STATUS_UNIMPLEMENTED, one};
    *ret_message = body->data + PREFIX_BYTES;
    *ret_length = announced;
    return (struct refusal){STATUS_OK, NULL};
}

/* "500m": one to eight digits and H, M, S, m, u or n. Eight digits of hours are 3.6e20 ns and do
 * not fit; anything above a century becomes a century. 0, -EINVAL. */
static int parse_timeout(const char *text, uint64_t *ret_nanoseconds)
{
    static const char letters[] = "HMSmun";
    static const uint64_t units[] = {
        3600 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, NSEC_PER_SEC, NSEC_PER_MSEC, 1000, 1};
    const size_t digits = strspn(text, "0123456789");
    const char *letter = strchr(letters, text[digits]);
    uint64_t number, unit;

    if (digits == 0 || digits > TIMEOUT_DIGITS || !letter || !*letter || text[digits + 1] != '\0')
        return -EINVAL;
    number = strtoull(text, NULL, 10);
    unit = units[letter - letters];
    *ret_nanoseconds = number > INT64_MAX / unit ? INT64_MAX : number * unit;
    return 0;
}

/* Each is true if it refused the request. */
static bool refuse(struct http2_request *request, struct refusal refusal)
{
    if (refusal.text)
        send_error(request, refusal.code, refusal.text);
    return refusal.text;
}

static bool refuse_protocol(struct http2_request *request)
{
    static const struct http2_field allow = {"allow", "POST"};
    static const char type[] = "application/grpc"; /* also with "+proto", or with parameters */
    const char *rest = request->content_type + strlen(type);

    if (strcmp(request->method, "POST") != 0)
        http2_reply(request, "405", &allow, 1, NULL, NULL);
    else if (strncmp(request->content_type, type, strlen(type)) != 0 ||
             (*rest && *rest != '+' && *rest != ';'))
        http2_reply(request, "415", NULL, 0, NULL, NULL);
    else if (*request->encoding && strcmp(request->encoding, "identity") != 0)
        send_error(request, STATUS_UNIMPLEMENTED, "messages are taken uncompressed only");
    else
        return false;
    return true;
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
                     struct grpc_connection *connection)
{
    const struct call_method *method;
    struct grpc_call *grpc;
    uint64_t timeout = CALL_TIMEOUT_NS;
    const void *message;
    size_t length;

    if (refuse(request, faults[request->fault]) || refuse_protocol(request))
        return;
    method = find_method(options, request->path);
    if (!method) {
        send_error(request, STATUS_UNIMPLEMENTED, "there is no such method here");
        return;
    }
    if (refuse(request, find_message(&request->body, &message, &length)))
        return;
    if (*request->timeout && parse_timeout(request->timeout, &timeout) < 0) {
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
