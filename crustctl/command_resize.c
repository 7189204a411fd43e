/* SPDX-License-Identifier: Apache-2.0 */
/* command_resize.c - has a volume resized, or its usage read, and waits for the guest.
 *
 * resize and stats are for operators. `crust …` is the runtime CLI of KEP-2857, so that a volume's
 * runtime-cli file may name crustctl, and `fs …` that of the proposal before it: these print the
 * answer as JSON. All of them ask the daemon by the volume's number, for which it never calls a
 * runtime-cli again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crustctl/command.h"
#include "crustctl/options.h"
#include "crustctl/source.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "lib/text.h"
#include "model/state.h"

/* The daemon gives up after 120 s, and says so. */
enum { ANSWER_BYTES = 64 * 1024, TEXT_BYTES = 8 * 1024, DEADLINE_SECONDS = 130 };

/* The state of a resize while a person waits for it, on stderr whenever it changes. CSI drivers get
 * none of it, because they may take stderr for a part of the answer. */
struct progress {
    struct session *session;
    int64_t volume_id;
    char said[256];
};

static void show_progress(void *userdata)
{
    struct progress *progress = userdata;
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .id = progress->volume_id};
    cleanup(json_deletep) cJSON *rows = NULL;
    char text[256];
    struct error error;

    if (source_rows(progress->session->source, &query, &rows, &error) != 0 || !rows->child)
        return;
    (void)snprintf(text, sizeof(text), "%s/%s, host %s, hypervisor %s",
                   row_text(rows->child, "state"), row_reason(rows->child),
                   text_size(row_number(rows->child, "device_bytes", NULL)).text,
                   text_size(row_number(rows->child, "hypervisor_bytes", NULL)).text);
    if (strcmp(text, progress->said) == 0)
        return;
    (void)snprintf(progress->said, sizeof(progress->said), "%s", text);
    (void)fprintf(stderr, "waiting: %s\n", text);
}

/* ---- asking ---- */

static int fail(int result, unsigned status, const struct error *error)
{
    const int code = session_fail(result, error);

    return result == SOURCE_REFUSED ? session_exit_code(status) : code;
}

/* The answer, parsed, of one question about the volume; an exit code. */
static int ask(struct session *session, struct call_request *request, cJSON **ret_answer)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(ANSWER_BYTES);
    struct error error = {0};
    unsigned status = 0;
    int result = call_daemon(session->source, request, &status, &body, &error);

    if (result == 0)
        result = json_parse(buffer_text(&body), body.length, JSON_LIMITS_HTTP, ret_answer, &error);
    return result == 0 ? EXIT_DONE : fail(result, status, &error);
}

/* "/v1/volumes/ID/WHAT", of the volume that an operand names; an exit code. */
static int find_target(struct session *session, const char *name, const char *what,
                       int64_t *ret_volume_id, struct buffer *ret_target)
{
    cleanup(json_deletep) cJSON *row = NULL;
    int code;

    source_want_daemon(session->source);
    code = session_find_volume(session, name, &row);
    if (code != EXIT_DONE)
        return code;
    *ret_volume_id = (int64_t)row_number(row, "volume_id", NULL);
    return buffer_append_format(ret_target, "/v1/volumes/%" PRId64 "/%s", *ret_volume_id, what) < 0
               ? EXIT_FAILED
               : EXIT_DONE;
}

/* body NULL: a person asks. */
static int ask_volume(struct session *session, const char *name, const char *what, const char *body,
                      cJSON **ret_answer)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(TEXT_BYTES);
    struct progress progress = {.session = session};
    struct call_request request = {
        .method = "GET", .body = body, .deadline_seconds = DEADLINE_SECONDS, .userdata = &progress};
    int code = find_target(session, name, what, &progress.volume_id, &target);

    if (code != EXIT_DONE)
        return code;
    request.target = buffer_text(&target);
    if (strcmp(what, "resize") == 0) {
        request.method = "POST";
        request.progress = body || session->options->json ? NULL : show_progress;
    }
    return ask(session, &request, ret_answer);
}

/* The KEP's runtime CLI has no other member. */
static int print_capacity(struct session *session, const cJSON *answer)
{
    buffer_append_format(&session->out, "{\"capacity_bytes\":%" PRIu64 "}\n",
                         row_number(answer, "capacity_bytes", NULL));
    return EXIT_DONE;
}

static int print_as_it_is(struct session *session, const cJSON *answer)
{
    row_print_value(answer, &session->out);
    buffer_append_text(&session->out, "\n");
    return EXIT_DONE;
}

/* ---- for operators ---- */

int command_resize(struct session *session)
{
    const char *name = session->options->operand[0];
    cleanup(json_deletep) cJSON *answer = NULL;
    int code = ask_volume(session, name, "resize", NULL, &answer);

    if (code != EXIT_DONE || session->options->json)
        return code == EXIT_DONE ? print_as_it_is(session, answer) : code;
    buffer_append_format(&session->out,
                         cJSON_IsTrue(json_member(answer, "owed"))
                             ? "%s: no sandbox has it; the file system grows to the "
                               "device's %s with the next one\n"
                             : "%s: the guest has all %s of the device\n",
                         name, text_size(row_number(answer, "capacity_bytes", NULL)).text);
    return EXIT_DONE;
}

static void print_usage(const cJSON *usage, struct buffer *out)
{
    static const char *const keys[] = {"total", "used", "available"};
    const bool bytes = row_number(usage, "unit", NULL) == 1;

    buffer_append_text(out, bytes ? "bytes  " : "inodes ");
    for (size_t i = 0; i < array_length(keys); i++) {
        const uint64_t number = row_number(usage, keys[i], NULL);

        if (bytes)
            buffer_append_format(out, "  %s %s", keys[i], text_size(number).text);
        else
            buffer_append_format(out, "  %s %" PRIu64, keys[i], number);
    }
    buffer_append_text(out, "\n");
}

int command_stats(struct session *session)
{
    cleanup(json_deletep) cJSON *answer = NULL;
    const cJSON *usage, *condition;
    int code = ask_volume(session, session->options->operand[0], "stats", NULL, &answer);

    if (code != EXIT_DONE || session->options->json)
        return code == EXIT_DONE ? print_as_it_is(session, answer) : code;
    cJSON_ArrayForEach(usage, json_member(answer, "usage"))
    {
        print_usage(usage, &session->out);
    }
    condition = json_member(answer, "volume_condition");
    buffer_append_format(&session->out, "%s: %s\n",
                         cJSON_IsTrue(json_member(condition, "abnormal")) ? "abnormal" : "normal",
                         row_text(condition, "message"));
    return EXIT_DONE;
}

/* ---- for CSI drivers ---- */

/* An exit code. */
static int take_size(const char *text, uint64_t *ret_bytes)
{
    const int r = quantity_parse(text, ret_bytes);

    if (r == 0)
        return EXIT_DONE;
    (void)fprintf(stderr, "crustctl: \"%s\" is %s\n", text, quantity_error(r));
    return EXIT_USAGE;
}

int command_ask_stats(struct session *session, const char *volume)
{
    cleanup(json_deletep) cJSON *answer = NULL;
    int code = ask_volume(session, volume, "stats", NULL, &answer);

    return code == EXIT_DONE ? print_as_it_is(session, answer) : code;
}

int command_ask_resize(struct session *session, const char *volume, const char *least,
                       const char *most)
{
    cleanup(json_deletep) cJSON *answer = NULL;
    uint64_t required = 0, limit = 0;
    char body[128];
    int code = take_size(least, &required);

    if (code == EXIT_DONE)
        code = take_size(most, &limit);
    if (code != EXIT_DONE)
        return code;
    (void)snprintf(body, sizeof(body),
                   "{\"required_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64 "}", required, limit);
    code = ask_volume(session, volume, "resize", body, &answer);
    return code == EXIT_DONE ? print_capacity(session, answer) : code;
}

int command_crust_stats(struct session *session)
{
    return command_ask_stats(session, session->options->operand[0]);
}

int command_crust_resize(struct session *session)
{
    const char *const *operand = session->options->operand;

    return command_ask_resize(session, operand[0], operand[1], operand[2]);
}

/* {"pod-id":POD,"block-device":DEVICE, and with a size "volume-size":SIZE}; size NULL: none */
static int ask_filesystem(struct session *session, const char *target, const uint64_t *size)
{
    const char *const *operand = session->options->operand;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(TEXT_BYTES);
    cleanup(json_deletep) cJSON *answer = NULL;
    struct call_request request = {
        .method = "PUT", .target = target, .deadline_seconds = DEADLINE_SECONDS};
    int code;

    buffer_append_text(&body, "{");
    json_append_member(&body, "pod-id", operand[0]);
    json_append_member(&body, "block-device", operand[1]);
    if (size)
        buffer_append_format(&body, ",\"volume-size\":\"%" PRIu64 "\"", *size);
    if (buffer_append_text(&body, "}") < 0)
        return EXIT_USAGE;
    request.body = buffer_text(&body);
    code = ask(session, &request, &answer);
    return code == EXIT_DONE ? print_as_it_is(session, answer) : code;
}

int command_fs_stats(struct session *session)
{
    return ask_filesystem(session, "/fs-stats", NULL);
}

int command_fs_resize(struct session *session)
{
    uint64_t size = 0;
    const int code = take_size(session->options->operand[2], &size);

    return code == EXIT_DONE ? ask_filesystem(session, "/fs-resize", &size) : code;
}

/* ---- command wait --------------------------------------------------------------------------- */

/* Waits until a volume has a state, for scripts.
 *
 * The daemon's rows are polled. Waiting goes on while the volume is blocked or not known yet, and
 * while the daemon restarts. Only a daemon that is absent at the start is an error at once.
 */

enum { POLL_MILLISECONDS = 100 };

static void print_reached(struct session *session, const cJSON *row)
{
    if (session->options->json) {
        row_print_json(row, &session->out);
        return;
    }
    buffer_append_format(&session->out, "volume %" PRIu64 ": ", row_number(row, "volume_id", NULL));
    row_state(row, &session->out);
    buffer_append_text(&session->out, "\n");
}

/* The present obstacle: an exit code, with the text to print if time runs out. */
static int check(struct session *session, bool *ret_reached, struct error *why)
{
    const char *name = session->options->operand[0];
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = name};
    cleanup(json_deletep) cJSON *rows = NULL;
    const cJSON *row;
    int result = source_rows(session->source, &query, &rows, why);

    if (result != 0)
        return result == SOURCE_UNREACHABLE ? EXIT_UNREACHABLE : EXIT_FAILED;
    row = rows->child;
    if (!row) {
        (void)error_set(why, 1, "there is no volume \"%s\"", name);
        return EXIT_NOT_FOUND;
    }
    if (row->next)
        return session_refuse_ambiguous(name, rows);
    *ret_reached =
        states_match(session->options->wanted_state, row_text(row, "state"), row_reason(row)) &&
        strcmp(row_text(row, "status"), "removed") != 0;
    if (*ret_reached) {
        print_reached(session, row);
        return EXIT_DONE;
    }
    (void)error_set(why, 1, "volume %" PRIu64 " is %s/%s", row_number(row, "volume_id", NULL),
                    row_text(row, "state"), row_reason(row));
    return state_from_name(row_text(row, "state")) == STATE_BLOCKED &&
                   !*row_text(row, "next_attempt_at")
               ? EXIT_BLOCKED
               : EXIT_NOT_NOW;
}

int command_wait(struct session *session)
{
    const struct timespec pause = {.tv_nsec = POLL_MILLISECONDS * 1000000L};
    const uint64_t seconds = (uint64_t)session->options->timeout_seconds;
    const uint64_t deadline = clock_boottime() + seconds * NSEC_PER_SEC;
    struct error why = {0};
    bool reached = false;
    int code;

    if (!states_is_selector(session->options->wanted_state)) {
        (void)fprintf(stderr, "crustctl: there is no state \"%s\"\n",
                      session->options->wanted_state);
        return EXIT_USAGE;
    }
    source_want_daemon(session->source);
    code = check(session, &reached, &why);
    if (code == EXIT_UNREACHABLE)
        return session_fail(SOURCE_UNREACHABLE, &why);
    while (!reached && code != EXIT_USAGE && clock_boottime() < deadline) {
        (void)nanosleep(&pause, NULL);
        code = check(session, &reached, &why);
    }
    if (reached || code == EXIT_USAGE)
        return code;
    (void)fprintf(stderr, "crustctl: waited %" PRIu64 " s for %s: %s\n", seconds,
                  session->options->wanted_state, why.text);
    return code;
}
