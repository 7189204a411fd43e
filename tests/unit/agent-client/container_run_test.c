/* SPDX-License-Identifier: Apache-2.0 */
/* container_run_test.c - whole runs against an agent that misbehaves at one call.
 *
 * The agent lives on the same loop and has a container that is there or not, so that a test can say
 * what was left. It writes down every call, with '|' for each new connection.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/container_run.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proto.h"
#include "lib/status.h"
#include "tests/unit/scratch.h"

#define LONG_TIME  (3600 * NSEC_PER_SEC)
#define SHORT_TIME (30 * NSEC_PER_MSEC)

#define FIRST_HALF "CreateContainer StartContainer ReadStdout ReadStdout ReadStderr WaitProcess "

static struct loop loop;
static int root;
static char scratch[SCRATCH_BYTES];

enum misdeed {
    REFUSE, /* `code` and `message` */
    HANG,
    CLOSE,
    NONSENSE, /* an answer that is no message */
    STALE,    /* answers to others in front of its own */
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
    bool half;      /* CreateContainer leaves what RemoveContainer does not know */
} script;

static struct {
    int listener, connection;
    struct loop_io accepting, receiving;
    struct buffer input;
    bool shaken;
    char log[2048];
    unsigned misdeeds, good_deeds;
    uint32_t stream; /* of the call before, on this connection; 0: none */
    bool exists, half, killed;
    size_t output_at, errors_at;
    struct buffer created;           /* the payload of CreateContainer */
    struct buffer temporary, copied; /* the program as CopyFile makes it */
    char copied_paths[512];
    bool swept, emptied;
    char ran[1 << 20]; /* the program when the container was created */
    size_t ran_bytes;
} agent;

static struct {
    unsigned calls;
    struct container_reply reply;
    char output[CONTAINER_OUTPUT_BYTES + 1];
    char errors[CONTAINER_ERRORS_BYTES + 1];
} seen;

static void note(const char *text)
{
    size_t length = strlen(agent.log);

    (void)snprintf(agent.log + length, sizeof(agent.log) - length, "%s", text);
}

static void hang_up(void)
{
    loop_io_stop(&agent.receiving);
    fd_close(take_fd(&agent.connection));
    buffer_clear(&agent.input);
}

static void say(const void *bytes, size_t length)
{
    assert_int_equal(send(agent.connection, bytes, length, MSG_NOSIGNAL), length);
}

static void answer(uint32_t stream, int code, const char *message, const struct buffer *payload)
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

static void answer_error(uint32_t stream, const char *message)
{
    answer(stream, STATUS_INTERNAL, message, NULL);
}

static void on_create(uint32_t stream, const struct buffer *payload)
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

static void on_remove(uint32_t stream)
{
    if (agent.exists)
        answer(stream, STATUS_OK, "", NULL);
    else
        answer_error(stream, "\"Invalid container id\"");
    agent.exists = false;
}

static void on_signal(uint32_t stream)
{
    if (!agent.exists && script.old)
        answer_error(stream, "\"Invalid container id\"");
    else if (!agent.exists)
        answer(stream, STATUS_INVALID_ARGUMENT, "InvalidContainerId", NULL);
    else
        answer(stream, STATUS_OK, "", NULL);
    agent.killed = agent.exists;
}

static void answer_read(uint32_t stream, const char *data, size_t length)
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

static void on_read(uint32_t stream, const char *text, size_t *at)
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

static void on_wait(uint32_t stream)
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
static void copy_program(const Agent__CopyFileRequest *copy)
{
    size_t end = (size_t)copy->offset + copy->data.len;

    assert_int_equal(copy->file_mode & S_IFMT, S_IFREG);
    if (copy->offset == CONTAINER_PROGRAM_BYTES) {
        assert_int_equal(copy->file_size, end);
        buffer_clear(&agent.temporary);
        buffer_clear(&agent.copied);
        agent.swept = true;
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

static void on_copy(uint32_t stream, const struct buffer *payload)
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

static void serve(uint32_t stream, const char *method, const struct buffer *payload)
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

static void say_stale(uint32_t stream)
{
    struct buffer frame = BUFFER_INIT(0);
    struct ttrpc_status status = {.code = STATUS_INTERNAL, .message = "not for you"};

    assert_int_equal(ttrpc_append_response(&frame, stream ^ 64, &status, NULL, 0), 0);
    say(frame.data, frame.length);
    say(frame.data, frame.length);
    buffer_done(&frame);
}

static void misbehave(uint32_t stream, const char *method, const struct buffer *payload)
{
    if (!strcmp(method, "CreateContainer") && script.half)
        agent.half = true;
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
    case STALE:
        say_stale(stream);
        serve(stream, method, payload);
        break;
    case HANG:
    default:
        break;
    }
}

static bool is_wrong(const char *method)
{
    if (!script.method || strcmp(method, script.method) != 0)
        return false;
    if (agent.good_deeds < script.after) {
        agent.good_deeds++;
        return false;
    }
    return script.times == 0 || agent.misdeeds++ < script.times;
}

static bool take_request(void)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_request request;
    struct ttrpc_frame frame;
    uint32_t stream;

    if (ttrpc_next_frame(buffer_text(&agent.input), agent.input.length, TTRPC_DATA_BYTES, &frame) !=
        TTRPC_FRAME)
        return false;
    assert_int_equal(ttrpc_parse_request(&frame, &request, &payload), 0);
    assert_string_equal(request.service, "grpc.AgentService");
    assert_int_equal(request.timeout_ns, 0);
    stream = frame.header.stream;
    assert_true(stream & 1);
    if (agent.stream)
        assert_int_equal(stream, agent.stream + 2);
    agent.stream = stream;
    buffer_consume(&agent.input, frame.size);
    note(request.method);
    note(" ");
    if (script.stale || (script.stale_before && strcmp(request.method, script.method) != 0))
        say_stale(stream);
    if (is_wrong(request.method))
        misbehave(stream, request.method, &payload);
    else
        serve(stream, request.method, &payload);
    buffer_done(&payload);
    return true;
}

static void take_handshake(void)
{
    if (!memchr(buffer_text(&agent.input), '\n', agent.input.length))
        return;
    assert_memory_equal(agent.input.data, "CONNECT 1024\n", 13);
    buffer_consume(&agent.input, 13);
    agent.shaken = true;
    say("OK 5\n", 5);
}

static void on_receive(struct loop_io *io, int events)
{
    static char bytes[256 * 1024];
    ssize_t count = read(agent.connection, bytes, sizeof(bytes));

    (void)io;
    (void)events;
    if (count <= 0) {
        hang_up();
        return;
    }
    assert_int_equal(buffer_append(&agent.input, bytes, (size_t)count), 0);
    if (script.handshake && !agent.shaken)
        take_handshake();
    while (agent.input.length && (!script.handshake || agent.shaken) && take_request())
        ;
}

static void on_accept(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
    hang_up();
    agent.connection = accept4(agent.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(agent.connection >= 0);
    agent.shaken = false;
    agent.stream = 0;
    note("|");
    loop_io_start(&loop, &agent.receiving, agent.connection, LOOP_READ, on_receive);
}

static void reset(void)
{
    hang_up();
    agent.log[0] = agent.copied_paths[0] = '\0';
    agent.misdeeds = agent.good_deeds = 0;
    agent.exists = agent.half = agent.killed = agent.swept = agent.emptied = false;
    agent.output_at = agent.errors_at = 0;
    buffer_clear(&agent.created);
    buffer_clear(&agent.temporary);
    buffer_clear(&agent.copied);
    seen.calls = 0;
    script = (struct script){.output = "{}\n", .errors = "", .answer_bytes = SIZE_MAX};
}

static int set_up(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)state;
    memset(&agent, 0, sizeof(agent));
    agent.connection = -1;
    reset();
    if (scratch_directory_make(scratch) < 0)
        return -1;
    root = open(scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/agent.sock", scratch);
    agent.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(agent.listener, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(agent.listener, 4) < 0 || loop_init(&loop) < 0)
        return -1;
    loop_io_start(&loop, &agent.accepting, agent.listener, LOOP_READ, on_accept);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hang_up();
    loop_io_stop(&agent.accepting);
    fd_close(agent.listener);
    fd_close(root);
    buffer_done(&agent.input);
    buffer_done(&agent.created);
    buffer_done(&agent.temporary);
    buffer_done(&agent.copied);
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

static void on_done(struct container_run *run, const struct container_reply *reply, void *userdata)
{
    assert_ptr_equal(userdata, &seen);
    seen.calls++;
    seen.reply = *reply;
    memcpy(seen.output, reply->output, reply->output_length + 1);
    memcpy(seen.errors, reply->errors, reply->errors_length + 1);
    (void)container_run_free(run);
    loop_stop(&loop);
}

static const char *const arguments[] = {"--once", "/vol/0", "/vol/1", NULL};
static const char *const volume_paths[] = {"/run/a", "/run/b", NULL};

static struct container_request ordinary(void)
{
    return (struct container_request){
        .act = CONTAINER_RUN,
        .root = root,
        .address = script.handshake ? "hvsock:///agent.sock:1024" : "unix:///agent.sock",
        .container_id = "crust-0123456789abcdef",
        .directory = "/run/kata-containers/shared/containers/crust-0123456789abcdef",
        .program = "agent",
        .program_file = -1,
        .arguments = arguments,
        .volume_paths = volume_paths,
        .step_ns = LONG_TIME,
        .program_ns = LONG_TIME,
        .total_ns = LONG_TIME,
    };
}

static void run_with(const struct container_request *request)
{
    struct container_run *run;

    assert_int_equal(container_run_new(&loop, request, on_done, &seen, &run), 0);
    assert_int_equal(seen.calls, 0);
    loop_run(&loop);
    assert_int_equal(seen.calls, 1);
}

static void run_one(void)
{
    struct container_request request = ordinary();

    run_with(&request);
}

static void run_hurried(void)
{
    struct container_request request = ordinary();

    request.step_ns = request.program_ns = SHORT_TIME;
    run_with(&request);
}

static void clean_up_with(bool create)
{
    struct container_request request = ordinary();

    request.act = CONTAINER_CLEAN_UP;
    if (!create)
        request.directory = request.program = NULL;
    run_with(&request);
}

static void refuse(const char *method, int code, const char *message)
{
    reset();
    script.method = method;
    script.misdeed = REFUSE;
    script.code = code;
    script.message = message;
}

static void go_wrong(const char *method, enum misdeed misdeed)
{
    reset();
    script.method = method;
    script.misdeed = misdeed;
}

static void assert_kind(enum container_kind kind, enum container_step step, const char *text)
{
    if (seen.reply.kind != kind || seen.reply.step != step || !strstr(seen.reply.error.text, text))
        fail_msg("kind %d, step %d, \"%s\" is not %d, %d, \"%s\"; calls: %s", seen.reply.kind,
                 seen.reply.step, seen.reply.error.text, kind, step, text, agent.log);
    assert_int_equal(seen.reply.error.code, kind);
}

static void assert_clean(void)
{
    assert_false(seen.reply.left);
    assert_string_equal(seen.reply.removal_error.text, "");
    assert_false(agent.exists);
}

static void assert_left(const char *text)
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

static void assert_calls(size_t number, const char *after)
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
static bool is_wait(size_t number)
{
    return calls[number].step == CONTAINER_WAIT;
}

/* After the call went wrong; there is nothing to be killed if nothing was created. */
static void assert_killed(size_t number)
{
    bool lost = is_wait(number) && script.misdeed != REFUSE;

    assert_calls(number, number == 0 ? ABSENT : lost ? UNWAITED : KILLED);
}

static void program_runs_on_one_connection(void **state)
{
    (void)state;
    script.output = "{\"version\":1}\n";
    script.errors = "a word\n";
    script.exit_status = 1;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer StartContainer ReadStdout ReadStdout "
                                   "ReadStderr ReadStderr WaitProcess RemoveContainer ");
    assert_string_equal(seen.output, script.output);
    assert_string_equal(seen.errors, script.errors);
    assert_int_equal(seen.reply.exit_status, 1);
    assert_false(agent.killed);
}

static void output_comes_in_any_pieces(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 6; bytes += 2) {
        reset();
        script.output = "a longer line of output\n";
        script.answer_bytes = bytes;
        script.old = bytes == 3;
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_string_equal(seen.output, "a longer line of output\n");
    }
}

static void old_agents_end_output_with_an_error(void **state)
{
    (void)state;
    script.old = true;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_string_equal(agent.log, "|" FIRST_HALF "RemoveContainer ");
    assert_string_equal(seen.output, "{}\n");
}

static void hidden_output_is_empty(void **state)
{
    (void)state;
    script.output = "";
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.output_length, 0);
    assert_clean();
}

static void program_of_another_architecture_is_told(void **state)
{
    static const int statuses[] = {ENOEXEC, ENOENT, EACCES};

    (void)state;
    for (size_t i = 0; i < array_length(statuses); i++) {
        reset();
        script.output = "";
        script.exit_status = statuses[i];
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_true(seen.reply.not_executed);
        reset();
        script.output = "";
        script.errors = "usage\n"; /* the program's own words */
        script.exit_status = statuses[i];
        run_one();
        assert_false(seen.reply.not_executed);
    }
    reset();
    script.output = "";
    script.exit_status = 1;
    run_one();
    assert_false(seen.reply.not_executed);
    reset();
    script.exit_status = ENOENT;
    run_one();
    assert_false(seen.reply.not_executed);
}

static void output_has_a_bound(void **state)
{
    (void)state;
    script.output = NULL;
    script.endless = CONTAINER_OUTPUT_BYTES;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.output_length, CONTAINER_OUTPUT_BYTES);
    reset();
    script.output = NULL;
    script.endless = CONTAINER_OUTPUT_BYTES + 1;
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_READ, "wrote more than");
    assert_true(agent.killed);
    assert_clean();
}

static void standard_error_is_cut(void **state)
{
    static char errors[3 * CONTAINER_ERRORS_BYTES];

    (void)state;
    memset(errors, 'e', sizeof(errors) - 1);
    script.errors = errors;
    script.answer_bytes = 1000;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.errors_length, CONTAINER_ERRORS_BYTES);
    assert_string_equal(seen.output, "{}\n");
}

static void stale_replies_are_dropped_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        go_wrong(calls[i].method, STALE);
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
    }
}

static void stale_replies_to_one_call_are_not_held_against_the_next(void **state)
{
    (void)state;
    go_wrong("RemoveContainer", HANG);
    script.stale = true;
    run_hurried();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("no reply to this call");
    go_wrong("RemoveContainer", HANG);
    script.stale_before = true;
    run_hurried();
    assert_left("no answer within 0.03 s");
    assert_null(strstr(seen.reply.removal_error.text, "no reply to this call"));
}

static void denial_is_told_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        refuse(calls[i].method, STATUS_PERMISSION_DENIED, "\"XRequest is blocked by policy: eof\"");
        run_one();
        assert_kind(CONTAINER_DENIED, calls[i].step, "blocked by policy");
        assert_clean();
        assert_calls(i, i ? KILLED : "");
        refuse(calls[i].method, STATUS_INTERNAL, "internal error policy check: no rule");
        run_one();
        assert_kind(CONTAINER_DENIED, calls[i].step, calls[i].method);
    }
}

static void failure_is_cleaned_up_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        refuse(calls[i].method, STATUS_INTERNAL, "\"ENOENT: No such file or directory\"");
        run_one();
        assert_kind(CONTAINER_FAILED, calls[i].step, "INTERNAL: ENOENT: No such file");
        assert_clean();
        assert_killed(i);
    }
}

static void hang_is_cleaned_up_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        bool runs = calls[i].step == CONTAINER_READ || calls[i].step == CONTAINER_WAIT;

        go_wrong(calls[i].method, HANG);
        run_hurried();
        assert_kind(CONTAINER_TIMED_OUT, calls[i].step,
                    runs ? "the program has not ended within 0.03 s" : "no answer within 0.0");
        assert_killed(i);
        if (i)
            assert_clean();
    }
}

static void agent_that_closes_is_asked_again_to_remove(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        go_wrong(calls[i].method, CLOSE);
        run_one();
        assert_kind(CONTAINER_UNREACHABLE, calls[i].step, "closed the connection");
        assert_killed(i);
        if (i)
            assert_clean();
    }
}

static void nonsense_is_no_answer(void **state)
{
    (void)state;
    for (size_t i = 2; i < array_length(calls); i++) {
        go_wrong(calls[i].method, NONSENSE);
        run_one();
        assert_kind(CONTAINER_UNREACHABLE, calls[i].step, "cannot be understood");
        assert_clean();
    }
}

static void creation_without_an_answer_may_have_left_something(void **state)
{
    (void)state;
    go_wrong("CreateContainer", CLOSE);
    run_one();
    assert_left("CreateContainer was not answered");
    go_wrong("CreateContainer", HANG);
    agent.exists = true; /* it was made all the same */
    run_hurried();
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CREATE, "no answer");
    assert_clean();
}

static void agents_without_containers_are_told(void **state)
{
    (void)state;
    refuse("CreateContainer", STATUS_UNIMPLEMENTED, "");
    run_one();
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_CREATE, "UNIMPLEMENTED");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer ");
    refuse("CreateContainer", STATUS_INVALID_ARGUMENT, "/grpc.AgentService/X does not exist");
    run_one();
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_CREATE, "does not exist");
    refuse("ReadStdout", STATUS_NOT_FOUND, "InvalidExecId");
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_READ, "InvalidExecId");
    assert_clean();
}

static void guest_without_cgroups_is_told(void **state)
{
    (void)state;
    refuse("CreateContainer", STATUS_INTERNAL,
           "\"Create cgroupfs manager\n\nCaused by:\n    0: Get paths and mounts\"");
    run_one();
    assert_kind(CONTAINER_NO_CGROUPS, CONTAINER_CREATE, "cgroupfs manager");
    assert_clean();
    refuse("WaitProcess", STATUS_INTERNAL, "cgroup");
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_WAIT, "cgroup");
}

static void removal_that_fails_is_told_beside_the_result(void **state)
{
    (void)state;
    refuse("RemoveContainer", STATUS_INTERNAL, "destroy cgroups");
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_string_equal(seen.output, "{}\n");
    assert_left("RemoveContainer: INTERNAL: destroy cgroups");
    go_wrong("RemoveContainer", HANG);
    run_hurried();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("RemoveContainer: no answer within");
    go_wrong("RemoveContainer", CLOSE);
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("closed the connection");
    assert_string_equal(agent.log, "|" FIRST_HALF "RemoveContainer |RemoveContainer ");
}

static void removal_is_tried_on_a_second_connection(void **state)
{
    (void)state;
    go_wrong("RemoveContainer", CLOSE);
    script.times = 1;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
}

static void kill_that_fails_does_not_keep_from_removing(void **state)
{
    static const enum misdeed misdeeds[] = {REFUSE, HANG, CLOSE};

    (void)state;
    for (size_t i = 0; i < array_length(misdeeds); i++) {
        struct container_request request;

        go_wrong("SignalProcess", misdeeds[i]);
        script.code = STATUS_NOT_FOUND;
        script.message = "InitProcessNotFound";
        script.output = NULL;
        script.endless = CONTAINER_OUTPUT_BYTES + 1;
        request = ordinary();
        request.step_ns = 3 * SHORT_TIME;
        run_with(&request);
        assert_kind(CONTAINER_FAILED, CONTAINER_READ, "wrote more");
        assert_clean();
    }
}

static void whole_run_has_a_deadline(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.total_ns = SHORT_TIME;
    go_wrong("StartContainer", HANG);
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_START, "no answer");
    assert_clean();
    reset();
    request.total_ns = 0;
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CREATE, "no time is left");
    assert_string_equal(agent.log, "");
    assert_clean();
}

static void hypervisor_socket_is_asked_for_the_port(void **state)
{
    (void)state;
    script.handshake = true;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
    refuse("StartContainer", STATUS_INTERNAL, "no");
    script.handshake = true;
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_START, "no");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer StartContainer " KILLED);
}

static void nobody_there_leaves_nothing(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.address = "unix:///nothing.sock";
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "connecting: cannot connect");
    assert_clean();
    request.address = "nonsense";
    seen.calls = 0;
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "nonsense");
    assert_clean();
}

static void port_that_never_answers_leaves_nothing(void **state)
{
    struct container_request request;

    (void)state;
    script.handshake = true;
    request = ordinary();
    request.step_ns = SHORT_TIME;
    agent.shaken = true;
    loop_io_stop(&agent.accepting); /* it connects, and nobody says OK */
    run_with(&request);
    loop_io_start(&loop, &agent.accepting, agent.listener, LOOP_READ, on_accept);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CONNECT, "no answer within");
    assert_clean();
}

static void run_can_be_given_up_at_any_time(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 24; turns++) {
        struct container_request request;
        struct container_run *run;

        reset();
        seen.calls = 0;
        script.misdeed = HANG; /* so that it is not done before */
        script.method = "RemoveContainer";
        request = ordinary();
        assert_int_equal(container_run_new(&loop, &request, on_done, &seen, &run), 0);
        for (unsigned i = 0; i < turns && !strstr(agent.log, "Remove"); i++)
            loop_run_once(&loop);
        run = container_run_free(run);
        assert_null(run);
        assert_int_equal(seen.calls, 0);
        hang_up();
    }
}

static void leftovers_are_removed(void **state)
{
    (void)state;
    agent.exists = true;
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_true(agent.killed);
    assert_string_equal(agent.log, KILLED);
}

static void leftover_that_is_not_there_is_success(void **state)
{
    (void)state;
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT);
    refuse("RemoveContainer", STATUS_NOT_FOUND, "");
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
}

static void half_a_container_is_created_again_to_be_removed(void **state)
{
    (void)state;
    agent.half = true;
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_false(agent.half);
    assert_string_equal(agent.log, ABSENT "CreateContainer SignalProcess RemoveContainer ");
    reset();
    clean_up_with(true); /* there was none: the one that is created goes again */
    assert_clean();
    assert_string_equal(agent.log,
                        ABSENT "CreateContainer SignalProcess WaitProcess RemoveContainer ");
}

static void old_agents_have_another_word_for_absent(void **state)
{
    (void)state;
    script.old = true;
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT);
}

static void clean_up_removes_whatever_killing_comes_to(void **state)
{
    static const char *const methods[] = {"SignalProcess", "WaitProcess"};
    static const enum misdeed misdeeds[] = {HANG, CLOSE, NONSENSE};

    (void)state;
    for (size_t i = 0; i < array_length(methods) * array_length(misdeeds); i++) {
        struct container_request request;

        go_wrong(methods[i % 2], misdeeds[i / 2]);
        agent.exists = true;
        request = ordinary();
        request.act = CONTAINER_CLEAN_UP;
        request.step_ns = SHORT_TIME;
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
        assert_clean();
    }
}

static void clean_up_without_an_agent_is_told(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.act = CONTAINER_CLEAN_UP;
    request.address = "unix:///nothing.sock";
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "cannot connect");
    assert_left("cannot connect");
}

static void clean_up_that_fails_leaves_it_to_the_next(void **state)
{
    (void)state;
    refuse("RemoveContainer", STATUS_INTERNAL, "destroy cgroups");
    clean_up_with(true);
    assert_kind(CONTAINER_FAILED, CONTAINER_REMOVE, "destroy cgroups");
    assert_left("destroy cgroups");
    refuse("RemoveContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    clean_up_with(true);
    assert_kind(CONTAINER_DENIED, CONTAINER_REMOVE, "blocked by policy");
    assert_left("blocked by policy");
    go_wrong("CreateContainer", CLOSE);
    clean_up_with(true);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CREATE, "closed");
    assert_left("closed");
    refuse("CreateContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT "CreateContainer ");
    refuse("RemoveContainer", STATUS_UNIMPLEMENTED, "");
    clean_up_with(true);
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_REMOVE, "UNIMPLEMENTED");
    assert_false(seen.reply.left);
}

static int make_program(size_t bytes)
{
    char path[SCRATCH_BYTES + 16];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/program", scratch);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes; i++) {
        char byte = (char)(i * 7 / 5);

        if (i % 4099 == 0 || i + 1 == bytes)
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
    }
    return fd;
}

static void assert_copied(int fd, size_t bytes)
{
    char *expected = malloc(bytes);

    assert_non_null(expected);
    assert_int_equal(pread(fd, expected, bytes, 0), bytes);
    assert_int_equal(agent.ran_bytes, bytes);
    assert_memory_equal(agent.ran, expected, bytes);
    free(expected);
}

static struct container_request copying(int fd)
{
    struct container_request request = ordinary();

    request.directory = "/d";
    request.copied = true;
    request.program_file = fd;
    return request;
}

static void program_is_copied_and_emptied(void **state)
{
    static const size_t sizes[] = {1, 262143, 262144, 262145, 700000};

    (void)state;
    for (size_t i = 0; i < array_length(sizes); i++) {
        int fd = make_program(sizes[i]);
        struct container_request request;

        reset();
        request = copying(fd);
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
        assert_copied(fd, sizes[i]);
        assert_true(agent.emptied);
        assert_string_equal(agent.copied_paths, "/d/proc/empty /d/sys/empty /d/dev/empty "
                                                "/d/vol/empty /d/agent /d/agent ");
        assert_null(strchr(agent.log + 1, '|'));
        assert_string_equal(strstr(agent.log, "Remove"), "RemoveContainer CopyFile ");
        fd_close(fd);
    }
}

static void copy_that_fails_creates_nothing(void **state)
{
    int fd = make_program(600000);
    struct container_request request = copying(fd);

    (void)state;
    refuse("CopyFile", STATUS_PERMISSION_DENIED, "CopyFileRequest is blocked by policy");
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_COPY, "CopyFile: PERMISSION_DENIED");
    assert_clean();
    assert_string_equal(agent.log, "|CopyFile ");
    refuse("CopyFile", STATUS_PERMISSION_DENIED, "blocked by policy");
    script.after = 4; /* the mount points; the sweep is refused */
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_COPY, "blocked");
    assert_clean();
    assert_string_equal(agent.log, "|CopyFile CopyFile CopyFile CopyFile CopyFile ");
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.after = 5; /* nor a piece, but the sweep was there */
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_true(agent.emptied);
    refuse("CopyFile", STATUS_PERMISSION_DENIED, "blocked by policy");
    script.after = 5;
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_COPY, "blocked");
    assert_true(agent.emptied);
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.after = 6; /* the sweep and a piece */
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_clean();
    assert_true(agent.emptied);
    go_wrong("CopyFile", HANG);
    request.step_ns = SHORT_TIME;
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_COPY, "CopyFile: no answer");
    assert_clean();
    refuse("CreateContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    request.step_ns = LONG_TIME;
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_CREATE, "blocked");
    assert_clean();
    assert_true(agent.emptied);
    fd_close(fd);
}

static void program_that_cannot_be_copied_is_told(void **state)
{
    int fd = make_program(1);
    struct container_request request = copying(fd);

    (void)state;
    assert_int_equal(ftruncate(fd, 0), 0);
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "is empty");
    assert_int_equal(ftruncate(fd, (off_t)CONTAINER_PROGRAM_BYTES + 1), 0);
    reset();
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "too large");
    reset();
    request.program_file = root;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "cannot be read");
    assert_clean();
    assert_string_equal(agent.log, "");
    fd_close(fd);
}

/* What a copy that was cut off has left goes into no program. */
static void leftovers_of_a_copy_are_swept(void **state)
{
    static const size_t sizes[] = {1, 300000, 400000};
    static char leftover[400000];
    int fd = make_program(300000);

    (void)state;
    memset(leftover, 'L', sizeof(leftover));
    for (size_t i = 0; i < 2 * array_length(sizes); i++) {
        struct container_request request;

        reset();
        script.old = i % 2;
        assert_int_equal(buffer_append(&agent.temporary, leftover, sizes[i / 2]), 0);
        request = copying(fd);
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
        assert_copied(fd, 300000);
        assert_true(agent.emptied);
        assert_int_equal(agent.temporary.length, 0);
    }
    fd_close(fd);
}

static void copy_that_is_cut_off_leaves_no_temporary_file(void **state)
{
    int fd = make_program(600000);
    struct container_request request;

    (void)state;
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.old = true;
    script.after = 6;
    script.times = 1;
    request = copying(fd);
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_clean();
    assert_int_equal(agent.temporary.length, 0);
    assert_int_equal(agent.copied.length, 0);
    fd_close(fd);
}

static void program_that_becomes_shorter_is_not_run(void **state)
{
    int fd = make_program(600000);
    struct container_request request = copying(fd);

    (void)state;
    script.shrinks = fd;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "cannot read the program's file");
    assert_clean();
    assert_true(agent.emptied);
    fd_close(fd);
}

static void clean_up_empties_the_program(void **state)
{
    struct container_request request = copying(-1);

    (void)state;
    request.act = CONTAINER_CLEAN_UP;
    agent.exists = true;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_true(agent.emptied);
    assert_string_equal(agent.log, KILLED "CopyFile CopyFile ");
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    agent.exists = true;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_left("CopyFile: INTERNAL: ENOSPC");
    assert_string_equal(agent.log, KILLED "CopyFile ");
}

static void assert_fault(const struct container_request *request, const char *text)
{
    reset();
    run_with(request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, text);
    assert_string_equal(agent.log, "");
}

static void bad_requests_are_not_sent(void **state)
{
    static const char *many[CONTAINER_ARGUMENTS + 2];
    struct container_request request = ordinary();

    (void)state;
    for (size_t i = 0; i < array_length(many) - 1; i++)
        many[i] = "/a";
    request.container_id = "../../etc";
    assert_fault(&request, "id");
    request.container_id = "-a";
    assert_fault(&request, "id");
    request = ordinary();
    request.directory = "relative";
    assert_fault(&request, "directory");
    request = ordinary();
    request.program = "a/b";
    assert_fault(&request, "name");
    request.program = "..";
    assert_fault(&request, "name");
    request = ordinary();
    request.volume_paths = many;
    assert_fault(&request, "too many");
    request = ordinary();
    request.arguments = many;
    assert_fault(&request, "too many arguments");
    request = ordinary();
    request.volume_paths = (const char *const[]){"vol", NULL};
    assert_fault(&request, "not absolute");
    request = ordinary();
    request.step_ns = 0;
    assert_fault(&request, "no time");
}

static void longest_request_is_sent(void **state)
{
    static char path[4096];
    static const char *paths[CONTAINER_VOLUMES + 1];
    struct container_request request = ordinary();

    (void)state;
    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    for (size_t i = 0; i < CONTAINER_VOLUMES; i++)
        paths[i] = path;
    request.volume_paths = paths;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_true(agent.created.length > CONTAINER_VOLUMES * sizeof(path));
}

static void steps_have_names(void **state)
{
    (void)state;
    for (int step = 0; step < CONTAINER_STEPS; step++)
        assert_true(strlen(container_step_name((enum container_step)step)) > 1);
    assert_string_equal(container_step_name(CONTAINER_STEPS), "?");
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(program_runs_on_one_connection),
        test(output_comes_in_any_pieces),
        test(old_agents_end_output_with_an_error),
        test(hidden_output_is_empty),
        test(program_of_another_architecture_is_told),
        test(output_has_a_bound),
        test(standard_error_is_cut),
        test(stale_replies_are_dropped_at_each_call),
        test(stale_replies_to_one_call_are_not_held_against_the_next),
        test(denial_is_told_at_each_call),
        test(failure_is_cleaned_up_at_each_call),
        test(hang_is_cleaned_up_at_each_call),
        test(agent_that_closes_is_asked_again_to_remove),
        test(nonsense_is_no_answer),
        test(creation_without_an_answer_may_have_left_something),
        test(agents_without_containers_are_told),
        test(guest_without_cgroups_is_told),
        test(removal_that_fails_is_told_beside_the_result),
        test(removal_is_tried_on_a_second_connection),
        test(kill_that_fails_does_not_keep_from_removing),
        test(whole_run_has_a_deadline),
        test(hypervisor_socket_is_asked_for_the_port),
        test(nobody_there_leaves_nothing),
        test(port_that_never_answers_leaves_nothing),
        test(run_can_be_given_up_at_any_time),
        test(leftovers_are_removed),
        test(leftover_that_is_not_there_is_success),
        test(half_a_container_is_created_again_to_be_removed),
        test(old_agents_have_another_word_for_absent),
        test(clean_up_removes_whatever_killing_comes_to),
        test(clean_up_without_an_agent_is_told),
        test(clean_up_that_fails_leaves_it_to_the_next),
        test(program_is_copied_and_emptied),
        test(copy_that_fails_creates_nothing),
        test(program_that_cannot_be_copied_is_told),
        test(leftovers_of_a_copy_are_swept),
        test(copy_that_is_cut_off_leaves_no_temporary_file),
        test(program_that_becomes_shorter_is_not_run),
        test(clean_up_empties_the_program),
        test(bad_requests_are_not_sent),
        test(longest_request_is_sent),
        test(steps_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
