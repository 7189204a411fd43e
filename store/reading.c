/* SPDX-License-Identifier: Apache-2.0 */
/* reading.c - a query's rows, some at a time.
 *
 * Most answers are small, so the first piece is read on the daemon's own connection, and thrown
 * away if it did not suffice. The daemon's connection cannot be used for longer: a statement that
 * is open on it would see what is written meanwhile, and a rollback would abort it. So a longer
 * answer begins anew on a connection of its own. SQLite keeps the locks of two of its connections
 * in one process apart.
 */
#include "store/reading.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/list.h"
#include "store/internal.h"
#include "store/row_cursor.h"

struct store_reading {
    struct store_reading *next;
    struct store *store; /* NULL: it was left */
    struct store_query query;
    char *volume;
    struct buffer json;
    struct store_reader *reader; /* its own; NULL: the daemon's is used */
    struct row_cursor cursor;    /* open between two pieces only with a reader of its own */
    uint64_t late_ns;
};

static bool is_at_its_place(const struct store *store)
{
    struct stat status;

    return store->path && stat(store->path, &status) == 0 && status.st_dev == store->file_device &&
           status.st_ino == store->file_inode;
}

static void close_reader(struct store_reader **reader)
{
    store_reader_free(*reader);
}

/* Another file could be in the place of the one that the store has open. */
static int open_reader(const struct store *store, struct store_reader **ret_reader)
{
    cleanup(close_reader) struct store_reader *reader = NULL;
    struct error error;
    int r = is_at_its_place(store)
                ? store_reader_open(store->path, 0 /* it would wait for this very process */,
                                    &reader, &error)
                : STORE_MISSING;

    if (r == 0)
        r = sql_execute(&reader->own, "PRAGMA mmap_size = 0; PRAGMA cache_size = -512;"
                                      "PRAGMA temp_store = MEMORY; BEGIN; SELECT 1 FROM meta;");
    if (r == 0 && !is_at_its_place(store))
        r = STORE_REPLACED;
    if (r == 0)
        *ret_reader = take_pointer(&reader);
    return r;
}

int store_reading_new(struct store_reader *reader, const struct store_query *query, size_t limit,
                      struct store_reading **ret_reading)
{
    struct store_reading *reading = calloc(1, sizeof(*reading));

    if (!reading)
        return STORE_NO_MEMORY;
    reading->query = *query;
    reading->volume = query->volume ? strdup(query->volume) : NULL;
    reading->query.volume = reading->volume;
    buffer_init(&reading->json, limit);
    if (query->volume && !reading->volume) {
        store_reading_free(reading);
        return STORE_NO_MEMORY;
    }
    reading->late_ns = clock_boottime() + STORE_READING_SECONDS * NSEC_PER_SEC;
    reading->store = reader->store;
    reading->next = reading->store->readings;
    reading->store->readings = reading;
    *ret_reading = reading;
    return 0;
}

/* No statement and no transaction of it is open any more. */
static void leave(struct store_reading *reading)
{
    row_cursor_done(&reading->cursor);
    store_reader_free(reading->reader);
    reading->reader = NULL;
    if (!reading->store)
        return;
    LL_DELETE(reading->store->readings, reading);
    reading->store = NULL;
}

void store_reading_free(struct store_reading *reading)
{
    if (!reading)
        return;
    leave(reading);
    buffer_done(&reading->json);
    free(reading->volume);
    free(reading);
}

void readings_leave(struct store *store)
{
    while (store->readings)
        leave(store->readings);
}

/* From its first row, on whatever connection there is. */
static int begin(struct store_reading *reading, struct error *error)
{
    struct store_reader *reader = reading->reader ? reading->reader : &reading->store->reader;
    int r = row_cursor_init(&reading->cursor, reader->connection, &reading->query, error);

    buffer_clear(&reading->json);
    return r < 0 ? r : buffer_append_text(&reading->json, "[");
}

/* An enum row_cursor_outcome, or a failure. */
static int read_piece(struct store_reading *reading, uint64_t until_ns, struct error *error)
{
    struct sql_connection *connection = reading->cursor.connection;
    int r = row_cursor_read(&reading->cursor, until_ns, &reading->json);

    if (r == BUFFER_FULL)
        return error_set(error, r, "the answer is too large; ask for fewer rows");
    return r < 0 ? error_set_errno(error, r, "%s", connection->error_text) : r;
}

/* The first piece, or all of it where there can be no second connection. */
static int read_first(struct store_reading *reading, uint64_t until_ns, struct error *error)
{
    int r = begin(reading, error);

    if (r == 0)
        r = read_piece(reading, until_ns, error);
    if (r == ROW_CURSOR_MORE) {
        bool has_reader = open_reader(reading->store, &reading->reader) == 0;

        row_cursor_done(&reading->cursor);
        r = begin(reading, error);
        if (r == 0 && !has_reader)
            return read_piece(reading, UINT64_MAX, error);
        return r < 0 ? r : ROW_CURSOR_MORE;
    }
    row_cursor_done(&reading->cursor); /* the daemon's connection is free again */
    return r;
}

static int finish(struct store_reading *reading, int r, struct buffer *ret_json)
{
    if (r == 0)
        r = buffer_append_text(&reading->json, "]");
    leave(reading);
    if (r < 0)
        return r;
    *ret_json = reading->json;
    reading->json = (struct buffer){0};
    return STORE_READING_DONE;
}

int store_reading_go_on(struct store_reading *reading, uint64_t nanoseconds,
                        struct buffer *ret_json, struct error *error)
{
    uint64_t now_ns = clock_boottime();
    int r;

    if (!reading->store)
        return STORE_READING_LEFT;
    if (now_ns >= reading->late_ns) {
        leave(reading);
        return STORE_READING_LATE;
    }
    r = reading->reader ? read_piece(reading, now_ns + nanoseconds, error)
                        : read_first(reading, now_ns + nanoseconds, error);
    return r == ROW_CURSOR_MORE ? STORE_READING_MORE : finish(reading, r, ret_json);
}
