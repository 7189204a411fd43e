/* SPDX-License-Identifier: Apache-2.0 */
/* json_cut.c - counts brackets outside strings; everything else is left to the parser. */
#include "observe/json_cut.h"

bool json_is_cut(const char *text, size_t length)
{
    bool in_string = false, has_value = false;
    size_t open = 0;

    for (size_t i = 0; i < length; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        in_string = c == '"';
        if (c == '{' || c == '[')
            open++;
        else if ((c == '}' || c == ']') && open)
            open--;
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            has_value = true;
    }
    return in_string || open || !has_value;
}

int json_read_text(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
                   struct error *error)
{
    int r = json_parse(text, length, limits, ret_value, error);

    if (r == 0 || r == JSON_NO_MEMORY)
        return r;
    if (!length)
        return error_set(error, FILE_CUT, "empty");
    return r == JSON_WRONG && json_is_cut(text, length) ? FILE_CUT : FILE_WRONG;
}
