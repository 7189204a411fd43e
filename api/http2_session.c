/* SPDX-License-Identifier: Apache-2.0 */
/* http2_session.c - nghttp2, and what it leaves to its user.
 *
 * nghttp2 implements the protocol, this file the bounds. A request lives as long as its stream. It
 * is passed to the handler when it is complete, or as soon as it has a fault; what arrives after
 * that is dropped. A reply to a request that the client is still sending is followed by
 * RST_STREAM(NO_ERROR), which asks it to stop (RFC 9113, 8.1).
 *
 * Only those fields of a request that are stored are checked. nghttp2 would check all of them, and
 * refuse clients that put the socket's path into :authority, as gRPC in Go did for a long time.
 *
 * Memory: a session has at most HTTP2_STREAMS requests, each with fields of fixed size, and one
 * reply. Bodies beyond a few KiB draw on a room that all sessions share, so that a client that
 * fills it does not keep out the small requests of others. nghttp2's memory for the session has a
 * limit of its own (http2.h), whatever it is used for: incomplete fields and frames,
 * acknowledgements and resets that the client does not read.
 *
 * Work: a frame that requests nothing (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, a
 * reset) draws on an allowance that is refilled by time and by replies: a busy client measures its
 * round trips by pings and returns windows, an idle one does neither. Resets also have nghttp2's
 * own limit. Beyond the allowance the session ends with ENHANCE_YOUR_CALM.
 */
#include "api/http2.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"

enum {
    FIELD_BYTES = 32, /* what RFC 9113 adds for each field */
    FIELDS_BYTES_MAX = 64 * 1024,
    RESETS = 200,
    RESETS_PER_SECOND = 20,
    CONTINUATIONS = 8,
    ACKS = 256,
    REPLY_FIELDS = 8,
};

struct http2_session {
    nghttp2_session *nghttp2;
    struct http2_memory memory;
    const struct http2_handler *handler;
    void *userdata;
    struct http2_room *room;
    size_t body_bytes; /* of all its requests */
    struct http2_request *requests;
    bool begun;
    bool broken; /* nothing more is accepted from the client */
    unsigned noise;
    uint64_t noise_since_ns;
    uint64_t idle_since_ns; /* when a request last came, was replied to or went */
};

/* ---- requests ---- */

static struct http2_request *find_request(struct http2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session->nghttp2, stream);
}

static size_t beyond_own(size_t body_bytes)
{
    return body_bytes > HTTP2_OWN_BYTES ? body_bytes - HTTP2_OWN_BYTES : 0;
}

/* Changes the total of the session's bodies to body_bytes. false: the shared room is full. */
static bool fit_bodies(struct http2_session *session, size_t body_bytes)
{
    struct http2_room *room = session->room;
    size_t used = room->used - beyond_own(session->body_bytes) + beyond_own(body_bytes);

    if (used > room->used && used > room->limit)
        return false;
    room->used = used;
    session->body_bytes = body_bytes;
    return true;
}

static void free_body(struct http2_request *request)
{
    (void)fit_bodies(request->session, request->session->body_bytes - request->body.length);
    buffer_done(&request->body);
}

static void free_request(struct http2_request *request)
{
    struct http2_session *session = request->session;

    LL_DELETE(session->requests, request);
    if (request->given && !request->replied)
        session->handler->cancelled(request, session->userdata);
    session->idle_since_ns = clock_boottime();
    free_body(request);
    (void)fit_bodies(session, session->body_bytes - request->reply_room);
    buffer_done(&request->reply);
    free(request);
}

static void give(struct http2_request *request, enum http2_fault fault)
{
    if (request->given)
        return;
    request->given = true;
    request->fault = fault;
    request->session->handler->request(request, request->session->userdata);
}

static void keep_field(struct http2_request *request, const char *name, const char *value)
{
    const struct {
        const char *name;
        char *place;
        size_t size;
    } kept[] = {
        {":method", request->method, sizeof(request->method)},
        {":path", request->path, sizeof(request->path)},
        {"content-type", request->content_type, sizeof(request->content_type)},
        {"grpc-timeout", request->timeout, sizeof(request->timeout)},
        {"grpc-encoding", request->encoding, sizeof(request->encoding)},
    };

    for (size_t i = 0; i < array_length(kept); i++) {
        if (strcmp(kept[i].name, name) != 0)
            continue;
        if (strlen(value) < kept[i].size)
            memcpy(kept[i].place, value, strlen(value) + 1);
        else
            request->fault = HTTP2_FIELDS_TOO_LONG;
    }
}

/* ---- the allowance ---- */

static void earn(struct http2_session *session, unsigned replies)
{
    uint64_t now = clock_boottime(), seconds = (now - session->noise_since_ns) / NSEC_PER_SEC;
    uint64_t earned = replies * HTTP2_NOISE_PER_REPLY;

    if (seconds > 0) {
        earned += seconds < HTTP2_NOISE ? seconds * HTTP2_NOISE_PER_SECOND : HTTP2_NOISE;
        session->noise_since_ns = now;
    }
    session->noise = earned < session->noise ? session->noise - (unsigned)earned : 0;
}

static void note_noise(struct http2_session *session)
{
    if (++session->noise <= HTTP2_NOISE || session->broken)
        return;
    earn(session, 0);
    if (session->noise <= HTTP2_NOISE)
        return;
    session->broken = true;
    (void)nghttp2_session_terminate_session(session->nghttp2, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- nghttp2's callbacks ---- */

static int on_begin_frame(nghttp2_session *nghttp2, const nghttp2_frame_hd *head, void *userdata)
{
    struct http2_session *session = userdata;
    bool asks = head->type == NGHTTP2_HEADERS || head->type == NGHTTP2_CONTINUATION ||
                (head->type == NGHTTP2_DATA &&
                 (head->length > 0 || (head->flags & NGHTTP2_FLAG_END_STREAM)));

    (void)nghttp2;
    if (!asks)
        note_noise(session);
    return 0;
}

static int on_begin_headers(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *userdata)
{
    struct http2_session *session = userdata;
    struct http2_request *request;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        note_noise(session); /* trailers, which have no meaning here */
        return 0;
    }
    request = calloc(1, sizeof(*request));
    if (!request)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    request->session = session;
    request->stream = frame->hd.stream_id;
    request->began_ns = clock_boottime();
    buffer_init(&request->body, HTTP2_BODY_BYTES);
    request->next = session->requests;
    session->requests = request;
    (void)nghttp2_session_set_stream_user_data(nghttp2, request->stream, request);
    return 0;
}

/* nghttp2 terminates name and value with a NUL. */
static int on_header(nghttp2_session *nghttp2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
                     void *userdata)
{
    struct http2_request *request = find_request(userdata, frame->hd.stream_id);

    (void)nghttp2;
    (void)flags;
    if (!request)
        return 0;
    if (strlen((const char *)name) != name_length || strlen((const char *)value) != value_length)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    request->fields_bytes += name_length + value_length + FIELD_BYTES;
    if (request->fields_bytes > FIELDS_BYTES_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (request->fields_bytes > HTTP2_FIELDS_BYTES)
        request->fault = HTTP2_FIELDS_TOO_LONG;
    else if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        keep_field(request, (const char *)name, (const char *)value);
    return 0;
}

static int on_data(nghttp2_session *nghttp2, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t length, void *userdata)
{
    struct http2_session *session = userdata;
    struct http2_request *request = find_request(session, stream);

    (void)nghttp2;
    (void)flags;
    if (!request || request->given)
        return 0;
    if (request->body.length + length > HTTP2_BODY_BYTES) {
        give(request, HTTP2_BODY_TOO_LONG);
    } else if (!fit_bodies(session, session->body_bytes + length)) {
        give(request, HTTP2_NO_ROOM);
    } else if (buffer_append(&request->body, bytes, length) < 0) {
        (void)fit_bodies(session, session->body_bytes - length);
        give(request, HTTP2_NO_ROOM);
    }
    return 0;
}

static int on_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *userdata)
{
    struct http2_session *session = userdata;
    struct http2_request *request;

    (void)nghttp2;
    session->begun = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    request = find_request(session, frame->hd.stream_id);
    if (!request)
        return 0;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        request->complete = true;
    if (request->complete || request->fault != HTTP2_FINE)
        give(request, request->fault);
    return 0;
}

/* The reply is sent; if the client is still sending its request, resets the stream. */
static int on_sent(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *userdata)
{
    struct http2_session *session = userdata;
    const struct http2_request *request;

    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    earn(session, 1);
    request = find_request(session, frame->hd.stream_id);
    if (request && !request->complete)
        (void)nghttp2_submit_rst_stream(nghttp2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *nghttp2, int32_t stream, uint32_t code, void *userdata)
{
    struct http2_request *request = find_request(userdata, stream);

    (void)code;
    if (request) {
        (void)nghttp2_session_set_stream_user_data(nghttp2, stream, NULL);
        free_request(request);
    }
    return 0;
}

/* ---- replies ---- */

static nghttp2_nv make_field(const struct http2_field *field)
{
    union {
        const char *constant;
        uint8_t *bytes;
    } name = {.constant = field->name}, value = {.constant = field->value};

    return (nghttp2_nv){.name = name.bytes,
                        .namelen = strlen(field->name),
                        .value = value.bytes,
                        .valuelen = strlen(field->value)}; /* nghttp2 copies them */
}

static ssize_t read_reply(nghttp2_session *nghttp2, int32_t stream, uint8_t *bytes, size_t length,
                          uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
    struct http2_request *request = source->ptr;
    size_t left = request->reply.length - request->reply_sent;
    nghttp2_nv trailer;

    (void)userdata;
    if (length > left)
        length = left;
    memcpy(bytes, request->reply.data + request->reply_sent, length);
    request->reply_sent += length;
    if (length == left) {
        trailer = make_field(request->trailer);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(nghttp2, stream, &trailer, 1) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)length;
}

bool http2_reserve_reply(struct http2_request *request, size_t bytes)
{
    struct http2_session *session = request->session;

    free_body(request);
    if (!fit_bodies(session, session->body_bytes + bytes))
        return false;
    request->reply_room += bytes;
    return true;
}

void http2_reply(struct http2_request *request, const char *status,
                 const struct http2_field *fields, size_t count, struct buffer *body,
                 const struct http2_field *trailer)
{
    nghttp2_session *nghttp2 = request->session->nghttp2;
    nghttp2_data_provider provider = {.source.ptr = request, .read_callback = read_reply};
    nghttp2_nv all[REPLY_FIELDS];
    size_t used = 0;

    request->replied = true;
    request->session->idle_since_ns = clock_boottime();
    free_body(request);
    all[used++] = make_field(&(struct http2_field){":status", status});
    for (size_t i = 0; i < count && used < REPLY_FIELDS; i++)
        all[used++] = make_field(&fields[i]);
    if (body) {
        request->reply = *body;
        request->trailer = trailer;
        body->data = NULL;
        body->length = body->capacity = 0;
    }
    if (nghttp2_submit_response(nghttp2, request->stream, all, used, body ? &provider : NULL) !=
            0 &&
        nghttp2_submit_rst_stream(nghttp2, NGHTTP2_FLAG_NONE, request->stream,
                                  NGHTTP2_INTERNAL_ERROR) != 0)
        request->session->broken = true;
}

/* ---- bytes ---- */

int http2_session_receive(struct http2_session *session, const void *bytes, size_t length)
{
    ssize_t taken;

    if (session->broken)
        return -EPROTO;
    taken = nghttp2_session_mem_recv(session->nghttp2, bytes, length);
    if (taken < 0 || (size_t)taken != length)
        session->broken = true;
    return session->broken ? -EPROTO : 0;
}

size_t http2_session_send(struct http2_session *session, const void **ret_bytes)
{
    const uint8_t *bytes = NULL;
    ssize_t length = nghttp2_session_mem_send(session->nghttp2, &bytes);

    if (length <= 0) {
        session->broken = session->broken || length < 0;
        return 0;
    }
    *ret_bytes = bytes;
    return (size_t)length;
}

bool http2_session_is_over(const struct http2_session *session)
{
    return session->broken || (!nghttp2_session_want_read(session->nghttp2) &&
                               !nghttp2_session_want_write(session->nghttp2));
}

void http2_session_expire(struct http2_session *session, uint64_t before_ns)
{
    for (struct http2_request *request = session->requests; request; request = request->next)
        if (!request->complete && request->began_ns < before_ns)
            give(request, HTTP2_TOO_SLOW);
}

void http2_session_shut_down(struct http2_session *session)
{
    (void)nghttp2_submit_goaway(session->nghttp2, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(session->nghttp2),
                                NGHTTP2_NO_ERROR, NULL, 0);
}

bool http2_session_has_begun(const struct http2_session *session)
{
    return session->begun;
}

uint64_t http2_session_idle_since(const struct http2_session *session)
{
    for (const struct http2_request *request = session->requests; request; request = request->next)
        if (!request->replied)
            return HTTP2_BUSY;
    return session->idle_since_ns;
}

/* ---- memory ---- */

/* Malloc(3) with accounting: each block is preceded by its size. */

/* As wide as malloc's alignment. It is charged twice: once for itself, and once for malloc's own
 * header. */
union head {
    size_t size;
    max_align_t align;
};

static size_t cost_of(size_t size)
{
    return size + 2 * sizeof(union head);
}

static void *resize(void *block, size_t size, void *userdata)
{
    struct http2_memory *memory = userdata;
    union head *old = block ? (union head *)block - 1 : NULL;
    size_t before = old ? cost_of(old->size) : 0;
    union head *head;

    if (size > memory->limit || cost_of(size) > memory->limit - memory->used + before)
        return NULL;
    head = realloc(old, sizeof(*head) + size);
    if (!head)
        return NULL;
    memory->used += cost_of(size) - before;
    head->size = size;
    return head + 1;
}

static void *take(size_t size, void *userdata)
{
    return resize(NULL, size, userdata);
}

static void *take_zeroed(size_t count, size_t size, void *userdata)
{
    void *block = size && count > SIZE_MAX / size ? NULL : take(count * size, userdata);

    return block ? memset(block, 0, count * size) : NULL;
}

static void give_back(void *block, void *userdata)
{
    struct http2_memory *memory = userdata;
    union head *head;

    if (!block)
        return;
    head = (union head *)block - 1;
    memory->used -= cost_of(head->size);
    free(head);
}

nghttp2_mem http2_memory_use(struct http2_memory *memory)
{
    return (nghttp2_mem){memory, take, give_back, take_zeroed, resize};
}

/* ---- life ---- */

/* nghttp2 fails here for want of memory alone. */
static int open_session(struct http2_session *session)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP2_FIELDS_BYTES},
    };
    nghttp2_mem memory = http2_memory_use(&session->memory);
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int r = -ENOMEM;

    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
        nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_option_set_stream_reset_rate_limit(option, RESETS, RESETS_PER_SECOND);
        nghttp2_option_set_max_continuations(option, CONTINUATIONS);
        nghttp2_option_set_max_outbound_ack(option, ACKS);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_no_http_messaging(option, 1);
        if (nghttp2_session_server_new3(&session->nghttp2, callbacks, session, option, &memory) ==
                0 &&
            nghttp2_submit_settings(session->nghttp2, NGHTTP2_FLAG_NONE, settings,
                                    array_length(settings)) == 0)
            r = 0;
    }
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return r;
}

int http2_session_new(const struct http2_handler *handler, void *userdata, struct http2_room *room,
                      struct http2_session **ret_session)
{
    struct http2_session *session = calloc(1, sizeof(*session));
    int r;

    if (!session)
        return -ENOMEM;
    session->memory.limit = HTTP2_SESSION_BYTES;
    session->handler = handler;
    session->userdata = userdata;
    session->room = room;
    session->noise_since_ns = session->idle_since_ns = clock_boottime();
    r = open_session(session);
    if (r < 0) {
        http2_session_free(session);
        return r;
    }
    *ret_session = session;
    return 0;
}

struct http2_session *http2_session_free(struct http2_session *session)
{
    if (!session)
        return NULL;
    while (session->requests)
        free_request(session->requests);
    nghttp2_session_del(session->nghttp2);
    free(session);
    return NULL;
}
