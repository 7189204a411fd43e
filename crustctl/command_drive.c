/* SPDX-License-Identifier: Apache-2.0 */
/* command_drive.c - has a disk of the node mounted in a running VM, or taken out of it, and waits.
 *
 * The daemon answers when it is done. Meanwhile a person sees the drive's state on stderr whenever
 * it changes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/source.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

/* The daemon gives up after 120 s, and says so. */
enum {
    ANSWER_BYTES = 64 * 1024,
    BODY_BYTES = 64 * 1024,
    TARGET_BYTES = 512,
    SAID_BYTES = 4096,
    DEADLINE_SECONDS = 130
};

struct progress {
    struct session *session;
    const char *drive_id;
    struct buffer said; /* last; owned */
};

static const cJSON *find_drive(const cJSON *rows, const char *drive_id)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        if (strcmp(row_text(row, "drive_id"), drive_id) == 0)
            return row;
    }
    return NULL;
}

static void append_progress(const cJSON *row, struct buffer *text)
{
    const char *message = row_text(row, "message"); /* why the last attempt failed */

    display_append(text, row_text(row, "state"));
    if (*message)
        buffer_append_text(text, ": ");
    display_append(text, message);
}

static void show_progress(void *userdata)
{
    const struct store_query query = {.view = STORE_VIEW_DRIVES, .live = true};
    struct progress *progress = userdata;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(SAID_BYTES);
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error;

    if (source_rows(progress->session->source, &query, &rows, &error) != 0)
        return;
    append_progress(find_drive(rows, progress->drive_id), &text);
    if (!text.length || strcmp(buffer_text(&text), buffer_text(&progress->said)) == 0)
        return;
    (void)fprintf(stderr, "waiting: %s\n", buffer_text(&text));
    buffer_clear(&progress->said);
    buffer_append_text(&progress->said, buffer_text(&text));
}

/* The daemon's answer, as it came and parsed; an exit code. */
static int ask(struct session *session, const char *target, const char *body,
               struct buffer *ret_text, cJSON **ret_answer)
{
    struct progress progress = {.session = session,
                                .drive_id = session->options->operand[0],
                                .said = BUFFER_INIT(SAID_BYTES)};
    const struct call_request request = {.method = "POST",
                                         .target = target,
                                         .body = body,
                                         .deadline_seconds = DEADLINE_SECONDS,
                                         .progress = session->options->json ? NULL : show_progress,
                                         .userdata = &progress};
    struct error error = {0};
    unsigned status = 0;
    int code, result;

    source_want_daemon(session->source);
    result = call_daemon(session->source, &request, &status, ret_text, &error);
    buffer_done(&progress.said);
    if (result == 0)
        result = json_parse(buffer_text(ret_text), ret_text->length, JSON_LIMITS_HTTP, ret_answer,
                            &error);
    if (result == 0)
        return EXIT_DONE;
    code = session_fail(result, &error);
    return result == SOURCE_REFUSED ? session_exit_code(status) : code;
}

static int fail_usage(const struct error *error)
{
    (void)session_fail(-EINVAL, error);
    return EXIT_USAGE;
}

/* "data-1: ready, /dev/vg/data at /mnt/data as sdb, 64 MiB", and the remark. */
static void print_drive(const cJSON *drive, struct buffer *out)
{
    const char *device = row_text(drive, "guest_device"), *message = row_text(drive, "message");

    display_append(out, row_text(drive, "drive_id"));
    buffer_append_text(out, ": ");
    display_append(out, row_text(drive, "state"));
    buffer_append_text(out, ", ");
    display_append(out, row_text(drive, "host_path"));
    buffer_append_text(out, " at ");
    display_append(out, row_text(drive, "vm_path"));
    if (*device) {
        buffer_append_text(out, " as ");
        display_append(out, device);
    }
    buffer_append_format(out, ", %s\n", text_size(row_number(drive, "size_bytes", NULL)).text);
    if (!*message)
        return;
    display_append(out, message);
    buffer_append_text(out, "\n");
}

static int show_drive(struct session *session, const struct buffer *text, const cJSON *drive)
{
    if (session->options->json)
        buffer_append(&session->out, text->data, text->length);
    else
        print_drive(drive, &session->out);
    return EXIT_DONE;
}

/* What the daemon would not take for an id must not become another path. */
static int make_target(const char *drive_id, const char *what, struct buffer *ret_target,
                       struct error *error)
{
    if (!*drive_id || strpbrk(drive_id, "/?#%& ") ||
        buffer_append_format(ret_target, "/v1/drives/%s/%s", drive_id, what) < 0)
        return error_set(error, -EINVAL, "\"%s\" is no drive's id", drive_id);
    return 0;
}

int command_drive_attach(struct session *session)
{
    const struct options *options = session->options;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(BODY_BYTES);
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *drive = NULL;
    struct error error = {0};
    int code;

    if (drive_options_append_attach(&options->drive, options->operand[0], &body, &error) < 0)
        return fail_usage(&error);
    code = ask(session, "/v1/drives", buffer_text(&body), &text, &drive);
    return code == EXIT_DONE ? show_drive(session, &text, drive) : code;
}

int command_drive_limits(struct session *session)
{
    const struct options *options = session->options;
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(BODY_BYTES);
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(ANSWER_BYTES);
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(TARGET_BYTES);
    cleanup(json_deletep) cJSON *drive = NULL;
    struct error error = {0};
    int code;

    if (make_target(options->operand[0], "limits", &target, &error) < 0 ||
        drive_options_append_limits(&options->drive, &body, &error) < 0)
        return fail_usage(&error);
    code = ask(session, buffer_text(&target), buffer_text(&body), &text, &drive);
    return code == EXIT_DONE ? show_drive(session, &text, drive) : code;
}

int command_drive_detach(struct session *session)
{
    const struct options *options = session->options;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(ANSWER_BYTES);
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(TARGET_BYTES);
    cleanup(json_deletep) cJSON *answer = NULL;
    struct error error = {0};
    int code;

    if (make_target(options->operand[0], "detach", &target, &error) < 0)
        return fail_usage(&error);
    code = ask(session, buffer_text(&target), "", &text, &answer);
    if (code != EXIT_DONE)
        return code;
    if (options->json)
        buffer_append_text(&session->out, "{}\n");
    else
        buffer_append_format(&session->out, "%s: detached\n", options->operand[0]);
    return EXIT_DONE;
}
