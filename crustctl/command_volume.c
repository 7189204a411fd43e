/* SPDX-License-Identifier: Apache-2.0 */
/* command_volume.c - one volume as a sheet: itself, its binding, sandbox, last resize and journal.
 */
#include <inttypes.h>
#include <stdio.h>

#include "crustctl/commands.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { JOURNAL_LINES = 8, WIDEST = 100 }; /* longer lines of prose are hard to read */

static const struct column volume_fields[] = {
    {.title = "path", .key = "target_path"},
    {.title = "kind", .key = "kind"},
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

/* The newest rows of a view that are about the volume; an exit code. */
static int read_newest(struct session *session, enum store_view view, uint64_t volume_id,
                       int64_t most, cJSON **ret_rows)
{
    char id[24];
    const struct store_query query = {.view = view, .volume = id, .last = most, .live = true};

    (void)snprintf(id, sizeof(id), "%" PRIu64, volume_id);
    return session_rows(session, &query, ret_rows);
}

static int print_part(struct session *session, const struct part *part, uint64_t volume_id)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    const char *title = part->title;
    int code = read_newest(session, part->view, volume_id, 1, &rows);

    if (code != EXIT_DONE || !rows->child)
        return code;
    if (part->view == STORE_VIEW_RESIZES && !*json_text(rows->child, "finished_at"))
        title = "Open resize";
    buffer_append_format(&session->out, "\n%s\n", title);
    table_print_sheet(part->fields, part->count, rows->child, &session->out);
    return EXIT_DONE;
}

/* The views are read one after another, so a sheet can mix two points in time if the volume changes
 * meanwhile. */
int command_volume(struct session *session)
{
    cleanup(json_deletep) cJSON *volume = NULL, *lines = NULL;
    struct buffer *out = &session->out;
    const cJSON *row;
    uint64_t id;
    int code = session_find_volume(session, session->options->operand[0], &volume);

    if (code != EXIT_DONE || session_print_json(session, volume))
        return code;
    id = row_number(volume, "volume_id");
    buffer_append_format(out, "Volume %" PRIu64 " (times are UTC)\n", id);
    table_print_sheet(volume_fields, array_length(volume_fields), volume, out);
    for (size_t i = 0; i < array_length(parts) && code == EXIT_DONE; i++)
        code = print_part(session, &parts[i], id);
    if (code == EXIT_DONE)
        code = read_newest(session, STORE_VIEW_JOURNAL, id, JOURNAL_LINES, &lines);
    if (code != EXIT_DONE)
        return code;
    if (lines->child)
        buffer_append_text(out, "\nLast in the journal\n");
    cJSON_ArrayForEach(row, lines)
    {
        row_print_journal(row, session->table_width, out);
    }
    return EXIT_DONE;
}

/* ---- command explain ------------------------------------------------------------------------ */

/* What to do comes first: the reader may have been woken for it. A member is a sentence, null, or
 * an array of sentences; without a title it goes on with the section before it. */
static const struct {
    const char *title, *member;
} sections[] = {
    {"What to do", "remedies"},     {"What it means", "state_meaning"}, {NULL, "reason_meaning"},
    {"What is missing", "missing"}, {"What is known", "known"},
};

static void print_answer(const cJSON *answer, unsigned width, struct buffer *out)
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(0);
    const cJSON *volume = json_member(answer, "volume");

    row_volume_name(volume, &name);
    buffer_append_text(&name, ": ");
    row_state(volume, &name);
    buffer_fail(out, buffer_error(&name));
    buffer_append_format(out, "Volume %" PRIu64 ", ", row_number(volume, "volume_id"));
    display_append(out, buffer_text(&name));
    buffer_append_text(out, "\n");
    for (size_t i = 0; i < array_length(sections); i++) {
        const cJSON *member = json_member(answer, sections[i].member);
        const bool is_list = cJSON_IsArray(member);
        const cJSON *sentence = is_list ? member->child : member;

        if (sections[i].title && cJSON_IsString(sentence))
            buffer_append_format(out, "\n%s\n", sections[i].title);
        for (; cJSON_IsString(sentence); sentence = is_list ? sentence->next : NULL)
            display_append_wrapped(out, sentence->valuestring, "  - ", 4, width);
    }
}

int command_explain(struct session *session)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(json_deletep) cJSON *volume = NULL, *answer = NULL;
    struct source_request request = {.method = "GET"};
    char target[64];
    int code;

    session->source.needs_daemon = true;
    code = session_find_volume(session, session->options->operand[0], &volume);
    if (code == EXIT_UNREACHABLE)
        (void)fprintf(
            stderr,
            "Only the daemon explains. crustctl volume VOL shows the recorded state, and so "
            "does\n  sqlite3 -readonly %s 'SELECT * FROM audit_volumes'\n",
            session->source.config.paths.database);
    if (code != EXIT_DONE)
        return code;
    (void)snprintf(target, sizeof(target), "/v1/volumes/%" PRIu64 "/explain",
                   row_number(volume, "volume_id"));
    request.target = target;
    code = session_ask(session, &request, &body, &answer);
    if (code != EXIT_DONE)
        return code;
    if (session->options->json)
        buffer_append(&session->out, body.data, body.length);
    else
        print_answer(answer, session->width < WIDEST ? session->width : WIDEST, &session->out);
    return EXIT_DONE;
}
