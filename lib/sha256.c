/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - nettle's digest, written as lower-case hexadecimal digits. */
#include "lib/sha256.h"

#include <nettle/base16.h>
#include <nettle/sha2.h>

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
