/* SPDX-License-Identifier: Apache-2.0 */
/* container_run.c - which call comes next, and what is left behind if one does not succeed.
 *
 *     RUN       [COPY…] CREATE START READ… WAIT REMOVE [COPY]
 *     CLEAN_UP  KILL WAIT REMOVE [CREATE KILL WAIT REMOVE] [COPY]
 *
 * `step` is the call that is under way. A run has two halves. In the first a call that fails
 * settles the reply and leads to the second, which is `cleaning`: KILL, WAIT, REMOVE and emptying
 * the copied program, as far as there is something to be removed. In the second a failure is only
 * told as removal_error. The last thing done is run_finish(): the owner may free the run from
 * there.
 *
 * RemoveContainer kills, too, but does not wait: with cgroup v2 the container's cgroup then stays.
 *
 * No call is given a time after which the agent would drop it in its middle: a container half
 * created is one that RemoveContainer does not know. The connection is closed instead, when the
 * time is over.
 */
#include "agent-client/container_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_session.h"
#include "agent-client/container_answer.h"
#include "agent-client/container_copy.h"
#include "agent-client/container_messages.h"
#include "agent-client/container_request.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/status.h"

enum {
    READ_BYTES = 32 * 1024, /* of output in one answer; well below AGENT_REPLY_BYTES */
    REQUEST_BYTES = CONTAINER_VOLUMES * (AGENT_PATH_BYTES + 64) + CONTAINER_PIECE_BYTES,
};

/* What is known of the container in the guest. */
enum presence {
    PRESENCE_NONE,
    PRESENCE_ASKED, /* CreateContainer was sent and not answered */
    PRESENCE_MADE,  /* it was answered */
};

struct container_run {
    struct loop *loop;
    struct container_order order;
    container_done *done;
    void *userdata;
    struct loop_timer beginning;
    struct agent_session session;
    bool connected; /* the session has been started */

    enum container_step step;
    bool cleaning;
    enum presence presence;
    bool ended;          /* the program's end was seen */
    bool reading_errors; /* READ: standard error's turn */
    bool created_again;  /* CLEAN_UP */
    bool reconnected;    /* RemoveContainer is on its second connection */

    struct container_copier copier;
    bool copying; /* the program may be there, to be emptied in the end */
    bool swept;   /* and no temporary file beside it */

    uint64_t ends_at;         /* total_ns, on clock_boottime() */
    uint64_t program_ends_at; /* program_ns */

    struct buffer output;
    struct buffer errors;
    struct container_reply reply;
};

static void run_step(struct container_run *run, enum container_step step);

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

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static const char *call_name(const struct container_run *run)
{
    if (run->step == CONTAINER_READ && run->reading_errors)
        return CONTAINER_METHOD_READ_STDERR;
    return container_step_name(run->step);
}

static void describe(const struct container_run *run, struct error *error, enum container_kind kind,
                     const char *text)
{
    (void)error_set(error, (int)kind, "%s: %s", call_name(run), text);
}

static void describe_status(const struct container_run *run, struct error *error,
                            enum container_kind kind, const struct ttrpc_status *status)
{
    char number[16];

    (void)error_set(error, (int)kind, "%s: %s%s%s", call_name(run),
                    ttrpc_code_name(status->code, number), status->message[0] ? ": " : "",
                    status->message);
}

static void run_disconnect(struct container_run *run)
{
    agent_session_done(&run->session);
    run->connected = false;
}

/* The agent's child ends with the errno of execve(2). glibc's execvp(3), which it calls, tries a
 * shell for a file of an unknown format: then it is the shell that is not there. */
static bool is_exec_failure(int exit_status)
{
    return exit_status == ENOEXEC || exit_status == ENOENT || exit_status == EACCES;
}

/* The owner may free the run in here: nothing follows it. */
static void run_finish(struct container_run *run)
{
    run_disconnect(run);
    run->reply.not_executed = run->reply.kind == CONTAINER_DONE && !run->output.length &&
                              !run->errors.length && is_exec_failure(run->reply.exit_status);
    run->reply.output = buffer_text(&run->output);
    run->reply.output_length = run->output.length;
    run->reply.errors = buffer_text(&run->errors);
    run->reply.errors_length = run->errors.length;
    run->done(run, &run->reply, run->userdata);
}

/* The container is dealt with: what else there is to remove. */
static void run_clean_files(struct container_run *run)
{
    run->cleaning = true;
    run->swept = container_copier_is_done(&run->copier);
    if (run->copying)
        run_step(run, CONTAINER_COPY);
    else
        run_finish(run);
}

static void run_clean(struct container_run *run)
{
    run->cleaning = true;
    if (run->presence == PRESENCE_NONE)
        run_clean_files(run);
    else
        run_step(run, run->ended ? CONTAINER_REMOVE : CONTAINER_KILL);
}

/* KILL and WAIT are for the sake of REMOVE, which is called whatever they come to. */
static bool only_prepares(enum container_step step)
{
    return step == CONTAINER_KILL || step == CONTAINER_WAIT;
}

static void run_go_on_removing(struct container_run *run, bool answered)
{
    run_step(run, answered && run->step == CONTAINER_KILL ? CONTAINER_WAIT : CONTAINER_REMOVE);
}

/* The first half of a RUN, or CLEAN_UP altogether, ends here; the error is filled in. */
static void run_settle(struct container_run *run, enum container_kind kind)
{
    run->reply.kind = kind;
    run->reply.step = run->step;
    run->reply.error.code = (int)kind;
    run_disconnect(run);
    if (run->order.request.act == CONTAINER_CLEAN_UP) {
        if (run->reply.left)
            run->reply.removal_error = run->reply.error;
        run_finish(run);
    } else {
        run_clean(run);
    }
}

static void run_fail(struct container_run *run, enum container_kind kind, const char *text)
{
    describe(run, &run->reply.error, kind, text);
    run_settle(run, kind);
}

static void run_leave(struct container_run *run, const struct error *why)
{
    run->reply.left = true;
    if (!run->reply.removal_error.text[0])
        run->reply.removal_error = *why;
}

/* While cleaning there is no answer to the call under way. */
static void clean_lost(struct container_run *run, enum agent_session_end end, const char *text)
{
    struct error error;

    describe(run, &error, end == AGENT_SESSION_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE,
             text);
    run_disconnect(run);
    if (only_prepares(run->step)) {
        run_go_on_removing(run, false);
    } else if (run->step == CONTAINER_REMOVE && end == AGENT_SESSION_BROKEN && !run->reconnected) {
        run->reconnected = true;
        run_step(run, CONTAINER_REMOVE);
    } else if (run->step == CONTAINER_REMOVE) {
        run_leave(run, &error);
        run_clean_files(run);
    } else {
        run_leave(run, &error);
        run_finish(run);
    }
}

static void run_overtime(struct container_run *run)
{
    uint64_t time = least(run->order.request.program_ns, run->order.request.total_ns);
    char text[64];

    (void)snprintf(text, sizeof(text), "the program has not ended within %g s",
                   (double)time / (double)NSEC_PER_SEC);
    run_fail(run, CONTAINER_TIMED_OUT, text);
}

/* There is no answer to the call under way. */
static void run_lost(struct container_run *run, enum agent_session_end end, const char *text)
{
    bool connected = run->connected && run->session.ready;

    if (!connected && run->presence == PRESENCE_ASKED && run->step == CONTAINER_CREATE)
        run->presence = PRESENCE_NONE; /* it was never sent */
    if (run->cleaning) {
        clean_lost(run, end, text);
        return;
    }
    if (!connected)
        run->step = CONTAINER_CONNECT;
    if (run->order.request.act == CONTAINER_CLEAN_UP && only_prepares(run->step)) {
        run_disconnect(run);
        run_go_on_removing(run, false);
        return;
    }
    if (end == AGENT_SESSION_LATE && (run->step == CONTAINER_READ || run->step == CONTAINER_WAIT))
        run_overtime(run);
    else
        run_fail(run, end == AGENT_SESSION_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE,
                 text);
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
        end = least(run->ends_at, run->program_ends_at);
    else
        end = least(run->ends_at, now + run->order.request.step_ns);
    return end > now ? end - now : 0;
}

/* What has to be known even if no answer ever comes. */
static void note_sent(struct container_run *run)
{
    if (run->step == CONTAINER_CREATE)
        run->presence = PRESENCE_ASKED;
    else if (run->step == CONTAINER_COPY && container_copier_writes(&run->copier))
        run->copying = true;
}

static const struct agent_session_handler handler;

static int run_connect(struct container_run *run, struct error *error)
{
    struct agent_session_options options = {
        .root = run->order.request.root,
        .address = run->order.request.address,
        .request_bytes = REQUEST_BYTES,
    };
    int r;

    if (run->connected)
        return 0;
    r = agent_session_start(&run->session, run->loop, &options, &handler, error);
    run->connected = r == 0;
    return r;
}

/* A call that could not be made. */
static void run_stuck(struct container_run *run, enum container_kind kind, const char *text)
{
    if (run->cleaning)
        clean_lost(run, AGENT_SESSION_LATE, text);
    else
        run_fail(run, kind, text);
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
    r = agent_session_call(&run->session, call_name(run), payload->data, payload->length);
    if (r < 0) {
        (void)error_set_errno(&error, r, "cannot send the request");
        run_stuck(run, CONTAINER_FAILED, error.text);
    }
}

/* Makes the call of a step, on a new connection if there is none. */
static void run_step(struct container_run *run, enum container_step step)
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

static void copy_answered(struct container_run *run)
{
    container_copier_answered(&run->copier);
    run_step(run, container_copier_is_done(&run->copier) ? CONTAINER_CREATE : CONTAINER_COPY);
}

static int take_errors(struct container_run *run, const struct buffer *payload, bool *ret_end)
{
    struct buffer bytes = BUFFER_INIT(AGENT_REPLY_BYTES);
    size_t room = run->errors.limit - run->errors.length;
    int r = container_parse_read(buffer_text(payload), payload->length, &bytes);

    if (r == 0) {
        *ret_end = bytes.length == 0;
        r = buffer_append(&run->errors, buffer_text(&bytes),
                          bytes.length < room ? bytes.length : room);
    }
    buffer_done(&bytes);
    return r;
}

static int take_output(struct container_run *run, const struct buffer *payload, bool *ret_end)
{
    size_t before = run->output.length;
    int r = container_parse_read(buffer_text(payload), payload->length, &run->output);

    *ret_end = run->output.length == before;
    return r;
}

/* One stream after the other, each to its end. */
static void read_ended(struct container_run *run)
{
    bool all = run->reading_errors;

    run->reading_errors = true;
    run_step(run, all ? CONTAINER_WAIT : CONTAINER_READ);
}

static void read_answered(struct container_run *run, const struct buffer *payload)
{
    bool end = false;
    char text[64];
    int r = run->reading_errors ? take_errors(run, payload, &end) : take_output(run, payload, &end);

    if (r == -EMSGSIZE) {
        (void)snprintf(text, sizeof(text), "the program wrote more than %d bytes",
                       CONTAINER_OUTPUT_BYTES);
        run_fail(run, CONTAINER_FAILED, text);
    } else if (r < 0) {
        run_fail(run, CONTAINER_UNREACHABLE, "the agent's reply cannot be understood");
    } else if (end) {
        read_ended(run);
    } else {
        run_step(run, CONTAINER_READ);
    }
}

static void wait_answered(struct container_run *run, const struct buffer *payload)
{
    if (container_parse_wait(buffer_text(payload), payload->length, &run->reply.exit_status) < 0) {
        run_fail(run, CONTAINER_UNREACHABLE, "the agent's reply cannot be understood");
        return;
    }
    run->ended = true;
    run->reply.kind = CONTAINER_DONE;
    run->reply.step = CONTAINER_WAIT;
    run_clean(run); /* on the same connection */
}

/* The call of the first half has succeeded. */
static void run_advance(struct container_run *run, const struct buffer *payload)
{
    switch (run->step) {
    case CONTAINER_COPY:
        copy_answered(run);
        break;
    case CONTAINER_CREATE:
        run->presence = PRESENCE_MADE;
        run_step(run, CONTAINER_START);
        break;
    case CONTAINER_START:
        run->program_ends_at = clock_boottime() + run->order.request.program_ns;
        run_step(run, CONTAINER_READ);
        break;
    case CONTAINER_READ:
        read_answered(run, payload);
        break;
    case CONTAINER_WAIT:
        wait_answered(run, payload);
        break;
    case CONTAINER_CONNECT:
    case CONTAINER_KILL:
    case CONTAINER_REMOVE:
    case CONTAINER_STEPS:
    default:
        break; /* not in the first half */
    }
}

/* The agent has refused a call of the first half. */
static void run_refused(struct container_run *run, const struct ttrpc_status *status)
{
    enum container_kind kind = container_kind_of(run->step, status);

    if (run->step == CONTAINER_READ && container_is_end_of_output(status)) {
        read_ended(run);
        return;
    }
    /* Of any other failure the agent may have left something. */
    if (run->step == CONTAINER_CREATE)
        run->presence = container_is_barred(kind) ? PRESENCE_NONE : PRESENCE_MADE;
    if (run->step == CONTAINER_COPY && container_is_barred(kind) &&
        !container_copier_has_written(&run->copier))
        run->copying = false;
    describe_status(run, &run->reply.error, kind, status);
    run_settle(run, kind);
}

/* A call of a RUN's second half was answered. */
static void clean_answered(struct container_run *run, const struct ttrpc_status *status)
{
    bool absent = container_is_absent(status);
    struct error error;

    if (only_prepares(run->step)) {
        run_go_on_removing(run, status->code == STATUS_OK);
        return;
    }
    describe_status(run, &error, container_kind_of(run->step, status), status);
    if (run->step == CONTAINER_REMOVE && absent && run->presence == PRESENCE_ASKED) {
        (void)error_set(&error, CONTAINER_UNREACHABLE,
                        "CreateContainer was not answered; it may have been cut off");
        run_leave(run, &error);
    } else if (status->code != STATUS_OK && !(run->step == CONTAINER_REMOVE && absent)) {
        run_leave(run, &error);
    }
    if (run->step == CONTAINER_REMOVE) {
        run_clean_files(run);
    } else if (!run->swept && status->code == STATUS_OK) {
        run->swept = true;
        run_step(run, CONTAINER_COPY);
    } else {
        run_finish(run);
    }
}

static void clean_up_done(struct container_run *run)
{
    run->reply.left = false;
    run->reply.kind = CONTAINER_DONE;
    run->reply.step = CONTAINER_REMOVE;
    run_clean_files(run);
}

/* A call of CLEAN_UP was answered, other than the one that empties the program. */
static void clean_up_answered(struct container_run *run, const struct ttrpc_status *status)
{
    enum container_kind kind = container_kind_of(run->step, status);
    bool can_create = run->order.request.directory && run->order.request.program;
    bool absent = container_is_absent(status);

    if (only_prepares(run->step)) {
        run_go_on_removing(run, status->code == STATUS_OK);
    } else if (run->step == CONTAINER_CREATE) {
        run->created_again = true;
        if (container_is_barred(kind))
            clean_up_done(run);
        else
            run_step(run, CONTAINER_KILL);
    } else if (absent && can_create && !run->created_again) {
        run_step(run, CONTAINER_CREATE);
    } else if (absent || kind == CONTAINER_DONE) {
        clean_up_done(run);
    } else {
        run->reply.left = kind != CONTAINER_UNSUPPORTED; /* no such agent ever ran one */
        describe_status(run, &run->reply.error, kind, status);
        run_settle(run, kind);
    }
}

static void on_answered(struct agent_session *session, const struct ttrpc_status *status,
                        const struct buffer *payload)
{
    struct container_run *run = container_of(session, struct container_run, session);

    if (run->cleaning)
        clean_answered(run, status);
    else if (run->order.request.act == CONTAINER_CLEAN_UP)
        clean_up_answered(run, status);
    else if (status->code == STATUS_OK)
        run_advance(run, payload);
    else
        run_refused(run, status);
}

static void on_ended(struct agent_session *session, enum agent_session_end end,
                     const struct error *error)
{
    struct container_run *run = container_of(session, struct container_run, session);

    run_lost(run, end, error->text);
}

static const struct agent_session_handler handler = {.answered = on_answered, .ended = on_ended};

static const char *run_prepare(struct container_run *run)
{
    const struct container_request *request = &run->order.request;
    const char *fault = container_order_fault(&run->order);

    run->ends_at = clock_boottime() + request->total_ns;
    if (request->act == CONTAINER_CLEAN_UP) {
        run->reply.left = true;
        run->copying = request->copied;
    } else if (!fault && request->copied) {
        fault = container_copier_open(&run->copier, request->directory, request->program,
                                      request->program_file);
    }
    return fault;
}

/* From the loop, so that whatever happens is never told from within container_run_new(). */
static void on_begin(struct loop_timer *timer)
{
    struct container_run *run = container_of(timer, struct container_run, beginning);
    const char *fault = run_prepare(run);

    if (fault)
        run_fail(run, CONTAINER_FAILED, fault);
    else if (run->order.request.act == CONTAINER_CLEAN_UP)
        run_step(run, CONTAINER_KILL);
    else
        run_step(run, run->order.request.copied ? CONTAINER_COPY : CONTAINER_CREATE);
}

int container_run_new(struct loop *loop, const struct container_request *request,
                      container_done *done, void *userdata, struct container_run **ret_run)
{
    struct container_run *run = calloc(1, sizeof(*run));
    int r = run ? container_order_init(&run->order, request) : -ENOMEM;

    if (r < 0) {
        (void)container_run_free(run);
        return r;
    }
    run->loop = loop;
    run->done = done;
    run->userdata = userdata;
    buffer_init(&run->output, CONTAINER_OUTPUT_BYTES);
    buffer_init(&run->errors, CONTAINER_ERRORS_BYTES);
    loop_timer_start(loop, &run->beginning, 0, on_begin);
    *ret_run = run;
    return 0;
}

struct container_run *container_run_free(struct container_run *run)
{
    if (!run)
        return NULL;
    loop_timer_stop(&run->beginning);
    run_disconnect(run);
    buffer_done(&run->output);
    buffer_done(&run->errors);
    container_order_done(&run->order);
    free(run);
    return NULL;
}
