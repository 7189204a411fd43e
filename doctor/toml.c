/* SPDX-License-Identifier: Apache-2.0 */
/* toml.c - one pass over the text, by recursive descent.
 *
 * The name of the value in hand is a stack of parts: the table's, then the key's, then, within an
 * inline table, those of the keys inside. A name or a nesting beyond the bounds of the header ends
 * the reading. Arrays are only skipped, so nothing in them is ever called back.
 */
#include "doctor/toml.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "lib/text.h"

enum { DEPTH = 16 };

struct reading {
    const char *cursor;
    const char *end;
    unsigned line;
    unsigned depth;
    unsigned parts;
    char part[TOML_PARTS][TOML_NAME_BYTES];
    toml_callback *callback;
    void *userdata;
    struct error *error;
};

static int fail(struct reading *reading, const char *what)
{
    return error_set(reading->error, -EBADMSG, "line %u: %s", reading->line, what);
}

static bool at_end(const struct reading *reading)
{
    return reading->cursor == reading->end;
}

/* The next character, or NUL at the end: the text itself has none. */
static char peek(const struct reading *reading)
{
    return at_end(reading) ? '\0' : *reading->cursor;
}

static bool starts_with(const struct reading *reading, const char *text)
{
    const size_t length = strlen(text);

    return (size_t)(reading->end - reading->cursor) >= length &&
           memcmp(reading->cursor, text, length) == 0;
}

static bool take(struct reading *reading, const char *text)
{
    if (!starts_with(reading, text))
        return false;
    reading->cursor += strlen(text);
    return true;
}

static void skip_blanks(struct reading *reading)
{
    while (peek(reading) == ' ' || peek(reading) == '\t')
        reading->cursor++;
}

static void skip_comment(struct reading *reading)
{
    if (peek(reading) == '#')
        while (!at_end(reading) && *reading->cursor != '\n')
            reading->cursor++;
}

static bool take_newline(struct reading *reading)
{
    if (!take(reading, "\r\n") && !take(reading, "\n"))
        return false;
    reading->line++;
    return true;
}

/* Blanks, comments and lines between the elements of an array. */
static void skip_space(struct reading *reading)
{
    do {
        skip_blanks(reading);
        skip_comment(reading);
    } while (take_newline(reading));
}

static int end_line(struct reading *reading)
{
    skip_blanks(reading);
    skip_comment(reading);
    if (take_newline(reading) || at_end(reading))
        return 0;
    return fail(reading, "the line goes on where it should end");
}

/* ---- strings ------------------------------------------------------------------------------- */

/* A text of bounded length; bytes beyond the bound are only counted. */
struct text {
    char *bytes;
    size_t size;
    size_t length;
};

static void append(struct text *text, const char *bytes, size_t length)
{
    if (text->length + length < text->size)
        memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

static bool fits(const struct text *text)
{
    return text->length < text->size;
}

static int hex_value(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = digit ? strchr(digits, digit | 0x20) : NULL;

    return found ? (int)(found - digits) : -1;
}

static int take_code_point(struct reading *reading, unsigned digits, struct text *text)
{
    uint32_t character = 0;
    char encoded[4];

    for (unsigned i = 0; i < digits; i++) {
        const int value = hex_value(peek(reading));

        if (value < 0)
            return fail(reading, "an escape without its digits");
        character = character << 4 | (uint32_t)value;
        reading->cursor++;
    }
    if (character == 0 || character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
        return fail(reading, "an escape that is no character");
    append(text, encoded, text_encode_utf8(character, encoded));
    return 0;
}

static int take_escape(struct reading *reading, struct text *text)
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    const char letter = peek(reading);
    const char *found = letter ? strchr(names, letter) : NULL;

    if (letter)
        reading->cursor++;
    if (letter == 'u' || letter == 'U')
        return take_code_point(reading, letter == 'u' ? 4 : 8, text);
    if (!found)
        return fail(reading, "an unknown escape");
    append(text, &values[found - names], 1);
    return 0;
}

/* The text between two quotes on one line; the first quote has been consumed. */
static int take_string(struct reading *reading, char quote, struct text *text)
{
    int r = 0;

    while (r == 0 && peek(reading) != quote) {
        if (at_end(reading) || *reading->cursor == '\n')
            return fail(reading, "a string without its end");
        if (quote == '"' && *reading->cursor == '\\') {
            reading->cursor++;
            r = take_escape(reading, text);
        } else {
            append(text, reading->cursor++, 1);
        }
    }
    if (r == 0) {
        reading->cursor++;
        if (fits(text))
            text->bytes[text->length] = '\0';
    }
    return r;
}

/* After the three quotes that open it; up to two more may stand before those that close it. */
static int skip_long_string(struct reading *reading, char quote)
{
    const char closing[] = {quote, quote, quote, '\0'};

    while (!at_end(reading)) {
        if (take(reading, closing)) {
            for (int i = 0; i < 2 && peek(reading) == quote; i++)
                reading->cursor++;
            return 0;
        }
        if (quote == '"' && *reading->cursor == '\\' && reading->cursor + 1 < reading->end)
            reading->cursor++;
        if (*reading->cursor++ == '\n')
            reading->line++;
    }
    return fail(reading, "a string without its end");
}

/* ---- names --------------------------------------------------------------------------------- */

static bool is_bare(char character)
{
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '_' || character == '-';
}

static int take_part(struct reading *reading)
{
    struct text name = {reading->part[reading->parts], TOML_NAME_BYTES, 0};
    const char quote = peek(reading);

    if (quote == '"' || quote == '\'') {
        int r;

        reading->cursor++;
        r = take_string(reading, quote, &name);
        if (r < 0)
            return r;
    } else {
        while (is_bare(peek(reading)))
            append(&name, reading->cursor++, 1);
        if (name.length == 0)
            return fail(reading, "neither a [table], nor key = value, nor a comment");
        if (fits(&name))
            name.bytes[name.length] = '\0';
    }
    if (!fits(&name))
        return fail(reading, "the name is too long");
    reading->parts++;
    return 0;
}

/* "a . b": adds its parts to those that stand. */
static int take_name(struct reading *reading)
{
    int r;

    do {
        if (reading->parts == TOML_PARTS)
            return fail(reading, "the name has too many parts");
        skip_blanks(reading);
        r = take_part(reading);
        skip_blanks(reading);
    } while (r == 0 && take(reading, "."));
    return r;
}

/* ---- values -------------------------------------------------------------------------------- */

static int take_value(struct reading *reading, bool silent);

static bool starts_long_string(const struct reading *reading)
{
    const char first = peek(reading);

    return reading->end - reading->cursor >= 3 && reading->cursor[1] == first &&
           reading->cursor[2] == first;
}

static void call_back(const struct reading *reading, enum toml_kind kind, const char *text,
                      bool truth)
{
    struct toml_item item = {
        .parts = reading->parts, .kind = kind, .text = text, .truth = truth, .line = reading->line};

    for (unsigned i = 0; i < reading->parts; i++)
        item.part[i] = reading->part[i];
    reading->callback(reading->userdata, &item);
}

static int take_short_string(struct reading *reading, char quote, enum toml_kind kind, bool silent);

static int take_element(struct reading *reading, bool silent)
{
    const char first = peek(reading);

    if (silent || (first != '"' && first != '\'') || starts_long_string(reading))
        return take_value(reading, true);
    reading->cursor++;
    return take_short_string(reading, first, TOML_ELEMENT, false);
}

static int take_array(struct reading *reading, bool silent)
{
    for (;;) {
        int r;

        skip_space(reading);
        if (take(reading, "]"))
            return 0;
        r = take_element(reading, silent);
        if (r < 0)
            return r;
        skip_space(reading);
        if (!take(reading, ",") && peek(reading) != ']')
            return fail(reading, "an array without its end");
    }
}

static int take_pair(struct reading *reading, bool silent)
{
    const unsigned before = reading->parts;
    int r = take_name(reading);

    if (r == 0 && !take(reading, "="))
        r = fail(reading, "neither a [table], nor key = value, nor a comment");
    skip_blanks(reading);
    if (r == 0)
        r = take_value(reading, silent);
    reading->parts = before;
    return r;
}

static int take_inline_table(struct reading *reading, bool silent)
{
    skip_blanks(reading);
    if (take(reading, "}"))
        return 0;
    for (;;) {
        int r = take_pair(reading, silent);

        if (r < 0)
            return r;
        skip_blanks(reading);
        if (take(reading, "}"))
            return 0;
        if (!take(reading, ","))
            return fail(reading, "an inline table without its end");
    }
}

static int take_short_string(struct reading *reading, char quote, enum toml_kind kind, bool silent)
{
    char bytes[TOML_TEXT_BYTES];
    struct text text = {bytes, sizeof(bytes), 0};
    int r = take_string(reading, quote, &text);

    if (r == 0 && !silent)
        call_back(reading, fits(&text) ? kind : TOML_OTHER, fits(&text) ? bytes : "", false);
    return r;
}

/* The characters of a boolean, number or date. */
static int take_word(struct reading *reading, bool silent)
{
    const char *word = reading->cursor;
    size_t length;
    bool truth;

    while (is_bare(peek(reading)) || (peek(reading) && strchr("+.:", *reading->cursor)))
        reading->cursor++;
    length = (size_t)(reading->cursor - word);
    truth = length == 4 && memcmp(word, "true", 4) == 0;
    if (truth || (length == 5 && memcmp(word, "false", 5) == 0)) {
        if (!silent)
            call_back(reading, TOML_BOOLEAN, "", truth);
        return 0;
    }
    if (length == 0 || !strchr("+-0123456789in", *word))
        return fail(reading, "the value is neither a string, number, boolean, array nor table");
    if (!silent)
        call_back(reading, TOML_OTHER, "", false);
    return 0;
}

static int take_nested(struct reading *reading, bool silent)
{
    const bool is_array = peek(reading) == '[';
    int r;

    if (reading->depth == DEPTH)
        return fail(reading, "nested too deep");
    reading->depth++;
    reading->cursor++;
    if (is_array && !silent)
        call_back(reading, TOML_OTHER, "", false);
    r = is_array ? take_array(reading, silent) : take_inline_table(reading, silent);
    reading->depth--;
    return r;
}

static int take_value(struct reading *reading, bool silent)
{
    const char first = peek(reading);

    if (first == '[' || first == '{')
        return take_nested(reading, silent);
    if (take(reading, "\"\"\"") || take(reading, "'''")) {
        int r = skip_long_string(reading, first);

        if (r == 0 && !silent)
            call_back(reading, TOML_OTHER, "", false);
        return r;
    }
    if (first == '"' || first == '\'') {
        reading->cursor++;
        return take_short_string(reading, first, TOML_STRING, silent);
    }
    return take_word(reading, silent);
}

/* ---- the file ------------------------------------------------------------------------------ */

static int take_table(struct reading *reading)
{
    const char *closing = take(reading, "[[") ? "]]" : "]";
    int r;

    if (closing[1] == '\0')
        (void)take(reading, "[");
    reading->parts = 0;
    r = take_name(reading);
    if (r == 0 && !take(reading, closing))
        r = fail(reading, "a [table] without its end");
    return r;
}

int toml_read(const char *text, size_t length, toml_callback *callback, void *userdata,
              struct error *error)
{
    struct reading reading = {.cursor = text,
                              .end = text + length,
                              .line = 1,
                              .callback = callback,
                              .userdata = userdata,
                              .error = error};
    int r = 0;

    if (memchr(text, '\0', length) || !text_is_utf8(text, length))
        return error_set(error, -EBADMSG, "it is not UTF-8 text");
    while (r == 0) {
        skip_space(&reading);
        if (at_end(&reading))
            return 0;
        r = peek(&reading) == '[' ? take_table(&reading) : take_pair(&reading, false);
        if (r == 0)
            r = end_line(&reading);
    }
    return r;
}

int toml_conclude(const char *file, int callback_result, int read_result,
                  const struct error *syntax, struct error *error)
{
    if (callback_result == 0 && read_result < 0)
        callback_result = error_set(error, read_result, "%s", syntax->text);
    if (callback_result < 0)
        (void)error_prefix(error, "%s: ", file);
    return callback_result;
}
