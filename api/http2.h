/* SPDX-License-Identifier: Apache-2.0 */
/* http2.h - HTTP/2 as a server of small requests: bytes in, bytes out, no I/O. Private to
 * api/.
 *
 * This is nghttp2 with bounds: on the number of concurrent requests, on the length of their heads
 * and bodies, on the memory of the bodies of all sessions together, and on frames that request
 * nothing. A reply is either fields alone, or a body and one trailer.
 *
 * So clients cause at most, for each connection, HTTP2_SESSION_BYTES and HTTP2_STREAMS times
 * HTTP2_REQUEST_BYTES; and for bodies twice HTTP2_OWN_BYTES for each connection, and twice the
 * shared room, because buffers double.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"

enum {
    HTTP2_STREAMS = 32,
    HTTP2_FIELDS_BYTES = 8 * 1024, /* of a request's head: names and values, and 32 for each */
    HTTP2_BODY_BYTES = 64 * 1024 + 5,
    HTTP2_OWN_BYTES = 16 * 1024,      /* of a session's bodies, not taken from the shared room */
    HTTP2_REQUEST_BYTES = 4 * 1024,   /* a request that waits, and its reply; without its body */
    HTTP2_SESSION_BYTES = 128 * 1024, /* of nghttp2's memory for a session, which ends beyond it */
    HTTP2_NOISE = 1000,               /* frames without a request, at once */
    HTTP2_NOISE_PER_SECOND = 100,
    HTTP2_NOISE_PER_REPLY = 8, /* what each reply adds to that */
};

/* A fault of a request, found before the handler gets it. */
enum http2_fault {
    HTTP2_FINE,
    HTTP2_FIELDS_TOO_LONG,
    HTTP2_BODY_TOO_LONG,
    HTTP2_NO_ROOM, /* the bodies of all sessions take too much, or out of memory */
    HTTP2_TOO_SLOW,
};

struct http2_session;

struct http2_request {
    struct http2_session *session;
    struct http2_request *next;
    int32_t stream;
    uint64_t began_ns; /* CLOCK_BOOTTIME */

    /* "" absent. A value that does not fit is a fault. */
    char method[16];
    char path[256];
    char content_type[64];
    char timeout[16];  /* grpc-timeout */
    char encoding[32]; /* grpc-encoding */
    size_t fields_bytes;
    struct buffer body;

    enum http2_fault fault;
    bool complete; /* the client has sent all of it */
    bool given;    /* passed to the handler */
    bool replied;
    struct buffer reply; /* being sent, from reply_sent on */
    size_t reply_room;   /* what http2_reserve_reply() took for it */
    size_t reply_sent;
    const struct http2_field *trailer;
    void *userdata; /* the handler's own */
};

struct http2_field {
    const char *name; /* lower case */
    const char *value;
};

struct http2_handler {
    /* A request is complete or has a fault. The handler replies to it, now or later. */
    void (*request)(struct http2_request *request, void *userdata);
    /* A request that was passed to the handler and not replied to is gone; its memory is freed when
     * this returns. */
    void (*cancelled)(struct http2_request *request, void *userdata);
};

/* The total of the bodies of several sessions, beyond each one's own allowance. */
struct http2_room {
    size_t limit;
    size_t used;
};

/* All borrowed for the session's life. 0 or -ENOMEM. */
int http2_session_new(const struct http2_handler *handler, void *userdata, struct http2_room *room,
                      struct http2_session **ret_session);
/* Cancels every request that the handler has. Returns NULL. */
struct http2_session *http2_session_free(struct http2_session *session);

/* Processes bytes from the client. 0, or -EPROTO: it broke the protocol or sent too many frames
 * without a request. Then nothing more is accepted from it, and http2_session_send() still returns
 * the frames that tell it why. */
int http2_session_receive(struct http2_session *session, const void *bytes, size_t length);

/* The next bytes for the client, valid until the next call; 0: nothing for now. */
size_t http2_session_send(struct http2_session *session, const void **ret_bytes);

/* Nothing more will be received or sent. */
bool http2_session_is_over(const struct http2_session *session);

/* Requests that began before that time and are not complete get the fault HTTP2_TOO_SLOW. */
void http2_session_expire(struct http2_session *session, uint64_t before_ns);

/* Accepts no new requests (GOAWAY); the session is over once the present ones have been replied
 * to. */
void http2_session_shut_down(struct http2_session *session);

bool http2_session_has_begun(const struct http2_session *session); /* the client's preface came */

/* Since when (CLOCK_BOOTTIME) no request has been waiting for a reply; HTTP2_BUSY: one is waiting.
 * A reply that is held up by the client's flow control does not count as waiting. */
#define HTTP2_BUSY UINT64_MAX
uint64_t http2_session_idle_since(const struct http2_session *session);

/* Counts a reply's body, which HTTP2_REQUEST_BYTES does not hold, among the session's bodies until
 * the request is gone; the request's own body is freed. false: no room, nothing is counted. */
bool http2_reserve_reply(struct http2_request *request, size_t bytes);

/* Replies, once per request: `status` is three digits; body NULL: the reply has only fields, which
 * end the stream. Takes over the body's bytes; the trailer must be static. Frees the request's own
 * body. If the reply cannot be queued, the stream is reset. The request may be gone afterwards. */
void http2_reply(struct http2_request *request, const char *status,
                 const struct http2_field *fields, size_t count, struct buffer *body,
                 const struct http2_field *trailer);

/* ---- http2 memory --------------------------------------------------------------------------- */

/* Limits the memory that nghttp2 takes for one session.
 *
 * How much nghttp2 stores for frames, fields and waiting replies depends on the client. This sets a
 * bound on it, whatever the cause: beyond it, allocations fail and nghttp2 ends the session.
 */

struct http2_memory {
    size_t limit;
    size_t used;
};

/* Returns an allocator that draws on `memory`, which is borrowed for the session's life. */
nghttp2_mem http2_memory_use(struct http2_memory *memory);
