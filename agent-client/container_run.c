/* SPDX-License-Identifier: Apache-2.0 */
/* container_run.c - the calls of a run one after another, and what may be left in the guest if one
 * fails.
 *
 *     RUN       [COPY…] CREATE START READ… WAIT REMOVE [COPY]
 *     HOLD      the same up to READ, until a line has come
 *     CLEAN_UP  KILL WAIT REMOVE [CREATE KILL WAIT REMOVE] [COPY]
 *
 * After WAIT the agent forgets the process and its output.
 *
 * A run has two halves. A failure in the first settles the reply. The second is `cleaning`: KILL,
 * WAIT, REMOVE and emptying the copied program, as far as there is something to be removed. A
 * failure there is only told as removal_error.
 *
 * All of it is one job in a worker. If that has to be killed, something may be left.
 */
#include "agent-client/container_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/agent_client.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/workers.h"

enum {
    READ_BYTES = 32 * 1024, /* of output in one answer; well below AGENT_REPLY_BYTES */
    REQUEST_BYTES = 2 * CONTAINER_PIECE_BYTES,
    MOST_CLEANING_CALLS = 9, /* CLEAN_UP has so many */
};

/* What is known of the container in the guest. */
enum presence {
    PRESENCE_NONE,
    PRESENCE_ASKED, /* CreateContainer was sent and not answered */
    PRESENCE_MADE,  /* it was answered */
};

/* In the worker. */
struct run {
    struct container_request request;
    struct container_reply reply;
    struct agent_connection connection;

    /* Of the last call. */
    enum container_step step;
    int end;                    /* 0: it was answered; as of agent_ask() */
    struct ttrpc_status status; /* if it was answered */
    struct buffer answer;       /* likewise */
    struct error error;         /* unless it was answered with success */

    bool cleaning;
    enum presence presence;
    bool ended;          /* the program's end was seen */
    bool reading_errors; /* READ: of standard error */
    bool copying;        /* the program may be there, to be emptied in the end */
    bool copied;         /* and no temporary file beside it */

    uint64_t ends_at;         /* total_ns, on clock_boottime() */
    uint64_t program_ends_at; /* program_ns */
    struct buffer output, errors;
};

static const char *const methods[CONTAINER_STEPS] = {
    [CONTAINER_CONNECT] = "connecting",     [CONTAINER_COPY] = "CopyFile",
    [CONTAINER_CREATE] = "CreateContainer", [CONTAINER_START] = "StartContainer",
    [CONTAINER_READ] = "ReadStdout",        [CONTAINER_WAIT] = "WaitProcess",
    [CONTAINER_KILL] = "SignalProcess",     [CONTAINER_REMOVE] = "RemoveContainer",
};

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static const char *call_name(const struct run *run)
{
    if (run->step == CONTAINER_READ && run->reading_errors)
        return "ReadStderr";
    return methods[run->step];
}

/* ---- what an answer means ----
 *
 * kata-agent answers almost every failure with INTERNAL, so its text has to be parsed. The texts
 * are the same from Kata 2.5.0 to 4.1.0 unless noted.
 */

static enum container_kind kind_of(enum container_step step, const struct ttrpc_status *status)
{
    bool first = step == CONTAINER_CREATE || step == CONTAINER_COPY;
    /* Making a cgroup is part of CreateContainer; StartContainer asks it for its memory events. */
    bool makes = step == CONTAINER_CREATE || step == CONTAINER_START;

    switch ((int)agent_outcome_from_status(status->code, status->message)) {
    case AGENT_DONE:
        return CONTAINER_DONE;
    case AGENT_DENIED:
        return CONTAINER_DENIED;
    case AGENT_UNSUPPORTED: /* later on NOT_FOUND is a process or a container */
        return first || status->code == STATUS_UNIMPLEMENTED ? CONTAINER_UNSUPPORTED
                                                             : CONTAINER_FAILED;
    default:
        return makes && strcasestr(status->message, "cgroup") ? CONTAINER_NO_CGROUPS
                                                              : CONTAINER_FAILED;
    }
}

/* The agent did not begin to do what it was asked for. */
static bool is_barred(enum container_kind kind)
{
    return kind == CONTAINER_DENIED || kind == CONTAINER_UNSUPPORTED;
}

/* ---- one call: its request, its time, its connection ----
 *
 * No call has a timeout at which the agent would drop it: RemoveContainer does not know a
 * half-created container. The connection is closed instead when the time is over.
 */

static bool is_first_half(const struct run *run)
{
    return !run->cleaning && run->request.act != CONTAINER_CLEAN_UP;
}

static bool is_program_running(const struct run *run)
{
    return is_first_half(run) && (run->step == CONTAINER_READ || run->step == CONTAINER_WAIT);
}

/* The time for the call; 0 if there is none left. */
static uint64_t allowed_time(const struct run *run, uint64_t now)
{
    uint64_t end = now + run->request.step_ns;

    if (!is_first_half(run))
        return run->request.step_ns;
    end = least(run->ends_at, is_program_running(run) ? run->program_ends_at : end);
    return end > now ? end - now : 0;
}

static enum container_kind fail(struct run *run, enum container_kind kind, const char *text)
{
    return (enum container_kind)error_set(&run->error, (int)kind, "%s: %s", call_name(run), text);
}

/* Sends the request, on a new connection if there is none, and waits for the answer. DONE, or what
 * went wrong, with run->error. */
static enum container_kind call_with(struct run *run, enum container_step step,
                                     const struct buffer *payload)
{
    const uint64_t now = clock_boottime();
    uint64_t allowed_ns;
    struct error error;

    run->step = step;
    run->end = PEER_LATE;
    allowed_ns = allowed_time(run, now);
    if (buffer_error(payload) < 0) {
        (void)error_set_errno(&error, buffer_error(payload), "cannot make the request");
        return fail(run, CONTAINER_FAILED, error.text);
    }
    if (!allowed_ns)
        return fail(run, CONTAINER_TIMED_OUT, "no time is left");
    run->copying |= step == CONTAINER_COPY; /* to be known even if no answer comes */
    run->end = agent_connect(&run->connection, now + allowed_ns, allowed_ns, &error);
    if (run->end == 0) {
        if (step == CONTAINER_CREATE)
            run->presence = PRESENCE_ASKED;
        run->end = agent_ask(&run->connection, call_name(run), payload, &run->status, &run->answer,
                             &error);
    } else if (!run->cleaning) {
        run->step = CONTAINER_CONNECT;
    }
    if (run->end == 0) {
        if (run->status.code != STATUS_OK)
            agent_describe_status(&run->status, call_name(run), &run->error);
        return kind_of(step, &run->status);
    }
    agent_close(&run->connection);
    if (run->end == PEER_LATE && is_program_running(run))
        (void)error_set(&error, 0, "the program has not ended within %g s",
                        (double)least(run->request.program_ns, run->request.total_ns) /
                            (double)NSEC_PER_SEC);
    return fail(run, run->end == PEER_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE,
                error.text);
}

static enum container_kind call(struct run *run, enum container_step step)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    uint32_t number = step == CONTAINER_READ ? READ_BYTES : step == CONTAINER_KILL ? SIGKILL : 0;

    (void)buffer_fail(
        &payload, step == CONTAINER_CREATE
                      ? container_append_create(&payload, &run->request)
                      : container_append_call(&payload, step, run->request.container_id, number));
    return call_with(run, step, &payload);
}

static enum container_kind not_understood(struct run *run)
{
    return fail(run, CONTAINER_UNREACHABLE, "the agent's reply cannot be understood");
}

/* ---- the program's file ----
 *
 * For guests without a shared file system. CopyFile makes the parents of a file. The agent has no
 * call that removes a file, so a file that is not needed any more is replaced by an empty one.
 *
 * The agent writes to a temporary file, and renames it as soon as that has the announced size. Kata
 * before 3.18 continues a temporary file that an earlier copy left, whatever its size. Hence the
 * sweep: one byte beyond the end of any program, with exactly that size announced, makes the agent
 * rename any leftover.
 */

static enum container_kind copy_piece(struct run *run, struct container_copy piece)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);

    (void)buffer_fail(&payload, container_append_copy(&payload, &run->request, &piece));
    return call_with(run, CONTAINER_COPY, &payload);
}

static enum container_kind sweep(struct run *run)
{
    return copy_piece(run, (struct container_copy){0644, CONTAINER_PROGRAM_BYTES + 1,
                                                   CONTAINER_PROGRAM_BYTES, "", 1});
}

static enum container_kind copy(struct run *run)
{
    static char bytes[CONTAINER_PIECE_BYTES];
    const int file = run->request.program_file;
    enum container_kind kind;
    struct stat status;
    struct error error;
    uint64_t size;

    if (fstat(file, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return fail(run, CONTAINER_FAILED, "the program to be copied cannot be read or is empty");
    if (status.st_size > CONTAINER_PROGRAM_BYTES)
        return fail(run, CONTAINER_FAILED, "the program to be copied is too large");
    size = (uint64_t)status.st_size;
    kind = sweep(run);
    if (is_barred(kind))
        run->copying = false;
    for (uint64_t at = 0; kind == CONTAINER_DONE && at < size; at += sizeof(bytes)) {
        const size_t length = (size_t)least(sizeof(bytes), size - at);

        errno = ENODATA;
        if (pread(file, bytes, length, (off_t)at) != (ssize_t)length) {
            (void)error_set_errno(&error, -errno, "cannot read the program's file");
            return fail(run, CONTAINER_FAILED, error.text);
        }
        kind = copy_piece(run, (struct container_copy){0755, size, at, bytes, length});
    }
    run->copied = kind == CONTAINER_DONE;
    return kind;
}

/* ---- the first half ---- */

/* One stream to its end; of a HOLD standard output only until a line has come. Kata up to 3.26
 * answers an error instead of an empty answer at the end, "eof" or "read meet eof". */
static enum container_kind read_stream(struct run *run)
{
    const bool may_hold = run->request.act == CONTAINER_HOLD && !run->reading_errors;
    struct buffer *stream = run->reading_errors ? &run->errors : &run->output;
    char text[64];

    for (bool end = false; !end && !run->reply.held;) {
        enum container_kind kind = call(run, CONTAINER_READ);
        int r;

        if (kind != CONTAINER_DONE && run->end == 0 && run->status.code == STATUS_INTERNAL &&
            strcasestr(run->status.message, "eof"))
            return CONTAINER_DONE;
        if (kind != CONTAINER_DONE)
            return kind;
        r = container_parse_read(buffer_text(&run->answer), run->answer.length, run->reading_errors,
                                 stream, &end);
        (void)snprintf(text, sizeof(text), "the program wrote more than %d bytes",
                       CONTAINER_OUTPUT_BYTES);
        if (r < 0)
            return r == BUFFER_FULL ? fail(run, CONTAINER_FAILED, text) : not_understood(run);
        run->reply.held = may_hold && memchr(buffer_text(&run->output), '\n', run->output.length);
    }
    return CONTAINER_DONE;
}

static enum container_kind run_program(struct run *run)
{
    enum container_kind kind = run->request.copied ? copy(run) : CONTAINER_DONE;

    if (kind == CONTAINER_DONE) {
        kind = call(run, CONTAINER_CREATE);
        /* After a failure that is no refusal the agent may have left something. */
        if (run->end == 0)
            run->presence = is_barred(kind) ? PRESENCE_NONE : PRESENCE_MADE;
    }
    if (kind == CONTAINER_DONE)
        kind = call(run, CONTAINER_START);
    run->program_ends_at = clock_boottime() + run->request.program_ns;
    if (kind == CONTAINER_DONE)
        kind = read_stream(run);
    if (kind != CONTAINER_DONE || run->reply.held)
        return kind;
    run->reading_errors = true;
    kind = read_stream(run);
    if (kind == CONTAINER_DONE)
        kind = call(run, CONTAINER_WAIT);
    if (kind == CONTAINER_DONE &&
        container_parse_wait(buffer_text(&run->answer), run->answer.length,
                             &run->reply.exit_status) < 0)
        kind = not_understood(run);
    run->ended = kind == CONTAINER_DONE;
    return kind;
}

static void settle(struct run *run, enum container_kind kind)
{
    run->reply.kind = kind;
    run->reply.step = run->step;
    if (kind == CONTAINER_DONE)
        return;
    run->reply.error = run->error;
    agent_close(&run->connection);
}

/* ---- removing ---- */

static void leave(struct run *run, const char *text)
{
    run->reply.left = true;
    if (!run->reply.removal_error.text[0])
        (void)error_set(&run->reply.removal_error, 0, "%s", text);
}

/* RemoveContainer kills, too, but does not wait: with cgroup v2 the container's cgroup then stays.
 * So KILL and WAIT come before it, and it is called whatever their result; CLEAN_UP, which may take
 * its time, wants an agent to connect to. */
static enum container_kind remove_container(struct run *run)
{
    enum container_kind kind = CONTAINER_DONE;

    if (!run->ended) {
        kind = call(run, CONTAINER_KILL);
        if (kind == CONTAINER_DONE)
            kind = call(run, CONTAINER_WAIT);
        if (run->step == CONTAINER_CONNECT)
            return kind;
    }
    return call(run, CONTAINER_REMOVE);
}

/* RemoveContainer has answered that there is no such container. */
static bool is_absent(const struct run *run)
{
    const struct ttrpc_status *status = &run->status;

    return run->step == CONTAINER_REMOVE && run->end == 0 &&
           (status->code == STATUS_NOT_FOUND ||
            (status->code != STATUS_OK && (strcasestr(status->message, "Invalid container id") ||
                                           strcasestr(status->message, "InvalidContainerId"))));
}

/* The container is done; its program becomes an empty file. */
static void clean_files(struct run *run)
{
    enum container_kind kind = CONTAINER_DONE;

    run->cleaning = true;
    if (!run->copying)
        return;
    if (!run->copied)
        kind = sweep(run);
    if (kind == CONTAINER_DONE)
        kind = copy_piece(run, (struct container_copy){.mode = 0644});
    if (kind != CONTAINER_DONE)
        leave(run, run->error.text);
}

/* The second half. */
static void clean(struct run *run)
{
    enum container_kind kind;

    run->cleaning = true;
    if (run->presence != PRESENCE_NONE) {
        kind = remove_container(run);
        /* Once more, on a new connection, if the agent and not the way to it has ended the call. */
        if (kind == CONTAINER_UNREACHABLE && run->end != PEER_FOREIGN && run->end != PEER_FULL &&
            run->end != PEER_HINDERED)
            kind = call(run, CONTAINER_REMOVE);
        if (is_absent(run) && run->presence == PRESENCE_ASKED)
            leave(run, "RemoveContainer: CreateContainer was not answered; it may have been cut "
                       "off");
        else if (kind != CONTAINER_DONE && !is_absent(run))
            leave(run, run->error.text);
    }
    clean_files(run);
}

static void clean_up(struct run *run)
{
    const struct container_request *request = &run->request;
    enum container_kind kind = remove_container(run);

    if (is_absent(run) && request->directory && request->program) {
        kind = call(run, CONTAINER_CREATE);
        if (run->end == 0)
            kind = is_barred(kind) ? CONTAINER_DONE : remove_container(run);
    }
    if (kind == CONTAINER_DONE || is_absent(run)) {
        run->step = CONTAINER_REMOVE;
        settle(run, CONTAINER_DONE);
        run->copying = request->copied;
        clean_files(run);
    } else {
        settle(run, kind);
        if (kind != CONTAINER_UNSUPPORTED) /* no such agent ever ran one */
            leave(run, run->error.text);
    }
}

/* ---- the job ---- */

static const struct job_texts texts[] = {
    {offsetof(struct container_request, address), 1},
    {offsetof(struct container_request, listener.sandbox_id), 1},
    {offsetof(struct container_request, container_id), 1},
    {offsetof(struct container_request, directory), 1},
    {offsetof(struct container_request, program), 1},
    {offsetof(struct container_request, arguments), CONTAINER_ARGUMENTS},
    {0, 0},
};

static void run_job(const struct job_input *input, struct buffer *reply)
{
    struct run run = {
        .connection = {.peer = PEER_INIT, .service = AGENT_SERVICE},
        .answer = BUFFER_INIT(AGENT_REPLY_BYTES),
        .output = BUFFER_INIT(CONTAINER_OUTPUT_BYTES),
        .errors = BUFFER_INIT(CONTAINER_ERRORS_BYTES),
    };

    job_read_message(input, texts, &run.request, sizeof(run.request));
    run.request.program_file = input->fds[1];
    run.connection.root = input->fds[0];
    run.connection.address = run.request.address;
    run.connection.listener = &run.request.listener;
    run.ends_at = clock_boottime() + run.request.total_ns;
    if (run.request.act == CONTAINER_CLEAN_UP) {
        clean_up(&run);
    } else {
        settle(&run, run_program(&run));
        if (!run.reply.held)
            clean(&run);
    }
    agent_close(&run.connection);
    run.reply.output_length = run.output.length;
    run.reply.errors_length = run.errors.length;
    (void)buffer_append(reply, &run.reply, sizeof(run.reply));
    (void)buffer_append(reply, buffer_text(&run.output), run.output.length);
    (void)buffer_append(reply, buffer_text(&run.errors), run.errors.length);
    buffer_done(&run.answer);
    buffer_done(&run.output);
    buffer_done(&run.errors);
}

struct container_run {
    struct job job;
    enum container_act act;
    container_done *done;
    void *userdata;
};

static bool take_reply(const void *bytes, size_t length, struct container_reply *reply)
{
    if (!job_take_reply(bytes, length, reply, sizeof(*reply)))
        return false;
    reply->output = (const char *)bytes + sizeof(*reply);
    reply->errors = reply->output + reply->output_length;
    return (unsigned)reply->kind < CONTAINER_KINDS && (unsigned)reply->step < CONTAINER_STEPS &&
           job_is_flag(&reply->held) && job_is_flag(&reply->left) && job_is_error(&reply->error) &&
           job_is_error(&reply->removal_error) && reply->output_length <= CONTAINER_OUTPUT_BYTES &&
           reply->errors_length <= CONTAINER_ERRORS_BYTES &&
           length == sizeof(*reply) + reply->output_length + reply->errors_length;
}

/* The agent's child exits with the errno of execve(2). glibc's execvp(3), which it calls, tries a
 * shell for a file of an unknown format: then the errno says that there is no shell. */
static bool is_exec_failure(const struct container_reply *reply)
{
    const int status = reply->exit_status;

    return reply->kind == CONTAINER_DONE && !reply->held && !reply->output_length &&
           !reply->errors_length && (status == ENOEXEC || status == ENOENT || status == EACCES);
}

/* The owner may free the run in `done`: nothing follows it. A worker that was killed or has died
 * may have created the container. */
static void on_job_done(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct container_run *run = container_of(job, struct container_run, job);
    struct container_reply reply;

    if (end != JOB_ANSWERED || !take_reply(bytes, length, &reply)) {
        reply = (struct container_reply){
            .kind = end == JOB_LATE ? CONTAINER_TIMED_OUT : CONTAINER_UNREACHABLE,
            .left = end != JOB_WAITED || run->act == CONTAINER_CLEAN_UP,
            .output = "",
            .errors = "",
        };
        (void)error_set(&reply.error, 0, "%s: %s", methods[reply.step], job_fault_text(end));
        if (reply.left)
            reply.removal_error = reply.error;
    }
    reply.error.code = (int)reply.kind;
    reply.not_executed = is_exec_failure(&reply);
    run->done(run, &reply, run->userdata);
}

int container_run_new(const struct container_request *request, container_done *done, void *userdata,
                      struct container_run **ret_run)
{
    struct container_run *run;
    struct job *job;
    int r = job_new(sizeof(*run), &(struct job_message){request, sizeof(*request), texts, NULL, 0},
                    (struct job_request){
                        .act = run_job,
                        .fds = {request->root, request->copied ? request->program_file : -1},
                        .allowed_ns = request->total_ns + MOST_CLEANING_CALLS * request->step_ns,
                        .done = on_job_done},
                    &job);

    if (r < 0)
        return r;
    run = *ret_run = container_of(job, struct container_run, job);
    run->act = request->act;
    run->done = done;
    run->userdata = userdata;
    return 0;
}

struct container_run *container_run_free(struct container_run *run)
{
    return job_free(run ? &run->job : NULL);
}
