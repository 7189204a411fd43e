/* SPDX-License-Identifier: Apache-2.0 */
/* http2_session.h - HTTP/2 as a server of small requests: bytes in, bytes out, no I/O. Private to
 * api/.
 *
 * nghttp2 with bounds: how many requests at a time, how long their heads and bodies may be, how
 * much the bodies of all sessions take together, how often a client may bother without asking for
 * anything. Replies are either fields alone, or a body and one trailer.
 *
 * So clients take at most, for each connection, HTTP2_SESSION_BYTES and HTTP2_STREAMS times
 * HTTP2_REQUEST_BYTES; and for bodies twice HTTP2_OWN_BYTES, and twice the room of all, since
 * buffers double.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

enum {
    HTTP2_STREAMS = 32,
    HTTP2_FIELDS_BYTES = 8 * 1024, /* a request's head; names and values, and 32 for each */
    HTTP2_BODY_BYTES = 64 * 1024 + 5,
    HTTP2_OWN_BYTES = 16 * 1024,      /* of a session's bodies, which draw on no room */
    HTTP2_REQUEST_BYTES = 4 * 1024,   /* a request that waits, and its reply; not its body */
    HTTP2_SESSION_BYTES = 128 * 1024, /* what nghttp2 takes for a session; it ends beyond it */
    HTTP2_NOISE = 1000,               /* frames that ask for nothing, at once */
    HTTP2_NOISE_PER_SECOND = 100,
    HTTP2_NOISE_PER_REPLY = 8, /* what a client that is served may add */
};

/* What is wrong with a request before anybody has read it. */
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

    /* "" absent. A value that does not fit makes a fault. */
    char method[16];
    char path[256];
    char content_type[64];
    char timeout[16];  /* grpc-timeout */
    char encoding[32]; /* grpc-encoding */
    size_t fields_bytes;
    struct buffer body;

    enum http2_fault fault;
    bool complete; /* the client has said all of it */
    bool given;    /* to the handler */
    bool replied;
    struct buffer reply; /* waiting to be sent, from reply_sent on */
    size_t reply_sent;
    const struct http2_field *trailer;
    void *userdata; /* the handler's */
};

struct http2_field {
    const char *name; /* lower case */
    const char *value;
};

struct http2_handler {
    /* A request is complete or has a fault: reply to it, now or later. */
    void (*request)(struct http2_request *request, void *userdata);
    /* A request that was given and not replied to is gone, and with it the memory behind it when
     * this returns. */
    void (*cancelled)(struct http2_request *request, void *userdata);
};

/* What the bodies of several sessions take together, beyond what is each one's own. */
struct http2_room {
    size_t limit;
    size_t used;
};

/* All borrowed for the session's life. 0 or -ENOMEM. */
int http2_session_new(const struct http2_handler *handler, void *userdata, struct http2_room *room,
                      struct http2_session **ret_session);
/* Every given request is cancelled. Returns NULL. */
struct http2_session *http2_session_free(struct http2_session *session);

/* Takes bytes from the client. 0, or -EPROTO: it broke the protocol or bothers too much; nothing
 * more is taken from it, what http2_session_send() has left tells it why. */
int http2_session_receive(struct http2_session *session, const void *bytes, size_t length);

/* The next bytes to the client, valid until the next call; 0: nothing for now. */
size_t http2_session_send(struct http2_session *session, const void **ret_bytes);

/* Nothing will come or go any more. */
bool http2_session_is_over(const struct http2_session *session);

/* What the client has begun before that time and not completed gets the fault. */
void http2_session_expire(struct http2_session *session, uint64_t before_ns);

/* Takes no new requests (GOAWAY); it is over once those there are have been replied to. */
void http2_session_shut_down(struct http2_session *session);

bool http2_session_has_begun(const struct http2_session *session); /* the client's preface came */

/* CLOCK_BOOTTIME since which no request waits for its reply; HTTP2_BUSY: one does. A reply that the
 * client's flow control does not let through is waited for by nobody. */
#define HTTP2_BUSY UINT64_MAX
uint64_t http2_session_idle_since(const struct http2_session *session);

/* Replies, once per given request: `status` is three digits; `body` NULL: the fields are all there
 * is, and end the stream. The body's bytes are taken over; the trailer is static. The request's own
 * body is gone. A failure to
 * queue it resets the stream. The request may be gone afterwards. */
void http2_reply(struct http2_request *request, const char *status,
                 const struct http2_field *fields, size_t count, struct buffer *body,
                 const struct http2_field *trailer);
