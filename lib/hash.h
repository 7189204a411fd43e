/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - uthash as it is used here.
 *
 * It does not exit when memory is short: an entry that did not get in has a NULL table. And it
 * hashes one byte at a time (its default is a switch that clang takes for a mistake).
 */
#pragma once

#define HASH_NONFATAL_OOM                    1
#define HASH_FUNCTION(keyptr, keylen, hashv) HASH_OAT(keyptr, keylen, hashv)
#include <uthash.h>
