/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_text.c - the format, independent of what is measured. */
#include "api/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"

static void put(struct metrics_text *text, const char *bytes)
{
    buffer_append_text(text->out, bytes);
}

static void put_value(struct metrics_text *text, double value)
{
    char number[32];

    (void)snprintf(number, sizeof(number), " %.15g\n", value);
    put(text, number);
}

static void put_character(struct metrics_text *text, const char *bytes, size_t length)
{
    if (*bytes == '\\' || *bytes == '"')
        put(text, "\\");
    if (*bytes == '\n')
        put(text, "\\n");
    else
        buffer_append(text->out, bytes, length);
}

/* A single label that is not UTF-8 would make Prometheus refuse the whole answer. */
static void put_escaped(struct metrics_text *text, const char *value)
{
    const char *end = value + strlen(value);

    while (value < end) {
        uint32_t character;
        size_t length = text_decode_utf8(value, (size_t)(end - value), &character);

        if (length == 0)
            put(text, "\xef\xbf\xbd");
        else
            put_character(text, value, length);
        value += length ? length : 1;
    }
}

/* {name="value",…}; `limit` is the bucket's, or NULL. */
static void put_labels(struct metrics_text *text, const struct metrics_labels *labels,
                       const char *limit)
{
    const char *before = "{";

    for (size_t i = 0; labels && i < METRICS_LABELS && labels->label[i].name; i++) {
        put(text, before);
        put(text, labels->label[i].name);
        put(text, "=\"");
        put_escaped(text, labels->label[i].value);
        put(text, "\"");
        before = ",";
    }
    if (limit) {
        put(text, before);
        put(text, "le=\"");
        put(text, limit);
        put(text, "\"");
        before = ",";
    }
    if (*before == ',')
        put(text, "}");
}

void metrics_begin(struct metrics_text *text, const char *name, const char *type, const char *help)
{
    text->family = name;
    put(text, "# HELP ");
    put(text, name);
    put(text, " ");
    put(text, help);
    put(text, "\n# TYPE ");
    put(text, name);
    put(text, " ");
    put(text, type);
    put(text, "\n");
}

void metrics_put(struct metrics_text *text, const struct metrics_labels *labels, double value)
{
    put(text, text->family);
    put_labels(text, labels, NULL);
    put_value(text, value);
}

static void put_part(struct metrics_text *text, const char *suffix,
                     const struct metrics_labels *labels, const char *limit, double value)
{
    put(text, text->family);
    put(text, suffix);
    put_labels(text, labels, limit);
    put_value(text, value);
}

void metrics_put_histogram(struct metrics_text *text, const struct metrics_labels *labels,
                           const struct histogram *histogram)
{
    uint64_t below = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        char limit[32];

        below += histogram->bucket[i];
        (void)snprintf(limit, sizeof(limit), "%g", histogram_seconds[i]);
        put_part(text, "_bucket", labels, limit, (double)below);
    }
    put_part(text, "_bucket", labels, "+Inf", (double)histogram->count);
    put_part(text, "_sum", labels, NULL, histogram->sum_seconds);
    put_part(text, "_count", labels, NULL, (double)histogram->count);
}
