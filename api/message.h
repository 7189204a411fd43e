/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - protobuf-c messages by their descriptors: from JSON, to JSON, and whether their
 * fields keep their bounds. Private to api/.
 *
 * A client's JSON becomes the bytes that a gRPC client would have sent, so that both are unpacked
 * and checked by the same code. Members have the names of the fields, in any letter case; one that
 * the message does not have is refused, because a misspelt "is_writable" would be taken for a
 * read-only drive. null is the same as absent. The fields of crust.drive.v1 whose numbers are
 * choices are words in JSON.
 */
#pragma once

#include <cjson/cJSON.h>
#include <protobuf-c/protobuf-c.h>

#include "lib/buffer.h"
#include "lib/result.h"

enum { MESSAGE_BYTES = 64 * 1024 };

/* What the fields of requests may have at most. */
enum {
    MESSAGE_PATH_CHARS = 4095,
    MESSAGE_WORD_CHARS = 127,
    MESSAGE_MOUNT_OPTIONS = 256,
};

/* An unpacked text; "" if the field is absent. proto_unpack() puts a NUL behind each. */
const char *message_text(const ProtobufCBinaryData *field);

/* STATUS_OK or STATUS_INVALID_ARGUMENT: every text is UTF-8 without a NUL, no text or list is
 * longer than its field may be, and every choice is known. The error names the field as in
 * "containers[0].path" and shows nothing of its value. */
enum status_code message_check(const ProtobufCMessage *message, struct error *error);

/* Unpacks and checks what a client sent as JSON. id: the first field, which the client named in the
 * path and may not repeat in the body; NULL: it did not. An empty body is {} where it is optional.
 * STATUS_OK: the caller frees ret_message by proto_free(). */
struct message_source {
    const char *id;
    size_t id_length;
    bool is_optional;
    const char *body;
    size_t body_length;
};
enum status_code message_read_json(const ProtobufCMessageDescriptor *type,
                                   const struct message_source *source,
                                   ProtobufCMessage **ret_message, struct error *error);

/* Appends an answer as a JSON object with all of its fields. 0 or as buffer_append(). */
int message_append_json(struct buffer *json, const ProtobufCMessage *message);
