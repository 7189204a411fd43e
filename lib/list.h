/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - singly linked lists by a member `next` (utlist.h of uthash): LL_APPEND(head, item),
 * LL_DELETE(head, item).
 */
#pragma once

#include <utlist.h>
