/* SPDX-License-Identifier: Apache-2.0 */
/* collections.h - uthash as it is used here.
 *
 * It does not exit when memory is short: an entry that could not be added has a NULL table. It
 * hashes one byte at a time, because clang warns of the switch in uthash's default hash.
 */
#pragma once

#include <utlist.h>

#define HASH_NONFATAL_OOM                    1
#define HASH_FUNCTION(keyptr, keylen, hashv) HASH_OAT(keyptr, keylen, hashv)
#include <uthash.h>

/* ---- list ----------------------------------------------------------------------------------- */

/* Singly linked lists by a member `next` (utlist.h of uthash): LL_APPEND(head, item),
 * LL_DELETE(head, item). Doubly linked ones by `prev` as well: DL_APPEND(), DL_DELETE().
 */
