/* SPDX-License-Identifier: Apache-2.0 */
/* http_rows.c - the audit views are sent exactly as the store formats them.
 *
 * The history views can have a million rows; an answer has at most the newest HTTP_HISTORY_ROWS of
 * them. A client that needs all of them can read the database, which costs the daemon nothing.
 */
#include "api/http_rows.h"

#include <errno.h>
#include <string.h>

#include "lib/clock.h"
#include "store/reading.h"

static int read_argument(const struct http_argument *argument, struct store_query *query)
{
    if (strcmp(argument->name, "id") == 0)
        return http_routes_read_number(argument->value, &query->id);
    if (strcmp(argument->name, "after") == 0)
        return http_routes_read_number(argument->value, &query->after);
    if (strcmp(argument->name, "last") == 0)
        return http_routes_read_number(argument->value, &query->last);
    if (strcmp(argument->name, "live") == 0)
        return http_routes_read_flag(argument->value, &query->live);
    if (strcmp(argument->name, "volume") == 0) {
        query->volume = argument->value;
        return 0;
    }
    return -EINVAL;
}

static bool is_history(enum store_view view)
{
    return view == STORE_VIEW_RESIZES || view == STORE_VIEW_CLEANUPS ||
           view == STORE_VIEW_JOURNAL || view == STORE_VIEW_DRIVES;
}

int http_rows_answer(struct reconciler *reconciler, const struct http_request *request,
                     struct http_reply *reply)
{
    struct store_query query = {.view = STORE_VIEWS};
    int result = store_view_from_name(request->path + strlen("/v1/"), &query.view);

    if (result < 0)
        return http_routes_refuse(reply, 500, "INTERNAL", "store_failed", "no such view");
    for (unsigned i = 0; i < request->arguments; i++)
        if (read_argument(&request->argument[i], &query) < 0)
            return http_routes_refuse_argument(reply, request->argument[i].name);
    if (is_history(query.view) && (query.last == 0 || query.last > HTTP_HISTORY_ROWS))
        query.last = HTTP_HISTORY_ROWS;
    result =
        store_reading_new(reconciler_reader(reconciler), &query, reply->body.limit, &reply->rows);
    return result < 0 ? result : (int)HTTP_ROUTES_ROWS;
}

int http_rows_go_on(struct http_reply *reply)
{
    struct error error = {0};
    const int result = store_reading_go_on(
        reply->rows, HTTP_ROWS_PIECE_USEC * (NSEC_PER_MSEC / 1000), &reply->body, &error);

    if (result == STORE_READING_MORE)
        return HTTP_ROUTES_ROWS;
    http_rows_end(reply);
    if (result == STORE_READING_LATE)
        return http_routes_refuse_code(reply, STATUS_DEADLINE_EXCEEDED,
                                       "the rows could not be read in time: ask for fewer "
                                       "(?last=, ?after=, ?live=1) or try again later");
    if (result == STORE_READING_LEFT)
        return http_routes_refuse_code(reply, STATUS_UNAVAILABLE,
                                       "the database was left while its rows were read: try again");
    return http_routes_finish(reply, result, "\n", &error);
}

void http_rows_end(struct http_reply *reply)
{
    store_reading_free(reply->rows);
    reply->rows = NULL;
}
