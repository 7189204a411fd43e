/* SPDX-License-Identifier: Apache-2.0 */
/* command_explain.c - what to do about a volume, what its state means, and what is known: the
 * daemon's own sentences. */
#include <inttypes.h>
#include <stdio.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum {
    WIDEST = 100, /* longer lines of prose are hard to read */
    ANSWER_BYTES = 16 * 1024 * 1024,
    ANSWER_DEPTH = 12,
};

/* What to do comes first: the reader may have been woken for it. A member is a sentence, null, or
 * an array of sentences; without a title it goes on with the section before it. */
static const struct {
    const char *title, *member;
} sections[] = {
    {"What to do", "remedies"},     {"What it means", "state_meaning"}, {NULL, "reason_meaning"},
    {"What is missing", "missing"}, {"What is known", "known"},
};

static void print_heading(const cJSON *volume, struct buffer *out)
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(0);

    row_volume_name(volume, &name);
    buffer_append_text(&name, ": ");
    row_state(volume, &name);
    buffer_fail(out, buffer_error(&name));
    buffer_append_format(out, "Volume %" PRIu64 ", ", row_number(volume, "volume_id", NULL));
    display_append(out, buffer_text(&name));
    buffer_append_text(out, "\n");
}

static void print_section(const char *title, const cJSON *member, unsigned width,
                          struct buffer *out)
{
    const bool is_list = cJSON_IsArray(member);
    const cJSON *sentence = is_list ? member->child : member;

    if (title && cJSON_IsString(sentence))
        buffer_append_format(out, "\n%s\n", title);
    for (; cJSON_IsString(sentence); sentence = is_list ? sentence->next : NULL)
        display_append_wrapped(out, sentence->valuestring, "  - ", 4, width);
}

static void print_text(const cJSON *answer, unsigned width, struct buffer *out)
{
    print_heading(json_member(answer, "volume"), out);
    for (size_t i = 0; i < array_length(sections); i++)
        print_section(sections[i].title, json_member(answer, sections[i].member), width, out);
}

int command_explain(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *volume = NULL, *answer = NULL;
    struct error error = {0};
    char path[64];
    int result;

    source_want_daemon(session->source);
    result = session_find_volume(session, session->options->operand[0], &volume);
    if (result == EXIT_UNREACHABLE)
        (void)fprintf(
            stderr,
            "Only the daemon explains. crustctl volume VOL shows what is on record, and so "
            "does\n  sqlite3 -readonly %s 'SELECT * FROM audit_volumes'\n",
            source_config(session->source)->paths.database);
    if (result != 0)
        return result;
    (void)snprintf(path, sizeof(path), "/v1/volumes/%" PRIu64 "/explain",
                   row_number(volume, "volume_id", NULL));
    result = source_ask_daemon(session->source, "GET", path, &body, &error);
    if (result == 0)
        result = json_parse(buffer_text(&body), body.length,
                            (struct json_limits){ANSWER_BYTES, ANSWER_DEPTH, 0}, &answer, &error);
    if (result != 0)
        return session_fail(result, &error);
    if (session->options->json)
        buffer_append(&session->out, body.data, body.length);
    else
        print_text(answer, session->width < WIDEST ? session->width : WIDEST, &session->out);
    return EXIT_DONE;
}
