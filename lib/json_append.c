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
    size_t before = buffer->length;
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
    if (r == 0)
        r = buffer_append(buffer, "\"", 1);
    if (r < 0 && buffer->data) {
        buffer->length = before;
        buffer->data[before] = '\0';
    }
    return r;
}
