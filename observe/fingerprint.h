/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.h - all there is to a metadata directory, as one word that changes with it.
 *
 * What moving the directory changes (its own ctime) is left out; what any writer changes is in:
 * names, inodes, owners, modes, sizes, times and the bytes themselves.
 */
#pragma once

#include "lib/result.h"
#include "lib/sha256.h"

/* Outcomes. */
enum {
    FINGERPRINT_TAKEN,
    FINGERPRINT_ABSENT,
    FINGERPRINT_UNFIT, /* not a few regular files of root's, or written while it was read */
};

/* Of the directory that is open. error says why it is unfit. */
int fingerprint_directory(int directory, char ret_text[static SHA256_HEX_BYTES],
                          struct error *error);

/* Of one empty file in it, which may be moved by itself. */
int fingerprint_file(int directory, const char *name, char ret_text[static SHA256_HEX_BYTES]);
