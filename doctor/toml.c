/* SPDX-License-Identifier: Apache-2.0 */
/* toml.c - one pass over the text, by recursive descent.
 *
 * The name of the value in hand is a stack of parts: the table's, then the key's, then, within an
 * inline table, those of the keys inside. A name or a nesting beyond the bounds of the header ends
 * the reading.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/text.h"

enum { DEPTH = 16 };

struct reading {
    const char *cursor, *end;
    unsigned line, depth, parts;
    char part[TOML_PARTS][TOML_NAME_BYTES];
    unsigned silent; /* arrays around the one in hand */
    toml_callback *callback;
    void *userdata;
    struct error *error;
    const char *file;
};

static int fail(struct reading *reading, const char *what)
{
    return error_set(reading->error, -EBADMSG, "%s: line %u: %s", reading->file, reading->line,
                     what);
}

/* The next character, or NUL at the end: the text itself has none. */
static char peek(const struct reading *reading)
{
    return reading->cursor == reading->end ? '\0' : *reading->cursor;
}

static bool take(struct reading *reading, const char *text)
{
    const size_t length = strlen(text);

    if ((size_t)(reading->end - reading->cursor) < length ||
        memcmp(reading->cursor, text, length) != 0)
        return false;
    reading->cursor += length;
    return true;
}

static void skip_blanks(struct reading *reading)
{
    while (peek(reading) == ' ' || peek(reading) == '\t')
        reading->cursor++;
}

/* Blanks and a comment; whether a line ended behind them. */
static bool take_line_end(struct reading *reading)
{
    skip_blanks(reading);
    if (peek(reading) == '#')
        while (peek(reading) && *reading->cursor != '\n')
            reading->cursor++;
    if (!take(reading, "\r\n") && !take(reading, "\n"))
        return false;
    reading->line++;
    return true;
}

static void skip_space(struct reading *reading)
{
    while (take_line_end(reading))
        ;
}

static int call_back(struct reading *reading, enum toml_kind kind, const char *text, bool truth)
{
    struct toml_item item = {.parts = reading->parts,
                             .kind = kind,
                             .text = text,
                             .truth = truth,
                             .file = reading->file,
                             .line = reading->line};

    for (unsigned i = 0; i < reading->parts; i++)
        item.part[i] = reading->part[i];
    return reading->silent ? 0 : reading->callback(reading->userdata, &item, reading->error);
}

/* ---- strings ------------------------------------------------------------------------------- */

/* The bytes of an escape behind its backslash; their number, or -EBADMSG. */
static int take_escape(struct reading *reading, char ret_bytes[static 4])
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\",
                      hex[] = "0123456789abcdef";
    const char letter = peek(reading);
    const char *found = letter ? strchr(names, letter) : NULL;
    uint32_t character = 0;

    reading->cursor += letter != '\0';
    if (found) {
        ret_bytes[0] = values[found - names];
        return 1;
    }
    if (letter != 'u' && letter != 'U')
        return fail(reading, "an unknown escape");
    for (unsigned i = 0; i < (letter == 'u' ? 4 : 8); i++) {
        const char digit = (char)tolower((unsigned char)peek(reading));

        if (!isxdigit((unsigned char)digit))
            return fail(reading, "an escape without its digits");
        character = character << 4 | (uint32_t)(strchr(hex, digit) - hex);
        reading->cursor++;
    }
    if (character == 0 || character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
        return fail(reading, "an escape that is no character");
    return (int)text_encode_utf8(character, ret_bytes);
}

/* A string on one line. Its length, also where that does not fit, or -EBADMSG. */
static int take_string(struct reading *reading, char *ret_text, size_t size)
{
    const char quote = *reading->cursor++;
    size_t length = 0;

    while (peek(reading) && peek(reading) != '\n') {
        char bytes[4] = {*reading->cursor++};
        int count = 1;

        if (bytes[0] == quote) {
            ret_text[length < size ? length : size - 1] = '\0';
            return (int)length;
        }
        if (quote == '"' && bytes[0] == '\\')
            count = take_escape(reading, bytes);
        if (count < 0)
            return count;
        if (length + (size_t)count < size)
            memcpy(ret_text + length, bytes, (size_t)count);
        length += (size_t)count;
    }
    return fail(reading, "a string without its end");
}

/* After the three quotes that open it; up to two more may stand before those that close it. */
static int skip_long_string(struct reading *reading, char quote)
{
    const char closing[] = {quote, quote, quote, '\0'};

    while (peek(reading)) {
        if (take(reading, closing)) {
            for (int i = 0; i < 2 && peek(reading) == quote; i++)
                reading->cursor++;
            return 0;
        }
        if (quote == '"' && *reading->cursor == '\\' && reading->cursor + 1 < reading->end)
            reading->cursor++;
        reading->line += *reading->cursor++ == '\n';
    }
    return fail(reading, "a string without its end");
}

/* ---- names --------------------------------------------------------------------------------- */

static bool is_bare(char character)
{
    return isalnum((unsigned char)character) || character == '_' || character == '-';
}

/* "a . b": adds its parts to those that stand. */
static int take_name(struct reading *reading)
{
    do {
        const char *start;
        char *name;
        int length;

        if (reading->parts == TOML_PARTS)
            return fail(reading, "the name has too many parts");
        skip_blanks(reading);
        start = reading->cursor;
        name = reading->part[reading->parts];
        if (peek(reading) == '"' || peek(reading) == '\'') {
            length = take_string(reading, name, TOML_NAME_BYTES);
            if (length < 0)
                return length;
        } else {
            while (is_bare(peek(reading)))
                reading->cursor++;
            length = (int)(reading->cursor - start);
            if (length == 0)
                return fail(reading, "neither a [table], nor key = value, nor a comment");
            (void)snprintf(name, TOML_NAME_BYTES, "%.*s", length, start);
        }
        if (length >= TOML_NAME_BYTES)
            return fail(reading, "the name is too long");
        reading->parts++;
        skip_blanks(reading);
    } while (take(reading, "."));
    return 0;
}

/* ---- values -------------------------------------------------------------------------------- */

static int take_value(struct reading *reading, bool is_element);

static int take_array(struct reading *reading)
{
    for (;;) {
        int r;

        skip_space(reading);
        if (take(reading, "]"))
            return 0;
        r = take_value(reading, true);
        if (r < 0)
            return r;
        skip_space(reading);
        if (!take(reading, ",") && peek(reading) != ']')
            return fail(reading, "an array without its end");
    }
}

static int take_pair(struct reading *reading)
{
    const unsigned before = reading->parts;
    int r = take_name(reading);

    if (r == 0 && !take(reading, "="))
        r = fail(reading, "neither a [table], nor key = value, nor a comment");
    skip_blanks(reading);
    if (r == 0)
        r = take_value(reading, false);
    reading->parts = before;
    return r;
}

static int take_inline_table(struct reading *reading)
{
    int r;

    skip_blanks(reading);
    if (take(reading, "}"))
        return 0;
    do {
        r = take_pair(reading);
        skip_blanks(reading);
        if (r < 0 || take(reading, "}"))
            return r;
    } while (take(reading, ","));
    return fail(reading, "an inline table without its end");
}

/* A boolean, number or date. */
static int take_word(struct reading *reading, enum toml_kind *ret_kind, bool *ret_truth)
{
    const char *word = reading->cursor;
    size_t length;

    while (is_bare(peek(reading)) || (peek(reading) && strchr("+.:", *reading->cursor)))
        reading->cursor++;
    length = (size_t)(reading->cursor - word);
    *ret_truth = length == 4 && memcmp(word, "true", 4) == 0;
    *ret_kind =
        *ret_truth || (length == 5 && memcmp(word, "false", 5) == 0) ? TOML_BOOLEAN : TOML_OTHER;
    if (*ret_kind == TOML_BOOLEAN || (length > 0 && strchr("+-0123456789in", *word)))
        return 0;
    return fail(reading, "the value is neither a string, number, boolean, array nor table");
}

/* What is in an array is called back only if it is a string of the array's own. */
static int take_value(struct reading *reading, bool is_element)
{
    const char first = peek(reading);
    enum toml_kind kind = TOML_OTHER;
    char text[TOML_TEXT_BYTES];
    bool truth = false;
    int r = 0;

    if (first == '[' || first == '{') {
        if (reading->depth == DEPTH)
            return fail(reading, "nested too deep");
        reading->depth++;
        reading->cursor++;
        reading->silent += is_element;
        if (first == '[')
            r = call_back(reading, TOML_OTHER, "", false);
        if (r == 0)
            r = first == '[' ? take_array(reading) : take_inline_table(reading);
        reading->silent -= is_element;
        reading->depth--;
        return r;
    }
    if (take(reading, "\"\"\"") || take(reading, "'''")) {
        r = skip_long_string(reading, first);
    } else if (first == '"' || first == '\'') {
        r = take_string(reading, text, sizeof(text));
        if (r < (int)sizeof(text))
            kind = is_element ? TOML_ELEMENT : TOML_STRING;
    } else {
        r = take_word(reading, &kind, &truth);
    }
    if (r < 0 || (is_element && kind != TOML_ELEMENT))
        return r < 0 ? r : 0;
    return call_back(reading, kind, kind == TOML_STRING || kind == TOML_ELEMENT ? text : "", truth);
}

/* ---- the file ------------------------------------------------------------------------------ */

int toml_read(const char *file, const char *text, size_t length, toml_callback *callback,
              void *userdata, struct error *error)
{
    struct reading reading = {.cursor = text,
                              .end = text + length,
                              .line = 1,
                              .callback = callback,
                              .userdata = userdata,
                              .error = error,
                              .file = file};
    const char *closing;
    int r;

    if (memchr(text, '\0', length) || !text_is_utf8(text, length))
        return error_set(error, -EBADMSG, "%s: it is not UTF-8 text", file);
    for (;;) {
        skip_space(&reading);
        if (!peek(&reading))
            return 0;
        if (take(&reading, "[")) {
            closing = take(&reading, "[") ? "]]" : "]";
            reading.parts = 0;
            r = take_name(&reading);
            if (r == 0 && !take(&reading, closing))
                r = fail(&reading, "a [table] without its end");
        } else {
            r = take_pair(&reading);
        }
        if (r < 0)
            return r;
        if (!take_line_end(&reading) && peek(&reading))
            return fail(&reading, "the line goes on where it should end");
    }
}
