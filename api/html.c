/* SPDX-License-Identifier: Apache-2.0 */
/* html.c - writes HTML for the status page. */
#include "api/html.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

void html_raw(struct buffer *html, const char *markup)
{
    buffer_append_text(html, markup);
}

static const char *entity_of(uint32_t character)
{
    switch (character) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* A character is shown if lib/text.h would not escape it. */
static bool is_shown(const char *text, size_t length)
{
    char escaped[TEXT_ESCAPED_BYTES];
    const char *cursor = text;

    return text_escape_next(&cursor, text + length, escaped) == length || *text == '\\';
}

void html_text(struct buffer *html, const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        uint32_t character;
        size_t length = text_decode_utf8(text, (size_t)(end - text), &character);
        const char *entity = length == 1 ? entity_of(character) : NULL;

        if (entity)
            html_raw(html, entity);
        else if (length && is_shown(text, length))
            buffer_append(html, text, length);
        else
            html_raw(html, "\xef\xbf\xbd");
        text += length ? length : 1;
    }
}

void html_number(struct buffer *html, uint64_t number)
{
    buffer_append_format(html, "%" PRIu64, number);
}

void html_size(struct buffer *html, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double number = (double)bytes;
    size_t unit = 0;

    if (bytes == 0) {
        html_raw(html, "<span class=none>\xe2\x80\x93</span>");
        return;
    }
    for (; number >= 1024; number /= 1024)
        unit++;
    buffer_append_format(html,
                         "<span title=\"%" PRIu64 " bytes\">%.4g\xc2\xa0%s"
                         "</span>",
                         bytes, number, units[unit]);
}

void html_time(struct buffer *html, int64_t realtime_ms)
{
    char text[CLOCK_TEXT_BYTES];

    clock_text(realtime_ms, text);
    buffer_append_format(html, "<time datetime=\"%s\">%.10s <b>%.8s</b></time>", text, text,
                         text + 11);
}

void html_span(struct buffer *html, int64_t milliseconds)
{
    static const struct {
        int64_t unit;
        const char *name;
    } scales[] = {{24 * 3600 * 1000, "d"}, {3600 * 1000, "h"}, {60 * 1000, "min"}};
    char text[48];

    if (milliseconds < 1000)
        (void)snprintf(text, sizeof(text), "%" PRId64 "\xc2\xa0ms", milliseconds);
    else
        (void)snprintf(text, sizeof(text), milliseconds < 10000 ? "%.1f\xc2\xa0s" : "%.0f\xc2\xa0s",
                       (double)milliseconds / 1000);
    for (size_t i = 0; i < array_length(scales); i++)
        if (milliseconds >= 2 * scales[i].unit) {
            (void)snprintf(text, sizeof(text), "%" PRId64 "\xc2\xa0%s",
                           milliseconds / scales[i].unit, scales[i].name);
            break;
        }
    html_raw(html, text);
}
