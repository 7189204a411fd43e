/* SPDX-License-Identifier: Apache-2.0 */
/* command_volume.c - one volume as a sheet: itself, its binding, sandbox, last resize and journal.
 */
#include <inttypes.h>
#include <stdio.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { JOURNAL_LINES = 8 };

static const struct column volume_fields[] = {
    {.title = "path", .key = "target_path"},
    {.title = "pv", .key = "pv"},
    {.title = "pod uid", .key = "pod_uid"},
    {.title = "state", .format = row_state},
    {.title = "since", .key = "state_since", .kind = COLUMN_TIME},
    {.title = "resizable", .format = row_resizable},
    {.title = "next attempt", .key = "next_attempt_at", .kind = COLUMN_TIME},
    {.title = "device", .key = "device"},
    {.title = "host", .key = "device_bytes", .kind = COLUMN_SIZE},
    {.title = "hypervisor", .key = "hypervisor_bytes", .kind = COLUMN_SIZE},
    {.title = "guest", .key = "guest_bytes", .kind = COLUMN_SIZE},
    {.title = "used", .key = "used_bytes", .kind = COLUMN_SIZE},
    {.title = "available", .key = "available_bytes", .kind = COLUMN_SIZE},
    {.title = "condition", .key = "condition"},
    {.title = "stats read", .key = "stats_at", .kind = COLUMN_TIME},
    {.title = "type", .key = "volume_type"},
    {.title = "file system", .key = "fs_type"},
    {.title = "options", .key = "options", .kind = COLUMN_JSON},
    {.title = "metadata", .key = "metadata", .kind = COLUMN_JSON},
    {.title = "status", .key = "status"},
    {.title = "problem", .key = "problem"},
    {.title = "evidence", .key = "evidence"},
    {.title = "driver", .key = "driver"},
    {.title = "handle", .key = "volume_handle"},
    {.title = "deferred mount", .key = "defer_fs_mount", .kind = COLUMN_NUMBER},
    {.title = "layout", .key = "layout"},
    {.title = "key", .key = "key"},
    {.title = "first seen", .key = "first_seen", .kind = COLUMN_TIME},
    {.title = "last changed", .key = "last_changed", .kind = COLUMN_TIME},
    {.title = "removed", .key = "removed_at", .kind = COLUMN_TIME},
};

static const struct column binding_fields[] = {
    {.title = "device", .key = "device"},
    {.title = "drive", .key = "drive_id"},
    {.title = "guest path", .key = "guest_path"},
    {.title = "known from", .key = "source"},
    {.title = "since", .key = "since", .kind = COLUMN_TIME},
};

static const struct column sandbox_fields[] = {
    {.title = "sandbox", .key = "sandbox_id"},
    {.title = "pod", .format = row_pod},
    {.title = "runtime", .key = "runtime"},
    {.title = "hypervisor", .key = "hypervisor"},
    {.title = "pid", .key = "vmm_pid", .kind = COLUMN_NUMBER},
    {.title = "monitor", .key = "control_socket"},
    {.title = "agent", .key = "agent_address"},
};

static const struct column resize_fields[] = {
    {.title = "from", .key = "from_bytes", .kind = COLUMN_SIZE},
    {.title = "to", .key = "to_bytes", .kind = COLUMN_SIZE},
    {.title = "state", .format = row_state},
    {.title = "error", .key = "error"},
    {.title = "attempts", .key = "attempts", .kind = COLUMN_NUMBER},
    {.title = "detected", .key = "detected_at", .kind = COLUMN_TIME},
    {.title = "hypervisor", .key = "hypervisor_at", .kind = COLUMN_TIME},
    {.title = "guest", .key = "guest_at", .kind = COLUMN_TIME},
    {.title = "finished", .key = "finished_at", .kind = COLUMN_TIME},
};

static const struct column cleanup_fields[] = {
    {.title = "decision", .key = "decision"},
    {.title = "reason", .key = "reason"},
    {.title = "at", .key = "at", .kind = COLUMN_TIME},
    {.title = "evidence", .key = "evidence", .kind = COLUMN_JSON},
};

static const struct part {
    const char *title;
    enum store_view view;
    const struct column *fields;
    unsigned count;
} parts[] = {
    {"Mapping", STORE_VIEW_MAPPINGS, binding_fields, array_length(binding_fields)},
    {"Sandbox", STORE_VIEW_SANDBOXES, sandbox_fields, array_length(sandbox_fields)},
    {"Last resize", STORE_VIEW_RESIZES, resize_fields, array_length(resize_fields)},
    {"Last cleanup", STORE_VIEW_CLEANUPS, cleanup_fields, array_length(cleanup_fields)},
};

/* The newest row of a view that is about the volume, if there is one. */
static int print_part(struct session *session, const struct part *part, const char *volume_id)
{
    const struct store_query query = {
        .view = part->view, .volume = volume_id, .last = 1, .live = true};
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error = {0};
    const int result = source_rows(session->source, &query, &rows, &error);
    const char *title = part->title;

    if (result != 0)
        return session_fail(result, &error);
    if (!rows->child)
        return EXIT_DONE;
    if (part->view == STORE_VIEW_RESIZES && !*row_text(rows->child, "finished_at"))
        title = "Open resize";
    buffer_append_format(&session->out, "\n%s\n", title);
    table_print_sheet(part->fields, part->count, rows->child, &session->out);
    return EXIT_DONE;
}

static int print_last_lines(struct session *session, const char *volume_id)
{
    const struct store_query query = {
        .view = STORE_VIEW_JOURNAL, .volume = volume_id, .last = JOURNAL_LINES};
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error = {0};
    const int result = source_rows(session->source, &query, &rows, &error);
    const cJSON *row;

    if (result != 0)
        return session_fail(result, &error);
    if (rows->child)
        buffer_append_text(&session->out, "\nLast in the journal\n");
    cJSON_ArrayForEach(row, rows)
    {
        row_print_journal(row, session->table_width, &session->out);
    }
    return EXIT_DONE;
}

/* The views are read one after another, so a sheet can mix two points in time if the volume changes
 * meanwhile. */
static int print_sheet(struct session *session, const cJSON *volume)
{
    const uint64_t id = row_number(volume, "volume_id", NULL);
    char volume_id[24];
    int code = EXIT_DONE;

    (void)snprintf(volume_id, sizeof(volume_id), "%" PRIu64, id);
    buffer_append_format(&session->out, "Volume %" PRIu64 " (times are UTC)\n", id);
    table_print_sheet(volume_fields, array_length(volume_fields), volume, &session->out);
    for (size_t i = 0; i < array_length(parts) && code == EXIT_DONE; i++)
        code = print_part(session, &parts[i], volume_id);
    return code == EXIT_DONE ? print_last_lines(session, volume_id) : code;
}

int command_volume(struct session *session)
{
    cleanup(json_deletep) cJSON *volume = NULL;
    int code = session_find_volume(session, session->options->operand[0], &volume);

    if (code != 0)
        return code;
    if (!session->options->json)
        return print_sheet(session, volume);
    row_print_json(volume, &session->out);
    return EXIT_DONE;
}

/* ---- command explain ------------------------------------------------------------------------ */

/* What to do about a volume, what its state means, and what is known: the
 * daemon's own sentences. */

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
            "Only the daemon explains. crustctl volume VOL shows the recorded state, and so "
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
