/* SPDX-License-Identifier: Apache-2.0 */
/* counted_time.c - how old history is, whatever the clock says.
 *
 * Rows have wall time, and wall time jumps: a machine boots with a dead battery, somebody sets the
 * date, NTP sets it right. Taken by the clock alone, a jump ahead by a year makes all history old
 * at once. So time is counted beside the clock: by the boot's own clock, which nobody sets. A row
 * of clock_spans begins wherever the two clocks part by more than TOLERANCE_MS, and at each boot;
 * in a span wall time and counted time run alike. Time in which the machine was off is not counted.
 *
 * What may be old is then a question for the spans: no wall time that was valid within the last
 * keep_ms of counted time is old. The least of these times is the limit. So a row goes when
 * it is older than keep_ms for certain; one that was written while the clock was ahead stays until
 * the clock has come there, or until there are too many rows.
 */
#include <string.h>

#include "store/internal.h"

enum {
    SPANS = 64,
    TOLERANCE_MS = 60 * 1000,
    NOTE_MS = 3600 * 1000, /* how much of it a crash and a reboot may lose */
};

struct newest {
    char boot_id[STORE_NAME_BYTES];
    struct clock_span span;
    int64_t counted_until_ms;
};

static int64_t counted_now(const struct store *store)
{
    return store->span.counted_ms + (store->uptime_ms - store->span.uptime_ms);
}

/* STORE_FOUND, STORE_NOT_FOUND, or a failure. */
static int read_newest(struct store *store, struct newest *ret_newest)
{
    static const char newest[] =
        "SELECT boot_id, counted_from, wall_from, uptime_from,"
        " counted_until FROM clock_spans WHERE span_id = (SELECT max(span_id) FROM clock_spans)";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first_values(&store->connection, newest, &rows, NULL, 0);

    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    TAKE_TEXT(&rows, ret_newest->boot_id);
    ret_newest->span.counted_ms = sql_take_number(&rows);
    ret_newest->span.wall_ms = sql_take_number(&rows);
    ret_newest->span.uptime_ms = sql_take_number(&rows);
    ret_newest->counted_until_ms = sql_take_number(&rows);
    return STORE_FOUND;
}

/* The two oldest become one, with the lesser of their wall times: what is old by that is old. The
 * first keeps its number, so from then on each new span takes the place of one. */
static int merge_oldest(struct store *store)
{
    static const char merge[] =
        "UPDATE clock_spans SET wall_from = min(wall_from, (SELECT n.wall_from - (n.counted_from -"
        "  clock_spans.counted_from) FROM clock_spans n WHERE n.span_id > clock_spans.span_id"
        "  ORDER BY n.span_id LIMIT 1))"
        " WHERE span_id = (SELECT min(span_id) FROM clock_spans)"
        " AND span_id <= (SELECT max(span_id) FROM clock_spans) - ?1";
    static const char drop[] =
        "DELETE FROM clock_spans WHERE span_id = (SELECT n.span_id FROM clock_spans n"
        "  WHERE n.span_id > (SELECT min(span_id) FROM clock_spans) ORDER BY n.span_id LIMIT 1)"
        " AND (SELECT min(span_id) FROM clock_spans) <= (SELECT max(span_id) FROM clock_spans)"
        "  - ?1";
    int r = sql_run(&store->connection, merge, NULL, sql_number(SPANS));

    return r < 0 ? r : sql_run(&store->connection, drop, NULL, sql_number(SPANS));
}

static int begin_span(struct store *store, int64_t counted_ms, int64_t wall_ms)
{
    static const char insert[] =
        "INSERT INTO clock_spans (boot_id, counted_from, wall_from, uptime_from, counted_until)"
        " VALUES (?1, ?2, ?3, ?4, ?2)";
    int r = sql_run(&store->connection, insert, NULL, sql_text(store->boot_id),
                    sql_number(counted_ms), sql_number(wall_ms), sql_number(store->uptime_ms));

    if (r == 0)
        r = merge_oldest(store);
    store->span = (struct clock_span){counted_ms, wall_ms, store->uptime_ms};
    store->has_span = r == 0;
    return r;
}

/* A database that did not count until now: what it has was written before its newest line was. */
static int begin_counting(struct store *store)
{
    static const char newest[] =
        "SELECT at FROM journal WHERE seq = (SELECT max(seq) FROM journal)";
    int64_t wall_ms;
    int r = sql_find_values(&store->connection, newest, &wall_ms, NULL, 0);
    bool is_older = r > 0 && wall_ms < store->now_ms;

    return r < 0 ? r : begin_span(store, 0, is_older ? wall_ms : store->now_ms);
}

static int find_span(struct store *store)
{
    struct newest newest;
    int r = read_newest(store, &newest);

    if (r == STORE_NOT_FOUND)
        return begin_counting(store);
    if (r < 0)
        return r;
    if (strcmp(newest.boot_id, store->boot_id) != 0)
        return begin_span(store, newest.counted_until_ms, store->now_ms);
    store->span = newest.span;
    store->has_span = true;
    return 0;
}

int counted_time_note(struct store *store)
{
    int64_t apart_ms;
    int r = store->has_span ? 0 : find_span(store);

    if (r < 0)
        return r;
    apart_ms = store->now_ms - store->span.wall_ms - (store->uptime_ms - store->span.uptime_ms);
    return apart_ms >= -TOLERANCE_MS && apart_ms <= TOLERANCE_MS
               ? 0
               : begin_span(store, counted_now(store), store->now_ms);
}

int counted_time_find_limit(struct store *store, int64_t *ret_limit_ms)
{
    /* Before the first span the clock is taken to have run as in it. */
    static const char limit[] =
        "WITH first AS (SELECT coalesce(max(span_id), (SELECT min(span_id) FROM clock_spans)) AS id"
        "  FROM clock_spans WHERE counted_from <= ?1)"
        " SELECT min(CASE WHEN span_id = id THEN wall_from + (?1 - counted_from) ELSE wall_from"
        "  END) FROM clock_spans, first WHERE span_id >= id";
    int r = sql_find(&store->connection, limit, ret_limit_ms,
                     sql_number(counted_now(store) - store->keep_ms));

    return r > 0 ? 0 : r < 0 ? r : STORE_DAMAGED;
}

int counted_time_keep(struct store *store)
{
    static const char keep[] = "UPDATE clock_spans SET counted_until = ?1 WHERE counted_until < ?2"
                               " AND span_id = (SELECT max(span_id) FROM clock_spans)";
    static const char forget[] =
        "DELETE FROM clock_spans WHERE span_id < (SELECT max(span_id) FROM clock_spans"
        " WHERE counted_from <= ?1)";
    const int64_t now_ms = counted_now(store);
    int r =
        sql_run(&store->connection, keep, NULL, sql_number(now_ms), sql_number(now_ms - NOTE_MS));

    return r < 0 ? r
                 : sql_run(&store->connection, forget, NULL, sql_number(now_ms - store->keep_ms));
}
