/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_codec.c - the encodings, written by hand because they are small. */
#include "api/grpc_call.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "lib/clock.h"

enum { TIMEOUT_DIGITS = 8 };

bool grpc_is_content_type(const char *value)
{
    static const char type[] = "application/grpc";

    if (strncmp(value, type, strlen(type)) != 0)
        return false;
    value += strlen(type);
    return *value == '\0' || *value == '+' || *value == ';';
}

static uint64_t unit_of(char letter)
{
    static const char letters[] = "HMSmun";
    static const uint64_t units[] = {
        3600 * NSEC_PER_SEC, 60 * NSEC_PER_SEC, NSEC_PER_SEC, NSEC_PER_MSEC, 1000, 1};
    const char *at = strchr(letters, letter);

    return letter && at ? units[at - letters] : 0;
}

/* Eight digits of hours are 3.6e20 ns and do not fit; anything above a century becomes a
 * century. */
int grpc_parse_timeout(const char *text, uint64_t *ret_nanoseconds)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number = 0, unit;

    if (digits == 0 || digits > TIMEOUT_DIGITS || text[digits] == '\0' || text[digits + 1] != '\0')
        return -EINVAL;
    unit = unit_of(text[digits]);
    if (!unit)
        return -EINVAL;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (uint64_t)(text[i] - '0');
    *ret_nanoseconds = number > INT64_MAX / unit ? INT64_MAX : number * unit;
    return 0;
}

static uint32_t length_of(const uint8_t *prefix)
{
    uint32_t length;

    memcpy(&length, prefix + 1, sizeof(length));
    return be32toh(length);
}

int grpc_find_message(const void *body, size_t length, const void **ret_message, size_t *ret_length)
{
    const uint8_t *bytes = body;
    size_t announced;

    if (length == 0)
        return GRPC_EMPTY;
    if (length < GRPC_PREFIX_BYTES)
        return GRPC_CUT;
    announced = length_of(bytes);
    if (announced > GRPC_MESSAGE_BYTES)
        return GRPC_OVERSIZE;
    if (bytes[0] != 0)
        return GRPC_COMPRESSED;
    if (length - GRPC_PREFIX_BYTES < announced)
        return GRPC_CUT;
    if (length - GRPC_PREFIX_BYTES > announced)
        return GRPC_SEVERAL;
    *ret_message = bytes + GRPC_PREFIX_BYTES;
    *ret_length = announced;
    return GRPC_MESSAGE;
}

int grpc_append_prefix(struct buffer *body, size_t length)
{
    const uint32_t announced = htobe32((uint32_t)length);
    char prefix[GRPC_PREFIX_BYTES] = "";

    memcpy(prefix + 1, &announced, sizeof(announced));
    return buffer_append(body, prefix, sizeof(prefix));
}

void grpc_escape_text(const char *text, char *ret_escaped, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;

    for (; *text; text++) {
        uint8_t byte = (uint8_t)*text;
        bool plain = byte >= ' ' && byte <= '~' && byte != '%';

        if (used + (plain ? 1 : 3) >= size)
            break;
        if (plain) {
            ret_escaped[used++] = (char)byte;
            continue;
        }
        ret_escaped[used++] = '%';
        ret_escaped[used++] = digits[byte >> 4];
        ret_escaped[used++] = digits[byte & 15];
    }
    ret_escaped[used] = '\0';
}
