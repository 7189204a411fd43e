/* SPDX-License-Identifier: Apache-2.0 */
/* command_calls.c - has a volume resized or its usage read, or a drive attached or detached, and
 * waits for the guest.
 *
 * resize and stats are for operators. `crust …` is the runtime CLI of KEP-2857, so that a volume's
 * runtime-cli file may name crustctl, and `fs …` that of the proposal before it: these print the
 * answer as JSON. All of them ask the daemon by the volume's number, for which it never calls a
 * runtime-cli again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "lib/text.h"
#include "model/volume.h"

/* The daemon gives up after 120 s, and says so. */
enum { DEADLINE_SECONDS = 130, POLL_MILLISECONDS = 100 };

/* Appends the state and sizes of a volume, which "#7" names. */
static void describe(struct source *source, const char *volume_id, struct buffer *ret_text)
{
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = volume_id};
    cleanup(json_deletep) cJSON *rows = NULL;

    if (source_rows(source, &query, &rows, NULL) == 0 && rows->child)
        buffer_append_format(ret_text, "%s/%s, host %s, hypervisor %s",
                             json_text(rows->child, "state"), row_reason(rows->child),
                             text_size(row_number(rows->child, "device_bytes")).text,
                             text_size(row_number(rows->child, "hypervisor_bytes")).text);
}

/* body NULL: a person asks. CSI drivers get no progress, because they may take stderr for a part of
 * the answer. An exit code. */
static int ask_volume(struct session *session, const char *what, const char *body,
                      cJSON **ret_answer)
{
    const bool is_resize = strcmp(what, "resize") == 0;
    const bool is_shown = is_resize && !body && !session->options->json;
    const char *name = session->options->volume_path;
    cleanup(json_deletep) cJSON *row = NULL;
    char volume_id[32], target[64];
    struct source_request request = {.method = is_resize ? "POST" : "GET",
                                     .target = target,
                                     .body = body,
                                     .seconds = DEADLINE_SECONDS,
                                     .describe = is_shown ? describe : NULL,
                                     .subject = volume_id};
    int code;

    if (session->options->operands > 0)
        name = session->options->operand[0];
    else if (!name || name[0] != '/') /* a number could be a relative path */
        return session_fail(EXIT_FAILED, "--volume-path is missing, or is no absolute path");
    session->source.needs_daemon = true;
    code = session_find_volume(session, name, &row);
    if (code != EXIT_DONE)
        return code;
    (void)snprintf(volume_id, sizeof(volume_id), "#%" PRIu64, row_number(row, "volume_id"));
    (void)snprintf(target, sizeof(target), "/v1/volumes/%s/%s", volume_id + 1, what);
    return session_ask(session, &request, NULL, ret_answer);
}

/* ---- resize -------------------------------------------------------------------------------- */

static int take_size(const char *text, uint64_t *ret_bytes)
{
    const int r = quantity_parse(text, ret_bytes);

    return r == 0 ? EXIT_DONE : session_fail(EXIT_USAGE, "\"%s\" is %s", text, quantity_error(r));
}

/* crust resize TARGET MIN MAX prints the member that the KEP's runtime CLI has, and direct-volume
 * resize --size MIN, like kata-runtime, nothing. */
int command_resize(struct session *session)
{
    const struct options *options = session->options;
    const bool is_crust = options->operands == 3, is_kata = options->operands == 0;
    const char *least = is_crust ? options->operand[1] : options->size;
    cleanup(json_deletep) cJSON *answer = NULL;
    uint64_t required = 0, limit = 0;
    char body[128];
    int code = EXIT_DONE;

    if (is_kata && !least)
        return session_fail(EXIT_FAILED, "--size is missing");
    if (is_kata || is_crust)
        code = take_size(least, &required);
    if (is_crust && code == EXIT_DONE)
        code = take_size(options->operand[2], &limit);
    if (code != EXIT_DONE)
        return code;
    (void)snprintf(body, sizeof(body),
                   "{\"required_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64 "}", required, limit);
    code = ask_volume(session, "resize", is_kata || is_crust ? body : NULL, &answer);
    if (code != EXIT_DONE || is_kata)
        return code;
    if (is_crust)
        buffer_append_format(&session->out, "{\"capacity_bytes\":%" PRIu64 "}\n",
                             row_number(answer, "capacity_bytes"));
    else if (!session_print_json(session, answer))
        buffer_append_format(&session->out,
                             cJSON_IsTrue(json_member(answer, "owed"))
                                 ? "%s: no sandbox has it; the file system grows to the device's "
                                   "%s with the next one\n"
                                 : "%s: the guest has all %s of the device\n",
                             options->operand[0],
                             text_size(row_number(answer, "capacity_bytes")).text);
    return EXIT_DONE;
}

/* ---- stats --------------------------------------------------------------------------------- */

static void print_usage(const cJSON *usage, struct buffer *out)
{
    static const char *const keys[] = {"total", "used", "available"};
    const bool is_bytes = row_number(usage, "unit") == 1;

    buffer_append_text(out, is_bytes ? "bytes  " : "inodes ");
    for (size_t i = 0; i < array_length(keys); i++) {
        const uint64_t number = row_number(usage, keys[i]);

        buffer_append_format(out, "  %s ", keys[i]);
        if (is_bytes)
            buffer_append_text(out, text_size(number).text);
        else
            buffer_append_format(out, "%" PRIu64, number);
    }
    buffer_append_text(out, "\n");
}

/* CSI drivers, which say "crust" or "direct-volume" first, get JSON. */
int command_stats(struct session *session)
{
    cleanup(json_deletep) cJSON *answer = NULL;
    const cJSON *usage, *condition;
    int code = ask_volume(session, "stats", NULL, &answer);

    if (code != EXIT_DONE)
        return code;
    if (session->options->json || strcmp(session->options->command, "stats") != 0) {
        row_print_json(answer, &session->out);
        return EXIT_DONE;
    }
    cJSON_ArrayForEach(usage, json_member(answer, "usage"))
    {
        print_usage(usage, &session->out);
    }
    condition = json_member(answer, "volume_condition");
    buffer_append_format(&session->out, "%s: %s\n",
                         cJSON_IsTrue(json_member(condition, "abnormal")) ? "abnormal" : "normal",
                         json_text(condition, "message"));
    return EXIT_DONE;
}

/* ---- fs ------------------------------------------------------------------------------------ */

/* {"pod-id":POD,"block-device":DEVICE, and with a size "volume-size":SIZE}; size NULL: none */
static int ask_filesystem(struct session *session, const char *target, const uint64_t *size)
{
    const char *const *operand = session->options->operand;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    cleanup(json_deletep) cJSON *answer = NULL;
    struct source_request request = {
        .method = "PUT", .target = target, .seconds = DEADLINE_SECONDS};
    int code;

    buffer_append_text(&body, "{");
    json_append_member(&body, "pod-id", operand[0]);
    json_append_member(&body, "block-device", operand[1]);
    if (size)
        buffer_append_format(&body, ",\"volume-size\":\"%" PRIu64 "\"", *size);
    buffer_append_text(&body, "}");
    request.body = buffer_text(&body);
    code = session_ask(session, &request, NULL, &answer);
    if (code == EXIT_DONE)
        row_print_json(answer, &session->out);
    return code;
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

/* The present obstacle: an exit code, with the text to print if time runs out. */
static int check(struct session *session, bool *ret_reached, struct error *why)
{
    const char *name = session->options->operand[0];
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = name};
    cleanup(json_deletep) cJSON *rows = NULL;
    const cJSON *row;
    const char *state;
    int result = source_rows(&session->source, &query, &rows, why);

    if (result != 0)
        return result == SOURCE_UNREACHABLE ? EXIT_UNREACHABLE : EXIT_FAILED;
    row = rows->child;
    if (!row) {
        (void)error_set(why, 1, "there is no volume \"%s\"", name);
        return EXIT_NOT_FOUND;
    }
    if (row->next)
        return session_refuse_ambiguous(name, rows);
    state = json_text(row, "state");
    (void)error_set(why, 1, "volume %" PRIu64 " is %s/%s", row_number(row, "volume_id"), state,
                    row_reason(row));
    *ret_reached = states_match(session->options->wanted_state, state, row_reason(row)) &&
                   strcmp(json_text(row, "status"), "removed") != 0;
    if (!*ret_reached)
        return state_from_name(state) == STATE_BLOCKED && !*json_text(row, "next_attempt_at")
                   ? EXIT_BLOCKED
                   : EXIT_NOT_NOW;
    if (session_print_json(session, row))
        return EXIT_DONE;
    buffer_append_format(&session->out, "volume %" PRIu64 ": ", row_number(row, "volume_id"));
    row_state(row, &session->out);
    buffer_append_text(&session->out, "\n");
    return EXIT_DONE;
}

int command_wait(struct session *session)
{
    const struct timespec pause = {.tv_nsec = POLL_MILLISECONDS * 1000000L};
    const uint64_t seconds = (uint64_t)session->options->timeout_seconds;
    const uint64_t deadline = clock_boottime() + seconds * NSEC_PER_SEC;
    const char *wanted = session->options->wanted_state;
    struct error why = {0};
    bool is_reached = false;
    int code;

    if (!states_is_selector(wanted))
        return session_fail(EXIT_USAGE, "there is no state \"%s\"", wanted);
    session->source.needs_daemon = true;
    code = check(session, &is_reached, &why);
    if (code == EXIT_UNREACHABLE)
        return session_fail(code, "%s", why.text);
    while (!is_reached && code != EXIT_USAGE && clock_boottime() < deadline) {
        (void)nanosleep(&pause, NULL);
        code = check(session, &is_reached, &why);
    }
    return is_reached || code == EXIT_USAGE
               ? code
               : session_fail(code, "waited %" PRIu64 " s for %s: %s", seconds, wanted, why.text);
}

/* ---- drives --------------------------------------------------------------------------------- */

/* A disk of the node is mounted in a running VM, or taken out of it. The daemon answers when it is
 * done; meanwhile a person sees the drive's state on stderr. */

/* Appends the drive's state, and why the last attempt failed. */
static void describe_drive(struct source *source, const char *drive_id, struct buffer *ret_text)
{
    const struct store_query query = {.view = STORE_VIEW_DRIVES, .live = true};
    cleanup(json_deletep) cJSON *rows = NULL;
    const cJSON *row;

    if (source_rows(source, &query, &rows, NULL) != 0)
        return;
    cJSON_ArrayForEach(row, rows)
    {
        const char *message = json_text(row, "message");

        if (strcmp(json_text(row, "drive_id"), drive_id) != 0)
            continue;
        display_append(ret_text, json_text(row, "state"));
        buffer_append_text(ret_text, *message ? ": " : "");
        display_append(ret_text, message);
        return;
    }
}

/* "data-1: ready, /dev/vg/data at /mnt/data as sdb, 64 MiB", and the remark. */
static void print_drive(const cJSON *drive, struct buffer *out)
{
    static const char *const words[][2] = {{"", "drive_id"},
                                           {": ", "state"},
                                           {", ", "host_path"},
                                           {" at ", "vm_path"},
                                           {" as ", "guest_device"}};
    const char *message = json_text(drive, "message");

    for (size_t i = 0; i < array_length(words); i++) {
        const char *text = json_text(drive, words[i][1]);

        buffer_append_text(out, *text ? words[i][0] : "");
        display_append(out, text);
    }
    buffer_append_format(out, ", %s\n", text_size(row_number(drive, "size_bytes")).text);
    display_append(out, message);
    buffer_append_text(out, *message ? "\n" : "");
}

/* `what` is the last word of the target; NULL means attach. An exit code. */
static int ask_drive(struct session *session, const char *what, const struct buffer *body)
{
    const char *drive_id = session->options->operand[0];
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(0);
    cleanup(json_deletep) cJSON *answer = NULL;
    struct source_request request = {.method = "POST",
                                     .body = buffer_text(body),
                                     .seconds = DEADLINE_SECONDS,
                                     .describe = session->options->json ? NULL : describe_drive,
                                     .subject = drive_id};
    int code;

    /* What the daemon would not take for an id must not become another path. */
    if (what && (!*drive_id || strpbrk(drive_id, "/?#%& ")))
        return session_fail(EXIT_USAGE, "\"%s\" is no drive's id", drive_id);
    buffer_append_text(&target, "/v1/drives");
    if (what)
        buffer_append_format(&target, "/%s/%s", drive_id, what);
    request.target = buffer_text(&target);
    session->source.needs_daemon = true;
    code = session_ask(session, &request, &text, &answer);
    if (code != EXIT_DONE)
        return code;
    if (what && strcmp(what, "detach") == 0)
        buffer_append_format(&session->out, session->options->json ? "{}\n" : "%s: detached\n",
                             drive_id);
    else if (session->options->json)
        buffer_append(&session->out, text.data, text.length);
    else
        print_drive(answer, &session->out);
    return EXIT_DONE;
}

int command_drive_attach(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct error error = {0};

    return drive_options_append_attach(&session->options->drive, session->options->operand[0],
                                       &body, &error) < 0
               ? session_fail(EXIT_USAGE, "%s", error.text)
               : ask_drive(session, NULL, &body);
}

int command_drive_limits(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct error error = {0};

    return drive_options_append_limits(&session->options->drive, &body, &error) < 0
               ? session_fail(EXIT_USAGE, "%s", error.text)
               : ask_drive(session, "limits", &body);
}

int command_drive_detach(struct session *session)
{
    const struct buffer none = BUFFER_INIT(0);

    return ask_drive(session, "detach", &none);
}
