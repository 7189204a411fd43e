/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h - reads a table of a page in docs/reference/, row by row.
 *
 * A test walks such a table beside the code's own, in the same order, so that neither can gain,
 * lose or rename a row without the other. The table is the first one after the comment
 * <!-- NAME -->. Backquotes are dropped: `a` reads as a. Tests run in the root of
 * the tree.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

enum { REFERENCE_CELLS = 8, REFERENCE_LINE_BYTES = 4096 };

struct reference {
    const char *page;
    FILE *file;
    bool in_table;
    char line[REFERENCE_LINE_BYTES];
    unsigned cells;
    const char *cell[REFERENCE_CELLS];
};

/* The next line, without the blanks in front of it: a table may stand in a list. */
static inline bool reference_read_line(struct reference *reference)
{
    size_t blanks;

    if (!fgets(reference->line, sizeof(reference->line), reference->file))
        return false;
    blanks = strspn(reference->line, " ");
    memmove(reference->line, reference->line + blanks, strlen(reference->line + blanks) + 1);
    return true;
}

static inline void reference_open(struct reference *reference, const char *page, const char *table)
{
    char marker[128];

    *reference = (struct reference){.page = page, .file = fopen(page, "re")};
    if (!reference->file)
        fail_msg("%s: cannot be opened", page);
    (void)snprintf(marker, sizeof(marker), "<!-- %s -->\n", table);
    while (reference_read_line(reference))
        if (strcmp(reference->line, marker) == 0)
            return;
    fail_msg("%s: no %s", page, marker);
}

static inline void reference_close(struct reference *reference)
{
    (void)fclose(reference->file);
}

/* "| a | `b` |" becomes "a", "b". */
static inline void reference_split(struct reference *reference)
{
    char *from = reference->line + 1, *to = reference->line;

    reference->cells = 0;
    while (*from && *from != '\n') {
        char *begin = to;

        assert_true(reference->cells < REFERENCE_CELLS);
        from += strspn(from, " ");
        while (*from && *from != '|' && *from != '\n') {
            if (*from != '`')
                *to++ = *from;
            from++;
        }
        if (*from == '|')
            from++;
        while (to > begin && to[-1] == ' ')
            to--;
        *to++ = '\0';
        reference->cell[reference->cells++] = begin;
    }
}

/* The next row's cells, past the table's head; false after the last. */
static inline bool reference_next(struct reference *reference)
{
    while (reference_read_line(reference)) {
        assert_non_null(strchr(reference->line, '\n'));
        if (strncmp(reference->line, "|--", 3) == 0) {
            reference->in_table = true;
        } else if (reference->in_table) {
            if (reference->line[0] != '|')
                return false;
            reference_split(reference);
            return true;
        }
    }
    return false;
}

/* The row that has to come next. */
static inline void reference_expect(struct reference *reference, const char *name)
{
    if (!reference_next(reference))
        fail_msg("%s: no row for %s", reference->page, name);
    if (strcmp(reference->cell[0], name) != 0)
        fail_msg("%s: the row of %s stands where that of %s should", reference->page,
                 reference->cell[0], name);
}

static inline void reference_expect_cell(const struct reference *reference, unsigned cell,
                                         const char *text)
{
    assert_true(cell < reference->cells);
    if (strcmp(reference->cell[cell], text) != 0)
        fail_msg("%s: %s: \"%s\" should be \"%s\"", reference->page, reference->cell[0],
                 reference->cell[cell], text);
}

static inline void reference_expect_words(const struct reference *reference, unsigned cell)
{
    if (cell >= reference->cells || !*reference->cell[cell])
        fail_msg("%s: %s: not described", reference->page, reference->cell[0]);
}

static inline void reference_expect_end(struct reference *reference)
{
    if (reference_next(reference))
        fail_msg("%s: %s: the code has no such thing", reference->page, reference->cell[0]);
    reference_close(reference);
}

/* Another word of a list: "a, b". */
static inline void reference_append(char *text, size_t size, const char *word)
{
    size_t length = strlen(text);

    assert_true((size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "", word) <
                size - length);
}
