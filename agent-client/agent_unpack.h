/* agent_unpack.h - protobuf-c's parser with a bound on memory.
 *
 * A message costs more in memory than on the wire: an empty sub-message is two bytes there and some
 * sixty here. The bound is on the sum of what one message allocates.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

enum { AGENT_UNPACK_BYTES = 512 * 1024 };

/* 0; -EBADMSG: not such a message, or one that needs more memory than that. */
int agent_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t length,
                 ProtobufCMessage **ret_message);
ProtobufCMessage *agent_unpack_free(ProtobufCMessage *message); /* NULL is fine; returns NULL */
