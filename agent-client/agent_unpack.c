/* agent_unpack.c - an allocator that counts.
 *
 * The count only grows while one message is unpacked: what protobuf-c frees again is not given
 * back, so the bound holds for the sum. Out of memory and over the bound look the same to
 * protobuf-c and are reported alike.
 */
#include "agent-client/agent_unpack.h"

#include <errno.h>
#include <stdlib.h>

struct budget {
    size_t left;
};

static void *budget_allocate(void *data, size_t size)
{
    struct budget *budget = data;

    if (size > budget->left)
        return NULL;
    budget->left -= size;
    return malloc(size ? size : 1);
}

static void budget_free(void *data, void *pointer)
{
    (void)data;
    free(pointer);
}

int agent_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t length,
                 ProtobufCMessage **ret_message)
{
    struct budget budget = {.left = length * 2 + AGENT_UNPACK_BYTES};
    ProtobufCAllocator allocator = {budget_allocate, budget_free, &budget};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, length, bytes);

    if (!message)
        return -EBADMSG;
    *ret_message = message;
    return 0;
}

ProtobufCMessage *agent_unpack_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {budget_allocate, budget_free, NULL};

    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
    return NULL;
}
