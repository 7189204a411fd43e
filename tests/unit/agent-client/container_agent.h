/* SPDX-License-Identifier: Apache-2.0 */
/* container_agent.h - runs of a container against an agent that misbehaves at one call.
 *
 * The agent lives on the same loop and has a container that is there or not, so that a test can say
 * what was left. It writes down every call, with '|' for each new connection.
 */
#pragma once

#include "tests/unit/agent-client/agent_listener.h"

#include <sys/stat.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/container_run.h"
#include "lib/proto.h"
#include "lib/result.h"

#define FIRST_HALF "CreateContainer StartContainer ReadStdout ReadStdout ReadStderr WaitProcess "

enum misdeed {
    REFUSE, /* `code` and `message` */
    HANG,
    CLOSE,
    NONSENSE, /* an answer that is no message */
    KILL,     /* of the worker that asks */
};

static struct script {
    const char *method; /* the call that goes wrong */
    enum misdeed misdeed;
    unsigned times;    /* 0: always */
    unsigned after;    /* so many of these calls go well before */
    bool stale;        /* answers to others in front of every answer */
    bool stale_before; /* but not of the call that goes wrong */
    int shrinks;       /* this file, once a piece of it was copied; 0: none */
    int code;
    const char *message;
    const char *output; /* NULL: `endless` bytes */
    const char *errors;
    size_t answer_bytes; /* of one ReadStdout */
    size_t endless;
    int exit_status;
    bool old;       /* errors at the end of output */
    bool handshake; /* hybrid vsock */
} script;

static struct {
    bool shaken;
    char log[2048];
    unsigned misdeeds, good_deeds;
    uint32_t stream; /* of the call before, on this connection; 0: none */
    bool exists, half, killed;
    size_t output_at, errors_at;
    struct buffer created;           /* the payload of CreateContainer */
    struct buffer temporary, copied; /* the program as CopyFile makes it */
    char copied_paths[512];
    bool emptied;
    char ran[1 << 20]; /* the program when the container was created */
    size_t ran_bytes;
} agent;

static struct {
    unsigned calls;
    struct container_reply reply;
    char output[CONTAINER_OUTPUT_BYTES + 1];
    char errors[CONTAINER_ERRORS_BYTES + 1];
} seen;

static inline void note(const char *text)
{
    size_t length = strlen(agent.log);

    (void)snprintf(agent.log + length, sizeof(agent.log) - length, "%s", text);
}

/* The client may have given up. */
static inline void say(const void *bytes, size_t length)
{
    if (listening.connection >= 0 &&
        send(listening.connection, bytes, length, MSG_NOSIGNAL) != (ssize_t)length)
        assert_int_equal(errno, EPIPE);
}

static inline void answer(uint32_t stream, int code, const char *message,
                          const struct buffer *payload)
{
    struct buffer frame = BUFFER_INIT(0);
    struct ttrpc_status status = {.code = code};

    (void)snprintf(status.message, sizeof(status.message), "%s", message);
    assert_int_equal(ttrpc_append_response(&frame, stream, &status,
                                           payload ? buffer_text(payload) : "",
                                           payload ? payload->length : 0),
                     0);
    say(frame.data, frame.length);
    buffer_done(&frame);
}

static inline void answer_error(uint32_t stream, const char *message)
{
    answer(stream, STATUS_INTERNAL, message, NULL);
}

static inline void on_create(uint32_t stream, const struct buffer *payload)
{
    buffer_clear(&agent.created);
    assert_int_equal(buffer_append(&agent.created, payload->data, payload->length), 0);
    if (agent.half) {
        agent.half = false;
        answer_error(stream, "exec fifo exists");
        return;
    }
    agent.exists = true;
    agent.ran_bytes = agent.copied.length;
    memcpy(agent.ran, buffer_text(&agent.copied), agent.ran_bytes);
    answer(stream, STATUS_OK, "", NULL);
}

static inline void on_remove(uint32_t stream)
{
    if (agent.exists)
        answer(stream, STATUS_OK, "", NULL);
    else
        answer_error(stream, "\"Invalid container id\"");
    agent.exists = false;
}

static inline void on_signal(uint32_t stream)
{
    if (!agent.exists && script.old)
        answer_error(stream, "\"Invalid container id\"");
    else if (!agent.exists)
        answer(stream, STATUS_INVALID_ARGUMENT, "InvalidContainerId", NULL);
    else
        answer(stream, STATUS_OK, "", NULL);
    agent.killed = agent.exists;
}

static inline void answer_read(uint32_t stream, const char *data, size_t length)
{
    Agent__ReadStreamResponse message = AGENT__READ_STREAM_RESPONSE__INIT;
    struct buffer payload = BUFFER_INIT(0);

    if (!length && script.old) {
        answer_error(stream, "\"read meet eof\"");
        return;
    }
    message.data = proto_borrow_text(data);
    message.data.len = length;
    assert_int_equal(proto_append(&payload, &message.base), 0);
    answer(stream, STATUS_OK, "", &payload);
    buffer_done(&payload);
}

static inline void on_read(uint32_t stream, const char *text, size_t *at)
{
    static char endless[32 * 1024 + 1]; /* a NUL at the end */
    size_t left;

    if (!text) {
        left = script.endless < sizeof(endless) - 1 ? script.endless : sizeof(endless) - 1;
        script.endless -= left;
        memset(endless, 'x', sizeof(endless) - 1);
        answer_read(stream, endless, left);
        return;
    }
    left = strlen(text + *at);
    left = left < script.answer_bytes ? left : script.answer_bytes;
    answer_read(stream, text + *at, left);
    *at += left;
}

static inline void on_wait(uint32_t stream)
{
    Agent__WaitProcessResponse message = AGENT__WAIT_PROCESS_RESPONSE__INIT;
    struct buffer payload = BUFFER_INIT(0);

    message.status = script.exit_status;
    assert_int_equal(proto_append(&payload, &message.base), 0);
    answer(stream, STATUS_OK, "", &payload);
    buffer_done(&payload);
}

/* As the agent does: to a temporary file, which is renamed once it has the announced size. Before
 * 3.18 it is not truncated first. */
static inline void copy_program(const Agent__CopyFileRequest *copy)
{
    size_t end = (size_t)copy->offset + copy->data.len;

    assert_int_equal(copy->file_mode & S_IFMT, S_IFREG);
    if (copy->offset == CONTAINER_PROGRAM_BYTES) {
        assert_int_equal(copy->file_size, end);
        buffer_clear(&agent.temporary);
        buffer_clear(&agent.copied);
        return;
    }
    if (copy->offset == 0 && !script.old)
        buffer_clear(&agent.temporary);
    while (agent.temporary.length < end)
        assert_int_equal(buffer_append(&agent.temporary, "", 1), 0);
    if (copy->data.len)
        memcpy(agent.temporary.data + copy->offset, copy->data.data, copy->data.len);
    if (agent.temporary.length == (size_t)copy->file_size) {
        buffer_clear(&agent.copied);
        assert_int_equal(buffer_append(&agent.copied, buffer_text(&agent.temporary), end), 0);
        buffer_clear(&agent.temporary);
        agent.emptied = copy->file_size == 0;
    }
    if (script.shrinks)
        assert_int_equal(ftruncate(script.shrinks, 1), 0);
}

static inline void on_copy(uint32_t stream, const struct buffer *payload)
{
    Agent__CopyFileRequest *copy =
        agent__copy_file_request__unpack(NULL, payload->length, (const uint8_t *)payload->data);
    char path[128];

    assert_non_null(copy);
    (void)snprintf(path, sizeof(path), "%.*s", (int)copy->path.len, (const char *)copy->path.data);
    if (copy->offset == 0) {
        strcat(agent.copied_paths, path);
        strcat(agent.copied_paths, " ");
    }
    if (strstr(path, "/agent"))
        copy_program(copy);
    agent__copy_file_request__free_unpacked(copy, NULL);
    answer(stream, STATUS_OK, "", NULL);
}

static inline void serve(uint32_t stream, const char *method, const struct buffer *payload)
{
    if (!strcmp(method, "CreateContainer"))
        on_create(stream, payload);
    else if (!strcmp(method, "RemoveContainer"))
        on_remove(stream);
    else if (!strcmp(method, "ReadStdout"))
        on_read(stream, script.output, &agent.output_at);
    else if (!strcmp(method, "ReadStderr"))
        on_read(stream, script.errors, &agent.errors_at);
    else if (!strcmp(method, "WaitProcess"))
        on_wait(stream);
    else if (!strcmp(method, "SignalProcess"))
        on_signal(stream);
    else if (!strcmp(method, "CopyFile"))
        on_copy(stream, payload);
    else
        answer(stream, STATUS_OK, "", NULL);
}

static inline void say_stale(uint32_t stream)
{
    struct buffer frame = BUFFER_INIT(0);
    struct ttrpc_status status = {.code = STATUS_INTERNAL, .message = "not for you"};

    assert_int_equal(ttrpc_append_response(&frame, stream ^ 64, &status, NULL, 0), 0);
    say(frame.data, frame.length);
    say(frame.data, frame.length);
    buffer_done(&frame);
}

static inline void misbehave(uint32_t stream)
{
    switch (script.misdeed) {
    case REFUSE:
        answer(stream, script.code, script.message, NULL);
        break;
    case CLOSE:
        hang_up();
        break;
    case NONSENSE:
        answer(stream, STATUS_OK, "", &(struct buffer){.data = (char[]){0x0a, 0x7f}, .length = 2});
        break;
    case KILL:
        kill_client(stream);
        break;
    case HANG:
    default:
        break;
    }
}

static inline bool is_wrong(const char *method)
{
    if (!script.method || strcmp(method, script.method) != 0)
        return false;
    if (agent.good_deeds < script.after) {
        agent.good_deeds++;
        return false;
    }
    return script.times == 0 || agent.misdeeds++ < script.times;
}

static inline bool take_request(void)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_request request;
    struct ttrpc_frame frame;
    uint32_t stream;

    if (ttrpc_next_frame(buffer_text(&listening.input), listening.input.length, TTRPC_DATA_BYTES,
                         &frame) != TTRPC_FRAME)
        return false;
    assert_int_equal(ttrpc_parse_request(&frame, &request, &payload), 0);
    assert_string_equal(request.service, "grpc.AgentService");
    assert_int_equal(request.timeout_ns, 0);
    stream = frame.header.stream;
    assert_true(stream & 1);
    if (agent.stream)
        assert_int_equal(stream, agent.stream + 2);
    agent.stream = stream;
    buffer_consume(&listening.input, frame.size);
    note(request.method);
    note(" ");
    if (script.stale || (script.stale_before && strcmp(request.method, script.method) != 0))
        say_stale(stream);
    if (is_wrong(request.method))
        misbehave(stream);
    else
        serve(stream, request.method, &payload);
    buffer_done(&payload);
    return true;
}

static inline void on_received(void)
{
    if (script.handshake && !agent.shaken && take_connect()) {
        agent.shaken = true;
        say("OK 5\n", 5);
    }
    while (listening.input.length && (!script.handshake || agent.shaken) && take_request())
        ;
}

static inline void on_accepted(void)
{
    agent.shaken = false;
    agent.stream = 0;
    note("|");
}

static inline void reset(void)
{
    hang_up();
    agent.log[0] = agent.copied_paths[0] = '\0';
    agent.misdeeds = agent.good_deeds = 0;
    agent.exists = agent.half = agent.killed = agent.emptied = false;
    agent.output_at = agent.errors_at = 0;
    buffer_clear(&agent.created);
    buffer_clear(&agent.temporary);
    buffer_clear(&agent.copied);
    seen.calls = 0;
    script = (struct script){.output = "{}\n", .errors = "", .answer_bytes = SIZE_MAX};
}

static inline int set_up(void **state)
{
    int r = listen_begin(on_accepted, on_received);

    memset(&agent, 0, sizeof(agent));
    reset();
    return r;
}

static inline int tear_down(void **state)
{
    buffer_done(&agent.created);
    buffer_done(&agent.temporary);
    buffer_done(&agent.copied);
    return listen_end();
}

static inline void on_done(struct container_run *run, const struct container_reply *reply,
                           void *userdata)
{
    assert_ptr_equal(userdata, &seen);
    seen.calls++;
    seen.reply = *reply;
    memcpy(seen.output, reply->output, reply->output_length);
    seen.output[reply->output_length] = '\0';
    memcpy(seen.errors, reply->errors, reply->errors_length);
    seen.errors[reply->errors_length] = '\0';
    (void)container_run_free(run);
    loop_stop(&loop);
}

static inline struct container_request ordinary(void)
{
    return (struct container_request){
        .act = CONTAINER_RUN,
        .root = root,
        .address = script.handshake ? "hvsock:///agent.sock:1024" : "unix:///agent.sock",
        .container_id = "crust-0123456789abcdef",
        .directory = "/run/kata-containers/shared/containers/crust-0123456789abcdef",
        .program = "agent",
        .program_file = -1,
        .arguments = {"--once", "/run/a", "/run/b"},
        .step_ns = LONG_TIME,
        .program_ns = LONG_TIME,
        .total_ns = LONG_TIME,
    };
}

static inline void run_with(const struct container_request *request)
{
    struct container_run *run;

    assert_int_equal(container_run_new(request, on_done, &seen, &run), 0);
    assert_int_equal(seen.calls, 0);
    loop_run(&loop);
    assert_int_equal(seen.calls, 1);
}

static inline void run_one(void)
{
    struct container_request request = ordinary();

    run_with(&request);
}

static inline void run_hurried(void)
{
    struct container_request request = ordinary();

    request.step_ns = request.program_ns = SHORT_TIME;
    run_with(&request);
}

static inline void clean_up_with(bool create)
{
    struct container_request request = ordinary();

    request.act = CONTAINER_CLEAN_UP;
    if (!create)
        request.directory = request.program = NULL;
    run_with(&request);
}

static inline void refuse(const char *method, int code, const char *message)
{
    reset();
    script.method = method;
    script.misdeed = REFUSE;
    script.code = code;
    script.message = message;
}

static inline void go_wrong(const char *method, enum misdeed misdeed)
{
    reset();
    script.method = method;
    script.misdeed = misdeed;
}

static inline void assert_kind(enum container_kind kind, enum container_step step, const char *text)
{
    if (seen.reply.kind != kind || seen.reply.step != step || !strstr(seen.reply.error.text, text))
        fail_msg("kind %d, step %d, \"%s\" is not %d, %d, \"%s\"; calls: %s", seen.reply.kind,
                 seen.reply.step, seen.reply.error.text, kind, step, text, agent.log);
    assert_int_equal(seen.reply.error.code, kind);
}

static inline void assert_clean(void)
{
    assert_false(seen.reply.left);
    assert_string_equal(seen.reply.removal_error.text, "");
    assert_false(agent.exists);
}

static inline void assert_left(const char *text)
{
    assert_true(seen.reply.left);
    if (!strstr(seen.reply.removal_error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", seen.reply.removal_error.text, text);
}

/* The calls that can go wrong while a program is run, and the step that is told then. */
static const struct {
    const char *method;
    enum container_step step;
    const char *before; /* the calls up to it */
} calls[] = {
    {"CreateContainer", CONTAINER_CREATE, ""},
    {"StartContainer", CONTAINER_START, "CreateContainer "},
    {"ReadStdout", CONTAINER_READ, "CreateContainer StartContainer "},
    {"ReadStderr", CONTAINER_READ, "CreateContainer StartContainer ReadStdout ReadStdout "},
    {"WaitProcess", CONTAINER_WAIT,
     "CreateContainer StartContainer ReadStdout ReadStdout ReadStderr "},
};

static inline void assert_calls(size_t number, const char *after)
{
    char expected[1024];

    (void)snprintf(expected, sizeof(expected), "|%s%s %s", calls[number].before,
                   calls[number].method, after);
    assert_string_equal(agent.log, expected);
}

#define KILLED   "|SignalProcess WaitProcess RemoveContainer "
#define UNWAITED "|SignalProcess WaitProcess |RemoveContainer "
#define ABSENT   "|SignalProcess RemoveContainer "

/* A call that goes wrong goes wrong while cleaning up, too. */
static inline bool is_wait(size_t number)
{
    return calls[number].step == CONTAINER_WAIT;
}

/* After the call went wrong; there is nothing to be killed if nothing was created. */
static inline void assert_killed(size_t number)
{
    bool lost = is_wait(number) && script.misdeed != REFUSE;

    assert_calls(number, number == 0 ? ABSENT : lost ? UNWAITED : KILLED);
}

#define AGENT(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
