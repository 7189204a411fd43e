/* SPDX-License-Identifier: Apache-2.0 */
/* command_status.c - the daemon itself: status, health, resync, its journal, and the doctor. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crustctl/crustctl.h"
#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum {
    LABEL_WIDTH = 18,
    LEVEL_WIDTH = 9,
    WIDEST = 100,
    DEFAULT_LINES = 50,
    FOLLOW_MSEC = 200,
    LEVEL_OK = 3
};

/* A number, or an object of numbers. "by_state" is "by state". */
static void print_counts(const cJSON *member, struct buffer *out)
{
    const cJSON *count;
    char label[32];

    if (!member)
        return;
    (void)snprintf(label, sizeof(label), "%s", member->string);
    for (char *cursor = label; *cursor; cursor++)
        *cursor = *cursor == '_' ? ' ' : *cursor;
    display_append_cell(out, label, LABEL_WIDTH, DISPLAY_LEFT);
    cJSON_ArrayForEach(count, member)
    {
        buffer_append_format(out, "%s%s %.0f", count == member->child ? "" : ", ", count->string,
                             count->valuedouble);
    }
    if (!cJSON_IsObject(member))
        buffer_append_format(out, "%.0f", member->valuedouble);
    buffer_append_text(out, cJSON_IsObject(member) && !member->child ? "-\n" : "\n");
}

static void print_status(const cJSON *status, struct buffer *out)
{
    static const char *const counts[] = {"acts_in_flight", "longest_pass_ms", "workers"};
    const cJSON *doctor = json_member(status, "doctor"), *member, *source;
    const uint64_t errors = row_number(doctor, "errors"), warnings = row_number(doctor, "warnings");
    const char *version = json_text(status, "version"), *problem = json_text(status, "problem");
    const char *cleanup_problem = json_text(status, "cleanup_problem");
    const char *condition = !*version ? "no daemon answers; this is its database"
                            : !cJSON_IsTrue(json_member(status, "synced"))
                                ? "not ready: the first scan is not done yet"
                            : cJSON_IsTrue(json_member(status, "degraded")) ? "degraded"
                                                                            : "ready";

    buffer_append_format(out, "crustd%s%s: %s%s", *version ? " " : "", version, condition,
                         *problem ? ": " : "");
    display_append(out, problem);
    buffer_append_text(out, "\n\n");
    if (doctor) { /* whether volumes can be resized here, which readiness does not say */
        buffer_append_format(out, "doctor            errors %" PRIu64 ", warnings %" PRIu64, errors,
                             warnings);
        buffer_append_text(out, errors + warnings > 0 ? ": " : "");
        display_append(out, errors + warnings > 0 ? json_text(doctor, "worst") : "");
        buffer_append_text(out,
                           errors + warnings > 0 ? "; see crustctl doctor --problems\n" : "\n");
    }
    if (*cleanup_problem) {
        buffer_append_text(out, "cleanup           nothing is removed: ");
        display_append(out, cleanup_problem);
        buffer_append_text(out, "\n");
    }
    cJSON_ArrayForEach(member, json_member(status, "summary"))
    {
        print_counts(member, out); /* also what the store may add later */
    }
    for (size_t i = 0; i < array_length(counts); i++)
        print_counts(json_member(status, counts[i]), out);
    cJSON_ArrayForEach(source, json_member(status, "sources"))
    {
        const uint64_t overflows = row_number(source, "overflows");

        buffer_append_format(out, "source %-11s%s, %" PRIu64 " events", json_text(source, "name"),
                             cJSON_IsTrue(json_member(source, "up")) ? "up" : "DOWN",
                             row_number(source, "events"));
        if (overflows > 0)
            buffer_append_format(out, ", %" PRIu64 " overflows", overflows);
        buffer_append_text(out, "\n");
    }
}

int command_status(struct session *session)
{
    cleanup(json_deletep) cJSON *status = NULL;
    struct error error = {0};
    int result = source_status(&session->source, &status, &error);

    if (result != 0)
        return session_fail_result(result, &error);
    if (!session_print_json(session, status))
        print_status(status, &session->out);
    return EXIT_DONE;
}

int command_health(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    struct source_request request = {.method = "GET", .target = "/readyz"};
    struct error error = {0};
    int result = source_ask(&session->source, &request, &body, &error);

    if (result == 0)
        buffer_append_text(&session->out,
                           session->options->json ? "{\"ready\":true}\n" : "ready\n");
    else if (result == SOURCE_REFUSED && session->options->json)
        buffer_append(&session->out, buffer_text(&body), body.length);
    return result == 0 ? EXIT_DONE : session_fail_result(result, &error);
}

int command_resync(struct session *session)
{
    struct source_request request = {.method = "POST", .target = "/v1/resync", .body = ""};
    int code = session_ask(session, &request, NULL, NULL);

    if (code == EXIT_DONE)
        buffer_append_text(&session->out, session->options->json
                                              ? "{}\n"
                                              : "the daemon observes everything again\n");
    return code;
}

/* ---- command journal ------------------------------------------------------------------------ */

/* Following asks for the rows after the last one seen. That needs no open connection, also works on
 * the database, and continues when the daemon is restarted. */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Followed JSON is one object per line: an array would never end. */
static int print_journal(struct session *session, struct store_query *query, bool is_followed,
                         struct error *error)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    const bool is_json = session->options->json;
    const cJSON *row;
    int result = source_rows(&session->source, query, &rows, error);

    if (result != 0)
        return result;
    cJSON_ArrayForEach(row, rows)
    {
        const int64_t sequence = (int64_t)row_number(row, "seq");

        if (sequence > query->after)
            query->after = sequence;
        if (!is_json)
            row_print_journal(row, session->table_width, &session->out);
        else if (is_followed)
            row_print_json(row, &session->out);
    }
    if (is_followed)
        return session_flush(session);
    if (is_json)
        row_print_json(rows, &session->out);
    return 0;
}

int command_journal(struct session *session)
{
    const struct timespec pause = {.tv_nsec = FOLLOW_MSEC * 1000000L};
    const struct sigaction action = {.sa_handler = on_interrupt};
    const unsigned given = session->options->given;
    const bool is_followed = given & OPTION_FOLLOW;
    struct store_query query = {
        .view = STORE_VIEW_JOURNAL,
        .last = given & OPTION_LINES ? session->options->lines : DEFAULT_LINES,
    };
    struct error error = {0};
    int result;

    if (is_followed) {
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
    }
    result = print_journal(session, &query, is_followed, &error);
    query.last = 0;
    while (result == 0 && is_followed && !interrupted) {
        (void)nanosleep(&pause, NULL);
        result = print_journal(session, &query, true, &error);
    }
    return result == 0 || interrupted ? EXIT_DONE : session_fail_result(result, &error);
}

/* ---- command doctor ------------------------------------------------------------------------- */

/* The findings come in the order of the examination, which the JSON keeps. People are shown what
 * needs attention before what is well. */

static const struct {
    const char *name, *many;
} levels[] = {{"error", "errors"}, {"warning", "warnings"}, {"note", "notes"}, {"ok", "ok"}};

static bool has_level(const cJSON *finding, size_t level)
{
    return strcmp(json_text(finding, "level"), levels[level].name) == 0;
}

/* "warning  trash /run/.crust-trash: stale metadata can't …"; the worst first. */
static void print_findings(const cJSON *findings, unsigned width, struct buffer *out)
{
    const cJSON *finding;

    width = width < WIDEST ? width : WIDEST;
    for (size_t i = 0; i < array_length(levels); i++)
        cJSON_ArrayForEach(finding, findings)
        {
            cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
            const char *where = json_text(finding, "where"), *remedy = json_text(finding, "remedy");
            char lead[LEVEL_WIDTH + 1];

            if (!has_level(finding, i))
                continue;
            buffer_append_format(&text, "%s%s%s: %s", json_text(finding, "id"), *where ? " " : "",
                                 where, json_text(finding, "what"));
            buffer_fail(out, buffer_error(&text));
            (void)snprintf(lead, sizeof(lead), "%-*s", LEVEL_WIDTH, levels[i].name);
            display_append_wrapped(out, buffer_text(&text), lead, LEVEL_WIDTH, width);
            if (*remedy)
                display_append_wrapped(out, remedy, "      -> ", LEVEL_WIDTH, width);
        }
}

/* The fault of the configuration that this crustctl has just read, and with which the daemon would
 * not start. */
static void add_config_fault(cJSON *findings, const char *fault)
{
    cJSON *finding = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(finding, "id", "configuration");
    (void)cJSON_AddStringToObject(finding, "level", "error");
    (void)cJSON_AddStringToObject(finding, "what", fault);
    (void)cJSON_AddNullToObject(finding, "where");
    (void)cJSON_AddStringToObject(
        finding, "remedy",
        "Mend the line; crustd --check-config checks it. Until then crustd does not start, and one "
        "that runs keeps the configuration that it has. The rest was examined with defaults");
    if (finding)
        (void)cJSON_InsertItemInArray(findings, 0, finding);
}

int command_doctor(struct session *session)
{
    cleanup(json_deletep) cJSON *findings = NULL;
    const char *fault = session->source.config_fault.text;
    struct buffer *out = &session->out;
    unsigned counts[array_length(levels)] = {0};
    cJSON *finding, *next;
    struct error error = {0};
    bool by_daemon = false;
    int result = source_findings(&session->source, &by_daemon, &findings, &error);

    if (result != 0)
        return session_fail_result(result, &error);
    if (*fault)
        add_config_fault(findings, fault);
    for (finding = findings->child; finding; finding = next) {
        next = finding->next;
        for (size_t i = 0; i < array_length(levels); i++)
            counts[i] += has_level(finding, i);
        if ((session->options->given & OPTION_PROBLEMS) && has_level(finding, LEVEL_OK))
            cJSON_Delete(cJSON_DetachItemViaPointer(findings, finding));
    }
    for (size_t i = 0; i < array_length(levels) && !session->options->json; i++)
        buffer_append_format(out, "%s %u %s%s",
                             i           ? ","
                             : by_daemon ? "The daemon sees"
                                         : "No daemon answers; crustctl sees",
                             counts[i], counts[i] == 1 ? levels[i].name : levels[i].many,
                             i == LEVEL_OK ? "\n\n" : "");
    if (!session_print_json(session, findings))
        print_findings(findings, session->width, out);
    return counts[0] > 0 ? EXIT_BLOCKED : EXIT_DONE;
}

/* A file that could not be read may name it, too. */
int command_crust_qemu(struct session *session)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(json_deletep) cJSON *findings = NULL;
    struct error error = {0};
    int result = doctor_find_crust_users(session->source.root, &json);

    if (result == 0)
        result = source_parse(&json, &findings, &error);
    if (result != 0)
        return session_fail_result(result, &error);
    if (!session_print_json(session, findings)) {
        buffer_append_text(&session->out,
                           findings->child
                               ? "crust-qemu must stay: where a configuration of Kata's "
                                 "names it and it is gone, no pod starts.\n\n"
                               : "No configuration of Kata's here names crust-qemu.\n");
        print_findings(findings, session->width, &session->out);
    }
    return findings->child ? EXIT_BLOCKED : EXIT_DONE;
}
