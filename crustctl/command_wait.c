/* SPDX-License-Identifier: Apache-2.0 */
/* command_wait.c - waits until a volume has a state, for scripts.
 *
 * The daemon's rows are polled. Waiting goes on while the volume is blocked or not known yet, and
 * while the daemon restarts. Only a daemon that is absent at the start is an error at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crustctl/command.h"
#include "crustctl/row.h"
#include "crustctl/states.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "model/state.h"

enum { POLL_MILLISECONDS = 100 };

static void print_reached(struct session *session, const cJSON *row)
{
    if (session->options->json) {
        row_print_json(row, &session->out);
        return;
    }
    buffer_append_format(&session->out, "volume %" PRIu64 ": ", row_number(row, "volume_id", NULL));
    row_state(row, &session->out);
    buffer_append_text(&session->out, "\n");
}

/* The present obstacle: an exit code, with the text to print if time runs out. */
static int check(struct session *session, bool *ret_reached, struct error *why)
{
    const char *name = session->options->operand[0];
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = name};
    cleanup(json_deletep) cJSON *rows = NULL;
    const cJSON *row;
    int result = source_rows(session->source, &query, &rows, why);

    if (result != 0)
        return result == SOURCE_UNREACHABLE ? EXIT_UNREACHABLE : EXIT_FAILED;
    row = rows->child;
    if (!row) {
        (void)error_set(why, 1, "there is no volume \"%s\"", name);
        return EXIT_NOT_FOUND;
    }
    if (row->next)
        return session_refuse_ambiguous(name, rows);
    *ret_reached =
        states_match(session->options->wanted_state, row_text(row, "state"), row_reason(row)) &&
        strcmp(row_text(row, "status"), "removed") != 0;
    if (*ret_reached) {
        print_reached(session, row);
        return EXIT_DONE;
    }
    (void)error_set(why, 1, "volume %" PRIu64 " is %s/%s", row_number(row, "volume_id", NULL),
                    row_text(row, "state"), row_reason(row));
    return state_from_name(row_text(row, "state")) == STATE_BLOCKED &&
                   !*row_text(row, "next_attempt_at")
               ? EXIT_BLOCKED
               : EXIT_NOT_NOW;
}

int command_wait(struct session *session)
{
    const struct timespec pause = {.tv_nsec = POLL_MILLISECONDS * 1000000L};
    const uint64_t seconds = (uint64_t)session->options->timeout_seconds;
    const uint64_t deadline = clock_boottime() + seconds * NSEC_PER_SEC;
    struct error why = {0};
    bool reached = false;
    int code;

    if (!states_is_selector(session->options->wanted_state)) {
        (void)fprintf(stderr, "crustctl: there is no state \"%s\"\n",
                      session->options->wanted_state);
        return EXIT_USAGE;
    }
    source_want_daemon(session->source);
    code = check(session, &reached, &why);
    if (code == EXIT_UNREACHABLE)
        return session_fail(SOURCE_UNREACHABLE, &why);
    while (!reached && code != EXIT_USAGE && clock_boottime() < deadline) {
        (void)nanosleep(&pause, NULL);
        code = check(session, &reached, &why);
    }
    if (reached || code == EXIT_USAGE)
        return code;
    (void)fprintf(stderr, "crustctl: waited %" PRIu64 " s for %s: %s\n", seconds,
                  session->options->wanted_state, why.text);
    return code;
}
