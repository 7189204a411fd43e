/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - a text has one form: groups of four, padded at its end, with no bit left over. It is
 * walked twice: first only to check, so that ret_data stays untouched on failure.
 *
 * nettle's decoder skips white space and ignores trailing bits, and crust-guest-agent, which is
 * static, has no nettle.
 */
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdint.h>
#include <string.h>

#include "lib/encode.h"

enum { GROUP_CHARS = 4, GROUP_BYTES = 3 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void base64url_encode(const void *data, size_t length, char *ret_text)
{
    const uint8_t *bytes = data;

    for (size_t at = 0; at < length; at += GROUP_BYTES) {
        size_t left = length - at;
        uint32_t bits = 0;

        for (size_t i = 0; i < GROUP_BYTES; i++)
            bits = bits << 8 | (i < left ? bytes[at + i] : 0U);
        for (size_t i = 0; i < GROUP_CHARS; i++)
            *ret_text++ = i <= left ? digits[bits >> (18 - 6 * i) & 63] : '=';
    }
    *ret_text = '\0';
}

/* How many bytes four characters stand for; 0: they are no group. Bits that no byte takes are 0. */
static size_t decode_group(const char *text, uint8_t ret_bytes[static GROUP_BYTES])
{
    size_t chars = text[3] != '=' ? 4 : text[2] != '=' ? 3 : 2;
    uint32_t bits = 0;

    for (size_t i = 0; i < GROUP_CHARS; i++) {
        const char *digit = i < chars ? memchr(digits, text[i], sizeof(digits) - 1) : digits;

        if (!digit)
            return 0;
        bits = bits << 6 | (uint32_t)(digit - digits);
    }
    ret_bytes[0] = (uint8_t)(bits >> 16);
    ret_bytes[1] = (uint8_t)(bits >> 8);
    ret_bytes[2] = (uint8_t)bits;
    return (chars < 4 && ret_bytes[2]) || (chars < 3 && ret_bytes[1]) ? 0 : chars - 1;
}

/* Decodes to `data`, or only checks if that is NULL. Padding anywhere but at the end is refused. */
static int decode_groups(const char *text, size_t length, uint8_t *data, size_t *ret_length)
{
    uint8_t bytes[GROUP_BYTES];
    size_t total = 0;

    for (size_t at = 0; at < length; at += GROUP_CHARS) {
        size_t decoded = decode_group(text + at, bytes);

        if (!decoded || (decoded < GROUP_BYTES && at + GROUP_CHARS < length))
            return BASE64URL_WRONG;
        for (size_t i = 0; data && i < decoded; i++)
            data[total + i] = bytes[i];
        total += decoded;
    }
    *ret_length = total;
    return 0;
}

int base64url_decode(const char *text, size_t length, void *ret_data, size_t size,
                     size_t *ret_length)
{
    size_t decoded;
    int r;

    if (length % GROUP_CHARS != 0)
        return BASE64URL_WRONG;
    r = decode_groups(text, length, NULL, &decoded);
    if (r < 0)
        return r;
    if (decoded > size)
        return BASE64URL_TOO_LONG;
    return decode_groups(text, length, ret_data, ret_length);
}

/* ---- sha256 --------------------------------------------------------------------------------- */

void sha256_hex(const void *data, size_t length, char ret_hex[static SHA256_HEX_BYTES])
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&context);
    sha256_update(&context, length, data);
    sha256_digest(&context, sizeof(digest), digest);
    base16_encode_update(ret_hex, sizeof(digest), digest);
    ret_hex[SHA256_HEX_BYTES - 1] = '\0';
}
