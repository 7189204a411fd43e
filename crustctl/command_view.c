/* SPDX-License-Identifier: Apache-2.0 */
/* command_view.c - the commands that list a view (volumes, sandboxes, devices, layers, mappings,
 * resizes, cleanups, drives), and one volume with all that is known of it.
 *
 * The table has the columns that fit into 80 characters; the whole row is in the JSON. A volume is
 * shown by its PV name if it has one, because that is the name people know.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "model/volume.h"

static int format_device_number(const cJSON *row, struct buffer *ret_text)
{
    uint64_t major;

    if (json_number(row, "major", &major) != JSON_NUMBER)
        return 0;
    return buffer_append_format(ret_text, "%" PRIu64 ":%" PRIu64, major, row_number(row, "minor"));
}

static int format_access(const cJSON *row, struct buffer *ret_text)
{
    return buffer_append_text(ret_text, row_number(row, "writable") ? "rw" : "ro");
}

/* As --container has them. */
static int format_containers(const cJSON *row, struct buffer *ret_text)
{
    const cJSON *containers = json_member(row, "containers"), *container;

    cJSON_ArrayForEach(container, containers)
    {
        const char *sub_path = json_text(container, "sub_path");

        buffer_append_format(ret_text, "%s%s:%s%s%s%s", container == containers->child ? "" : ", ",
                             json_text(container, "container_id"), json_text(container, "path"),
                             *sub_path ? ":" : "", sub_path,
                             cJSON_IsTrue(json_member(container, "read_only")) ? ":ro" : "");
    }
    return buffer_error(ret_text);
}

static const struct column volume_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DEVICE", .key = "device", .minimum = 10, .expendable = 2},
    {.title = "HOST", .key = "device_bytes", .kind = COLUMN_SIZE},
    {.title = "HYPERVISOR", .key = "hypervisor_bytes", .kind = COLUMN_SIZE, .expendable = 1},
    {.title = "GUEST", .key = "guest_bytes", .kind = COLUMN_SIZE, .expendable = 3},
    {.title = "STATE", .format = row_state},
};

static const struct column wide_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name},
    {.title = "NAMESPACE", .key = "pod_namespace"},
    {.title = "POD", .key = "pod_name"},
    {.title = "CLAIM", .key = "claim"},
    {.title = "DEVICE", .key = "device"},
    {.title = "KIND", .key = "kind"},
    {.title = "HOST", .key = "device_bytes", .kind = COLUMN_SIZE},
    {.title = "HYPERVISOR", .key = "hypervisor_bytes", .kind = COLUMN_SIZE},
    {.title = "GUEST", .key = "guest_bytes", .kind = COLUMN_SIZE},
    {.title = "STATE", .format = row_state},
    {.title = "RESIZABLE", .format = row_resizable},
};

static const struct column not_resizable_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DEVICE", .key = "device", .minimum = 10, .expendable = 1},
    {.title = "HOST", .key = "device_bytes", .kind = COLUMN_SIZE, .expendable = 2},
    {.title = "STATE", .format = row_state, .expendable = 3},
    {.title = "NOT RESIZABLE", .key = "resizable_reason"},
};

static const struct column sandbox_columns[] = {
    {.title = "SANDBOX", .key = "sandbox_id", .minimum = 12},
    {.title = "POD", .format = row_pod, .minimum = 12, .expendable = 3},
    {.title = "RUNTIME", .key = "runtime"},
    {.title = "HYPERVISOR", .key = "hypervisor"},
    {.title = "PID", .key = "vmm_pid", .kind = COLUMN_NUMBER},
    {.title = "MONITOR", .key = "control_socket", .minimum = 12, .expendable = 1},
    {.title = "AGENT", .key = "agent_address", .minimum = 12, .expendable = 2},
    {.title = "STATUS", .key = "status"},
};

static const struct column device_columns[] = {
    {.title = "DEVICE", .key = "device", .minimum = 10},
    {.title = "NUMBER", .format = format_device_number},
    {.title = "DISKSEQ", .key = "diskseq", .kind = COLUMN_NUMBER},
    {.title = "SIZE", .key = "size_bytes", .kind = COLUMN_SIZE},
    {.title = "LAST CHANGE (UTC)", .key = "last_changed", .kind = COLUMN_TIME},
};

static const struct column layer_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER, .expendable = 2},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 8},
    {.title = "DEVICE", .key = "device", .minimum = 10},
    {.title = "KIND", .key = "kind"},
    {.title = "NAME", .key = "name", .minimum = 8, .expendable = 1},
    {.title = "SIZE", .key = "size_bytes", .kind = COLUMN_SIZE},
    {.title = "STATE", .key = "state"},
    {.title = "WHAT HELPS", .key = "remedy", .minimum = 30},
};

static const struct column binding_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER, .expendable = 5},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 12},
    {.title = "SANDBOX", .key = "sandbox_id", .minimum = 12},
    {.title = "DEVICE", .key = "device", .minimum = 10},
    {.title = "DRIVE", .key = "drive_id", .minimum = 8, .expendable = 2},
    {.title = "GUEST PATH", .key = "guest_path", .minimum = 10, .expendable = 3},
    {.title = "SOURCE", .key = "source", .expendable = 1},
    {.title = "SINCE (UTC)", .key = "since", .kind = COLUMN_TIME},
    {.title = "UNTIL (UTC)", .key = "until", .kind = COLUMN_TIME, .expendable = 4},
};

static const struct column resize_columns[] = {
    {.title = "ID", .key = "resize_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 10},
    {.title = "DEVICE", .key = "device", .minimum = 10, .expendable = 2},
    {.title = "FROM", .key = "from_bytes", .kind = COLUMN_SIZE},
    {.title = "TO", .key = "to_bytes", .kind = COLUMN_SIZE},
    {.title = "DETECTED (UTC)", .key = "detected_at", .kind = COLUMN_TIME, .expendable = 1},
    {.title = "TRIES", .key = "attempts", .kind = COLUMN_NUMBER, .expendable = 3},
    {.title = "STATE", .format = row_state},
};

static const struct column cleanup_columns[] = {
    {.title = "ID", .key = "cleanup_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DECISION", .key = "decision"},
    {.title = "REASON", .key = "reason", .minimum = 12},
    {.title = "AT (UTC)", .key = "at", .kind = COLUMN_TIME},
};

static const struct column drive_columns[] = {
    {.title = "DRIVE", .key = "drive_id", .minimum = 8},
    {.title = "SANDBOX", .key = "sandbox_id", .minimum = 12, .expendable = 3},
    {.title = "HOST PATH", .key = "host_path", .minimum = 10},
    {.title = "VM PATH", .key = "vm_path", .minimum = 10},
    {.title = "CONTAINERS", .format = format_containers, .minimum = 12, .expendable = 5},
    {.title = "SIZE", .key = "size_bytes", .kind = COLUMN_SIZE, .expendable = 2},
    {.title = "ACCESS", .format = format_access, .expendable = 4},
    {.title = "STATE", .key = "state"},
    {.title = "WHY", .key = "message", .minimum = 12, .expendable = 1},
};

static const struct layout {
    const struct column *columns;
    unsigned count;
    const char *nothing;
} layouts[STORE_VIEWS] = {
#define LAYOUT(columns, nothing)                                                                   \
    {                                                                                              \
        columns, array_length(columns), nothing                                                    \
    }
    /* The journal has lines of its own. */
    [STORE_VIEW_VOLUMES] = LAYOUT(volume_columns, "no volumes"),
    [STORE_VIEW_SANDBOXES] = LAYOUT(sandbox_columns, "no sandboxes"),
    [STORE_VIEW_DEVICES] = LAYOUT(device_columns, "no devices"),
    [STORE_VIEW_LAYERS] = LAYOUT(layer_columns, "no device stands on another one"),
    [STORE_VIEW_MAPPINGS] = LAYOUT(binding_columns, "no mappings"),
    [STORE_VIEW_RESIZES] = LAYOUT(resize_columns, "no resizes"),
    [STORE_VIEW_CLEANUPS] = LAYOUT(cleanup_columns, "no cleanups"),
    [STORE_VIEW_DRIVES] = LAYOUT(drive_columns, "no drives"),
};

static const struct layout wide_layout = LAYOUT(wide_columns, "no volumes");
static const struct layout not_resizable_layout =
    LAYOUT(not_resizable_columns, "no volume in use that a resize would not reach");

/* The options that choose among the rows. */
#define FILTERS (OPTION_BLOCKED | OPTION_STALLED | OPTION_NOT_RESIZABLE)

/* The view says what is stalled and what is resizable. A row of an older crustd lacks these
 * columns, and is shown. */
static void filter_rows(cJSON *rows, unsigned filters)
{
    cJSON *row, *next;

    for (row = rows->child; row; row = next) {
        uint64_t stalled = 1;

        next = row->next;
        (void)json_number(row, "stalled", &stalled);
        if (((filters & OPTION_BLOCKED) &&
             state_from_name(json_text(row, "state")) != STATE_BLOCKED) ||
            ((filters & OPTION_NOT_RESIZABLE) && json_member(row, "resizable") &&
             strcmp(json_text(row, "resizable"), "no") != 0) ||
            ((filters & OPTION_STALLED) && stalled != 1))
            cJSON_Delete(cJSON_DetachItemViaPointer(rows, row));
    }
}

static int show(struct session *session, enum store_view view)
{
    const struct options *options = session->options;
    const unsigned given = options->given;
    const struct layout *layout = given & OPTION_WIDE            ? &wide_layout
                                  : given & OPTION_NOT_RESIZABLE ? &not_resizable_layout
                                                                 : &layouts[view];
    const struct store_query query = {
        .view = view, .live = !(given & OPTION_ALL), .last = options->lines};
    cleanup(json_deletep) cJSON *rows = NULL;
    int code;

    if (options->json && !(given & FILTERS)) { /* as they came, so that no number loses a digit */
        struct error error = {0};
        const int result = source_read(&session->source, &query, &session->out, &error);

        if (result != 0)
            buffer_clear(&session->out); /* an error's JSON is no rows */
        else if (session->out.data[session->out.length - 1] != '\n')
            buffer_append_text(&session->out, "\n");
        return result == 0 ? EXIT_DONE : session_fail_result(result, &error);
    }
    code = session_rows(session, &query, &rows);
    if (code != EXIT_DONE)
        return code;
    filter_rows(rows, given & FILTERS);
    if (!session_print_json(session, rows))
        table_print(layout->columns, layout->count, rows,
                    given & OPTION_WIDE ? UINT_MAX : session->table_width, layout->nothing,
                    &session->out);
    return EXIT_DONE;
}

int command_view(struct session *session)
{
    const enum store_view view = store_view_from_name(session->options->command);

    return view < STORE_VIEWS ? show(session, view) : session_fail_result(STORE_FAULT, NULL);
}

int command_drives(struct session *session)
{
    return show(session, STORE_VIEW_DRIVES);
}

/* ---- one volume ------------------------------------------------------------------------------ */

enum { JOURNAL_LINES = 8, WIDEST = 100 }; /* longer lines of prose are hard to read */

/* The other views whose newest row about the volume is shown. */
static const struct part {
    const char *title;
    enum store_view view;
} parts[] = {
    {"Mapping", STORE_VIEW_MAPPINGS},
    {"Sandbox", STORE_VIEW_SANDBOXES},
    {"Last resize", STORE_VIEW_RESIZES},
    {"Last cleanup", STORE_VIEW_CLEANUPS},
};

/* "Volume 7, pvc-orders: blocked/monitor_missing" */
static void print_head(const cJSON *volume, struct buffer *out)
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(0);

    row_volume_name(volume, &name);
    buffer_append_text(&name, ": ");
    row_state(volume, &name);
    buffer_fail(out, buffer_error(&name));
    buffer_append_format(out, "Volume %" PRIu64 ", ", row_number(volume, "volume_id"));
    display_append(out, buffer_text(&name));
    buffer_append_text(out, "\n");
}

/* The views are read one after another, so a sheet can mix two points in time if the volume changes
 * meanwhile. */
int command_volume(struct session *session)
{
    cleanup(json_deletep) cJSON *volume = NULL, *lines = NULL;
    struct buffer *out = &session->out;
    char id[24];
    struct store_query query = {.volume = id, .last = 1, .live = true};
    const cJSON *row;
    int code = session_find_volume(session, session->options->operand[0], &volume);

    if (code != EXIT_DONE || session_print_json(session, volume))
        return code;
    (void)snprintf(id, sizeof(id), "%" PRIu64, row_number(volume, "volume_id"));
    print_head(volume, out);
    table_print_sheet(volume, out);
    for (size_t i = 0; i < array_length(parts); i++) {
        cleanup(json_deletep) cJSON *rows = NULL;

        query.view = parts[i].view;
        code = session_rows(session, &query, &rows);
        if (code != EXIT_DONE)
            return code;
        if (!rows->child)
            continue;
        buffer_append_format(out, "\n%s\n",
                             query.view == STORE_VIEW_RESIZES &&
                                     !*json_text(rows->child, "finished_at")
                                 ? "Open resize"
                                 : parts[i].title);
        table_print_sheet(rows->child, out);
    }
    query.view = STORE_VIEW_JOURNAL;
    query.last = JOURNAL_LINES;
    code = session_rows(session, &query, &lines);
    if (code != EXIT_DONE)
        return code;
    buffer_append_text(out, lines->child ? "\nLast in the journal\n" : "");
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
    print_head(json_member(answer, "volume"), out);
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
