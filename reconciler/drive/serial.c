/* SPDX-License-Identifier: Apache-2.0 */
/* serial.c - see serial.h. Each part is hashed with its NUL, so different parts never give the same
 * input. */
#include "reconciler/drive/serial.h"

#include <stdint.h>
#include <string.h>

#include "agent-client/drive_call.h"
#include "lib/cleanup.h"
#include "lib/sha256.h"

/* PART_BYTES: an id of a sandbox has at most 128 characters. */
enum { PART_BYTES = 160, PARTS_BYTES = 3 * PART_BYTES, BITS_OF_HEX = 4, BITS_OF_CHARACTER = 5 };

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

static size_t append(char parts[static PARTS_BYTES], size_t length, const char *part)
{
    size_t bytes = strnlen(part, PART_BYTES - 1);

    memcpy(parts + length, part, bytes);
    parts[length + bytes] = '\0';
    return length + bytes + 1;
}

static unsigned digit(char hex)
{
    return (unsigned)(hex <= '9' ? hex - '0' : hex - 'a' + 10);
}

void drive_serial_make(const char *boot_id, const char *sandbox_id, const char *drive_id,
                       char ret_serial[static DRIVE_SERIAL_CHARS + 1])
{
    char parts[PARTS_BYTES], hex[SHA256_HEX_BYTES], *at = ret_serial;
    const char *next = hex;
    unsigned bits = 0, count = 0;
    size_t length = append(parts, 0, boot_id);

    length = append(parts, length, drive_id);
    length = append(parts, length, sandbox_id);
    sha256_hex(parts, length, hex);
    memcpy(at, DRIVE_SERIAL_PREFIX, strlen(DRIVE_SERIAL_PREFIX));
    for (at += strlen(DRIVE_SERIAL_PREFIX); at < ret_serial + DRIVE_SERIAL_CHARS; at++) {
        for (; count < BITS_OF_CHARACTER; count += BITS_OF_HEX)
            bits = bits << BITS_OF_HEX | digit(*next++);
        count -= BITS_OF_CHARACTER;
        *at = alphabet[bits >> count & 31];
        bits &= (1U << count) - 1;
    }
    *at = '\0';
}
