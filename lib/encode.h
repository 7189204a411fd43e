/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - RFC 4648 section 5 with padding, one text for one value.
 *
 * Kata names a volume's metadata directory by the padded base64url of its path
 * (src/runtime/pkg/direct-volume/utils.go, base64.URLEncoding). What decodes is what encoding
 * gives: alphabet, padding and trailing bits are checked. NAME_MAX limits a path to 189 bytes (252
 * characters).
 */
#pragma once

#include <errno.h>
#include <stddef.h>

enum { BASE64URL_PATH_BYTES = 189, BASE64URL_NAME_CHARS = 252 };

#define BASE64URL_ENCODED_LENGTH(bytes) (((bytes) + 2) / 3 * 4)

/* ret_text holds BASE64URL_ENCODED_LENGTH(length) + 1. */
void base64url_encode(const void *data, size_t length, char *ret_text);

/* Negative; each has the value of the errno that describes it. */
enum base64url_failure {
    BASE64URL_WRONG = -EINVAL, /* not canonical */
    BASE64URL_TOO_LONG = -EMSGSIZE,
};

/* Decodes `length` characters into at most `size` bytes. 0 or an enum base64url_failure. */
int base64url_decode(const char *text, size_t length, void *ret_data, size_t size,
                     size_t *ret_length);

/* ---- sha256 --------------------------------------------------------------------------------- */

enum { SHA256_HEX_BYTES = 65 }; /* 64 lower-case digits and a NUL */

void sha256_hex(const void *data, size_t length, char ret_hex[static SHA256_HEX_BYTES]);
