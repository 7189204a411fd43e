/* SPDX-License-Identifier: Apache-2.0 */
/* command_doctor.c - what keeps this node from resizing volumes, the worst first.
 *
 * The findings come in the order of the examination, which the JSON keeps. People are shown what
 * needs attention before what is well.
 */
#include <stdio.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { ANSWER_BYTES = 16 * 1024 * 1024, LEVEL_WIDTH = 9, WIDEST = 100 };

/* The worst first. */
static const struct {
    const char *name;
    const char *many;
} levels[] = {{"error", "errors"}, {"warning", "warnings"}, {"note", "notes"}, {"ok", "ok"}};

static unsigned count_level(const cJSON *findings, const char *level)
{
    const cJSON *finding;
    unsigned count = 0;

    cJSON_ArrayForEach(finding, findings)
    {
        count += strcmp(row_text(finding, "level"), level) == 0;
    }
    return count;
}

static void print_heading(const cJSON *findings, bool by_daemon, struct buffer *out)
{
    buffer_append_text(out, by_daemon ? "The daemon sees" : "No daemon answers; crustctl sees");
    for (size_t i = 0; i < array_length(levels); i++) {
        const unsigned count = count_level(findings, levels[i].name);

        buffer_append_format(out, "%s %u %s", i ? "," : "", count,
                             count == 1 ? levels[i].name : levels[i].many);
    }
    buffer_append_text(out, "\n\n");
}

/* "warning  trash /run/.crust-trash: stale metadata can't …" */
static void print_finding(const cJSON *finding, unsigned width, struct buffer *out)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    const char *where = row_text(finding, "where"), *remedy = row_text(finding, "remedy");
    char lead[LEVEL_WIDTH + 1];

    buffer_append_format(&text, "%s%s%s: %s", row_text(finding, "id"), *where ? " " : "", where,
                         row_text(finding, "what"));
    buffer_fail(out, buffer_error(&text));
    (void)snprintf(lead, sizeof(lead), "%-*s", LEVEL_WIDTH, row_text(finding, "level"));
    if (width > WIDEST)
        width = WIDEST;
    display_append_wrapped(out, buffer_text(&text), lead, LEVEL_WIDTH, width);
    if (*remedy)
        display_append_wrapped(out, remedy, "      -> ", LEVEL_WIDTH, width);
}

static void print_findings(const cJSON *findings, unsigned width, struct buffer *out)
{
    const cJSON *finding;

    for (size_t i = 0; i < array_length(levels); i++)
        cJSON_ArrayForEach(finding, findings)
        {
            if (strcmp(row_text(finding, "level"), levels[i].name) == 0)
                print_finding(finding, width, out);
        }
}

static int read_findings(const struct buffer *json, cJSON **ret_findings, struct error *error)
{
    return json_parse(buffer_text(json), json->length, (struct json_limits){ANSWER_BYTES, 4, 0},
                      ret_findings, error);
}

/* The fault of the configuration that this crustctl has just read, and with which the daemon would
 * not start. */
static void add_config_fault(cJSON *findings, const char *fault)
{
    cJSON *finding = cJSON_CreateObject();

    if (!finding)
        return;
    (void)cJSON_AddStringToObject(finding, "id", "configuration");
    (void)cJSON_AddStringToObject(finding, "level", "error");
    (void)cJSON_AddStringToObject(finding, "what", fault);
    (void)cJSON_AddNullToObject(finding, "where");
    (void)cJSON_AddStringToObject(
        finding, "remedy",
        "Mend the line; crustd --check-config checks it. Until then crustd does not start, and one "
        "that runs keeps the configuration that it has. The rest was examined with defaults");
    (void)cJSON_InsertItemInArray(findings, 0, finding);
}

static void leave_problems(cJSON *findings)
{
    cJSON *finding, *next;

    for (finding = findings->child; finding; finding = next) {
        next = finding->next;
        if (strcmp(row_text(finding, "level"), "ok") == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(findings, finding));
    }
}

int command_doctor(struct session *session)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *findings = NULL;
    const char *fault = source_config_fault(session->source);
    struct error error = {0};
    bool by_daemon = false;
    int result = source_findings(session->source, &by_daemon, &json, &error);

    if (result == 0)
        result = read_findings(&json, &findings, &error);
    if (result != 0)
        return session_fail(result, &error);
    if (fault)
        add_config_fault(findings, fault);
    if (!session->options->json)
        print_heading(findings, by_daemon, &session->out);
    if (session->options->given & OPTION_PROBLEMS)
        leave_problems(findings);
    if (session->options->json)
        row_print_json(findings, &session->out);
    else
        print_findings(findings, session->width, &session->out);
    return count_level(findings, "error") > 0 ? EXIT_BLOCKED : EXIT_DONE;
}

/* ---- who needs crust-qemu ------------------------------------------------------------------ */

static void print_users(const cJSON *findings, unsigned width, struct buffer *out)
{
    const cJSON *finding;

    buffer_append_text(out, cJSON_GetArraySize(findings) == 0
                                ? "No configuration of Kata's here names crust-qemu.\n"
                                : "crust-qemu must stay: where a configuration of "
                                  "Kata's names it and it is gone, no pod starts.\n\n");
    cJSON_ArrayForEach(finding, findings)
    {
        print_finding(finding, width, out);
    }
}

/* A file that could not be read may name it, too. */
int command_crust_qemu(struct session *session)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *findings = NULL;
    struct error error = {0};
    int result = source_crust_users(session->source, &json, &error);

    if (result == 0)
        result = read_findings(&json, &findings, &error);
    if (result != 0)
        return session_fail(result, &error);
    if (session->options->json)
        row_print_json(findings, &session->out);
    else
        print_users(findings, session->width, &session->out);
    return cJSON_GetArraySize(findings) > 0 ? EXIT_BLOCKED : EXIT_DONE;
}
