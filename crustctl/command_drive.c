/* SPDX-License-Identifier: Apache-2.0 */
/* command_drive.c - has a disk of the node mounted in a running VM, or taken out of it, and waits.
 *
 * The daemon answers when it is done. Meanwhile a person sees the drive's state on stderr.
 */
#include <errno.h>
#include <string.h>

#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

/* The daemon gives up after 120 s, and says so. */
enum { DEADLINE_SECONDS = 130 };

/* Appends the drive's state, and why the last attempt failed. */
static void describe(struct source *source, const char *drive_id, struct buffer *ret_text)
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
static int ask(struct session *session, const char *what, const struct buffer *body)
{
    const char *drive_id = session->options->operand[0];
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(0);
    cleanup(json_deletep) cJSON *answer = NULL;
    struct source_request request = {.method = "POST",
                                     .body = buffer_text(body),
                                     .seconds = DEADLINE_SECONDS,
                                     .describe = session->options->json ? NULL : describe,
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
               : ask(session, NULL, &body);
}

int command_drive_limits(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct error error = {0};

    return drive_options_append_limits(&session->options->drive, &body, &error) < 0
               ? session_fail(EXIT_USAGE, "%s", error.text)
               : ask(session, "limits", &body);
}

int command_drive_detach(struct session *session)
{
    const struct buffer none = BUFFER_INIT(0);

    return ask(session, "detach", &none);
}
