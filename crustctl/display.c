/* SPDX-License-Identifier: Apache-2.0 */
/* display.c - text for a terminal.
 *
 * Everything is laid out into a buffer first, so that a layout can be tested without a terminal.
 * Text is escaped before it is measured, so that a width is that of the bytes written.
 */
#include "crustctl/crustctl.h"

#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "lib/cleanup.h"
#include "lib/text.h"

#define ELLIPSIS "…"

void display_init(void)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8");
}

unsigned display_columns(void)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    unsigned long number = columns ? strtoul(columns, NULL, 10) : 0;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return number >= 20 && number <= 1000 ? (unsigned)number : DISPLAY_DEFAULT_WIDTH;
}

unsigned display_table_columns(void)
{
    return isatty(STDOUT_FILENO) ? display_columns() : UINT_MAX;
}

/* Characters that change the direction of writing could make a line read as something else. */
static bool is_obeyed(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0) ||
           (character >= 0x200b && character <= 0x200f) ||
           (character >= 0x2028 && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069) || character == 0xfeff;
}

int display_append(struct buffer *out, const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        uint32_t character;
        size_t length = text_decode_utf8(text, (size_t)(end - text), &character);

        if (length == 0) {
            buffer_append_format(out, "\\x%02x", (unsigned char)*text);
            length = 1;
        } else if (is_obeyed(character)) {
            buffer_append_format(out, "\\u%04" PRIx32, character);
        } else {
            buffer_append(out, text, length);
        }
        text += length;
    }
    return buffer_error(out);
}

/* Columns and bytes of the first character. */
static unsigned next_width(const char *text, const char *end, size_t *ret_length)
{
    uint32_t character = 0;
    size_t length = text_decode_utf8(text, (size_t)(end - text), &character);
    int columns = length > 0 ? wcwidth((wchar_t)character) : 1;

    *ret_length = length > 0 ? length : 1;
    return columns < 0 ? 1 : (unsigned)columns;
}

unsigned display_width(const char *text)
{
    const char *end = text + strlen(text);
    unsigned width = 0;
    size_t length;

    for (; text < end; text += length)
        width += next_width(text, end, &length);
    return width;
}

/* How many bytes fit into `width` columns. */
static size_t head_bytes(const char *text, unsigned width)
{
    const char *end = text + strlen(text);
    const char *cursor = text;
    size_t length;

    while (cursor < end) {
        unsigned columns = next_width(cursor, end, &length);

        if (columns > width)
            break;
        width -= columns;
        cursor += length;
    }
    return (size_t)(cursor - text);
}

/* The end of a name tells more than its start. */
int display_append_cell(struct buffer *out, const char *text, unsigned width,
                        enum display_align align)
{
    cleanup(buffer_done) struct buffer escaped = BUFFER_INIT(0), cell = BUFFER_INIT(0);
    const unsigned head = (width - 1) / 3;
    const char *shown;
    unsigned total;
    size_t length;
    int blanks;

    buffer_fail(&cell, display_append(&escaped, text));
    shown = buffer_text(&escaped);
    if (display_width(shown) > width) {
        buffer_append(&cell, shown, head_bytes(shown, head));
        buffer_append_text(&cell, ELLIPSIS);
        for (total = display_width(shown); total > width - 1 - head; shown += length)
            total -= next_width(shown, shown + strlen(shown), &length);
    }
    buffer_append_text(&cell, shown);
    buffer_fail(out, buffer_error(&cell));
    blanks = (int)width - (int)display_width(buffer_text(&cell));
    if (blanks < 0 || align == DISPLAY_SHORT)
        blanks = 0;
    return buffer_append_format(out, "%*s%s%*s", align == DISPLAY_RIGHT ? blanks : 0, "",
                                buffer_text(&cell), align == DISPLAY_LEFT ? blanks : 0, "");
}

int display_append_wrapped(struct buffer *out, const char *text, const char *lead, unsigned indent,
                           unsigned width)
{
    cleanup(buffer_done) struct buffer escaped = BUFFER_INIT(0);
    unsigned column = indent;
    bool line_is_empty = true;
    const char *cursor;

    buffer_fail(out, display_append(&escaped, text));
    cursor = buffer_text(&escaped);
    if (lead)
        buffer_append_text(out, lead);
    else
        buffer_append_format(out, "%*s", (int)indent, "");
    while (*(cursor += strspn(cursor, " "))) {
        size_t length = strcspn(cursor, " ");
        char word[1024];
        unsigned columns;

        if (length >= sizeof(word))
            length = head_bytes(cursor, sizeof(word) / 4 - 1);
        memcpy(word, cursor, length);
        word[length] = '\0';
        columns = display_width(word);
        if (!line_is_empty && column + 1 + columns > width) {
            buffer_append_format(out, "\n%*s", (int)indent, "");
            column = indent;
            line_is_empty = true;
        }
        buffer_append_format(out, "%s%s", line_is_empty ? "" : " ", word);
        column += columns + (line_is_empty ? 0 : 1);
        line_is_empty = false;
        cursor += length;
    }
    return buffer_append_text(out, "\n");
}
