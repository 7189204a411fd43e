/* dossier.c - all that is known about one volume.
 *
 * The views are read one after another, so a dossier can show two moments if the volume changes
 * just then. It is for reading, nothing is decided by it.
 */
#include "crustctl/dossier.h"

#include <string.h>

#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { HISTORY_ROWS = 2000 }; /* how far back a volume's own lines are looked for */

typedef bool row_filter(const cJSON *row, const cJSON *volume);

static bool is_of_volume(const cJSON *row, const cJSON *volume)
{
    bool known;
    const uint64_t id = row_number(row, "volume_id", &known);

    return known && id == row_number(volume, "volume_id", NULL);
}

static bool is_its_sandbox(const cJSON *row, const cJSON *volume)
{
    const char *id = row_text(row, "sandbox_id");

    return *id && strcmp(id, row_text(volume, "sandbox_id")) == 0;
}

static void keep_only(cJSON *rows, row_filter *filter, const cJSON *volume)
{
    cJSON *row = rows->child;

    while (row) {
        cJSON *next = row->next;

        if (!filter(row, volume))
            cJSON_Delete(cJSON_DetachItemViaPointer(rows, row));
        row = next;
    }
}

/* The last `most` rows of a view that concern the volume. */
static int read_rows(struct session *session, struct store_query query, row_filter *filter,
                     const cJSON *volume, int most, cJSON **ret_rows)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error = {0};
    int result = source_rows(session->source, &query, &rows, &error);

    if (result != 0)
        return session_fail(result, &error);
    keep_only(rows, filter, volume);
    while (cJSON_GetArraySize(rows) > most)
        cJSON_DeleteItemFromArray(rows, 0);
    *ret_rows = take_pointer(&rows);
    return 0;
}

static int read_row(struct session *session, struct store_query query, row_filter *filter,
                    const cJSON *volume, cJSON **ret_row)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    int code = read_rows(session, query, filter, volume, 1, &rows);

    if (code == 0)
        *ret_row = cJSON_DetachItemFromArray(rows, 0);
    return code;
}

int dossier_collect(struct session *session, struct dossier *ret_dossier)
{
    struct dossier *dossier = ret_dossier;
    const struct store_query mappings = {.view = STORE_VIEW_MAPPINGS, .live = true};
    const struct store_query sandboxes = {.view = STORE_VIEW_SANDBOXES, .live = true};
    const struct store_query resizes = {.view = STORE_VIEW_RESIZES, .last = HISTORY_ROWS};
    const struct store_query journal = {.view = STORE_VIEW_JOURNAL, .last = HISTORY_ROWS};
    int code;

    *dossier = (struct dossier){0};
    code = session_find_volume(session, session->options->operand[0], &dossier->volume);
    if (code == 0)
        code = read_row(session, mappings, is_of_volume, dossier->volume, &dossier->mapping);
    if (code == 0)
        code = read_row(session, sandboxes, is_its_sandbox, dossier->volume, &dossier->sandbox);
    if (code == 0)
        code = read_row(session, resizes, is_of_volume, dossier->volume, &dossier->resize);
    if (code == 0)
        code = read_rows(session, journal, is_of_volume, dossier->volume, DOSSIER_JOURNAL_LINES,
                         &dossier->journal);
    return code;
}

void dossier_done(struct dossier *dossier)
{
    cJSON_Delete(dossier->volume);
    cJSON_Delete(dossier->mapping);
    cJSON_Delete(dossier->sandbox);
    cJSON_Delete(dossier->resize);
    cJSON_Delete(dossier->journal);
    *dossier = (struct dossier){0};
}
