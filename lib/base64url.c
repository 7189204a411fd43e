/* SPDX-License-Identifier: Apache-2.0 */
/* base64url.c - nettle's codec, made strict.
 *
 * nettle skips white space and ignores trailing bits. So every piece that it decodes is encoded
 * again and compared: what does not come back as it was is not canonical. The text is walked in
 * pieces of whole groups, twice: first only to check, so that ret_data stays untouched on failure.
 */
#include "lib/base64url.h"

#include <nettle/base64.h>
#include <string.h>

enum { PIECE_CHARS = 64, PIECE_BYTES = 48 };

_Static_assert(BASE64_DECODE_LENGTH(PIECE_CHARS) <= PIECE_BYTES, "nettle's bound on its output");

void base64url_encode(const void *data, size_t length, char *ret_text)
{
    struct base64_encode_ctx context;
    size_t written;

    base64url_encode_init(&context);
    written = base64_encode_update(&context, ret_text, length, data);
    written += base64_encode_final(&context, ret_text + written);
    ret_text[written] = '\0';
}

/* At most PIECE_CHARS characters, a multiple of four. */
static int decode_piece(const char *text, size_t length, uint8_t ret_data[static PIECE_BYTES],
                        size_t *ret_length)
{
    char again[PIECE_CHARS + 1];
    struct base64_decode_ctx context;
    size_t decoded;

    base64url_decode_init(&context);
    if (!base64_decode_update(&context, &decoded, ret_data, length, text) ||
        !base64_decode_final(&context))
        return BASE64URL_WRONG;
    base64url_encode(ret_data, decoded, again);
    if (strlen(again) != length || memcmp(again, text, length) != 0)
        return BASE64URL_WRONG;
    *ret_length = decoded;
    return 0;
}

/* Decodes to `data`, or only checks if that is NULL. Padding anywhere but at the end is refused. */
static int decode_pieces(const char *text, size_t length, uint8_t *data, size_t *ret_length)
{
    uint8_t piece[PIECE_BYTES];
    size_t total = 0, decoded = 0;

    for (size_t at = 0, step; at < length; at += step) {
        int r;

        step = length - at < PIECE_CHARS ? length - at : PIECE_CHARS;
        r = decode_piece(text + at, step, piece, &decoded);
        if (r < 0)
            return r;
        if (at + step < length && decoded != PIECE_BYTES)
            return BASE64URL_WRONG;
        if (data)
            memcpy(data + total, piece, decoded);
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

    if (length % 4 != 0)
        return BASE64URL_WRONG;
    r = decode_pieces(text, length, NULL, &decoded);
    if (r < 0)
        return r;
    if (decoded > size)
        return BASE64URL_TOO_LONG;
    return decode_pieces(text, length, ret_data, ret_length);
}
