/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info.h - mountInfo.json, text in, facts out; no I/O.
 *
 * Fields as Kata reads them (src/runtime/pkg/direct-volume/utils.go): volume-type, device, fstype,
 * metadata {string: string}, options [string], keys in any letter case. crustd requires only
 * `device`. A null is an absent field, as in Go. Unknown fields are ignored.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/encode.h"
#include "lib/json.h"
#include "lib/result.h"
#include "observe/observe.h"

struct mount_info {
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata; /* JSON text, secrets redacted (lib/text.h); NULL absent */
    bool read_only;           /* according to the options */
    enum resize_policy policy;
};

/* An enum file_text or -ENOMEM. */
int mount_info_parse(const char *text, size_t length, struct mount_info *ret_info,
                     struct error *error);
void mount_info_done(struct mount_info *info);

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* A hash over everything in a metadata directory, which changes with any of it.
 *
 * The directory's own ctime is left out, because moving the directory changes it. Everything that a
 * writer changes is included: names, inodes, owners, modes, sizes, times and the bytes themselves.
 */

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

/* ---- entry name ----------------------------------------------------------------------------- */

/* Decodes a directory name below a volumes root; text only, no I/O. */

/* Outcomes. */
enum {
    ENTRY_NAME_PATH,   /* padded base64url of an absolute path: Kata's layout */
    ENTRY_NAME_SHA256, /* 64 lower-case hex digits: the KEP's layout, does not reveal the path */
    ENTRY_NAME_OTHER,  /* neither; the error has the reason */
};

enum { ENTRY_PATH_BYTES = BASE64URL_PATH_BYTES + 1 };

/* ret_path is filled for ENTRY_NAME_PATH only: byte-exact, absolute, UTF-8 without NUL. */
int entry_name_decode(const char *name, char ret_path[static ENTRY_PATH_BYTES],
                      struct error *error);

enum { SHOWN_NAME_BYTES = 97 };

/* A name from outside, made fit for a problem's text: escaped, and cut with "...". */
void entry_name_show(const char *name, char ret_shown[static SHOWN_NAME_BYTES]);
