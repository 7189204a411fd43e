/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - rows of a view as text.
 *
 * Cells are formatted twice, once to measure and once to print, rather than kept: a table of 4,000
 * rows then needs no memory beyond its rows.
 */
#include "crustctl/table.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "crustctl/display.h"
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

/* ---- row ------------------------------------------------------------------------------------ */

/* The objects that a row of a view is about, named as people do. */

enum { KIND_WIDTH = 16 };

const char *row_text(const cJSON *row, const char *key)
{
    const char *text = json_string(row, key);

    return text ? text : "";
}

uint64_t row_number(const cJSON *row, const char *key, bool *ret_known)
{
    uint64_t number = 0;
    const bool known = json_number(row, key, &number) == 0;

    if (ret_known)
        *ret_known = known;
    return number;
}

const char *row_reason(const cJSON *row)
{
    const char *reason = row_text(row, "reason");

    return *reason ? reason : "none";
}

int row_volume_name(const cJSON *row, struct buffer *ret_text)
{
    const char *pv = row_text(row, "pv"), *path = row_text(row, "target_path");

    return buffer_append_text(ret_text, *pv ? pv : *path ? path : row_text(row, "key"));
}

int row_state(const cJSON *row, struct buffer *ret_text)
{
    const char *reason = row_reason(row);

    if (strcmp(reason, "none") == 0)
        return buffer_append_text(ret_text,
                                  row_text(row, *row_text(row, "removed_at") ? "status" : "state"));
    return buffer_append_format(ret_text, "%s/%s", row_text(row, "state"), reason);
}

int row_resizable(const cJSON *row, struct buffer *ret_text)
{
    const char *reason = row_text(row, "resizable_reason");

    return buffer_append_format(ret_text, "%s%s%s", row_text(row, "resizable"), *reason ? "/" : "",
                                reason);
}

int row_pod(const cJSON *row, struct buffer *ret_text)
{
    if (!*row_text(row, "pod_name"))
        return 0;
    return buffer_append_format(ret_text, "%s/%s", row_text(row, "pod_namespace"),
                                row_text(row, "pod_name"));
}

int row_access(const cJSON *row, struct buffer *ret_text)
{
    return buffer_append_text(ret_text, row_number(row, "writable", NULL) ? "rw" : "ro");
}

static int append_container(const cJSON *container, struct buffer *ret_text)
{
    const char *sub_path = row_text(container, "sub_path");

    buffer_append_format(ret_text, "%s:%s", row_text(container, "container_id"),
                         row_text(container, "path"));
    if (*sub_path)
        buffer_append_format(ret_text, ":%s", sub_path);
    return buffer_append_text(ret_text,
                              cJSON_IsTrue(json_member(container, "read_only")) ? ":ro" : "");
}

int row_containers(const cJSON *row, struct buffer *ret_text)
{
    const cJSON *containers = json_member(row, "containers"), *container;
    int r = 0;

    cJSON_ArrayForEach(container, containers)
    {
        if (container != containers->child)
            buffer_append_text(ret_text, ", ");
        r = append_container(container, ret_text);
    }
    return r;
}

int row_device_number(const cJSON *row, struct buffer *ret_text)
{
    bool known;
    uint64_t major = row_number(row, "major", &known);

    if (!known)
        return 0;
    return buffer_append_format(ret_text, "%" PRIu64 ":%" PRIu64, major,
                                row_number(row, "minor", NULL));
}

int row_print_value(const cJSON *value, struct buffer *out)
{
    char *text = cJSON_PrintUnformatted(value);
    int result = text ? buffer_append_text(out, text) : buffer_fail(out, -ENOMEM);

    cJSON_free(text);
    return result;
}

static bool is_size(const cJSON *member)
{
    const size_t length = member->string ? strlen(member->string) : 0;

    return cJSON_IsNumber(member) && member->valuedouble >= 0 && length >= strlen("bytes") &&
           strcmp(member->string + length - strlen("bytes"), "bytes") == 0;
}

/* "name=value" */
static void append_member(const cJSON *member, struct buffer *out)
{
    buffer_append_format(out, "%s%s=", out->length > 0 ? " " : "", member->string);
    if (is_size(member)) {
        buffer_append_text(out, text_size((uint64_t)member->valuedouble).text);
    } else if (cJSON_IsString(member)) {
        buffer_append_text(out, member->valuestring);
    } else {
        row_print_value(member, out);
    }
}

static void append_detail(const cJSON *detail, struct buffer *out)
{
    const cJSON *member;

    if (cJSON_IsString(detail))
        buffer_append_text(out, detail->valuestring);
    if (!cJSON_IsObject(detail))
        return;
    cJSON_ArrayForEach(member, detail)
    {
        append_member(member, out);
    }
}

/* "2026-01-02 03:04:05.678  state_changed     volume 7 pvc-orders  sandbox a1b2…" */
static void append_subject(const cJSON *row, struct buffer *out)
{
    const char *at = row_text(row, "at");
    const char *sandbox = row_text(row, "sandbox_id");
    const char *device = row_text(row, "device");
    const char *pv = row_text(row, "pv");
    bool about_volume;
    const uint64_t volume = row_number(row, "volume_id", &about_volume);
    const bool alone = !about_volume && !*sandbox && !*device;

    buffer_append_format(out, "%.10s %.12s  %-*s", at, strlen(at) > 11 ? at + 11 : "",
                         alone ? 0 : KIND_WIDTH, row_text(row, "kind"));
    if (about_volume)
        buffer_append_format(out, "  volume %" PRIu64 "%s%s", volume, *pv ? " " : "", pv);
    if (*sandbox)
        buffer_append_format(out, "  sandbox %.8s%s", sandbox, strlen(sandbox) > 8 ? "…" : "");
    if (*device)
        buffer_append_format(out, "  %s", device);
}

int row_print_journal(const cJSON *row, unsigned width, struct buffer *out)
{
    cleanup(buffer_done) struct buffer subject = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer detail = BUFFER_INIT(0);
    unsigned columns;

    append_subject(row, &subject);
    append_detail(json_member(row, "detail"), &detail);
    buffer_fail(out, buffer_error(&subject));
    buffer_fail(out, buffer_error(&detail));
    display_append(out, buffer_text(&subject));
    if (detail.length == 0)
        return buffer_append_text(out, "\n");
    columns = display_width(buffer_text(&subject)) + 2 + display_width(buffer_text(&detail));
    if (columns > width)
        return display_append_wrapped(out, buffer_text(&detail), "\n    ", 4, width);
    return display_append_wrapped(out, buffer_text(&detail), "  ", 0, UINT_MAX);
}

int row_print_json(const cJSON *value, struct buffer *out)
{
    const cJSON *row;
    bool first = true;

    if (!cJSON_IsArray(value)) {
        row_print_value(value, out);
        return buffer_append_text(out, "\n");
    }
    buffer_append_text(out, "[");
    cJSON_ArrayForEach(row, value)
    {
        buffer_append_text(out, first ? "\n" : ",\n");
        row_print_value(row, out);
        first = false;
    }
    return buffer_append_text(out, first ? "]\n" : "\n]\n");
}
