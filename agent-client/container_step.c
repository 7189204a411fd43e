/* SPDX-License-Identifier: Apache-2.0 */
/* container_step.c - one call of a run: its request, its time, its connection.
 *
 * No call has a timeout at which the agent would drop it: RemoveContainer does not know a
 * half-created container. The connection is closed instead when the time is over.
 */
#include <errno.h>
#include <signal.h>

#include "agent-client/container_messages.h"
#include "agent-client/container_request.h"
#include "agent-client/container_state.h"
#include "lib/clock.h"
#include "lib/result.h"

enum {
    READ_BYTES = 32 * 1024, /* of output in one answer; well below AGENT_REPLY_BYTES */
    REQUEST_BYTES = CONTAINER_VOLUMES * (AGENT_PATH_BYTES + 64) + CONTAINER_PIECE_BYTES,
};

static const char *const step_names[CONTAINER_STEPS] = {
    [CONTAINER_CONNECT] = "connecting",
    [CONTAINER_COPY] = CONTAINER_METHOD_COPY,
    [CONTAINER_CREATE] = CONTAINER_METHOD_CREATE,
    [CONTAINER_START] = CONTAINER_METHOD_START,
    [CONTAINER_READ] = CONTAINER_METHOD_READ_STDOUT,
    [CONTAINER_WAIT] = CONTAINER_METHOD_WAIT,
    [CONTAINER_KILL] = CONTAINER_METHOD_SIGNAL,
    [CONTAINER_REMOVE] = CONTAINER_METHOD_REMOVE,
};

const char *container_step_name(enum container_step step)
{
    return step < CONTAINER_STEPS ? step_names[step] : "?";
}

uint64_t container_least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

const char *container_call_name(const struct container_run *run)
{
    if (run->step == CONTAINER_READ && run->reading_errors)
        return CONTAINER_METHOD_READ_STDERR;
    return container_step_name(run->step);
}

static int append_create(const struct container_run *run, struct buffer *payload)
{
    const struct container_request *request = &run->order.request;
    struct container_spec spec = {
        .container_id = request->container_id,
        .directory = request->directory,
        .program = request->program,
        .arguments = request->arguments,
        .volume_paths = request->volume_paths,
        .storage = request->act == CONTAINER_HOLD ? request->storage : NULL,
        .files_of_others = request->files_of_others,
        .in_mounts_of_agent = request->in_mounts_of_agent,
    };

    return container_append_create(payload, &spec);
}

static int append_request(struct container_run *run, struct buffer *payload)
{
    const char *id = run->order.request.container_id;

    switch (run->step) {
    case CONTAINER_COPY:
        if (run->cleaning && !run->swept)
            return container_append_swept(run->order.directory, run->order.program, payload);
        if (run->cleaning)
            return container_append_emptied(run->order.directory, run->order.program, payload);
        return container_copier_append(&run->copier, payload);
    case CONTAINER_CREATE:
        return append_create(run, payload);
    case CONTAINER_START:
        return container_append_start(payload, id);
    case CONTAINER_READ:
        return container_append_read(payload, id, READ_BYTES);
    case CONTAINER_WAIT:
        return container_append_wait(payload, id);
    case CONTAINER_KILL:
        return container_append_signal(payload, id, SIGKILL);
    case CONTAINER_REMOVE:
        return container_append_remove(payload, id);
    case CONTAINER_CONNECT:
    case CONTAINER_STEPS:
    default:
        return -EINVAL;
    }
}

/* The time for the call under way; 0 if there is none left. */
static uint64_t allowed_time(const struct container_run *run)
{
    uint64_t now = clock_boottime();
    uint64_t end;

    if (run->cleaning || run->order.request.act == CONTAINER_CLEAN_UP)
        return run->order.request.step_ns;
    if (run->step == CONTAINER_READ || run->step == CONTAINER_WAIT)
        end = container_least(run->ends_at, run->program_ends_at);
    else
        end = container_least(run->ends_at, now + run->order.request.step_ns);
    return end > now ? end - now : 0;
}

/* Notes what has to be known even if no answer comes. */
static void note_sent(struct container_run *run)
{
    if (run->step == CONTAINER_CREATE)
        run->presence = PRESENCE_ASKED;
    else if (run->step == CONTAINER_COPY && container_copier_writes(&run->copier))
        run->copying = true;
}

static int run_connect(struct container_run *run, struct error *error)
{
    struct agent_session_options options = {
        .root = run->order.request.root,
        .address = run->order.request.address,
        .listener = run->order.request.listener,
        .request_bytes = REQUEST_BYTES,
    };
    int r;

    if (run->connected)
        return 0;
    r = agent_session_start(&run->session, run->loop, &options, &container_session_handler, error);
    run->connected = r == 0;
    return r;
}

/* A call that could not be made. */
static void run_stuck(struct container_run *run, enum container_kind kind, const char *text)
{
    if (run->cleaning)
        container_clean_lost(run, AGENT_SESSION_LATE, text);
    else
        container_run_fail(run, kind, text);
}

static void run_call(struct container_run *run, const struct buffer *payload, uint64_t allowed)
{
    struct error error = {0};
    int r = run_connect(run, &error);

    if (r < 0) {
        if (!run->cleaning)
            run->step = CONTAINER_CONNECT;
        if (!error.text[0])
            (void)error_set_errno(&error, r, "cannot start");
        run_stuck(run, CONTAINER_UNREACHABLE, error.text);
        return;
    }
    note_sent(run);
    agent_session_allow(&run->session, allowed);
    r = agent_session_call(&run->session, container_call_name(run), payload->data, payload->length);
    if (r < 0) {
        (void)error_set_errno(&error, r, "cannot send the request");
        run_stuck(run, CONTAINER_FAILED, error.text);
    }
}

/* Makes the call of a step, on a new connection if there is none. */
void container_run_step(struct container_run *run, enum container_step step)
{
    struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    struct error error;
    uint64_t allowed;
    int r;

    run->step = step;
    allowed = allowed_time(run);
    r = append_request(run, &payload);
    if (r < 0) {
        (void)error_set_errno(&error, r, "%s",
                              step == CONTAINER_COPY ? "cannot read the program's file"
                                                     : "cannot make the request");
        run_stuck(run, CONTAINER_FAILED, error.text);
    } else if (!allowed) {
        run_stuck(run, CONTAINER_TIMED_OUT, "no time is left");
    } else {
        run_call(run, &payload, allowed);
    }
    buffer_done(&payload);
}

/* ---- container clean ------------------------------------------------------------------------ */

/* What follows each call that removes a container.
 *
 * RemoveContainer kills, too, but does not wait: with cgroup v2 the container's cgroup then stays.
 * So KILL and WAIT come before it.
 */

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
