/* SPDX-License-Identifier: Apache-2.0 */
/* agent_text.h - a text from the guest, made fit to be shown.
 *
 * kata-agent formats errors for debugging, so that they arrive in double quotes, at times with
 * escaped ones inside; the outer pair goes. So do the backtrace that follows an error, and the
 * lines of its causes, which become one. Control characters, NUL and bytes that are not UTF-8 are
 * escaped, and what does not fit is cut at the end of a character.
 */
#pragma once

#include <stddef.h>

/* size: of ret_text, at least 1; it always ends with a NUL. */
void agent_clean_text(const void *bytes, size_t length, char *ret_text, size_t size);
