/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client_test.c - whole calls against a server that misbehaves as each test tells it to.
 *
 * The server lives on the same loop: it accepts, takes the handshake and the request apart with the
 * codecs, and sends its answer in pieces, one for each turn of the loop.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_client.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "tests/unit/scratch.h"

#define LONG_TIME (3600 * NSEC_PER_SEC)

static struct loop loop;
static int root;
static char scratch[SCRATCH_BYTES];

static struct script {
    const char *handshake; /* NULL: none is expected */
    void (*answer)(uint32_t stream);
    size_t piece; /* bytes sent in one turn */
    bool close;   /* once all is sent */
    bool close_at_once;
} script;

static struct {
    int listener, connection;
    struct loop_io accepting, receiving;
    struct loop_timer sending;
    struct buffer input, output;
    bool shaken;
    struct ttrpc_request request;
    uint32_t stream;
    struct buffer payload;
    unsigned requests;
} server;

static struct {
    unsigned calls;
    struct agent_reply reply;
} seen;

static void hang_up(void)
{
    loop_io_stop(&server.receiving);
    loop_timer_stop(&server.sending);
    fd_close(take_fd(&server.connection));
}

static void on_send(struct loop_timer *timer)
{
    size_t piece = server.output.length < script.piece ? server.output.length : script.piece;

    ssize_t sent =
        piece ? send(server.connection, server.output.data, piece, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    (void)timer;
    if (sent < 0 && errno != EAGAIN) {
        hang_up(); /* the client has heard enough */
        return;
    }
    if (sent > 0)
        buffer_consume(&server.output, (size_t)sent);
    if (server.output.length)
        loop_timer_start(&loop, &server.sending, 0, on_send);
    else if (script.close)
        hang_up();
}

static void take_handshake(void)
{
    const char *newline = memchr(buffer_text(&server.input), '\n', server.input.length);

    if (!newline)
        return;
    assert_memory_equal(server.input.data, "CONNECT 1024\n", 13);
    buffer_consume(&server.input, 13);
    server.shaken = true;
    assert_int_equal(buffer_append_text(&server.output, script.handshake), 0);
    loop_timer_start(&loop, &server.sending, 0, on_send);
}

static void take_request(void)
{
    struct ttrpc_frame frame;

    if (ttrpc_next_frame(buffer_text(&server.input), server.input.length, 65536, &frame) !=
        TTRPC_FRAME)
        return;
    assert_int_equal(ttrpc_parse_request(&frame, &server.request, &server.payload), 0);
    server.stream = frame.header.stream;
    server.requests++;
    buffer_consume(&server.input, frame.size);
    if (script.answer)
        script.answer(server.stream);
    loop_timer_start(&loop, &server.sending, 0, on_send);
}

static void on_receive(struct loop_io *io, int events)
{
    char bytes[4096];
    ssize_t count = read(server.connection, bytes, sizeof(bytes));

    (void)io;
    (void)events;
    if (count <= 0) {
        hang_up();
        return;
    }
    assert_int_equal(buffer_append(&server.input, bytes, (size_t)count), 0);
    if (script.handshake && !server.shaken)
        take_handshake();
    else
        take_request();
}

static void on_accept(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
    server.connection = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server.connection >= 0);
    if (script.close_at_once)
        hang_up();
    else
        loop_io_start(&loop, &server.receiving, server.connection, LOOP_READ, on_receive);
}

static int set_up(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)state;
    memset(&script, 0, sizeof(script));
    memset(&server, 0, sizeof(server));
    memset(&seen, 0, sizeof(seen));
    script.piece = SIZE_MAX;
    server.connection = -1;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    root = open(scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/agent.sock", scratch);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server.listener, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(server.listener, 1) < 0 || loop_init(&loop) < 0)
        return -1;
    loop_io_start(&loop, &server.accepting, server.listener, LOOP_READ, on_accept);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hang_up();
    loop_io_stop(&server.accepting);
    fd_close(server.listener);
    fd_close(root);
    buffer_done(&server.input);
    buffer_done(&server.output);
    buffer_done(&server.payload);
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

static void on_done(struct agent_call *call, const struct agent_reply *reply, void *userdata)
{
    assert_ptr_equal(userdata, &seen);
    seen.calls++;
    seen.reply = *reply;
    (void)agent_call_free(call);
    loop_stop(&loop);
}

/* The sandbox's VMM; 0: anybody may listen. */
static pid_t vmm;

static void call_with(const char *address, enum agent_act act, uint64_t deadline_ns)
{
    struct agent_request request = {
        .act = act,
        .root = root,
        .address = address,
        .listener = {.vmm = vmm},
        .volume_path = "/mnt/volume",
        .bytes = 4096,
        .deadline_ns = deadline_ns,
    };
    struct agent_call *call;

    assert_int_equal(agent_call_new(&loop, &request, on_done, &seen, &call), 0);
    assert_int_equal(seen.calls, 0);
    loop_run(&loop);
    assert_int_equal(seen.calls, 1);
}

static void call(enum agent_act act)
{
    call_with(script.handshake ? "hvsock:///agent.sock:1024" : "unix:///agent.sock", act,
              LONG_TIME);
}

static void assert_unreachable(const char *text)
{
    assert_int_equal(seen.reply.outcome, AGENT_UNREACHABLE);
    assert_int_equal(seen.reply.error.code, AGENT_UNREACHABLE);
    if (!strstr(seen.reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", seen.reply.error.text, text);
}

static void reply_with(uint32_t stream, int code, const char *message, const char *payload,
                       size_t length)
{
    struct ttrpc_status status = {.code = code};

    strcpy(status.message, message);
    assert_int_equal(ttrpc_append_response(&server.output, stream, &status, payload, length), 0);
}

static void answer_ok(uint32_t stream)
{
    reply_with(stream, 0, "", NULL, 0);
}

static void answer_stats(uint32_t stream)
{
    reply_with(stream, 0, "", "\x0a\x08\x08\x05\x10\x09\x18\x04\x20\x01", 10);
}

static void answer_refusal(uint32_t stream)
{
    reply_with(stream, STATUS_FAILED_PRECONDITION, "\"dm-0 does not follow\"", NULL, 0);
}

static void answer_unimplemented(uint32_t stream)
{
    reply_with(stream, STATUS_UNIMPLEMENTED, "", NULL, 0);
}

static void answer_stale_first(uint32_t stream)
{
    struct buffer stale = BUFFER_INIT(0);
    struct ttrpc_status status = {.code = STATUS_INTERNAL, .message = "not for you"};

    assert_int_equal(ttrpc_append_response(&stale, stream ^ 2, &status, NULL, 0), 0);
    assert_int_equal(buffer_append(&server.output, stale.data + 5, stale.length - 5), 0);
    assert_int_equal(buffer_append(&server.output, stale.data, stale.length), 0);
    buffer_done(&stale);
    answer_stats(stream);
}

static void answer_foreign_only(uint32_t stream)
{
    reply_with(stream ^ 2, 0, "", NULL, 0);
}

static void answer_oversize(uint32_t stream)
{
    struct ttrpc_header header = {
        .length = AGENT_REPLY_BYTES + 1, .stream = stream, .type = TTRPC_RESPONSE};
    uint8_t bytes[TTRPC_HEADER_BYTES];

    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&server.output, bytes, sizeof(bytes)), 0);
}

static void answer_longest(uint32_t stream)
{
    struct ttrpc_header header = {
        .length = AGENT_REPLY_BYTES, .stream = stream, .type = TTRPC_RESPONSE};
    uint8_t bytes[TTRPC_HEADER_BYTES];
    char *data = calloc(1, AGENT_REPLY_BYTES);

    /* one unknown field (15) that fills the whole message */
    assert_non_null(data);
    memcpy(data, "\x7a\xfc\xff\x03", 4);
    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&server.output, bytes, sizeof(bytes)), 0);
    assert_int_equal(buffer_append(&server.output, data, AGENT_REPLY_BYTES), 0);
    free(data);
}

static void answer_garbage(uint32_t stream)
{
    (void)stream;
    assert_int_equal(buffer_append_text(&server.output, "HTTP/1.1 400 Bad Request\r\n\r\n"), 0);
}

static void answer_endless_garbage(uint32_t stream)
{
    char *data = calloc(1, 9 * 1024 * 1024);

    (void)stream;
    assert_non_null(data);
    assert_int_equal(buffer_append(&server.output, data, 9 * 1024 * 1024), 0);
    script.piece = 64 * 1024;
    free(data);
}

static void answer_bad_message(uint32_t stream)
{
    struct ttrpc_header header = {.length = 2, .stream = stream, .type = TTRPC_RESPONSE};
    uint8_t bytes[TTRPC_HEADER_BYTES];

    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&server.output, bytes, sizeof(bytes)), 0);
    assert_int_equal(buffer_append(&server.output, "\x0a\x7f", 2), 0);
}

static void a_resize_is_sent_and_answered(void **state)
{
    (void)state;
    script.answer = answer_ok;
    call(AGENT_RESIZE);
    assert_int_equal(seen.reply.outcome, AGENT_DONE);
    assert_int_equal(seen.reply.status, 0);
    assert_string_equal(server.request.service, "grpc.AgentService");
    assert_string_equal(server.request.method, "ResizeVolume");
    assert_true(server.request.timeout_ns > 0 && server.request.timeout_ns <= LONG_TIME);
    assert_memory_equal(server.payload.data, "\x0a\x0b/mnt/volume\x10\x80\x20", 16);
    assert_int_equal(server.stream & 1, 1);
}

static void stats_are_read_in_any_pieces(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 24; piece++) {
        script.piece = piece;
        script.answer = answer_stats;
        seen.calls = 0;
        call(AGENT_STATS);
        hang_up();
        assert_int_equal(seen.reply.outcome, AGENT_DONE);
        assert_true(seen.reply.stats.has_bytes);
        assert_int_equal(seen.reply.stats.total, 9);
        assert_int_equal(seen.reply.stats.used, 4);
        assert_int_equal(seen.reply.stats.available, 5);
        assert_false(seen.reply.stats.has_inodes);
    }
}

static void error_text_begins_with_the_status_name(void **state)
{
    (void)state;
    script.answer = answer_refusal;
    call(AGENT_RESIZE);
    assert_int_equal(seen.reply.outcome, AGENT_LAYER);
    assert_int_equal(seen.reply.status, STATUS_FAILED_PRECONDITION);
    assert_string_equal(seen.reply.error.text, "FAILED_PRECONDITION: dm-0 does not follow");
    hang_up();
    seen.calls = 0;
    script.answer = answer_unimplemented;
    call(AGENT_RESIZE);
    assert_int_equal(seen.reply.outcome, AGENT_UNSUPPORTED);
    assert_string_equal(seen.reply.error.text, "UNIMPLEMENTED");
}

static void stale_replies_in_front_are_dropped(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 8; piece += 3) {
        script.piece = piece;
        script.answer = answer_stale_first;
        seen.calls = 0;
        call(AGENT_STATS);
        hang_up();
        assert_int_equal(seen.reply.outcome, AGENT_DONE);
        assert_int_equal(seen.reply.stats.total, 9);
    }
}

static void a_foreign_reply_is_not_an_answer(void **state)
{
    (void)state;
    script.answer = answer_foreign_only;
    script.close = true;
    call(AGENT_RESIZE);
    assert_unreachable("closed the connection without an answer");
}

static void silence_ends_with_the_deadline(void **state)
{
    (void)state;
    call_with("unix:///agent.sock", AGENT_RESIZE, NSEC_PER_SEC / 100);
    assert_unreachable("no answer within 0.01 s");
}

static void lengths_are_checked_before_they_are_waited_for(void **state)
{
    (void)state;
    script.answer = answer_oversize;
    call(AGENT_RESIZE);
    assert_unreachable("too long");
    hang_up();
    seen.calls = 0;
    script.answer = answer_longest;
    call(AGENT_RESIZE);
    assert_int_equal(seen.reply.outcome, AGENT_DONE);
}

static void bad_messages_are_nonsense(void **state)
{
    (void)state;
    script.answer = answer_bad_message;
    call(AGENT_RESIZE);
    assert_unreachable("cannot be understood");
}

static void garbage_has_a_bound(void **state)
{
    (void)state;
    script.answer = answer_endless_garbage;
    call(AGENT_RESIZE);
    assert_unreachable("too much that is no reply");
}

static void the_handshake_may_come_in_pieces(void **state)
{
    (void)state;
    script.handshake = "OK 1073741824\n";
    script.answer = answer_stats;
    script.piece = 1;
    call(AGENT_STATS);
    assert_int_equal(seen.reply.outcome, AGENT_DONE);
    assert_int_equal(seen.reply.stats.total, 9);
    assert_int_equal(server.requests, 1);
}

static void another_protocol_behind_a_handshake_is_found_at_once(void **state)
{
    (void)state;
    script.handshake = "OK 1\n";
    script.answer = answer_garbage;
    call(AGENT_STATS);
    assert_unreachable("does not speak ttrpc");
}

static void a_wrong_handshake_is_refused(void **state)
{
    (void)state;
    script.handshake = "NO\n";
    call(AGENT_STATS);
    assert_unreachable("did not answer OK");
    assert_int_equal(server.requests, 0);
}

static void a_handshake_may_end_in_a_close(void **state)
{
    (void)state;
    script.handshake = "";
    script.close = true;
    call(AGENT_STATS);
    assert_unreachable("nothing listens on that port");
    assert_false(seen.reply.is_foreign);
}

/* Who listens is this process, and not the VMM: it gets neither request nor handshake. */
static void another_process_is_not_asked(void **state)
{
    (void)state;
    vmm = getppid();
    script.close_at_once = true;
    call(AGENT_RESIZE);
    assert_unreachable("neither the sandbox's VMM nor its shim");
    assert_true(seen.reply.is_foreign);
    seen.calls = 0;
    script.handshake = "OK 1073741824\n";
    call(AGENT_RESIZE);
    assert_unreachable("neither the sandbox's VMM nor its shim");
    assert_false(server.shaken);
    assert_int_equal(server.requests, 0);
    vmm = 0;
}

static void failed_connection_is_unreachable(void **state)
{
    (void)state;
    script.close_at_once = true;
    call(AGENT_RESIZE);
    assert_unreachable("");
    seen.calls = 0;
    call_with("unix:///nothing.sock", AGENT_RESIZE, LONG_TIME);
    assert_unreachable("No such file");
    seen.calls = 0;
    call_with("nonsense", AGENT_RESIZE, LONG_TIME);
    assert_unreachable("nonsense");
}

static void an_endless_path_is_not_sent(void **state)
{
    char *path = calloc(1, 3 * AGENT_PATH_BYTES);
    struct agent_request request = {
        .root = root,
        .address = "unix:///agent.sock",
        .volume_path = path,
        .deadline_ns = LONG_TIME,
    };
    struct agent_call *one;

    (void)state;
    assert_non_null(path);
    memset(path, 'a', 3 * AGENT_PATH_BYTES - 1);
    assert_int_equal(agent_call_new(&loop, &request, on_done, &seen, &one), 0);
    loop_run(&loop);
    assert_unreachable("path is too long");
    free(path);
}

static void a_call_can_be_given_up(void **state)
{
    struct agent_request request = {
        .root = root,
        .address = "unix:///agent.sock",
        .volume_path = "/a",
        .deadline_ns = LONG_TIME,
    };
    struct agent_call *one;

    (void)state;
    assert_int_equal(agent_call_new(&loop, &request, on_done, &seen, &one), 0);
    while (!server.requests)
        loop_run_once(&loop);
    assert_null(agent_call_free(one));
    assert_null(agent_call_free(NULL));
    request.address = "nonsense";
    assert_int_equal(agent_call_new(&loop, &request, on_done, &seen, &one), 0);
    assert_null(agent_call_free(one));
    assert_int_equal(seen.calls, 0);
}

static void statuses_have_outcomes(void **state)
{
    static const struct {
        int status;
        const char *message;
        enum agent_outcome outcome;
    } table[] = {
        {0, NULL, AGENT_DONE},
        {12, "resize_volume is not implemented in kata-agent", AGENT_UNSUPPORTED},
        {5, "/grpc.AgentService/ResizeVolume is not supported", AGENT_UNSUPPORTED},
        {3, "/grpc.AgentService/ResizeVolume does not exist", AGENT_UNSUPPORTED},
        {3, "/nope is not a mount point in this guest", AGENT_FAILED},
        {3, NULL, AGENT_FAILED},
        {7, "ResizeVolumeRequest is blocked by policy", AGENT_DENIED},
        {13, "ResizeVolumeRequest: internal error policy check: unexpected eval_query result",
         AGENT_DENIED},
        {13,
         "RemoveContainerRequest: internal error operation '/0' failed at path '/pstate/x': path "
         "is "
         "invalid",
         AGENT_DENIED},
        {13, "Input/output error", AGENT_FAILED},
        {9, "dm-0", AGENT_LAYER},
        {9, AGENT_NOT_GROWABLE_TEXT "it has errors", AGENT_NOT_GROWABLE},
        {9, AGENT_NOT_GROWABLE_TEXT AGENT_SHUT_DOWN_TEXT " after an error", AGENT_SHUT_DOWN},
        {9, AGENT_SHUT_DOWN_TEXT, AGENT_LAYER},
        {9, AGENT_LIMIT_TEXT "at most 1 byte", AGENT_LIMIT},
        {9, NULL, AGENT_LAYER},
        {1, "", AGENT_FAILED},
        {2, "", AGENT_FAILED},
        {4, "", AGENT_FAILED},
        {4, NULL, AGENT_FAILED},
        {4, "the file system is still growing", AGENT_FAILED}, /* an older agent's */
        {4, AGENT_GROWING_TEXT "1 of 2 bytes", AGENT_GROWING},
        {14, AGENT_GROWING_TEXT "1 of 2 bytes", AGENT_FAILED},
        {6, "", AGENT_FAILED},
        {8, "", AGENT_FAILED},
        {10, "", AGENT_FAILED},
        {11, "", AGENT_FAILED},
        {14, "", AGENT_FAILED},
        {14, "the file system is mounted read-only", AGENT_READ_ONLY}, /* as of all versions */
        {14, "the file system is being resized by another", AGENT_FAILED},
        {15, "", AGENT_FAILED},
        {16, "", AGENT_FAILED},
        {-1, "", AGENT_FAILED},
        {99, "", AGENT_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < array_length(table); i++)
        assert_int_equal(agent_outcome_from_status(table[i].status, table[i].message),
                         table[i].outcome);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_resize_is_sent_and_answered),
        TEST(stats_are_read_in_any_pieces),
        TEST(error_text_begins_with_the_status_name),
        TEST(stale_replies_in_front_are_dropped),
        TEST(a_foreign_reply_is_not_an_answer),
        TEST(silence_ends_with_the_deadline),
        TEST(lengths_are_checked_before_they_are_waited_for),
        TEST(bad_messages_are_nonsense),
        TEST(garbage_has_a_bound),
        TEST(the_handshake_may_come_in_pieces),
        TEST(another_protocol_behind_a_handshake_is_found_at_once),
        TEST(a_wrong_handshake_is_refused),
        TEST(a_handshake_may_end_in_a_close),
        TEST(another_process_is_not_asked),
        TEST(failed_connection_is_unreachable),
        TEST(an_endless_path_is_not_sent),
        TEST(a_call_can_be_given_up),
        cmocka_unit_test(statuses_have_outcomes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
