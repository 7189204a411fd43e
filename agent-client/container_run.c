/* SPDX-License-Identifier: Apache-2.0 */
/* container_run.c - which call comes next, and what may be left in the guest if one fails.
 *
 *     RUN       [COPY…] CREATE START READ… WAIT REMOVE [COPY]
 *     HOLD      the same up to READ, until a line has come
 *     CLEAN_UP  KILL WAIT REMOVE [CREATE KILL WAIT REMOVE] [COPY]
 *
 * `step` is the call that is under way. A run has two halves. In the first a call that fails
 * settles the reply and leads to the second, which is `cleaning`: KILL, WAIT, REMOVE and emptying
 * the copied program, as far as there is something to be removed. In the second a failure is only
 * told as removal_error. The last thing done is run_finish(): the owner may free the run from
 * there.
 */
#include "agent-client/container_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_messages.h"
#include "agent-client/container_request.h"
#include "agent-client/container_state.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/result.h"

void container_describe(const struct container_run *run, struct error *error,
                        enum container_kind kind, const char *text)
{
    (void)error_set(error, (int)kind, "%s: %s", container_call_name(run), text);
}

void container_describe_status(const struct container_run *run, struct error *error,
                               enum container_kind kind, const struct ttrpc_status *status)
{
    char number[16];

    (void)error_set(error, (int)kind, "%s: %s%s%s", container_call_name(run),
                    ttrpc_code_name(status->code, number), status->message[0] ? ": " : "",
                    status->message);
}

void container_run_disconnect(struct container_run *run)
{
    agent_session_done(&run->session);
    run->connected = false;
}

/* The agent's child exits with the errno of execve(2). glibc's execvp(3), which it calls, tries a
 * shell for a file of an unknown format: then the errno says that there is no shell. */
static bool is_exec_failure(int exit_status)
{
    return exit_status == ENOEXEC || exit_status == ENOENT || exit_status == EACCES;
}

/* The owner may free the run in here: nothing follows it. */
void container_run_finish(struct container_run *run)
{
    container_run_disconnect(run);
    run->reply.not_executed = run->reply.kind == CONTAINER_DONE && !run->reply.held &&
                              !run->output.length && !run->errors.length &&
                              is_exec_failure(run->reply.exit_status);
    run->reply.output = buffer_text(&run->output);
    run->reply.output_length = run->output.length;
    run->reply.errors = buffer_text(&run->errors);
    run->reply.errors_length = run->errors.length;
    run->done(run, &run->reply, run->userdata);
}

/* The first half of a RUN, or CLEAN_UP altogether, ends here; the error is filled in. */
void container_run_settle(struct container_run *run, enum container_kind kind)
{
    run->reply.kind = kind;
    run->reply.step = run->step;
    run->reply.error.code = (int)kind;
    container_run_disconnect(run);
    if (run->order.request.act == CONTAINER_CLEAN_UP) {
        if (run->reply.left)
            run->reply.removal_error = run->reply.error;
        container_run_finish(run);
    } else {
        container_run_clean(run);
    }
}

void container_run_fail(struct container_run *run, enum container_kind kind, const char *text)
{
    container_describe(run, &run->reply.error, kind, text);
    container_run_settle(run, kind);
}

static void run_overtime(struct container_run *run)
{
    uint64_t time = container_least(run->order.request.program_ns, run->order.request.total_ns);
    char text[64];

    (void)snprintf(text, sizeof(text), "the program has not ended within %g s",
                   (double)time / (double)NSEC_PER_SEC);
    container_run_fail(run, CONTAINER_TIMED_OUT, text);
}

/* There is no answer to the call under way. */
static void run_lost(struct container_run *run, enum agent_session_end end, const char *text)
{
    bool connected = run->connected && run->session.ready;

    if (!connected && run->presence == PRESENCE_ASKED && run->step == CONTAINER_CREATE)
        run->presence = PRESENCE_NONE; /* it was never sent */
    if (run->cleaning) {
        container_clean_lost(run, end, text);
        return;
    }
    if (!connected)
        run->step = CONTAINER_CONNECT;
    if (run->order.request.act == CONTAINER_CLEAN_UP && container_only_prepares(run->step)) {
        container_run_disconnect(run);
        container_run_go_on_removing(run, false);
        return;
    }
    if (end == AGENT_SESSION_LATE && (run->step == CONTAINER_READ || run->step == CONTAINER_WAIT))
        run_overtime(run);
    else
        container_run_fail(
            run, end == AGENT_SESSION_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE, text);
}

static void copy_answered(struct container_run *run)
{
    container_copier_answered(&run->copier);
    container_run_step(run,
                       container_copier_is_done(&run->copier) ? CONTAINER_CREATE : CONTAINER_COPY);
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
    container_run_step(run, all ? CONTAINER_WAIT : CONTAINER_READ);
}

/* HOLD: the program has said its line, and the container stays. */
static bool is_held(const struct container_run *run)
{
    return run->order.request.act == CONTAINER_HOLD && !run->reading_errors && run->output.length &&
           memchr(buffer_text(&run->output), '\n', run->output.length);
}

static void run_hold(struct container_run *run)
{
    run->reply.kind = CONTAINER_DONE;
    run->reply.step = CONTAINER_READ;
    run->reply.held = true;
    container_run_finish(run);
}

static void read_answered(struct container_run *run, const struct buffer *payload)
{
    bool end = false;
    char text[64];
    int r = run->reading_errors ? take_errors(run, payload, &end) : take_output(run, payload, &end);

    if (r == BUFFER_FULL) {
        (void)snprintf(text, sizeof(text), "the program wrote more than %d bytes",
                       CONTAINER_OUTPUT_BYTES);
        container_run_fail(run, CONTAINER_FAILED, text);
    } else if (r < 0) {
        container_run_fail(run, CONTAINER_UNREACHABLE, "the agent's reply cannot be understood");
    } else if (is_held(run)) {
        run_hold(run);
    } else if (end) {
        read_ended(run);
    } else {
        container_run_step(run, CONTAINER_READ);
    }
}

static void wait_answered(struct container_run *run, const struct buffer *payload)
{
    if (container_parse_wait(buffer_text(payload), payload->length, &run->reply.exit_status) < 0) {
        container_run_fail(run, CONTAINER_UNREACHABLE, "the agent's reply cannot be understood");
        return;
    }
    run->ended = true;
    run->reply.kind = CONTAINER_DONE;
    run->reply.step = CONTAINER_WAIT;
    container_run_clean(run); /* on the same connection */
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
        container_run_step(run, CONTAINER_START);
        break;
    case CONTAINER_START:
        run->program_ends_at = clock_boottime() + run->order.request.program_ns;
        container_run_step(run, CONTAINER_READ);
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
    /* After any other failure the agent may have left something. */
    if (run->step == CONTAINER_CREATE)
        run->presence = container_is_barred(kind) ? PRESENCE_NONE : PRESENCE_MADE;
    if (run->step == CONTAINER_COPY && container_is_barred(kind) &&
        !container_copier_has_written(&run->copier))
        run->copying = false;
    container_describe_status(run, &run->reply.error, kind, status);
    container_run_settle(run, kind);
}

static void on_answered(struct agent_session *session, const struct ttrpc_status *status,
                        const struct buffer *payload)
{
    struct container_run *run = container_of(session, struct container_run, session);

    if (run->cleaning)
        container_clean_answered(run, status);
    else if (run->order.request.act == CONTAINER_CLEAN_UP)
        container_clean_up_answered(run, status);
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

const struct agent_session_handler container_session_handler = {
    .answered = on_answered,
    .ended = on_ended,
};

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

/* From the loop, so that nothing is reported from within container_run_new(). */
static void on_begin(struct loop_timer *timer)
{
    struct container_run *run = container_of(timer, struct container_run, beginning);
    const char *fault = run_prepare(run);

    if (fault)
        container_run_fail(run, CONTAINER_FAILED, fault);
    else if (run->order.request.act == CONTAINER_CLEAN_UP)
        container_run_step(run, CONTAINER_KILL);
    else
        container_run_step(run, run->order.request.copied ? CONTAINER_COPY : CONTAINER_CREATE);
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
    container_run_disconnect(run);
    buffer_done(&run->output);
    buffer_done(&run->errors);
    container_order_done(&run->order);
    free(run);
    return NULL;
}
