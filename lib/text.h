/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - UTF-8 from outside, and how it is shown.
 *
 * One escaping serves the log and JSON: RFC 8259's, which logfmt readers accept as well. Beyond
 * what JSON asks for, DEL, the C1 controls and the characters that reorder a line (U+202A to
 * U+202E, U+2066 to U+2069) are escaped, because a terminal obeys some of them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

/* Decodes the character at the start of text. Its length in bytes; 0 if it is not well-formed UTF-8
 * (overlong, a surrogate, beyond U+10FFFF, cut off) or if length is 0. */
size_t text_decode_utf8(const char *text, size_t length, uint32_t *ret_character);

/* Encodes a scalar value; its length in bytes. */
size_t text_encode_utf8(uint32_t character, char ret_bytes[static 4]);

bool text_is_utf8(const char *text, size_t length);

enum { TEXT_ESCAPED_BYTES = 6 }; /* "\u001b", the longest that one character becomes */

/* Escapes the text from the cursor on, as far as whole characters fit into `size` bytes, without a
 * NUL; a byte that is not UTF-8 becomes U+FFFD. Moves the cursor, and returns the length. */
size_t text_escape(const char **cursor, const char *end, char *ret_escaped, size_t size);

/* Returned whole, so that its text can be an argument of a format. */
struct text_word {
    char text[32];
};

/* "64 MiB"; with a decimal ("64.0 MiB") when it is not exactly that. */
struct text_word text_size(uint64_t bytes);

/* "2026-01-02T03:04:05.678Z" -> "2026-01-02 03:04:05"; anything else as it is, cut. */
struct text_word text_time(const char *text);

/* Copies text from outside for a person to read: control characters and bytes that are not UTF-8
 * are escaped, and text that does not fit is cut after a whole character. size: of ret_text, at
 * least 1.
 */
void text_clean(const char *text, size_t length, char *ret_text, size_t size);

/* ---- name table ----------------------------------------------------------------------------- */

/* The lookup of a word in a table of rows that each begin with, or are, a name. */

/* The number of the row whose name equals `name`; `otherwise` if none does. Names are `stride`
 * bytes apart.
 */
unsigned name_table_find(const char *const *first, size_t stride, unsigned rows, const char *name,
                         unsigned otherwise);

/* ---- secrets -------------------------------------------------------------------------------- */

/* Which names stand for secrets, and what may be shown of a text that holds one.
 *
 * Applied to every mount option and metadata value of a CSI driver before it enters the database,
 * and so to the journal, HTTP, crustctl and everything else that reads it.
 */

#define SECRET_REDACTED "[redacted]"

/* Whether a name looks like that of a secret: it contains, in any letter case, one of auth,
 * credential, key, passphrase, passw, private, pwd, secret, signature, token; or, as a word of its
 * own, pass, pw, cred or creds. */
bool secret_is_name(const char *name, size_t length);

/* How many bytes of "name=value,name=value" may be shown: all of them, or those up to and with the
 * '=' that stands before the first secret. All that follows it is taken for the secret, because its
 * value may contain commas. */
size_t secret_shown_length(const char *text);

/* Appends the text as a JSON string, with "[redacted]" for its secret. -errno of the buffer. */
int secret_append_json(struct buffer *json, const char *text);
