/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - a decision table of docs/states.md, read and gone through cell by cell.
 *
 * A row is `| fact=value fact=value,value | outcome | … |`; the first row whose conditions all hold
 * decides. What a table means is the test's affair: for every combination of facts it compares the
 * code's answer with the outcomes of the first match.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "tests/unit/test.h"

enum { TABLE_VALUES = 9, TABLE_ROWS = 96, TABLE_OUTCOMES = 3 };

struct table_fact {
    const char *name;
    const char *values[TABLE_VALUES];
};

struct table_row {
    int fact[8], value[8];
    unsigned values[8]; /* a bit for each that the condition allows; value is the last of them */
    unsigned conditions;
    char outcome[TABLE_OUTCOMES][32];
    unsigned long first_matches;
};

struct table {
    const char *marker; /* the comment before it */
    const struct table_fact *facts;
    int fact_count;
    unsigned outcomes;
    struct table_row rows[TABLE_ROWS];
    unsigned row_count;
};

static inline int table_value(const struct table_fact *fact, const char *name)
{
    for (int i = 0; i < TABLE_VALUES && fact->values[i]; i++)
        if (strcmp(fact->values[i], name) == 0)
            return i;
    fail_msg("%s has no value %s", fact->name, name);
    return -1;
}

static inline void table_add_condition(const struct table *table, struct table_row *row, char *word)
{
    char *rest = word, *value;

    (void)strsep(&rest, "=");
    assert_non_null(rest);
    for (int fact = 0; fact < table->fact_count; fact++)
        if (strcmp(table->facts[fact].name, word) == 0) {
            row->fact[row->conditions] = fact;
            while ((value = strsep(&rest, ","))) {
                row->value[row->conditions] = table_value(&table->facts[fact], value);
                row->values[row->conditions] |= 1U << row->value[row->conditions];
            }
            row->conditions++;
            return;
        }
    fail_msg("no fact %s", word);
}

static inline void table_read_row(struct table *table, const char *line)
{
    struct table_row *row = &table->rows[table->row_count];
    char conditions[128], *word, *rest = conditions;
    int used = 0;

    if (sscanf(line, "| %127[^|]|%n", conditions, &used) != 1 || !strchr(conditions, '='))
        return;
    assert_true(table->row_count < TABLE_ROWS);
    for (unsigned i = 0; i < table->outcomes; i++) {
        line += used;
        assert_int_equal(sscanf(line, " %31[a-z_] |%n", row->outcome[i], &used), 1);
    }
    while ((word = strsep(&rest, " ")))
        if (*word)
            table_add_condition(table, row, word);
    table->row_count++;
}

static inline void table_read(struct table *table)
{
    cleanup(freep) char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("docs/states.md", "re");
    bool inside = false;

    assert_non_null(file);
    while (getline(&line, &size, file) > 0) {
        if (strncmp(line, table->marker, strlen(table->marker)) == 0)
            inside = true;
        else if (strncmp(line, "## ", 3) == 0 || strncmp(line, "<!--", 4) == 0)
            inside = false;
        else if (inside && strncmp(line, "| ", 2) == 0)
            table_read_row(table, line);
    }
    fclose(file);
    assert_true(table->row_count > 0);
}

/* The row that decides; counted as having done so. `without`: rows about this fact do not count; -1
 * all do. */
static inline struct table_row *table_match_without(struct table *table, const int *combination,
                                                    int without)
{
    if (table->row_count == 0)
        table_read(table);
    for (unsigned i = 0; i < table->row_count; i++) {
        struct table_row *row = &table->rows[i];
        unsigned matched = 0;

        while (matched < row->conditions && row->fact[matched] != without &&
               row->values[matched] >> combination[row->fact[matched]] & 1)
            matched++;
        if (matched < row->conditions)
            continue;
        row->first_matches++;
        return row;
    }
    fail_msg("no row matches");
    return NULL;
}

static inline struct table_row *table_match(struct table *table, const int *combination)
{
    return table_match_without(table, combination, -1);
}

static inline void table_print(const struct table *table, const int *combination)
{
    for (int fact = 0; fact < table->fact_count; fact++)
        print_message("%s=%s ", table->facts[fact].name,
                      table->facts[fact].values[combination[fact]]);
}

/* Fails unless the code decides as the row says, outcome by outcome. */
static inline void table_expect(const struct table *table, const int *combination,
                                const struct table_row *row, const char *const *decided)
{
    for (unsigned i = 0; i < table->outcomes; i++)
        if (strcmp(row->outcome[i], decided[i]) != 0) {
            table_print(table, combination);
            fail_msg("row %u says %s, the code %s", (unsigned)(row - table->rows) + 1,
                     row->outcome[i], decided[i]);
        }
}

static inline bool table_next_value(const struct table *table, int *combination, int fact)
{
    int next = combination[fact] + 1;
    bool has = next < TABLE_VALUES && table->facts[fact].values[next];

    combination[fact] = has ? next : 0;
    return has;
}

/* The next combination, as an odometer; false after the last. */
static inline bool table_advance(const struct table *table, int *combination)
{
    for (int fact = table->fact_count - 1; fact >= 0; fact--)
        if (table_next_value(table, combination, fact))
            return true;
    return false;
}

/* Around one row: any three facts take all their values, the others are the row's or `neutral`. */
static inline void table_visit_around(const struct table *table, const struct table_row *row,
                                      const int *neutral, void (*visit)(const int *combination))
{
    int base[32], combination[32];

    assert_true(table->fact_count <= 32);
    memcpy(base, neutral, sizeof(*base) * (size_t)table->fact_count);
    for (unsigned i = 0; i < row->conditions; i++)
        base[row->fact[i]] = row->value[i];
    for (int a = 0; a < table->fact_count; a++)
        for (int b = a + 1; b < table->fact_count; b++)
            for (int c = b + 1; c < table->fact_count; c++) {
                memcpy(combination, base, sizeof(base));
                combination[a] = combination[b] = combination[c] = 0;
                do
                    visit(combination);
                while (table_next_value(table, combination, a) ||
                       table_next_value(table, combination, b) ||
                       table_next_value(table, combination, c));
            }
}

/* Calls visit for what lies around each row, which takes a second; with CRUST_EVERY in the
 * environment for every combination there is. */
static inline void table_visit(struct table *table, const int *neutral,
                               void (*visit)(const int *combination))
{
    int every[32] = {0};

    if (table->row_count == 0)
        table_read(table);
    if (getenv("CRUST_EVERY")) {
        do
            visit(every);
        while (table_advance(table, every));
        return;
    }
    for (unsigned i = 0; i < table->row_count; i++)
        table_visit_around(table, &table->rows[i], neutral, visit);
}

static inline void table_assert_used(const struct table *table)
{
    for (unsigned i = 0; i < table->row_count; i++)
        if (table->rows[i].first_matches == 0)
            fail_msg("row %u of the table can never be the first match", i + 1);
}
