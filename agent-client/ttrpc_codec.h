/* SPDX-License-Identifier: Apache-2.0 */
/* ttrpc_codec.h - ttrpc's frames and envelope: bytes in, messages out, no I/O.
 *
 * A frame is a header of 10 bytes and its data: length (4 bytes, big endian, of the data alone),
 * stream id (4, big endian, odd for what a client starts), type, flags. At most 4 MiB of data, so
 * the first byte is always 0. A successful empty reply may be a frame of length 0.
 * Source: containerd/ttrpc/PROTOCOL.md, channel.go, request.proto.
 *
 * Resynchronising. A virtio-serial stream has no connections: what an earlier client left unread
 * reaches the next one, and it may begin in the middle of a frame. Nothing in the bytes says where
 * the next header is. But a client knows one thing that nobody else can know: its own stream id,
 * drawn at random from 2^30. So ttrpc_find_response() does not walk from header to header; it
 * searches for the one header that carries this id as a response, and drops everything before it:
 * foreign replies and parts of them alike. Chance makes such a header once in 2^60 or so.
 *
 * The client cannot repair the other direction: if the peer still holds half a request of a client
 * that died, it takes the new request for the rest of it and never answers. The peer has to drop
 * the half at end-of-file or after a silence; the call fails at its deadline, and the retry comes
 * after that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"

enum { TTRPC_HEADER_BYTES = 10, TTRPC_DATA_BYTES = 4 * 1024 * 1024 };

enum ttrpc_type {
    TTRPC_REQUEST = 1,
    TTRPC_RESPONSE = 2,
    TTRPC_DATA = 3, /* of streaming calls: never sent here, tolerated */
};

enum { TTRPC_NO_DATA = 0x4 }; /* flags; 0x1 remote closed and 0x2 remote open are never sent */

struct ttrpc_header {
    uint32_t length; /* of the data */
    uint32_t stream;
    uint8_t type; /* enum ttrpc_type, or one that is yet to be invented */
    uint8_t flags;
};

struct ttrpc_frame {
    struct ttrpc_header header;
    const void *data; /* header.length bytes, borrowed from what was parsed */
    size_t size;      /* of the whole frame: consume that much */
};

/* Outcomes of the search for a frame. */
enum {
    TTRPC_FRAME,
    TTRPC_MORE,     /* not all of it is there yet */
    TTRPC_OVERSIZE, /* the header is complete and announces more than the limit */
    TTRPC_NONSENSE, /* the first byte is not 0: this is no header */
};

/* The frame at the front. `limit` bounds its data and is checked before anything waits for it.
 * FRAME fills all of ret_frame, OVERSIZE only its header. */
int ttrpc_next_frame(const void *bytes, size_t length, size_t limit, struct ttrpc_frame *ret_frame);

/* Searches for the response to `stream`, skipping everything else, as described above. FRAME, MORE
 * or OVERSIZE; ret_skipped is always set: so many bytes in front are of no use to anyone. */
int ttrpc_find_response(const void *bytes, size_t length, uint32_t stream, size_t limit,
                        size_t *ret_skipped, struct ttrpc_frame *ret_frame);

/* Whether what arrives on a fresh connection begins like a ttrpc peer; true while too short. */
bool ttrpc_looks_like_header(const void *bytes, size_t length);

void ttrpc_encode_header(const struct ttrpc_header *header,
                         uint8_t ret_bytes[static TTRPC_HEADER_BYTES]);

/* A random odd id below 2^31. 0 or -errno of getrandom(2). */
int ttrpc_random_stream(uint32_t *ret_stream);

enum { TTRPC_NAME_BYTES = 64, TTRPC_MESSAGE_BYTES = 200 };

struct ttrpc_request {
    char service[TTRPC_NAME_BYTES]; /* "grpc.AgentService"; no leading slash anywhere */
    char method[TTRPC_NAME_BYTES];
    uint64_t timeout_ns; /* a duration; 0 is none */
};

struct ttrpc_status {
    int code; /* of lib/result.h, or whatever else the peer says */
    char message[TTRPC_MESSAGE_BYTES];
};

/* "PERMISSION_DENIED", or the number for what is not in google.rpc.Code. Static or `text`. */
const char *ttrpc_code_name(int code, char text[static 16]);

/* Append one frame. 0, -EMSGSIZE (beyond the buffer's limit or TTRPC_DATA_BYTES), -ENOMEM; then
 * the buffer is as it was. */
int ttrpc_append_request(struct buffer *frames, uint32_t stream,
                         const struct ttrpc_request *request, const void *payload, size_t length);
/* Success without a payload is the frame of length 0 that Go's server sends. */
int ttrpc_append_response(struct buffer *frames, uint32_t stream, const struct ttrpc_status *status,
                          const void *payload, size_t length);

/* Take a frame apart; the payload is appended. A name that does not fit or contains a NUL becomes
 * empty and thereby unknown; the message is fit to be shown. 0, -EBADMSG (no such message),
 * -EMSGSIZE, -ENOMEM. */
int ttrpc_parse_request(const struct ttrpc_frame *frame, struct ttrpc_request *ret_request,
                        struct buffer *ret_payload);
int ttrpc_parse_response(const struct ttrpc_frame *frame, struct ttrpc_status *ret_status,
                         struct buffer *ret_payload);
