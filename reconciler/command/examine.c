/* SPDX-License-Identifier: Apache-2.0 */
/* examine.c - the daemon examines its node, with its own rights, in its own namespaces, and knowing
 * the sandboxes: for whoever asks, and every hour for itself.
 *
 * An examination takes milliseconds of the loop, tens on a node with hundreds of sandboxes, so what
 * metrics and status say of the node is up to an hour old.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/core/doubts.h"
#include "store/read.h"

#define EXAMINATION_NS (3600 * NSEC_PER_SEC)

static int read_sandboxes(const struct context *context, cJSON **ret_sandboxes, struct error *error)
{
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(DOCTOR_BYTES);
    int r = store_read_abilities(store_get_reader(context->store), &rows, error);

    return r < 0 ? r
                 : json_parse(buffer_text(&rows), rows.length,
                              (struct json_limits){DOCTOR_BYTES, 4, 0}, ret_sandboxes, error);
}

static void add_doubt(void *userdata, const char *sandbox_id, const char *text)
{
    (void)cJSON_AddStringToObject(userdata, sandbox_id, text);
}

int examine_node(const struct context *context, struct buffer *ret_json, struct error *error)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL, *doubts = cJSON_CreateObject();
    struct doctor_request request = {.root = context->root, .config = context->config};
    int r = read_sandboxes(context, &sandboxes, error);

    if (r < 0)
        return r;
    if (doubts && context->doubts)
        doubts_each(context->doubts, add_doubt, doubts);
    request.sandboxes = sandboxes;
    request.doubts = doubts;
    r = doctor_examine(&request, ret_json);
    return r < 0 ? error_set_errno(error, r, "the findings can't be written") : 0;
}

int examine_abilities(const struct context *context, struct doctor_abilities *ret_abilities,
                      struct error *error)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL;
    struct doctor_request request = {.root = context->root, .config = context->config};
    int r = read_sandboxes(context, &sandboxes, error);

    if (r < 0)
        return r;
    request.sandboxes = sandboxes;
    r = doctor_find_abilities(&request, ret_abilities);
    return r < 0 ? error_set_errno(error, r, "the node can't be examined") : 0;
}

/* ---- the one that is kept ---- */

static void count_finding(struct reconciler_findings *findings, const char *check,
                          const char *level)
{
    unsigned i = 0;

    while (i < findings->checks && (strcmp(findings->check[i].check, check) != 0 ||
                                    strcmp(findings->check[i].level, level) != 0))
        i++;
    if (i == RECONCILER_CHECKS)
        return;
    if (i == findings->checks) {
        findings->checks++;
        (void)snprintf(findings->check[i].check, sizeof(findings->check[i].check), "%s", check);
        (void)snprintf(findings->check[i].level, sizeof(findings->check[i].level), "%s", level);
    }
    findings->check[i].findings++;
}

/* The first error is shown, as long as there is none the first warning. */
static void take_finding(struct reconciler_findings *findings, const cJSON *finding)
{
    const char *check = json_string(finding, "id"), *level = json_string(finding, "level");
    const char *where = json_string(finding, "where"), *what = json_string(finding, "what");
    const bool is_error = level && strcmp(level, "error") == 0;
    const bool is_warning = level && strcmp(level, "warning") == 0;

    if (!check || !level || !what || strcmp(level, "ok") == 0)
        return;
    count_finding(findings, check, level);
    if ((is_error && findings->errors == 0) ||
        (is_warning && findings->errors == 0 && findings->warnings == 0))
        (void)snprintf(findings->worst, sizeof(findings->worst), "%s: %s", where ? where : check,
                       what);
    findings->errors += is_error;
    findings->warnings += is_warning;
}

static void examine_again(struct examination *examination)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(DOCTOR_BYTES);
    cleanup(json_deletep) cJSON *list = NULL;
    struct reconciler_findings findings = {0};
    const cJSON *finding;
    struct error error = {0};
    int r = examine_node(examination->context, &json, &error);

    if (r == 0)
        r = json_parse(buffer_text(&json), json.length, (struct json_limits){DOCTOR_BYTES, 4, 0},
                       &list, &error);
    if (r < 0) {
        log_warning(NULL, "examining the node: %s", error.text);
        return;
    }
    cJSON_ArrayForEach(finding, list)
    {
        take_finding(&findings, finding);
    }
    if (findings.errors > 0 && strcmp(findings.worst, examination->findings.worst) != 0)
        log_warning(
            NULL,
            "volumes of this node cannot be resized, or not all of them: %s; crustctl doctor "
            "--problems says what to do",
            findings.worst);
    examination->findings = findings;
}

static void on_hour(struct loop_timer *timer)
{
    struct examination *examination = container_of(timer, struct examination, timer);

    examination_begin(examination, examination->context);
}

void examination_begin(struct examination *examination, const struct context *context)
{
    examination->context = context;
    loop_timer_start(context->loop, &examination->timer, EXAMINATION_NS, on_hour);
    examine_again(examination);
}

void examination_done(struct examination *examination)
{
    loop_timer_stop(&examination->timer);
}
