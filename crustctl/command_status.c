/* SPDX-License-Identifier: Apache-2.0 */
/* command_status.c - status, health, resync: the daemon itself. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { STATUS_BYTES = 1024 * 1024 };

static const char *condition_of(const cJSON *status)
{
    if (!json_member(status, "version"))
        return "no daemon answers; this is its database";
    if (!cJSON_IsTrue(json_member(status, "synced")))
        return "not ready: the first scan is not done yet";
    return cJSON_IsTrue(json_member(status, "degraded")) ? "degraded" : "ready";
}

/* "by_state" -> "by state" */
static void print_label(const char *key, struct buffer *out)
{
    char label[32];

    (void)snprintf(label, sizeof(label), "%s", key);
    for (char *cursor = label; *cursor; cursor++)
        if (*cursor == '_')
            *cursor = ' ';
    display_append_padded(out, label, 18);
}

static void print_counts(const cJSON *counts, struct buffer *out)
{
    const cJSON *count;
    const char *gap = "";

    cJSON_ArrayForEach(count, counts)
    {
        buffer_append_format(out, "%s%s %.0f", gap, count->string, count->valuedouble);
        gap = ", ";
    }
    if (!*gap)
        buffer_append_text(out, "-");
}

/* Members the store may add later are shown as they come: a number, or an object of numbers. */
static void print_summary(const cJSON *summary, struct buffer *out)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, summary)
    {
        print_label(member->string, out);
        if (cJSON_IsObject(member))
            print_counts(member, out);
        else
            buffer_append_format(out, "%.0f", member->valuedouble);
        buffer_append_text(out, "\n");
    }
}

static void print_sources(const cJSON *sources, struct buffer *out)
{
    const cJSON *source;

    cJSON_ArrayForEach(source, sources)
    {
        const uint64_t overflows = row_number(source, "overflows", NULL);

        buffer_append_format(out, "source %-11s%s, %" PRIu64 " events", row_text(source, "name"),
                             cJSON_IsTrue(json_member(source, "up")) ? "up" : "DOWN",
                             row_number(source, "events", NULL));
        if (overflows > 0)
            buffer_append_format(out, ", %" PRIu64 " overflows", overflows);
        buffer_append_text(out, "\n");
    }
}

/* Whether volumes can be resized here, which readiness does not say. */
static void print_doctor(const cJSON *doctor, struct buffer *out)
{
    const uint64_t errors = row_number(doctor, "errors", NULL);
    const uint64_t warnings = row_number(doctor, "warnings", NULL);

    if (!doctor)
        return;
    buffer_append_format(out, "doctor            errors %" PRIu64 ", warnings %" PRIu64, errors,
                         warnings);
    if (errors + warnings > 0) {
        buffer_append_text(out, ": ");
        display_append(out, row_text(doctor, "worst"));
        buffer_append_text(out, "; see crustctl doctor --problems");
    }
    buffer_append_text(out, "\n");
}

static void print_status(const cJSON *status, struct buffer *out)
{
    buffer_append_format(out, "crustd%s%s: %s", *row_text(status, "version") ? " " : "",
                         row_text(status, "version"), condition_of(status));
    if (*row_text(status, "problem"))
        buffer_append_text(out, ": ");
    display_append(out, row_text(status, "problem"));
    buffer_append_text(out, "\n\n");
    print_doctor(json_member(status, "doctor"), out);
    if (*row_text(status, "cleanup_problem")) {
        buffer_append_text(out, "cleanup           nothing is removed: ");
        display_append(out, row_text(status, "cleanup_problem"));
        buffer_append_text(out, "\n");
    }
    print_summary(json_member(status, "summary"), out);
    if (json_member(status, "acts_in_flight"))
        buffer_append_format(out, "acts in flight    %" PRIu64 "\n",
                             row_number(status, "acts_in_flight", NULL));
    if (json_member(status, "longest_pass_ms"))
        buffer_append_format(out, "longest pass      %" PRIu64 " ms\n",
                             row_number(status, "longest_pass_ms", NULL));
    print_sources(json_member(status, "sources"), out);
}

int command_status(struct session *session)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(STATUS_BYTES);
    cleanup(json_deletep) cJSON *status = NULL;
    struct error error = {0};
    int result = source_status(session->source, &json, &error);

    if (result == 0)
        result = json_parse(buffer_text(&json), json.length,
                            (struct json_limits){STATUS_BYTES, 8, 0}, &status, &error);
    if (result != 0)
        return session_fail(result, &error);
    if (session->options->json)
        row_print_json(status, &session->out);
    else
        print_status(status, &session->out);
    return EXIT_DONE;
}

int command_health(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(STATUS_BYTES);
    struct error error = {0};
    int result = source_ask_daemon(session->source, "GET", "/readyz", &body, &error);

    if (result == 0)
        buffer_append_text(&session->out,
                           session->options->json ? "{\"ready\":true}\n" : "ready\n");
    else if (result == SOURCE_REFUSED && session->options->json)
        buffer_append(&session->out, buffer_text(&body), body.length);
    return result == 0 ? EXIT_DONE : session_fail(result, &error);
}

int command_resync(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(STATUS_BYTES);
    struct error error = {0};
    int result = source_ask_daemon(session->source, "POST", "/v1/resync", &body, &error);

    if (result == 0)
        buffer_append_text(&session->out, session->options->json
                                              ? "{}\n"
                                              : "the daemon observes everything again\n");
    return result == 0 ? EXIT_DONE : session_fail(result, &error);
}

/* ---- command journal ------------------------------------------------------------------------ */

/* The journal, and with -f its new lines as they come.
 *
 * Following asks for the rows after the last one seen. That needs no open connection, also works on
 * the database, and continues when the daemon is restarted.
 */

enum { DEFAULT_LINES = 50, FOLLOW_MILLISECONDS = 200 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_interrupt(void)
{
    const struct sigaction action = {.sa_handler = on_interrupt};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* Followed JSON is one object per line: an array would never end. */
static void print_rows(struct session *session, const cJSON *rows, bool as_lines)
{
    const cJSON *row;

    if (session->options->json && !as_lines) {
        row_print_json(rows, &session->out);
        return;
    }
    cJSON_ArrayForEach(row, rows)
    {
        if (session->options->json)
            row_print_json(row, &session->out);
        else
            row_print_journal(row, session->table_width, &session->out);
    }
}

static void remember_last(const cJSON *rows, struct store_query *query)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        const int64_t sequence = (int64_t)row_number(row, "seq", NULL);

        if (sequence > query->after)
            query->after = sequence;
    }
}

static int print_journal(struct session *session, struct store_query *query, bool follow,
                         struct error *error)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    int result = source_rows(session->source, query, &rows, error);

    if (result != 0)
        return result;
    print_rows(session, rows, follow);
    remember_last(rows, query);
    return follow ? session_flush(session) : 0;
}

int command_journal(struct session *session)
{
    const struct timespec pause = {.tv_nsec = FOLLOW_MILLISECONDS * 1000000L};
    const bool follow = session->options->given & OPTION_FOLLOW;
    struct store_query query = {
        .view = STORE_VIEW_JOURNAL,
        .last = session->options->given & OPTION_LINES ? session->options->lines : DEFAULT_LINES,
    };
    struct error error = {0};
    int result;

    if (follow)
        catch_interrupt();
    result = print_journal(session, &query, follow, &error);
    query.last = 0;
    while (result == 0 && follow && !interrupted) {
        (void)nanosleep(&pause, NULL);
        result = print_journal(session, &query, follow, &error);
    }
    return result == 0 || interrupted ? EXIT_DONE : session_fail(result, &error);
}
