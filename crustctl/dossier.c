/* SPDX-License-Identifier: Apache-2.0 */
/* dossier.c - all that is known about one volume.
 *
 * The views are read one after another, so a dossier can mix two points in time if the volume
 * changes meanwhile. It is only displayed; nothing is decided by it.
 */
#include "crustctl/dossier.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { JUDGED_BYTES = 1024 * 1024, JUDGED_DEPTH = 8 };

/* The last `most` rows of a view that are about the volume, or of its sandbox. */
static int read_rows(struct session *session, enum store_view view, const char *volume_id,
                     int64_t most, cJSON **ret_rows)
{
    const struct store_query query = {
        .view = view,
        .volume = volume_id,
        .last = most,
        .live = view == STORE_VIEW_MAPPINGS,
    };
    struct error error = {0};
    int result = source_rows(session->source, &query, ret_rows, &error);

    return result == 0 ? 0 : session_fail(result, &error);
}

static int read_row(struct session *session, enum store_view view, const char *volume_id,
                    cJSON **ret_row)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    int code = read_rows(session, view, volume_id, 1, &rows);

    if (code == 0)
        *ret_row = cJSON_DetachItemFromArray(rows, 0);
    return code;
}

static int read_sandbox(struct session *session, const cJSON *volume, cJSON **ret_row)
{
    const struct store_query query = {.view = STORE_VIEW_SANDBOXES, .live = true};
    cleanup(json_deletep) cJSON *rows = NULL;
    struct error error = {0};
    cJSON *row;
    int result = source_rows(session->source, &query, &rows, &error);

    if (result != 0)
        return session_fail(result, &error);
    cJSON_ArrayForEach(row, rows)
    {
        const char *id = row_text(row, "sandbox_id");

        if (*id && strcmp(id, row_text(volume, "sandbox_id")) == 0) {
            *ret_row = cJSON_DetachItemViaPointer(rows, row);
            break;
        }
    }
    return 0;
}

int dossier_collect(struct session *session, struct dossier *ret_dossier)
{
    struct dossier *dossier = ret_dossier;
    char id[24];
    int code;

    *dossier = (struct dossier){0};
    code = session_find_volume(session, session->options->operand[0], &dossier->volume);
    if (code != 0)
        return code;
    (void)snprintf(id, sizeof(id), "%" PRIu64, row_number(dossier->volume, "volume_id", NULL));
    code = read_row(session, STORE_VIEW_MAPPINGS, id, &dossier->binding);
    if (code == 0)
        code = read_sandbox(session, dossier->volume, &dossier->sandbox);
    if (code == 0)
        code = read_rows(session, STORE_VIEW_LAYERS, id, DOSSIER_LAYERS, &dossier->layers);
    if (code == 0)
        code = read_row(session, STORE_VIEW_RESIZES, id, &dossier->resize);
    if (code == 0)
        code = read_row(session, STORE_VIEW_CLEANUPS, id, &dossier->cleanup);
    if (code == 0)
        code = read_rows(session, STORE_VIEW_JOURNAL, id, DOSSIER_JOURNAL_LINES, &dossier->journal);
    return code;
}

/* The daemon may be older than this program, or refuse the question: then nothing is shown. */
void dossier_ask_judged(struct session *session, struct dossier *dossier)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(JUDGED_BYTES);
    char path[64];

    (void)snprintf(path, sizeof(path), "/v1/gc?dry_run=1&volume=%" PRIu64,
                   row_number(dossier->volume, "volume_id", NULL));
    if (source_ask_daemon(session->source, "POST", path, &body, NULL) == 0)
        (void)json_parse(buffer_text(&body), body.length,
                         (struct json_limits){JUDGED_BYTES, JUDGED_DEPTH, 0}, &dossier->judged,
                         NULL);
}

void dossier_done(struct dossier *dossier)
{
    cJSON_Delete(dossier->volume);
    cJSON_Delete(dossier->binding);
    cJSON_Delete(dossier->sandbox);
    cJSON_Delete(dossier->layers);
    cJSON_Delete(dossier->resize);
    cJSON_Delete(dossier->cleanup);
    cJSON_Delete(dossier->judged);
    cJSON_Delete(dossier->journal);
    *dossier = (struct dossier){0};
}
