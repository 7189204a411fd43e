/* SPDX-License-Identifier: Apache-2.0 */
/* http_rows.h - the audit views as answers, read in pieces. Private to api/.
 *
 * An answer is whole before its first byte is sent: it shows one state of the database, it has a
 * length, and what fails in the midst of it still gets a status of its own. A client that reads
 * slowly keeps memory, of which its listener has a bounded share, and no transaction.
 */
#pragma once

#include "api/http_routes.h"

enum {
    HTTP_HISTORY_ROWS = 10000,   /* the most rows of a history in one answer */
    HTTP_ROWS_PIECE_USEC = 2000, /* the time for one piece, made in one pass of the loop */
};

/* HTTP_ROUTES_ROWS, or HTTP_ROUTES_REPLY with a refusal. -ENOMEM. */
int http_rows_answer(struct reconciler *reconciler, const struct http_request *request,
                     struct http_reply *reply);

/* One more piece. HTTP_ROUTES_ROWS: there are more. HTTP_ROUTES_REPLY: the reply can be sent, and
 * its rows are freed. -ENOMEM. */
int http_rows_go_on(struct http_reply *reply);

/* The reply is no longer wanted. */
void http_rows_end(struct http_reply *reply);
