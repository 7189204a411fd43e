/* SPDX-License-Identifier: Apache-2.0 */
/* ttrpc_codec.c - headers by hand, the envelope by protobuf-c.
 *
 * Nothing here waits, allocates by a length that the peer chose, or keeps state: the caller passes
 * the bytes it has and learns how many to consume. So it does not matter how a stream is split into
 * reads.
 */
#include "agent-client/ttrpc_codec.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/agent_messages.h"
#include "lib/cleanup.h"
#include "lib/proto.h"

static struct ttrpc_header parse_header(const uint8_t *bytes)
{
    struct ttrpc_header header = {.type = bytes[8], .flags = bytes[9]};

    memcpy(&header.length, bytes, sizeof(header.length));
    memcpy(&header.stream, bytes + 4, sizeof(header.stream));
    header.length = be32toh(header.length);
    header.stream = be32toh(header.stream);
    return header;
}

void ttrpc_encode_header(const struct ttrpc_header *header,
                         uint8_t ret_bytes[static TTRPC_HEADER_BYTES])
{
    uint32_t length = htobe32(header->length);
    uint32_t stream = htobe32(header->stream);

    memcpy(ret_bytes, &length, sizeof(length));
    memcpy(ret_bytes + 4, &stream, sizeof(stream));
    ret_bytes[8] = header->type;
    ret_bytes[9] = header->flags;
}

int ttrpc_next_frame(const void *bytes, size_t length, size_t limit, struct ttrpc_frame *ret_frame)
{
    const uint8_t *start = bytes;
    struct ttrpc_header header;

    if (length && start[0] != 0)
        return TTRPC_NONSENSE;
    if (length < TTRPC_HEADER_BYTES)
        return TTRPC_MORE;
    header = parse_header(start);
    if (header.length > limit) {
        ret_frame->header = header;
        return TTRPC_OVERSIZE;
    }
    if (length - TTRPC_HEADER_BYTES < header.length)
        return TTRPC_MORE;
    *ret_frame = (struct ttrpc_frame){
        .header = header,
        .data = start + TTRPC_HEADER_BYTES,
        .size = TTRPC_HEADER_BYTES + (size_t)header.length,
    };
    return TTRPC_FRAME;
}

int ttrpc_find_response(const void *bytes, size_t length, uint32_t stream, size_t limit,
                        size_t *ret_skipped, struct ttrpc_frame *ret_frame)
{
    const uint8_t *start = bytes;
    size_t at = 0;

    for (; length - at >= TTRPC_HEADER_BYTES; at++) {
        struct ttrpc_header header = parse_header(start + at);

        if (header.stream == stream && header.type == TTRPC_RESPONSE &&
            header.length <= TTRPC_DATA_BYTES) {
            *ret_skipped = at;
            return ttrpc_next_frame(start + at, length - at, limit, ret_frame);
        }
    }
    *ret_skipped = at;
    return TTRPC_MORE;
}

bool ttrpc_looks_like_header(const void *bytes, size_t length)
{
    const uint8_t *start = bytes;

    if (length && start[0] != 0)
        return false;
    return length < TTRPC_HEADER_BYTES || (start[8] >= TTRPC_REQUEST && start[8] <= TTRPC_DATA);
}

int ttrpc_random_stream(uint32_t *ret_stream)
{
    uint32_t stream;

    if (getrandom(&stream, sizeof(stream), 0) != sizeof(stream))
        return -errno;
    *ret_stream = (stream & UINT32_C(0x7fffffff)) | 1;
    return 0;
}

const char *ttrpc_code_name(int code, char text[static 16])
{
    const char *name = status_name(code);

    if (name)
        return name;
    (void)snprintf(text, 16, "%d", code);
    return text;
}

static int append_message(struct buffer *frames, uint32_t stream, enum ttrpc_type type,
                          const ProtobufCMessage *message)
{
    size_t length = protobuf_c_message_get_packed_size(message);
    const struct ttrpc_header header = {(uint32_t)length, stream, (uint8_t)type, 0};
    cleanup(freep) uint8_t *packed = NULL;

    if (length > TTRPC_DATA_BYTES)
        return -EMSGSIZE;
    packed = malloc(TTRPC_HEADER_BYTES + length);
    if (!packed)
        return -ENOMEM;
    ttrpc_encode_header(&header, packed);
    (void)protobuf_c_message_pack(message, packed + TTRPC_HEADER_BYTES);
    return buffer_append(frames, packed, TTRPC_HEADER_BYTES + length);
}

int ttrpc_append_request(struct buffer *frames, uint32_t stream,
                         const struct ttrpc_request *request, const void *payload, size_t length)
{
    Agent__Request message = AGENT__REQUEST__INIT;

    message.service = proto_borrow_text(request->service);
    message.method = proto_borrow_text(request->method);
    message.payload = proto_borrow(payload, length);
    message.timeout_nano =
        request->timeout_ns > INT64_MAX ? INT64_MAX : (int64_t)request->timeout_ns;
    return append_message(frames, stream, TTRPC_REQUEST, &message.base);
}

int ttrpc_append_response(struct buffer *frames, uint32_t stream, const struct ttrpc_status *status,
                          const void *payload, size_t length)
{
    Agent__Status status_message = AGENT__STATUS__INIT;
    Agent__Response message = AGENT__RESPONSE__INIT;

    message.payload = proto_borrow(payload, length);
    if (status->code != STATUS_OK) {
        status_message.code = status->code;
        status_message.message = proto_borrow_text(status->message);
        message.status = &status_message;
    }
    return append_message(frames, stream, TTRPC_RESPONSE, &message.base);
}

/* A name with a NUL, or too long to be any that is known, becomes the empty one. */
static void copy_name(const ProtobufCBinaryData *name, char ret_name[static TTRPC_NAME_BYTES])
{
    bool fits =
        name->len > 0 && name->len < TTRPC_NAME_BYTES && !memchr(name->data, '\0', name->len);
    size_t length = fits ? name->len : 0;

    if (length)
        memcpy(ret_name, name->data, length);
    ret_name[length] = '\0';
}

int ttrpc_parse_request(const struct ttrpc_frame *frame, struct ttrpc_request *ret_request,
                        struct buffer *ret_payload)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r = proto_unpack(&agent__request__descriptor, frame->data, frame->header.length, &unpacked);
    const Agent__Request *message = (const void *)unpacked;

    if (r == 0)
        r = buffer_append(ret_payload, message->payload.data, message->payload.len);
    if (r < 0)
        return r;
    copy_name(&message->service, ret_request->service);
    copy_name(&message->method, ret_request->method);
    ret_request->timeout_ns = message->timeout_nano > 0 ? (uint64_t)message->timeout_nano : 0;
    return 0;
}

int ttrpc_parse_response(const struct ttrpc_frame *frame, struct ttrpc_status *ret_status,
                         struct buffer *ret_payload)
{
    cleanup(proto_freep) ProtobufCMessage *unpacked = NULL;
    int r =
        proto_unpack(&agent__response__descriptor, frame->data, frame->header.length, &unpacked);
    const Agent__Response *message = (const void *)unpacked;

    if (r == 0)
        r = buffer_append(ret_payload, message->payload.data, message->payload.len);
    if (r < 0)
        return r;
    *ret_status = (struct ttrpc_status){.code = message->status ? message->status->code : 0};
    if (message->status)
        agent_clean_text(message->status->message.data, message->status->message.len,
                         ret_status->message, sizeof(ret_status->message));
    return 0;
}
