/* SPDX-License-Identifier: Apache-2.0 */
/* marks.c - an insertion-ordered set of keys, on uthash.
 *
 * Out of memory loses the mark, not the truth: `lost` makes the reconciler look at everything.
 */
#include "reconciler/core/marks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"

struct mark {
    UT_hash_handle hh;
    size_t length;
    char key[];
};

void marks_done(struct marks *marks)
{
    struct mark *mark, *next;

    HASH_ITER (hh, marks->first, mark, next) {
        HASH_DEL(marks->first, mark);
        free(mark);
    }
    *marks = (struct marks){0};
}

void marks_add(struct marks *marks, const void *key, size_t length)
{
    struct mark *mark;

    HASH_FIND(hh, marks->first, key, length, mark);
    if (mark)
        return;
    mark = malloc(sizeof(*mark) + length);
    if (!mark) {
        marks->lost = true;
        return;
    }
    mark->length = length;
    memcpy(mark->key, key, length);
    HASH_ADD_KEYPTR(hh, marks->first, mark->key, length, mark);
    if (!mark->hh.tbl) {
        marks->lost = true;
        free(mark);
    }
}

bool marks_is_empty(const struct marks *marks)
{
    return !marks->first;
}

size_t marks_count(const struct marks *marks)
{
    return HASH_COUNT(marks->first);
}

bool marks_take(struct marks *marks, void *ret_key, size_t size, size_t *ret_length)
{
    struct mark *mark = marks->first;

    if (!mark)
        return false;
    assert(mark->length <= size);
    memcpy(ret_key, mark->key, mark->length);
    *ret_length = mark->length;
    HASH_DEL(marks->first, mark);
    free(mark);
    return true;
}

void marks_remove_name(struct marks *marks, const char *name)
{
    struct mark *mark;

    HASH_FIND(hh, marks->first, name, strlen(name), mark);
    if (!mark)
        return;
    HASH_DEL(marks->first, mark);
    free(mark);
}

void marks_add_number(struct marks *marks, uint64_t number)
{
    marks_add(marks, &number, sizeof(number));
}

bool marks_take_number(struct marks *marks, uint64_t *ret_number)
{
    size_t length;

    return marks_take(marks, ret_number, sizeof(*ret_number), &length);
}

void marks_add_name(struct marks *marks, const char *name)
{
    marks_add(marks, name, strlen(name));
}

bool marks_take_name(struct marks *marks, char *ret_name, size_t size)
{
    size_t length;

    if (!marks_take(marks, ret_name, size - 1, &length))
        return false;
    ret_name[length] = '\0';
    return true;
}
