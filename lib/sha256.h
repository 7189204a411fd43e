/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256 as text. */
#pragma once

#include <stddef.h>

enum { SHA256_HEX_BYTES = 65 }; /* 64 lower-case digits and a NUL */

void sha256_hex(const void *data, size_t length, char ret_hex[static SHA256_HEX_BYTES]);
