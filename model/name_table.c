/* SPDX-License-Identifier: Apache-2.0 */
/* name_table.c - see name_table.h. */
#include "model/name_table.h"

#include <string.h>

unsigned name_table_find(const char *const *first, size_t stride, unsigned rows, const char *name,
                         unsigned otherwise)
{
    const char *row = (const char *)first;

    for (unsigned i = 0; i < rows; i++, row += stride)
        if (strcmp(*(const char *const *)(const void *)row, name) == 0)
            return i;
    return otherwise;
}
