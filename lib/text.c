/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - a strict UTF-8 decoder and one escaper.
 *
 * The decoder accepts what RFC 3629 does: no character in more bytes than it needs, no surrogate
 * and nothing past U+10FFFF.
 */
#include "lib/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"

#define REPLACEMENT UINT32_C(0xFFFD)

size_t text_decode_utf8(const char *text, size_t length, uint32_t *ret_character)
{
    static const unsigned char bits[] = {0x7F, 0x1F, 0x0F, 0x07};
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    const unsigned char first = length ? bytes[0] : 0xFF;
    const size_t following = first < 0x80 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    uint32_t character = first & bits[following];

    if (following >= length || (first >= 0x80 && first < 0xC0) || first > 0xF7)
        return 0;
    for (size_t i = 1; i <= following; i++) {
        if ((bytes[i] & 0xC0) != 0x80) /* no continuation */
            return 0;
        character = character << 6 | (bytes[i] & 0x3F);
    }
    if (character < least[following] || character > 0x10FFFF ||
        (character >= 0xD800 && character <= 0xDFFF))
        return 0;
    *ret_character = character;
    return following + 1;
}

size_t text_encode_utf8(uint32_t character, char ret_bytes[static 4])
{
    size_t following = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    static const unsigned char leading[] = {0x00, 0xC0, 0xE0, 0xF0};

    for (size_t i = following; i > 0; i--) {
        ret_bytes[i] = (char)(0x80 | (character & 0x3F));
        character >>= 6;
    }
    ret_bytes[0] = (char)(leading[following] | character);
    return following + 1;
}

bool text_is_utf8(const char *text, size_t length)
{
    uint32_t character;

    for (size_t at = 0, step; at < length; at += step) {
        step = text_decode_utf8(text + at, length - at, &character);
        if (!step)
            return false;
    }
    return true;
}

static bool needs_number(uint32_t character)
{
    bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
    bool reorders = (character >= 0x202a && character <= 0x202e) ||
                    (character >= 0x2066 && character <= 0x2069);

    return is_control || reorders;
}

/* Printable ASCII that stands for itself wherever text is shown or quoted. */
static bool is_plain(char byte)
{
    return (unsigned char)byte >= 0x20 && (unsigned char)byte < 0x7f && byte != '"' && byte != '\\';
}

/* The length of one character, escaped. Precondition: *cursor < end. */
static size_t escape_next(const char **cursor, const char *end,
                          char ret_escaped[static TEXT_ESCAPED_BYTES + 1])
{
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    uint32_t character;
    size_t length = text_decode_utf8(*cursor, (size_t)(end - *cursor), &character);
    const char *found;

    if (!length) {
        character = REPLACEMENT;
        length = 1;
    }
    *cursor += length;
    found = character && character < 0x80 ? strchr(special, (int)character) : NULL;
    if (found)
        return (size_t)snprintf(ret_escaped, TEXT_ESCAPED_BYTES + 1, "\\%c",
                                letter[found - special]);
    if (needs_number(character))
        return (size_t)snprintf(ret_escaped, TEXT_ESCAPED_BYTES + 1, "\\u%04x",
                                character & 0xFFFFU);
    return text_encode_utf8(character, ret_escaped);
}

size_t text_escape(const char **cursor, const char *end, char *ret_escaped, size_t size)
{
    size_t used = 0;

    while (*cursor < end && used < size) {
        char escaped[TEXT_ESCAPED_BYTES + 1];
        const char *next = *cursor;
        size_t length;

        if (is_plain(*next)) {
            ret_escaped[used++] = *(*cursor)++;
            continue;
        }
        length = escape_next(&next, end, escaped);
        if (length > size - used)
            break;
        memcpy(ret_escaped + used, escaped, length);
        used += length;
        *cursor = next;
    }
    return used;
}

/* Quotes and backslashes stay: whatever shows the text in quotes escapes them itself. */
void text_clean(const char *text, size_t length, char *ret_text, size_t size)
{
    const char *end = text + length;
    size_t used = 0;

    while (text < end) {
        char escaped[TEXT_ESCAPED_BYTES + 1];
        uint32_t character;
        size_t count = text_decode_utf8(text, (size_t)(end - text), &character);
        const char *source = text;

        if (count && !needs_number(character)) {
            text += count;
        } else {
            count = escape_next(&text, end, escaped);
            source = escaped;
        }
        if (count >= size - used)
            break;
        memcpy(ret_text + used, source, count);
        used += count;
    }
    ret_text[used] = '\0';
}

struct text_word text_size(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct text_word word;
    unsigned unit = 0;

    while (unit + 1 < array_length(units) && bytes >> (10 * (unit + 1)) > 0)
        unit++;
    if ((bytes & ((UINT64_C(1) << (10 * unit)) - 1)) == 0)
        (void)snprintf(word.text, sizeof(word.text), "%" PRIu64 " %s", bytes >> (10 * unit),
                       units[unit]);
    else
        (void)snprintf(word.text, sizeof(word.text), "%.1f %s",
                       (double)bytes / (double)(UINT64_C(1) << (10 * unit)), units[unit]);
    return word;
}

struct text_word text_time(const char *text)
{
    const size_t length = strlen(text);
    struct text_word word;

    (void)snprintf(word.text, sizeof(word.text), "%s", text);
    if (length == strlen("2026-01-02T03:04:05.678Z") && text[10] == 'T' &&
        text[length - 1] == 'Z') {
        word.text[10] = ' ';
        word.text[19] = '\0';
    }
    return word;
}

/* ---- name table ----------------------------------------------------------------------------- */

unsigned name_table_find(const char *const *first, size_t stride, unsigned rows, const char *name,
                         unsigned otherwise)
{
    const char *row = (const char *)first;

    for (unsigned i = 0; i < rows; i++, row += stride)
        if (strcmp(*(const char *const *)(const void *)row, name) == 0)
            return i;
    return otherwise;
}
