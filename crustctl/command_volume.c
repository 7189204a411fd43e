/* SPDX-License-Identifier: Apache-2.0 */
/* command_volume.c - one volume as a sheet: itself, its binding, sandbox, last resize and journal.
 */
#include <inttypes.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/dossier.h"
#include "crustctl/row.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

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

static void print_part(struct session *session, const char *title, const struct column *fields,
                       unsigned count, const cJSON *row)
{
    if (!row)
        return;
    buffer_append_format(&session->out, "\n%s\n", title);
    table_print_sheet(fields, count, row, &session->out);
}

static void print_last_lines(struct session *session, const cJSON *journal)
{
    const cJSON *row;

    if (journal->child)
        buffer_append_text(&session->out, "\nLast in the journal\n");
    cJSON_ArrayForEach(row, journal)
    {
        row_print_journal(row, session->table_width, &session->out);
    }
}

static void print_sheet(struct session *session, const struct dossier *dossier)
{
    const char *title = dossier->resize && !*row_text(dossier->resize, "finished_at")
                            ? "Open resize"
                            : "Last resize";

    buffer_append_format(&session->out, "Volume %" PRIu64 " (times are UTC)\n",
                         row_number(dossier->volume, "volume_id", NULL));
    table_print_sheet(volume_fields, array_length(volume_fields), dossier->volume, &session->out);
    print_part(session, "Mapping", binding_fields, array_length(binding_fields), dossier->binding);
    print_part(session, "Sandbox", sandbox_fields, array_length(sandbox_fields), dossier->sandbox);
    print_part(session, title, resize_fields, array_length(resize_fields), dossier->resize);
    print_part(session, "Last cleanup", cleanup_fields, array_length(cleanup_fields),
               dossier->cleanup);
    print_last_lines(session, dossier->journal);
}

static int print_object(struct session *session)
{
    cleanup(json_deletep) cJSON *volume = NULL;
    int code = session_find_volume(session, session->options->operand[0], &volume);

    if (code != 0)
        return code;
    row_print_json(volume, &session->out);
    return EXIT_DONE;
}

int command_volume(struct session *session)
{
    cleanup(dossier_done) struct dossier dossier = {0};
    int code;

    if (session->options->json)
        return print_object(session);
    code = dossier_collect(session, &dossier);
    if (code != 0)
        return code;
    print_sheet(session, &dossier);
    return EXIT_DONE;
}
