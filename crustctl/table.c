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
#include "lib/cleanup.h"
#include "lib/json.h"

enum { GAP = 2 };

static int format_json(const cJSON *value, struct buffer *ret_text)
{
    char *text = cJSON_PrintUnformatted(value);
    int result = text ? buffer_append_text(ret_text, text) : -ENOMEM;

    cJSON_free(text);
    return result;
}

static int format_number(const struct column *column, const cJSON *row, struct buffer *ret_text)
{
    char text[DISPLAY_SIZE_BYTES];
    uint64_t number;

    if (json_number(row, column->key, &number) != 0)
        return 0;
    if (column->kind == COLUMN_NUMBER)
        return buffer_append_format(ret_text, "%" PRIu64, number);
    display_size(number, text);
    return buffer_append_text(ret_text, text);
}

int table_format(const struct column *column, const cJSON *row, struct buffer *ret_text)
{
    const cJSON *value;
    char time[DISPLAY_TIME_BYTES];

    if (column->format)
        return column->format(row, ret_text);
    if (column->kind == COLUMN_NUMBER || column->kind == COLUMN_SIZE)
        return format_number(column, row, ret_text);
    value = json_member(row, column->key);
    if (!value || cJSON_IsNull(value))
        return 0;
    if (column->kind == COLUMN_JSON)
        return format_json(value, ret_text);
    if (!cJSON_IsString(value))
        return 0;
    if (column->kind != COLUMN_TIME)
        return buffer_append_text(ret_text, value->valuestring);
    display_time(value->valuestring, time);
    return buffer_append_text(ret_text, time);
}

struct layout {
    unsigned width[TABLE_COLUMNS];
    bool hidden[TABLE_COLUMNS];
};

static int escaped_width(const struct column *column, const cJSON *row, unsigned *ret_width)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer escaped = BUFFER_INIT(0);
    int result = table_format(column, row, &text);

    if (result == 0)
        result = display_append(&escaped, buffer_text(&text));
    if (result == 0)
        *ret_width = display_width(buffer_text(&escaped));
    return result;
}

static int measure(const struct column *columns, unsigned count, const cJSON *rows,
                   struct layout *layout)
{
    const cJSON *row;

    for (unsigned i = 0; i < count; i++) {
        layout->width[i] = display_width(columns[i].title);
        layout->hidden[i] = false;
        cJSON_ArrayForEach(row, rows)
        {
            unsigned width = 0;
            int result = escaped_width(&columns[i], row, &width);

            if (result < 0)
                return result;
            if (width > layout->width[i])
                layout->width[i] = width;
        }
    }
    return 0;
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
static int print_row(const struct column *columns, unsigned count, const struct layout *layout,
                     const cJSON *row, struct buffer *out)
{
    unsigned last = count;
    bool first = true;
    int result = 0;

    while (last > 0 && layout->hidden[last - 1])
        last--;
    for (unsigned i = 0; result == 0 && i < last; i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        if (layout->hidden[i])
            continue;
        result = row ? table_format(&columns[i], row, &text)
                     : buffer_append_text(&text, columns[i].title);
        if (result == 0 && row && text.length == 0)
            result = buffer_append_text(&text, "-");
        if (result == 0 && !first)
            result = buffer_append_format(out, "%*s", GAP, "");
        first = false;
        if (result < 0)
            break;
        if (aligns_right(&columns[i]))
            result = display_append_padded_left(out, buffer_text(&text), layout->width[i]);
        else if (i + 1 < last)
            result = display_append_padded(out, buffer_text(&text), layout->width[i]);
        else
            result = display_append_short(out, buffer_text(&text), layout->width[i]);
    }
    return result == 0 ? buffer_append_text(out, "\n") : result;
}

int table_print(const struct column *columns, unsigned count, const cJSON *rows, unsigned width,
                const char *nothing, struct buffer *out)
{
    struct layout layout;
    const cJSON *row;
    int result;

    if (cJSON_GetArraySize(rows) == 0)
        return buffer_append_format(out, "%s\n", nothing);
    result = measure(columns, count, rows, &layout);
    if (result < 0)
        return result;
    fit(columns, count, width, &layout);
    result = print_row(columns, count, &layout, NULL, out);
    cJSON_ArrayForEach(row, rows)
    {
        if (result == 0)
            result = print_row(columns, count, &layout, row, out);
    }
    return result;
}

int table_print_sheet(const struct column *columns, unsigned count, const cJSON *row,
                      struct buffer *out)
{
    unsigned width = 0;
    int result = 0;

    for (unsigned i = 0; i < count; i++)
        if (display_width(columns[i].title) > width)
            width = display_width(columns[i].title);
    for (unsigned i = 0; result == 0 && i < count; i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        result = table_format(&columns[i], row, &text);
        if (result < 0 || text.length == 0)
            continue;
        result = buffer_append_text(out, "  ");
        if (result == 0)
            result = display_append_padded(out, columns[i].title, width + GAP);
        if (result == 0)
            result = display_append(out, buffer_text(&text));
        if (result == 0)
            result = buffer_append_text(out, "\n");
    }
    return result;
}
