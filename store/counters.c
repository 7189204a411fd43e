/* SPDX-License-Identifier: Apache-2.0 */
/* counters.c - counting within transactions.
 *
 * Events within a transaction are counted aside and added when it is committed: a pass that is
 * rolled back is repeated, and would be counted twice.
 */
#include "store/counters.h"

#include <stdio.h>
#include <string.h>

#include "store/internal.h"

const struct store_counters *store_reader_counters(const struct store_reader *reader)
{
    return reader->counters;
}

/* The table has room for every reason; if it is full, a reason has an unknown name. */
static void add_result(struct store_counters *counters, const char *result, const char *reason,
                       uint64_t count)
{
    struct store_counted_resize *row = counters->resize_result;
    const struct store_counted_resize *end = row + counters->resize_results;

    while (row < end && (strcmp(row->result, result) != 0 || strcmp(row->reason, reason) != 0))
        row++;
    if (row == end) {
        if (counters->resize_results == STORE_COUNTED_RESIZES)
            return;
        counters->resize_results++;
        (void)snprintf(row->result, sizeof(row->result), "%s", result);
        (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
        row->count = 0;
    }
    row->count += count;
}

static void add_span(struct histogram *histogram, int64_t from_ms, int64_t to_ms)
{
    if (from_ms && to_ms >= from_ms)
        histogram_add(histogram, (double)(to_ms - from_ms) / 1000);
}

static int count_spans(struct store *store, int64_t volume_id)
{
    static const char find[] = "SELECT detected_at, hypervisor_at, guest_at, finished_at"
                               " FROM resizes WHERE volume_id = ?1 ORDER BY resize_id DESC LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    struct histogram *spans = store->pending.resizes;
    int64_t detected, hypervisor, guest;
    int r = sql_first(&store->connection, find, &rows, sql_number(volume_id));

    if (r <= 0)
        return r;
    detected = sql_take_number(&rows);
    hypervisor = sql_take_number(&rows);
    guest = sql_take_number(&rows);
    add_span(&spans[STORE_STAGE_HYPERVISOR], detected, hypervisor);
    add_span(&spans[STORE_STAGE_GUEST], hypervisor, guest);
    add_span(&spans[STORE_STAGE_TOTAL], detected, sql_take_number(&rows));
    return 0;
}

int count_resize(struct store *store, int64_t volume_id, enum volume_state state,
                 enum volume_reason reason, bool finished)
{
    const bool grown = finished && state == STATE_IN_SYNC;

    if (!finished && reason == REASON_NONE)
        return 0;
    store->counts_pending = true;
    add_result(&store->pending,
               grown      ? "grown"
               : finished ? "ended"
                          : "blocked",
               reason_name(reason), 1);
    return grown ? count_spans(store, volume_id) : 0;
}

void count_cleanup(struct store *store, const char *decision)
{
    static const char *const names[] = {[STORE_COUNTED_KEPT] = "kept",
                                        [STORE_COUNTED_REMOVED] = "removed",
                                        [STORE_COUNTED_PUT_BACK] = "put-back",
                                        [STORE_COUNTED_RESTORED] = "restored",
                                        [STORE_COUNTED_FAILED] = "failed"};

    for (size_t i = 0; i < STORE_COUNTED_CLEANUPS; i++)
        if (strcmp(names[i], decision) == 0) {
            store->counts_pending = true;
            store->pending.cleanups[i]++;
        }
}

void count_published(struct store *store)
{
    store->counts_pending = true;
    store->pending.published++;
}

void counts_drop(struct store *store)
{
    if (store->counts_pending)
        store->pending = (struct store_counters){0};
    store->counts_pending = false;
}

void counts_keep(struct store *store, double commit_seconds)
{
    struct store_counters *into = &store->counters;
    const struct store_counters *from = &store->pending;

    histogram_add(&into->commits, commit_seconds);
    if (!store->counts_pending)
        return;
    for (size_t i = 0; i < STORE_STAGES; i++)
        histogram_merge(&into->resizes[i], &from->resizes[i]);
    for (size_t i = 0; i < from->resize_results; i++)
        add_result(into, from->resize_result[i].result, from->resize_result[i].reason,
                   from->resize_result[i].count);
    for (size_t i = 0; i < STORE_COUNTED_CLEANUPS; i++)
        into->cleanups[i] += from->cleanups[i];
    into->published += from->published;
    counts_drop(store);
}
