/* SPDX-License-Identifier: Apache-2.0 */
/* entry_name.h - decodes a directory name below a volumes root; text only, no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base64url.h"
#include "lib/result.h"

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
