/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - rows of a view as text.
 *
 * Cells are formatted twice, once to measure and once to print, rather than kept: a table of 4,000
 * rows then needs no memory beyond its rows.
 */
#include "crustctl/crustctl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

enum { GAP = 2, KIND_WIDTH = 16 };

/* One member as it is shown to people; empty if there is none. */
static int format_cell(const struct column *column, const cJSON *row, struct buffer *ret_text)
{
    const cJSON *value;
    uint64_t number;

    if (column->format)
        return column->format(row, ret_text);
    value = json_member(row, column->key);
    if (!value || cJSON_IsNull(value))
        return 0;
    switch (column->kind) {
    case COLUMN_TEXT:
        return buffer_append_text(ret_text, json_text(row, column->key));
    case COLUMN_TIME:
        return buffer_append_text(ret_text, text_time(json_text(row, column->key)).text);
    case COLUMN_NUMBER:
    case COLUMN_SIZE:
        break;
    }
    if (json_number(row, column->key, &number) != JSON_NUMBER)
        return 0;
    return column->kind == COLUMN_SIZE ? buffer_append_text(ret_text, text_size(number).text)
                                       : buffer_append_format(ret_text, "%" PRIu64, number);
}

/* The columns' widths; a width of 0 hides the column. */
struct layout {
    unsigned width[TABLE_COLUMNS];
};

/* Takes from the widest column that can still give, and where none can, leaves one out. */
static void fit(const struct column *columns, unsigned count, unsigned width, struct layout *layout)
{
    struct layout natural = *layout;

    for (;;) {
        unsigned total = 0, widest = count, worst = count;

        for (unsigned i = 0; i < count; i++) {
            const unsigned here = layout->width[i];

            total += here ? here + GAP : 0;
            if (columns[i].minimum && here > columns[i].minimum &&
                (widest == count || here > layout->width[widest]))
                widest = i;
            if (here && columns[i].expendable &&
                (worst == count || columns[i].expendable > columns[worst].expendable))
                worst = i;
        }
        if (total <= GAP || total - GAP <= width || (widest == count && worst == count))
            return;
        if (widest < count) {
            layout->width[widest]--;
        } else {
            natural.width[worst] = 0;
            *layout = natural;
        }
    }
}

/* row NULL: the titles. The last column is not padded, so lines have no blanks at their end. */
static void print_row(const struct column *columns, unsigned count, const struct layout *layout,
                      const cJSON *row, struct buffer *out)
{
    bool is_first = true;

    while (count > 0 && !layout->width[count - 1])
        count--;
    for (unsigned i = 0; i < count; i++) {
        const bool is_right = columns[i].kind == COLUMN_NUMBER || columns[i].kind == COLUMN_SIZE;
        const unsigned width = layout->width[i];
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        if (!width)
            continue;
        if (row)
            buffer_fail(out, format_cell(&columns[i], row, &text));
        if (text.length == 0)
            buffer_append_text(&text, row ? "-" : columns[i].title);
        buffer_append_format(out, "%*s", is_first ? 0 : GAP, "");
        is_first = false;
        display_append_cell(out, buffer_text(&text), width,
                            is_right        ? DISPLAY_RIGHT
                            : i + 1 < count ? DISPLAY_LEFT
                                            : DISPLAY_SHORT);
    }
    buffer_append_text(out, "\n");
}

int table_print(const struct column *columns, unsigned count, const cJSON *rows, unsigned width,
                const char *nothing, struct buffer *out)
{
    struct layout layout = {0};
    const cJSON *row;

    if (!rows->child)
        return buffer_append_format(out, "%s\n", nothing);
    for (unsigned i = 0; i < count; i++) {
        layout.width[i] = display_width(columns[i].title);
        cJSON_ArrayForEach(row, rows)
        {
            cleanup(buffer_done) struct buffer text = BUFFER_INIT(0), escaped = BUFFER_INIT(0);
            unsigned here;

            format_cell(&columns[i], row, &text); /* a failure is reported when it is printed */
            display_append(&escaped, buffer_text(&text));
            here = display_width(buffer_text(&escaped));
            layout.width[i] = here > layout.width[i] ? here : layout.width[i];
        }
    }
    fit(columns, count, width, &layout);
    print_row(columns, count, &layout, NULL, out);
    cJSON_ArrayForEach(row, rows)
    {
        print_row(columns, count, &layout, row, out);
    }
    return buffer_error(out);
}

static int print_value(const cJSON *value, struct buffer *out)
{
    char *text = cJSON_PrintUnformatted(value);
    int result = text ? buffer_append_text(out, text) : buffer_fail(out, -ENOMEM);

    cJSON_free(text);
    return result;
}

/* A text as it is, a size with its unit, anything else as JSON. */
static void append_member(const cJSON *member, struct buffer *out)
{
    const char *bytes = strstr(member->string, "bytes");

    if (cJSON_IsNumber(member) && member->valuedouble >= 0 && bytes && !bytes[strlen("bytes")])
        buffer_append_text(out, text_size((uint64_t)member->valuedouble).text);
    else if (cJSON_IsString(member))
        buffer_append_text(out, member->valuestring);
    else
        print_value(member, out);
}

int table_print_sheet(const cJSON *row, struct buffer *out)
{
    const cJSON *member;
    unsigned width = 0;

    if (!cJSON_IsObject(row))
        return 0;
    cJSON_ArrayForEach(member, row)
    {
        if (display_width(member->string) > width)
            width = display_width(member->string);
    }
    cJSON_ArrayForEach(member, row)
    {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

        if (!cJSON_IsNull(member))
            append_member(member, &text);
        buffer_fail(out, buffer_error(&text));
        if (text.length == 0)
            continue;
        buffer_append_text(out, "  ");
        display_append_cell(out, member->string, width + GAP, DISPLAY_LEFT);
        display_append(out, buffer_text(&text));
        buffer_append_text(out, "\n");
    }
    return buffer_error(out);
}

/* ---- row ------------------------------------------------------------------------------------ */

uint64_t row_number(const cJSON *row, const char *key)
{
    uint64_t number = 0;

    (void)json_number(row, key, &number);
    return number;
}

const char *row_reason(const cJSON *row)
{
    const char *reason = json_text(row, "reason");

    return *reason ? reason : "none";
}

int row_volume_name(const cJSON *row, struct buffer *ret_text)
{
    const char *pv = json_text(row, "pv"), *path = json_text(row, "target_path");

    return buffer_append_text(ret_text, *pv ? pv : *path ? path : json_text(row, "key"));
}

int row_state(const cJSON *row, struct buffer *ret_text)
{
    const char *reason = row_reason(row);

    if (strcmp(reason, "none") == 0)
        return buffer_append_text(
            ret_text, json_text(row, *json_text(row, "removed_at") ? "status" : "state"));
    return buffer_append_format(ret_text, "%s/%s", json_text(row, "state"), reason);
}

int row_resizable(const cJSON *row, struct buffer *ret_text)
{
    const char *reason = json_text(row, "resizable_reason");

    return buffer_append_format(ret_text, "%s%s%s", json_text(row, "resizable"), *reason ? "/" : "",
                                reason);
}

int row_pod(const cJSON *row, struct buffer *ret_text)
{
    const char *name = json_text(row, "pod_name");

    return *name ? buffer_append_format(ret_text, "%s/%s", json_text(row, "pod_namespace"), name)
                 : 0;
}

/* ---- journal -------------------------------------------------------------------------------- */

/* "2026-01-02 03:04:05.678  state_changed     volume 7 pvc-orders  sandbox a1b2…" */
static void append_subject(const cJSON *row, struct buffer *out)
{
    const char *at = json_text(row, "at"), *pv = json_text(row, "pv");
    const char *sandbox = json_text(row, "sandbox_id"), *device = json_text(row, "device");
    uint64_t volume = 0;
    const bool about_volume = json_number(row, "volume_id", &volume) == JSON_NUMBER;

    buffer_append_format(out, "%.10s %.12s  %-*s", at, strlen(at) > 11 ? at + 11 : "",
                         about_volume || *sandbox || *device ? KIND_WIDTH : 0,
                         json_text(row, "kind"));
    if (about_volume)
        buffer_append_format(out, "  volume %" PRIu64 "%s%s", volume, *pv ? " " : "", pv);
    if (*sandbox)
        buffer_append_format(out, "  sandbox %.8s%s", sandbox, strlen(sandbox) > 8 ? "…" : "");
    if (*device)
        buffer_append_format(out, "  %s", device);
}

int row_print_journal(const cJSON *row, unsigned width, struct buffer *out)
{
    cleanup(buffer_done) struct buffer subject = BUFFER_INIT(0), detail = BUFFER_INIT(0);
    const cJSON *details = json_member(row, "detail"), *member;
    const cJSON *object = cJSON_IsObject(details) ? details : NULL;
    unsigned columns;

    append_subject(row, &subject);
    if (cJSON_IsString(details))
        buffer_append_text(&detail, details->valuestring);
    cJSON_ArrayForEach(member, object)
    {
        buffer_append_format(&detail, "%s%s=", detail.length > 0 ? " " : "", member->string);
        append_member(member, &detail);
    }
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

/* ---- JSON ----------------------------------------------------------------------------------- */

int row_print_json(const cJSON *value, struct buffer *out)
{
    const cJSON *row;

    if (!cJSON_IsArray(value)) {
        print_value(value, out);
        return buffer_append_text(out, "\n");
    }
    buffer_append_text(out, "[");
    cJSON_ArrayForEach(row, value)
    {
        buffer_append_text(out, row == value->child ? "\n" : ",\n");
        print_value(row, out);
    }
    return buffer_append_text(out, value->child ? "\n]\n" : "]\n");
}
