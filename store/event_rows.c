/* SPDX-License-Identifier: Apache-2.0 */
/* event_rows.c - see event_rows.h.
 *
 * A volume whose resize fails is tried again, and goes from one state to another and back. So a row
 * is compared with those of the same volume since its size or its sandbox last changed, within a
 * bound on the rows that are looked at.
 */
#include "store/event_rows.h"

#include "store/internal.h"
#include "store/schema.h"

/* clang-format off */
#define DETAIL(name)                                                                               \
    "CASE WHEN json_valid(j.detail) THEN json_extract(j.detail, '$." name "') END"

#define EARLIER(name)                                                                              \
    name ".volume_id = j.volume_id AND " name ".seq < j.seq AND " name ".seq > j.seq - 10000"
#define BEGINNING                                                                                  \
    "coalesce((SELECT b.seq FROM journal b WHERE " EARLIER("b") " AND b.kind IN ('resize_opened'," \
    " 'resize_raised', 'resize_finished', 'mapping_opened') ORDER BY b.seq DESC LIMIT 1), 0)"
#define IS_REPEATED                                                                                \
    "CASE WHEN j.kind = 'state_changed' THEN EXISTS (SELECT 1 FROM journal p WHERE " EARLIER("p")  \
    " AND p.kind = 'state_changed' AND p.seq > " BEGINNING                                         \
    " AND json_valid(p.detail) AND json_extract(p.detail, '$.to') = " DETAIL("to") ") END"

static const char rows_after[] =
    "SELECT j.seq, j.at, j.kind, coalesce(" DETAIL("to") ", " DETAIL("state") "), " DETAIL("message") ", " DETAIL("reason") ","
    " e.pv, " E_CLAIM_NAMESPACE ", " E_CLAIM ", s.pod_namespace, s.pod_name, e.pod_uid,"
    " v.target_path, " DETAIL("to") " = v.state || '/' || v.reason, " V_IS_STALLED ","
    " " IS_REPEATED ", r.from_bytes, r.to_bytes"
    " FROM journal j JOIN volumes v ON v.volume_id = j.volume_id"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN sandboxes s ON s.sandbox_ref = (SELECT m.sandbox_ref FROM mappings m"
    "  WHERE m.volume_id = j.volume_id ORDER BY m.mapping_id DESC LIMIT 1)"
    " LEFT JOIN resizes r ON r.resize_id = (SELECT max(x.resize_id) FROM resizes x"
    "  WHERE x.volume_id = j.volume_id)"
    " WHERE j.seq > ?1 AND j.seq <= ?2 AND j.kind IN ('resize_finished', 'state_changed',"
    " 'guest_condition_changed', 'cleanup_removed') ORDER BY j.seq";
/* clang-format on */

static void take_row(struct sql_rows *rows, struct store_event_row *row)
{
    row->seq = sql_take_number(rows);
    row->at = sql_take_number(rows);
    row->kind = sql_borrow_text(rows);
    row->to = sql_borrow_text(rows);
    row->message = sql_borrow_text(rows);
    row->cause = sql_borrow_text(rows);
    row->pv = sql_borrow_text(rows);
    row->claim_namespace = sql_borrow_text(rows);
    row->claim_name = sql_borrow_text(rows);
    row->pod_namespace = sql_borrow_text(rows);
    row->pod_name = sql_borrow_text(rows);
    row->pod_uid = sql_borrow_text(rows);
    row->target_path = sql_borrow_text(rows);
    row->is_current = sql_take_number(rows);
    row->is_stalled = sql_take_number(rows);
    row->is_repeated = sql_take_number(rows);
    row->from_bytes = sql_take_number(rows);
    row->to_bytes = sql_take_number(rows);
}

int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int64_t last = newest - *seq > most ? *seq + most : newest;
    struct store_event_row row;
    int r;

    if (!sqlite3_get_autocommit(store->connection.db))
        return STORE_RUNNING;
    r = sql_query(&store->connection, rows_after, &rows, sql_number(*seq), sql_number(last));
    while (r == 0 && (r = sql_next(&rows)) == SQL_ROW) {
        take_row(&rows, &row);
        callback(userdata, &row);
        *seq = row.seq;
        r = 0;
    }
    if (r == SQL_END)
        *seq = last;
    return r;
}
