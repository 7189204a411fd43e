/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - rows of a view as text.
 *
 * Cells are formatted twice, once to measure and once to print, rather than kept: a table of 4,000
 * rows then needs no memory beyond its rows.
 */
#include "crustctl/table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "crustctl/display.h"
#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

enum { GAP = 2 };

static int format_number(const struct column *column, const cJSON *row, struct buffer *ret_text)
{
    uint64_t number;

    if (json_number(row, column->key, &number) != 0)
        return 0;
    if (column->kind == COLUMN_NUMBER)
        return buffer_append_format(ret_text, "%" PRIu64, number);
    return buffer_append_text(ret_text, text_size(number).text);
}

int table_format(const struct column *column, const cJSON *row, struct buffer *ret_text)
{
    const cJSON *value;

    if (column->format)
        return column->format(row, ret_text);
    if (column->kind == COLUMN_NUMBER || column->kind == COLUMN_SIZE)
        return format_number(column, row, ret_text);
    value = json_member(row, column->key);
    if (!value || cJSON_IsNull(value))
        return 0;
    if (column->kind == COLUMN_JSON)
        return row_print_value(value, ret_text);
    if (!cJSON_IsString(value))
        return 0;
    if (column->kind != COLUMN_TIME)
        return buffer_append_text(ret_text, value->valuestring);
    return buffer_append_text(ret_text, text_time(value->valuestring).text);
}

struct layout {
    unsigned width[TABLE_COLUMNS];
    bool hidden[TABLE_COLUMNS];
};

/* A failure to format is reported when the cell is printed. */
static unsigned escaped_width(const struct column *column, const cJSON *row)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer escaped = BUFFER_INIT(0);

    table_format(column, row, &text);
    display_append(&escaped, buffer_text(&text));
    return display_width(buffer_text(&escaped));
}

static void measure(const struct column *columns, unsigned count, const cJSON *rows,
                    struct layout *layout)
{
    const cJSON *row;

    for (unsigned i = 0; i < count; i++) {
        layout->width[i] = display_width(columns[i].title);
        layout->hidden[i] = false;
        cJSON_ArrayForEach(row, rows)
        {
            const unsigned width = escaped_width(&columns[i], row);

            if (width > layout->width[i])
                layout->width[i] = width;
        }
    }
}

static unsigned total_width(const struct layout *layout, unsigned count)
{
    unsigned total = 0;

    for (unsigned i = 0; i < count; i++)
        if (!layout->hidden[i])
            total += layout->width[i] + GAP;
    return total > 0 ? total - GAP : 0;
}

/* Takes one column of width from the widest that can still give. */
static bool shrink_widest(const struct column *columns, unsigned count, struct layout *layout)
{
    unsigned widest = count;

    for (unsigned i = 0; i < count; i++)
        if (!layout->hidden[i] && columns[i].minimum > 0 && layout->width[i] > columns[i].minimum &&
            (widest == count || layout->width[i] > layout->width[widest]))
            widest = i;
    if (widest == count)
        return false;
    layout->width[widest]--;
    return true;
}

static bool hide_one(const struct column *columns, unsigned count, struct layout *layout)
{
    unsigned first = count;

    for (unsigned i = 0; i < count; i++)
        if (!layout->hidden[i] && columns[i].expendable > 0 &&
            (first == count || columns[i].expendable > columns[first].expendable))
            first = i;
    if (first == count)
        return false;
    layout->hidden[first] = true;
    return true;
}

static void fit(const struct column *columns, unsigned count, unsigned width, struct layout *layout)
{
    const struct layout natural = *layout;

    while (total_width(layout, count) > width) {
        if (shrink_widest(columns, count, layout))
            continue;
        if (!hide_one(columns, count, layout))
            return;
        memcpy(layout->width, natural.width, sizeof(layout->width));
    }
}

static bool aligns_right(const struct column *column)
{
    return column->kind == COLUMN_NUMBER || column->kind == COLUMN_SIZE;
}

/* row NULL: the titles. The last column is not padded, so lines have no blanks at their end. */
static void print_row(const struct column *columns, unsigned count, const struct layout *layout,
                      const cJSON *row, struct buffer *out)
{
    unsigned last = count;
    bool first = true;

    while (last > 0 && layout->hidden[last - 1])
        last--;
    for (unsigned i = 0; i < last; i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        if (layout->hidden[i])
            continue;
        if (row)
            table_format(&columns[i], row, &text);
        else
            buffer_append_text(&text, columns[i].title);
        if (row && text.length == 0)
            buffer_append_text(&text, "-");
        if (!first)
            buffer_append_format(out, "%*s", GAP, "");
        first = false;
        buffer_fail(out, buffer_error(&text));
        if (aligns_right(&columns[i]))
            display_append_padded_left(out, buffer_text(&text), layout->width[i]);
        else if (i + 1 < last)
            display_append_padded(out, buffer_text(&text), layout->width[i]);
        else
            display_append_short(out, buffer_text(&text), layout->width[i]);
    }
    buffer_append_text(out, "\n");
}

int table_print(const struct column *columns, unsigned count, const cJSON *rows, unsigned width,
                const char *nothing, struct buffer *out)
{
    struct layout layout;
    const cJSON *row;

    if (cJSON_GetArraySize(rows) == 0)
        return buffer_append_format(out, "%s\n", nothing);
    measure(columns, count, rows, &layout);
    fit(columns, count, width, &layout);
    print_row(columns, count, &layout, NULL, out);
    cJSON_ArrayForEach(row, rows)
    {
        print_row(columns, count, &layout, row, out);
    }
    return buffer_error(out);
}

int table_print_sheet(const struct column *columns, unsigned count, const cJSON *row,
                      struct buffer *out)
{
    unsigned width = 0;

    for (unsigned i = 0; i < count; i++)
        if (display_width(columns[i].title) > width)
            width = display_width(columns[i].title);
    for (unsigned i = 0; i < count; i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        buffer_fail(out, table_format(&columns[i], row, &text));
        if (text.length == 0)
            continue;
        buffer_append_text(out, "  ");
        display_append_padded(out, columns[i].title, width + GAP);
        display_append(out, buffer_text(&text));
        buffer_append_text(out, "\n");
    }
    return buffer_error(out);
}
