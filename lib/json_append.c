/* SPDX-License-Identifier: Apache-2.0 */
/* json_append.c - the writer of json.h.
 *
 * Apart from json.c, which needs cJSON: that is a shared library only, and crust-guest-agent is
 * static.
 */
#include <string.h>

#include "lib/json.h"
#include "lib/text.h"

int json_append_string(struct buffer *buffer, const char *text)
{
    struct buffer_mark before = buffer_mark(buffer);
    char escaped[TEXT_ESCAPED_BYTES];
    const char *end;
    int r;

    if (!text)
        return buffer_append_text(buffer, "null");
    end = text + strlen(text);
    buffer_append(buffer, "\"", 1);
    while (text < end) {
        size_t length = text_plain_length(text, end);

        buffer_append(buffer, text, length);
        text += length;
        if (text < end)
            buffer_append(buffer, escaped, text_escape_next(&text, end, escaped));
    }
    r = buffer_append(buffer, "\"", 1);
    if (r < 0)
        buffer_rewind(buffer, before);
    return buffer_fail(buffer, r);
}

int json_append_name(struct buffer *buffer, const char *name)
{
    if (buffer->length && buffer->data[buffer->length - 1] != '{')
        buffer_append(buffer, ",", 1);
    buffer_append(buffer, "\"", 1);
    buffer_append_text(buffer, name);
    return buffer_append(buffer, "\":", 2);
}

int json_append_member(struct buffer *buffer, const char *name, const char *text)
{
    json_append_name(buffer, name);
    return json_append_string(buffer, text);
}
