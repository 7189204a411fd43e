/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_codec.h - gRPC's own encodings over HTTP/2: text and bytes, no I/O. Private to api/.
 *
 * A message is a byte that says whether it is compressed, its length (4 bytes, big endian) and its
 * bytes; the boundaries of DATA frames have no meaning. Source: grpc/doc/PROTOCOL-HTTP2.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

enum {
    GRPC_PREFIX_BYTES = 5,
    GRPC_MESSAGE_BYTES = 64 * 1024, /* the limit of mountInfo.json */
};

/* "application/grpc", also with "+proto" or another suffix, or with parameters. */
bool grpc_is_content_type(const char *value);

/* "500m": one to eight digits and H, M, S, m, u or n. 0, -EINVAL. */
int grpc_parse_timeout(const char *text, uint64_t *ret_nanoseconds);

/* Outcomes of grpc_find_message(). */
enum {
    GRPC_MESSAGE,
    GRPC_EMPTY,      /* no message */
    GRPC_CUT,        /* shorter than its prefix announces */
    GRPC_OVERSIZE,   /* its prefix announces more than GRPC_MESSAGE_BYTES */
    GRPC_COMPRESSED, /* not offered by this server */
    GRPC_SEVERAL,    /* followed by more bytes */
};

/* Finds the one message in the whole body of a unary call. ret_message is borrowed from the body,
 * and only set for GRPC_MESSAGE. */
int grpc_find_message(const void *body, size_t length, const void **ret_message,
                      size_t *ret_length);

/* grpc_begin_message() begins a message at the buffer's end; grpc_end_message() sets its length
 * once its bytes are there. 0 or as buffer_append(). */
int grpc_begin_message(struct buffer *body, size_t *ret_start);
void grpc_end_message(struct buffer *body, size_t start);

/* Encodes grpc-message: bytes other than printable ASCII, and the percent sign, become %XX. A text
 * that does not fit into size (at least 1) is cut, but never within an escape. */
void grpc_escape_text(const char *text, char *ret_escaped, size_t size);
