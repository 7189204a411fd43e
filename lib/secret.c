/* SPDX-License-Identifier: Apache-2.0 */
/* secret.c - secrets recognised by their names. */
#include "lib/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "lib/cleanup.h"
#include "lib/json.h"

/* In "smb-pass", "pass2" and "dbPass", but not in "bypass" or "passthrough". */
static bool is_word_at(const char *name, size_t length, size_t at, size_t word_length)
{
    bool begins = at == 0 || !isalpha((unsigned char)name[at - 1]) ||
                  (isupper((unsigned char)name[at]) && islower((unsigned char)name[at - 1]));
    size_t end = at + word_length;

    return begins && (end == length || !isalpha((unsigned char)name[end]) ||
                      isupper((unsigned char)name[end]));
}

struct word {
    const char *text;
    bool alone; /* only as a word of its own */
};

static bool contains(const char *name, size_t length, const struct word *word)
{
    size_t word_length = strlen(word->text);

    for (size_t at = 0; at + word_length <= length; at++)
        if (tolower((unsigned char)name[at]) == word->text[0] &&
            strncasecmp(name + at, word->text, word_length) == 0 &&
            (!word->alone || is_word_at(name, length, at, word_length)))
            return true;
    return false;
}

bool secret_is_name(const char *name, size_t length)
{
    static const struct word words[] = {
        {"auth", false},      {"credential", false}, {"key", false}, {"passphrase", false},
        {"passw", false},     {"private", false},    {"pwd", false}, {"secret", false},
        {"signature", false}, {"token", false},      {"pass", true}, {"pw", true},
        {"cred", true},       {"creds", true},
    };

    for (size_t i = 0; i < array_length(words); i++)
        if (contains(name, length, &words[i]))
            return true;
    return false;
}

size_t secret_shown_length(const char *text)
{
    size_t part = 0, at = 0;

    for (; text[at]; at++) {
        if (text[at] == ',')
            part = at + 1;
        if (text[at] == '=' && secret_is_name(text + part, at - part))
            return at + 1;
    }
    return at;
}

int secret_append_json(struct buffer *json, const char *text)
{
    cleanup(buffer_done) struct buffer shown = BUFFER_INIT(0);
    size_t length = secret_shown_length(text);

    if (!text[length])
        return json_append_string(json, text);
    buffer_append(&shown, text, length);
    if (buffer_append_text(&shown, SECRET_REDACTED) < 0)
        return buffer_fail(json, buffer_error(&shown));
    return json_append_string(json, buffer_text(&shown));
}
