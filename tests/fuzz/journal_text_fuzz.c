/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text_fuzz.c - a row of the journal as a line: the first two bytes are its numbers, the
 * third how long it may be, and the texts follow, each up to a NUL. They come from guests, drivers,
 * users and paths.
 *
 * A line is one line, is JSON that says what the row says, and keeps its bound.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "store/journal.h"

enum { NUMBERS = 3, LIMIT = 8 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* The next text; "" behind the last. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at;

    *at += strlen(text) + (*at + strlen(text) < end);
    return text;
}

/* What a reader gets of a text that is not UTF-8 is another one. */
static void must_say(const cJSON *line, const char *name, const char *text)
{
    const char *said = json_string(line, name);

    if (text_is_utf8(text, strlen(text)))
        must(strcmp(said ? said : "", text) == 0);
}

static void check(const char *text, size_t length, const struct journal_row *row, const char *node)
{
    static const struct json_limits limits = {64 * 1024, 16, 65536};
    cleanup(json_deletep) cJSON *line = NULL;
    struct error error;

    must(length > 1 && text[length - 1] == '\n' && text_is_utf8(text, length));
    for (size_t i = 0; i < length - 1; i++)
        must((unsigned char)text[i] >= ' ' && text[i] != 0x7f);
    must(json_parse(text, length - 1, limits, &line, &error) == 0);
    must_say(line, "kind", row->kind);
    must_say(line, "node", node);
    if (json_member(line, "cut"))
        return;
    must_say(line, "pv", row->pv);
    must_say(line, "device", row->device);
    must_say(line, "target_path", row->target_path);
    must(!*row->detail == !json_member(line, "detail"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(buffer_done) struct buffer line = BUFFER_INIT(LIMIT);
    cleanup(freep) char *texts = calloc(1, size + 1);
    const char *at = texts, *end = texts + size, *node;
    struct journal_row row;
    size_t most;

    if (!texts || size < NUMBERS)
        return 0;
    memcpy(texts, data + NUMBERS, size - NUMBERS);
    most = ((size_t)data[2] + 1) * 32;
    node = next_text(&at, end);
    row = (struct journal_row){.seq = data[0],
                               .at = (int64_t)data[1] << 35,
                               .volume_id = data[0] % 3,
                               .stalled = data[1] % 2,
                               .state_since = (int64_t)data[0] << 35};
    row.kind = next_text(&at, end);
    row.sandbox_id = next_text(&at, end);
    row.device = next_text(&at, end);
    row.detail = next_text(&at, end);
    row.pv = next_text(&at, end);
    row.pod_uid = next_text(&at, end);
    row.target_path = next_text(&at, end);
    row.state = next_text(&at, end);
    row.reason = next_text(&at, end);
    row.pod_namespace = next_text(&at, end);
    row.pod_name = next_text(&at, end);
    if (journal_text_append(&line, &row, node, most) == 0) {
        must(line.length <= most);
        check(buffer_text(&line), line.length, &row, node);
    } else {
        must(line.length == 0);
    }
    return 0;
}
