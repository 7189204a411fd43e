/* SPDX-License-Identifier: Apache-2.0 */
/* secret.h - which names stand for secrets, and what may be shown of a text that holds one.
 *
 * Applied to every mount option and metadata value of a CSI driver before it enters the database,
 * and so to the journal, HTTP, crustctl and everything else that reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/buffer.h"

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
