/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - varints and length-delimited fields; nothing that Kata's requests have not. */
#include "wire.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };

static bool take_varint(struct bytes *message, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && message->length > 0; shift += 7) {
        uint8_t byte = *message->data++;

        message->length--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

bool wire_next(struct bytes *message, struct field *ret_field)
{
    uint64_t tag, length;

    *ret_field = (struct field){0};
    if (!take_varint(message, &tag))
        return false;
    ret_field->number = (unsigned)(tag >> 3);
    switch (tag & 7) {
    case VARINT:
        return take_varint(message, &ret_field->value);
    case FIXED64:
        length = 8;
        break;
    case FIXED32:
        length = 4;
        break;
    case DELIMITED:
        if (!take_varint(message, &length))
            return false;
        break;
    default:
        return false;
    }
    if (length > message->length)
        return false;
    ret_field->bytes = (struct bytes){message->data, length};
    message->data += length;
    message->length -= length;
    return true;
}

void wire_text(struct bytes bytes, char *ret_text, size_t size)
{
    size_t length = bytes.length < size ? bytes.length : size - 1;

    memcpy(ret_text, bytes.data, length);
    ret_text[length] = '\0';
}

static uint8_t *put_varint(uint8_t *end, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        *end++ = (uint8_t)(value | 0x80);
    *end++ = (uint8_t)value;
    return end;
}

uint8_t *wire_put_number(uint8_t *end, unsigned number, uint64_t value)
{
    return put_varint(put_varint(end, number << 3), value);
}

uint8_t *wire_put_bytes(uint8_t *end, unsigned number, const void *data, size_t length)
{
    end = put_varint(put_varint(end, number << 3 | DELIMITED), length);
    memcpy(end, data, length);
    return end + length;
}
