/* command_view.c - the commands that list a view: volumes, sandboxes, devices, mappings, resizes,
 * cleanups.
 *
 * What the eye needs stands in 80 columns; the whole row is in the JSON. A volume is shown by its
 * PV name where it has one, because that is the name people gave it.
 */
#include <errno.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/row.h"
#include "crustctl/table.h"
#include "lib/cleanup.h"
#include "lib/json.h"

static const struct column volume_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DEVICE", .key = "device", .minimum = 10, .expendable = 2},
    {.title = "HOST", .key = "device_bytes", .kind = COLUMN_SIZE},
    {.title = "HYPERVISOR", .key = "hypervisor_bytes", .kind = COLUMN_SIZE, .expendable = 1},
    {.title = "GUEST", .key = "guest_bytes", .kind = COLUMN_SIZE, .expendable = 3},
    {.title = "STATE", .format = row_state},
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
    {.title = "NUMBER", .format = row_device_number},
    {.title = "DISKSEQ", .key = "diskseq", .kind = COLUMN_NUMBER},
    {.title = "SIZE", .key = "size_bytes", .kind = COLUMN_SIZE},
    {.title = "LAST CHANGE (UTC)", .key = "last_changed", .kind = COLUMN_TIME},
};

static const struct column mapping_columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
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
    {.title = "VOLUME", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "DEVICE", .key = "device", .minimum = 10, .expendable = 2},
    {.title = "FROM", .key = "from_bytes", .kind = COLUMN_SIZE},
    {.title = "TO", .key = "to_bytes", .kind = COLUMN_SIZE},
    {.title = "DETECTED (UTC)", .key = "detected_at", .kind = COLUMN_TIME, .expendable = 1},
    {.title = "TRIES", .key = "attempts", .kind = COLUMN_NUMBER, .expendable = 3},
    {.title = "STATE", .format = row_state},
};

static const struct column cleanup_columns[] = {
    {.title = "ID", .key = "cleanup_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "PATH", .format = row_path_or_key, .minimum = 16, .expendable = 1},
    {.title = "DECISION", .key = "decision"},
    {.title = "REASON", .key = "reason", .minimum = 12},
    {.title = "AT (UTC)", .key = "at", .kind = COLUMN_TIME},
};

struct view_layout {
    const struct column *columns;
    unsigned count;
    const char *nothing;
};

#define LAYOUT(columns, nothing)                                                                   \
    {                                                                                              \
        columns, array_length(columns), nothing                                                    \
    }

/* By enum store_view. The journal has lines of its own. */
static const struct view_layout layouts[STORE_VIEWS] = {
    [STORE_VIEW_VOLUMES] = LAYOUT(volume_columns, "no volumes"),
    [STORE_VIEW_SANDBOXES] = LAYOUT(sandbox_columns, "no sandboxes"),
    [STORE_VIEW_DEVICES] = LAYOUT(device_columns, "no devices"),
    [STORE_VIEW_MAPPINGS] = LAYOUT(mapping_columns, "no mappings"),
    [STORE_VIEW_RESIZES] = LAYOUT(resize_columns, "no growths"),
    [STORE_VIEW_CLEANUPS] = LAYOUT(cleanup_columns, "no cleanups"),
};

static void keep_blocked(cJSON *rows)
{
    cJSON *row = rows->child;

    while (row) {
        cJSON *next = row->next;
        const char *state = json_string(row, "state");

        if (!state || strcmp(state, "blocked") != 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(rows, row));
        row = next;
    }
}

int command_view(struct session *session)
{
    struct store_query query = {
        .live = !(session->options->given & OPTION_ALL),
        .last = session->options->lines,
    };
    cleanup(json_deletep) cJSON *rows = NULL;
    const struct view_layout *layout;
    struct error error = {0};
    int result = store_view_from_name(session->options->command, &query.view);

    if (result == 0)
        result = source_rows(session->source, &query, &rows, &error);
    if (result != 0)
        return session_fail(session, result, &error);
    if (session->options->given & OPTION_BLOCKED)
        keep_blocked(rows);
    layout = &layouts[query.view];
    result = session->options->json ? row_print_json(rows, &session->out)
                                    : table_print(layout->columns, layout->count, rows,
                                                  session->width, layout->nothing, &session->out);
    return result < 0 ? session_fail(session, result, NULL) : EXIT_DONE;
}
