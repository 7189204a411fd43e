/* SPDX-License-Identifier: Apache-2.0 */
/* container_clean.c - what follows each call that removes a container.
 *
 * RemoveContainer kills, too, but does not wait: with cgroup v2 the container's cgroup then stays.
 * So KILL and WAIT come before it.
 */
#include "agent-client/container_answer.h"
#include "agent-client/container_state.h"
#include "lib/status.h"

/* The container is done; removes what else there is. */
static void container_run_clean_files(struct container_run *run)
{
    run->cleaning = true;
    run->swept = container_copier_is_done(&run->copier);
    if (run->copying)
        container_run_step(run, CONTAINER_COPY);
    else
        container_run_finish(run);
}

void container_run_clean(struct container_run *run)
{
    run->cleaning = true;
    if (run->presence == PRESENCE_NONE)
        container_run_clean_files(run);
    else
        container_run_step(run, run->ended ? CONTAINER_REMOVE : CONTAINER_KILL);
}

/* KILL and WAIT only prepare REMOVE, which is called whatever their result. */
bool container_only_prepares(enum container_step step)
{
    return step == CONTAINER_KILL || step == CONTAINER_WAIT;
}

void container_run_go_on_removing(struct container_run *run, bool answered)
{
    container_run_step(run,
                       answered && run->step == CONTAINER_KILL ? CONTAINER_WAIT : CONTAINER_REMOVE);
}

static void run_leave(struct container_run *run, const struct error *why)
{
    run->reply.left = true;
    if (!run->reply.removal_error.text[0])
        run->reply.removal_error = *why;
}

/* No answer to the call under way while cleaning up. */
void container_clean_lost(struct container_run *run, enum agent_session_end end, const char *text)
{
    struct error error;

    container_describe(
        run, &error, end == AGENT_SESSION_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE, text);
    container_run_disconnect(run);
    if (container_only_prepares(run->step)) {
        container_run_go_on_removing(run, false);
    } else if (run->step == CONTAINER_REMOVE && end == AGENT_SESSION_BROKEN && !run->reconnected) {
        run->reconnected = true;
        container_run_step(run, CONTAINER_REMOVE);
    } else if (run->step == CONTAINER_REMOVE) {
        run_leave(run, &error);
        container_run_clean_files(run);
    } else {
        run_leave(run, &error);
        container_run_finish(run);
    }
}

/* A call of a RUN's second half was answered. */
void container_clean_answered(struct container_run *run, const struct ttrpc_status *status)
{
    bool absent = container_is_absent(status);
    struct error error;

    if (container_only_prepares(run->step)) {
        container_run_go_on_removing(run, status->code == STATUS_OK);
        return;
    }
    container_describe_status(run, &error, container_kind_of(run->step, status), status);
    if (run->step == CONTAINER_REMOVE && absent && run->presence == PRESENCE_ASKED) {
        (void)error_set(&error, CONTAINER_UNREACHABLE,
                        "CreateContainer was not answered; it may have been cut off");
        run_leave(run, &error);
    } else if (status->code != STATUS_OK && !(run->step == CONTAINER_REMOVE && absent)) {
        run_leave(run, &error);
    }
    if (run->step == CONTAINER_REMOVE) {
        container_run_clean_files(run);
    } else if (!run->swept && status->code == STATUS_OK) {
        run->swept = true;
        container_run_step(run, CONTAINER_COPY);
    } else {
        container_run_finish(run);
    }
}

static void clean_up_done(struct container_run *run)
{
    run->reply.left = false;
    run->reply.kind = CONTAINER_DONE;
    run->reply.step = CONTAINER_REMOVE;
    container_run_clean_files(run);
}

/* A call of CLEAN_UP was answered, other than the one that empties the program. */
void container_clean_up_answered(struct container_run *run, const struct ttrpc_status *status)
{
    enum container_kind kind = container_kind_of(run->step, status);
    bool can_create = run->order.request.directory && run->order.request.program;
    bool absent = container_is_absent(status);

    if (container_only_prepares(run->step)) {
        container_run_go_on_removing(run, status->code == STATUS_OK);
    } else if (run->step == CONTAINER_CREATE) {
        run->created_again = true;
        if (container_is_barred(kind))
            clean_up_done(run);
        else
            container_run_step(run, CONTAINER_KILL);
    } else if (absent && can_create && !run->created_again) {
        container_run_step(run, CONTAINER_CREATE);
    } else if (absent || kind == CONTAINER_DONE) {
        clean_up_done(run);
    } else {
        run->reply.left = kind != CONTAINER_UNSUPPORTED; /* no such agent ever ran one */
        container_describe_status(run, &run->reply.error, kind, status);
        container_run_settle(run, kind);
    }
}
