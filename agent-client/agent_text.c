/* agent_text.c - one pass, one character at a time.
 *
 * Quotes and backslashes stay as they are (the log escapes them itself); only what a terminal or a
 * line-based reader would trip over is replaced. NUL counts as such, for the text goes on as a C
 * string.
 */
#include "agent-client/agent_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/text.h"

static bool is_printable(uint32_t character)
{
    return character >= 0x20 && !(character >= 0x7f && character < 0xa0);
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static bool drop_around(const char **text, const char **end, const char *quote)
{
    size_t length = strlen(quote);

    if ((size_t)(*end - *text) < 2 * length || memcmp(*text, quote, length) != 0 ||
        memcmp(*end - length, quote, length) != 0)
        return false;
    *text += length;
    *end -= length;
    return true;
}

/* Outer white space and the pairs of quotes around the whole text, escaped ones included. */
static void strip(const char **text, const char **end)
{
    do {
        while (*text < *end && is_space(**text))
            ++*text;
        while (*text < *end && is_space((*end)[-1]))
            --*end;
    } while (drop_around(text, end, "\"") || drop_around(text, end, "\\\""));
}

void agent_clean_text(const void *bytes, size_t length, char *ret_text, size_t size)
{
    const char *text = length ? bytes : "";
    const char *end = text + length;
    size_t used = 0;

    strip(&text, &end);
    while (text < end) {
        char escaped[TEXT_ESCAPED_BYTES];
        uint32_t character;
        size_t count = text_decode_utf8(text, (size_t)(end - text), &character);
        const char *source = text;

        if (count && is_printable(character)) {
            text += count;
        } else {
            count = text_escape_next(&text, end, escaped);
            source = escaped;
        }
        if (count >= size - used)
            break;
        memcpy(ret_text + used, source, count);
        used += count;
    }
    ret_text[used] = '\0';
}
