/* SPDX-License-Identifier: Apache-2.0 */
/* reading.h - a query of any size, read in pieces between the daemon's transactions.
 *
 * All pieces together show one state: that of the last commit before the first piece. If there is
 * more than one, a connection of its own holds it in a read transaction, which ends with the last
 * piece or after STORE_READING_SECONDS: until then no checkpoint can shorten the log. A store in
 * memory, or one whose file cannot be opened a second time, is read in a single piece.
 */
#pragma once

#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "store/read.h"

enum { STORE_READING_SECONDS = 10 };

struct store_reading;

/* reader: the daemon's (store_get_reader()). The query's texts are copied. limit: of the JSON, in
 * bytes. STORE_NO_MEMORY. */
int store_reading_new(struct store_reader *reader, const struct store_query *query, size_t limit,
                      struct store_reading **ret_reading);
void store_reading_free(struct store_reading *reading); /* at any time; NULL: nothing */

enum store_reading_result {
    STORE_READING_DONE,
    STORE_READING_MORE, /* there are more pieces */
    STORE_READING_LATE, /* STORE_READING_SECONDS have passed */
    STORE_READING_LEFT, /* the store has left the file whose state this was, or ends */
};

/* Reads for about `nanoseconds`. An enum store_reading_result; with STORE_READING_DONE ret_json,
 * which is empty, takes over `[{…},…]`. Below 0, as store_read_json(). */
int store_reading_go_on(struct store_reading *reading, uint64_t nanoseconds,
                        struct buffer *ret_json, struct error *error);
