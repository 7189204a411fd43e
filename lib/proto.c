/* SPDX-License-Identifier: Apache-2.0 */
/* proto.c - an allocator that counts.
 *
 * The count only grows while one message is unpacked: what protobuf-c frees again is not given
 * back, so the bound holds for the sum. Out of memory and over the bound look the same to
 * protobuf-c and are reported alike.
 */
#include "lib/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

struct budget {
    size_t left;
};

static void *budget_allocate(void *data, size_t size)
{
    struct budget *budget = data;

    if (size > budget->left)
        return NULL;
    budget->left -= size;
    return calloc(1, size + 1);
}

static void budget_free(void *data, void *pointer)
{
    (void)data;
    free(pointer);
}

int proto_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t length,
                 ProtobufCMessage **ret_message)
{
    struct budget budget = {.left = length * 2 + PROTO_UNPACK_BYTES};
    ProtobufCAllocator allocator = {budget_allocate, budget_free, &budget};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, length, bytes);

    if (!message)
        return -EBADMSG;
    *ret_message = message;
    return 0;
}

ProtobufCMessage *proto_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {budget_allocate, budget_free, NULL};

    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
    return NULL;
}

int proto_append(struct buffer *bytes, const ProtobufCMessage *message)
{
    size_t length = protobuf_c_message_get_packed_size(message);
    cleanup(freep) uint8_t *packed = malloc(length + 1);

    if (!packed)
        return -ENOMEM;
    (void)protobuf_c_message_pack(message, packed);
    return buffer_append(bytes, packed, length);
}

ProtobufCBinaryData proto_borrow(const void *bytes, size_t length)
{
    union {
        const void *constant;
        uint8_t *bytes;
    } pointer = {.constant = bytes};

    return (ProtobufCBinaryData){.len = length, .data = pointer.bytes};
}

ProtobufCBinaryData proto_borrow_text(const char *text)
{
    return proto_borrow(text, strlen(text));
}
