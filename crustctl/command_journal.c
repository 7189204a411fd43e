/* SPDX-License-Identifier: Apache-2.0 */
/* command_journal.c - the journal, and with -f its new lines as they come.
 *
 * Following asks for the rows after the last one seen. That needs no open connection, also works on
 * the database, and continues when the daemon is restarted.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "crustctl/command.h"
#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { DEFAULT_LINES = 50, FOLLOW_MILLISECONDS = 200 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_interrupt(void)
{
    const struct sigaction action = {.sa_handler = on_interrupt};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* Followed JSON is one object per line: an array would never end. */
static void print_rows(struct session *session, const cJSON *rows, bool as_lines)
{
    const cJSON *row;

    if (session->options->json && !as_lines) {
        row_print_json(rows, &session->out);
        return;
    }
    cJSON_ArrayForEach(row, rows)
    {
        if (session->options->json)
            row_print_json(row, &session->out);
        else
            row_print_journal(row, session->table_width, &session->out);
    }
}

static void remember_last(const cJSON *rows, struct store_query *query)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        const int64_t sequence = (int64_t)row_number(row, "seq", NULL);

        if (sequence > query->after)
            query->after = sequence;
    }
}

static int print_journal(struct session *session, struct store_query *query, bool follow,
                         struct error *error)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    int result = source_rows(session->source, query, &rows, error);

    if (result != 0)
        return result;
    print_rows(session, rows, follow);
    remember_last(rows, query);
    return follow ? session_flush(session) : 0;
}

int command_journal(struct session *session)
{
    const struct timespec pause = {.tv_nsec = FOLLOW_MILLISECONDS * 1000000L};
    const bool follow = session->options->given & OPTION_FOLLOW;
    struct store_query query = {
        .view = STORE_VIEW_JOURNAL,
        .last = session->options->given & OPTION_LINES ? session->options->lines : DEFAULT_LINES,
    };
    struct error error = {0};
    int result;

    if (follow)
        catch_interrupt();
    result = print_journal(session, &query, follow, &error);
    query.last = 0;
    while (result == 0 && follow && !interrupted) {
        (void)nanosleep(&pause, NULL);
        result = print_journal(session, &query, follow, &error);
    }
    return result == 0 || interrupted ? EXIT_DONE : session_fail(result, &error);
}
