/* agent_text.c - an agent's message without the quotes that its own formatting put around it. */
#include "agent-client/agent_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/text.h"

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

    strip(&text, &end);
    text_clean(text, (size_t)(end - text), ret_text, size);
}
