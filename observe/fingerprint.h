/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.h - a hash over everything in a metadata directory, which changes with any of it.
 *
 * The directory's own ctime is left out, because moving the directory changes it. Everything that a
 * writer changes is included: names, inodes, owners, modes, sizes, times and the bytes themselves.
 */
#pragma once

#include "lib/result.h"
#include "lib/sha256.h"

/* Outcomes. */
enum {
    FINGERPRINT_TAKEN,
    FINGERPRINT_ABSENT,
    FINGERPRINT_UNFIT, /* not just a few regular files of root's, or written during the reading */
};

/* Of the open directory. error says why it is unfit. */
int fingerprint_directory(int directory, char ret_text[static SHA256_HEX_BYTES],
                          struct error *error);

/* Of one empty file in the directory, which may be moved by itself. */
int fingerprint_file(int directory, const char *name, char ret_text[static SHA256_HEX_BYTES]);
