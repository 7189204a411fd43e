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
    r = buffer_append(buffer, "\"", 1);
    while (r == 0 && text < end) {
        size_t length = text_escape_next(&text, end, escaped);

        r = buffer_append(buffer, escaped, length);
    }
    r = buffer_append(buffer, "\"", 1);
    if (r < 0)
        buffer_rewind(buffer, before);
    return buffer_fail(buffer, r);
}

int json_append_name(struct buffer *buffer, const char *name)
{
    bool is_first = buffer->length == 0 || buffer->data[buffer->length - 1] == '{';

    return buffer_append_format(buffer, "%s\"%s\":", is_first ? "" : ",", name);
}

int json_append_member(struct buffer *buffer, const char *name, const char *text)
{
    json_append_name(buffer, name);
    return json_append_string(buffer, text);
}
