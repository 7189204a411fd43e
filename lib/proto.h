/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h - protobuf-c with a bound on memory.
 *
 * A message costs more in memory than on the wire: an empty sub-message is two bytes there and some
 * sixty here. The bound is on the sum of what one message allocates.
 *
 * Texts are bytes here, which is the same on the wire: protobuf-c would hand out a string without
 * its length, and a NUL in it would go unseen. Behind each that is not empty there is a NUL.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

enum { PROTO_UNPACK_BYTES = 512 * 1024 };

/* 0; -EBADMSG: not such a message, or one that needs more memory than that. */
int proto_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t length,
                 ProtobufCMessage **ret_message);
ProtobufCMessage *proto_free(ProtobufCMessage *message); /* NULL is fine; returns NULL */

static inline void proto_freep(ProtobufCMessage **message)
{
    (void)proto_free(*message);
}

/* Appends the packed message. 0, -ENOMEM, -EMSGSIZE. */
int proto_append(struct buffer *bytes, const ProtobufCMessage *message);

/* A member of a message that is only packed, which does not write to it; borrowed. */
ProtobufCBinaryData proto_borrow(const void *bytes, size_t length);
ProtobufCBinaryData proto_borrow_text(const char *text);
