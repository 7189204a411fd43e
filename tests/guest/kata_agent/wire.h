/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - protobuf, as little of it as is needed. Written apart from the product's own codec, so
 * that a mistake in that one is no mistake here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *data;
    size_t length;
};

struct field {
    unsigned number;
    uint64_t value;     /* of a varint */
    struct bytes bytes; /* of a text or a message within */
};

/* Takes the next field. False at the end and at nonsense, which is then left in *message. */
bool wire_next(struct bytes *message, struct field *ret_field);

/* Copies a text, cut to what fits. */
void wire_text(struct bytes bytes, char *ret_text, size_t size);

/* Appends a field to a buffer that has room for it; returns the new end. */
uint8_t *wire_put_number(uint8_t *end, unsigned number, uint64_t value);
uint8_t *wire_put_bytes(uint8_t *end, unsigned number, const void *data, size_t length);
