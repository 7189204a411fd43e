/* SPDX-License-Identifier: Apache-2.0 */
/* name_table.h - the lookup of a word in a table of rows that each begin with, or are, a name. */
#pragma once

#include <stddef.h>

/* The number of the row whose name equals `name`; `otherwise` if none does. Names are `stride`
 * bytes apart.
 */
unsigned name_table_find(const char *const *first, size_t stride, unsigned rows, const char *name,
                         unsigned otherwise);
