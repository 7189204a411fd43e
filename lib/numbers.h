/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h - unsigned numbers with separators between them, as the kernel writes device numbers
 * and addresses ("8:16", "0000:00:02.0").
 *
 * sscanf(3) would bring libc's reading of floating-point numbers along, a tenth of
 * crust-guest-agent, and what it does with a number that is too large is undefined.
 */
#pragma once

#include <stdint.h>

/* Reads strlen(separators) + 1 numbers of base 10 or 16: digits alone, no sign, no prefix, at most
 * UINT32_MAX. Character n of separators stands between number n and the next, once; a space stands
 * for one space or more. Returns where the last number ends, so that the caller judges what
 * follows. NULL: text begins otherwise, and some of ret_numbers may have been set. */
const char *numbers_read(const char *text, const char *separators, unsigned base,
                         uint32_t *ret_numbers);
