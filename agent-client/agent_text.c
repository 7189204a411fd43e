/* SPDX-License-Identifier: Apache-2.0 */
/* agent_text.c - an agent's message without the quotes and backtrace of its formatting. */
#include "agent-client/agent_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/text.h"

enum { JOINED_BYTES = 1024 }; /* more than any caller keeps of a text */

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

static void drop_backtrace(const char *text, const char **end)
{
    static const char mark[] = "Stack backtrace:";
    const char *backtrace = memmem(text, (size_t)(*end - text), mark, sizeof(mark) - 1);

    if (backtrace && backtrace > text && is_space(backtrace[-1]))
        *end = backtrace;
}

/* White space with a line's end in it becomes one space. Returns how many bytes are kept. */
static size_t join_lines(const char *text, const char *end, char *ret_text, size_t size)
{
    size_t length = 0;

    while (text < end && length < size) {
        const char *next = text;
        bool line_ends = false;

        for (; next < end && is_space(*next); next++)
            line_ends = line_ends || *next == '\n';
        if (line_ends)
            text = next;
        ret_text[length++] = line_ends ? ' ' : *text++;
    }
    return length;
}

void agent_clean_text(const void *bytes, size_t length, char *ret_text, size_t size)
{
    const char *text = length ? bytes : "";
    const char *end = text + length;
    char joined[JOINED_BYTES];

    strip(&text, &end);
    drop_backtrace(text, &end);
    strip(&text, &end);
    text_clean(joined, join_lines(text, end, joined, sizeof(joined)), ret_text, size);
}
