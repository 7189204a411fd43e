/* SPDX-License-Identifier: Apache-2.0 */
/* command_cleanup.c - gc and restore: stale metadata, by hand. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "model/stale_reason.h"

enum { ANSWER_BYTES = 64 * 1024 * 1024, ANSWER_DEPTH = 8 };

/* Whether a gc would override the reason, or how long the grace time still lasts. */
static int format_wait(const cJSON *row, struct buffer *ret_text)
{
    bool known;
    const uint64_t seconds = row_number(json_member(row, "evidence"), "waits_seconds", &known);

    if (*row_text(row, "waits_for"))
        return buffer_append_format(ret_text, "for %s", row_text(row, "waits_for"));
    if (known && stale_reason_from_name(row_text(row, "reason")) == STALE_REASON_GRACE)
        return buffer_append_format(ret_text, "%" PRIu64 " s", seconds);
    return 0;
}

static const struct column columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DECISION", .key = "decision"},
    {.title = "REASON", .key = "reason"},
    {.title = "WAITS", .format = format_wait},
};

static bool is_one_of(const char *code, const char *const *codes)
{
    while (*codes && strcmp(code, *codes) != 0)
        codes++;
    return *codes;
}

/* 3: there is no such cleanup; 5: refused, and the text says why; 6: not now. */
static int fail(int result, const struct buffer *body, const struct error *error)
{
    static const char *const refusals[] = {"FAILED_PRECONDITION", "ALREADY_EXISTS", NULL};
    static const char *const delays[] = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED",
                                         NULL};
    cleanup(json_deletep) cJSON *reply = NULL;
    const char *code = NULL;
    int exit_code = session_fail(result, error);

    if (result != SOURCE_REFUSED)
        return exit_code;
    if (json_parse(buffer_text(body), body->length, JSON_LIMITS_HTTP, &reply, NULL) == 0)
        code = json_string(reply, "code");
    if (!code)
        return exit_code;
    if (strcmp(code, "NOT_FOUND") == 0)
        return EXIT_NOT_FOUND;
    if (is_one_of(code, delays))
        return EXIT_NOT_NOW;
    return is_one_of(code, refusals) ? EXIT_BLOCKED : exit_code;
}

/* "reason: meaning remedy", wrapped. */
static void print_reason(enum stale_reason reason, unsigned width, struct buffer *out)
{
    const char *remedy = stale_reason_remedy(reason);
    char line[512];

    (void)snprintf(line, sizeof(line), "%s: %s%s%s", stale_reason_name(reason),
                   stale_reason_meaning(reason), remedy ? " " : "", remedy ? remedy : "");
    display_append_wrapped(out, line, NULL, 2, width);
}

/* Each reason that occurs, once. */
static void print_reasons(const cJSON *rows, unsigned width, struct buffer *out)
{
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++) {
        const cJSON *row = rows->child;

        while (row && strcmp(row_text(row, "reason"), stale_reason_name(i)) != 0)
            row = row->next;
        if (row)
            print_reason(i, width, out);
    }
}

static void print_rows(const struct session *session, const cJSON *rows, struct buffer *out)
{
    table_print(columns, array_length(columns), rows, session->table_width, "nothing looks stale",
                out);
    if (rows->child)
        buffer_append_text(out, "\n");
    print_reasons(rows, session->width, out);
}

int command_gc(struct session *session)
{
    const bool dry_run = session->options->given & OPTION_DRY_RUN;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error = {0};
    int result = source_ask_daemon(session->source, "POST", dry_run ? "/v1/gc?dry_run=1" : "/v1/gc",
                                   &body, &error);

    if (result != 0)
        return fail(result, &body, &error);
    result = json_parse(buffer_text(&body), body.length,
                        (struct json_limits){ANSWER_BYTES, ANSWER_DEPTH, 0}, &rows, &error);
    if (result < 0)
        return session_fail(result, &error);
    if (session->options->json)
        row_print_json(rows, &session->out);
    else
        print_rows(session, rows, &session->out);
    return EXIT_DONE;
}

int command_restore(struct session *session)
{
    const char *id = session->options->operand[0];
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(64 * 1024);
    cleanup(buffer_done) struct buffer path = BUFFER_INIT(64);
    struct error error = {0};
    int result = 0;

    if (!*id || strspn(id, "0123456789") != strlen(id) ||
        buffer_append_format(&path, "/v1/cleanups/%s/restore", id) < 0) {
        (void)error_set(&error, -EINVAL, "restore wants the number of a cleanup, not \"%s\"", id);
        (void)session_fail(-EINVAL, &error);
        return EXIT_USAGE;
    }
    result = source_ask_daemon(session->source, "POST", buffer_text(&path), &body, &error);
    if (result != 0)
        return fail(result, &body, &error);
    buffer_append_text(&session->out, session->options->json ? "{}\n" : "restored\n");
    return EXIT_DONE;
}
