/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client_test.c - whole calls of kata-agent's two, and each answer that they may get. */
#include "tests/unit/agent-client/fake_agent.h"

#include "tests/unit/agent-client/agent_job.h"

static struct agent_reply reply;

static void act(const struct job_input *input, struct buffer *ret_reply)
{
    struct agent_request request;
    struct agent_reply answer;

    read_request(input, &request);
    agent_call_run(&request, input->deadline_ns, &answer);
    (void)buffer_append(ret_reply, &answer, sizeof(answer));
}

static void call_with(const char *address, const char *volume, bool resizes)
{
    struct agent_request request = {
        .resizes = resizes,
        .root = root,
        .address = address,
        .listener = {.vmm = vmm},
        .volume = volume,
        .bytes = 4096,
        .allowed_ns = LONG_TIME,
    };

    hang_up();
    reply = run_in_worker(&loop, &request, act);
}

static void call(bool resizes)
{
    call_with(script.handshake ? "hvsock:///agent.sock:1024" : "unix:///agent.sock", "/mnt/volume",
              resizes);
}

static void assert_unreachable(const char *text)
{
    assert_int_equal(reply.outcome, AGENT_UNREACHABLE);
    if (!strstr(reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", reply.error.text, text);
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

static void answer_foreign_only(uint32_t stream)
{
    reply_with(stream ^ 2, 0, "", NULL, 0);
}

/* A frame whose header announces so much, and that has less or more. */
static void answer_frame(uint32_t stream, uint32_t announced, const void *data, size_t length)
{
    struct ttrpc_header header = {.length = announced, .stream = stream, .type = TTRPC_RESPONSE};
    uint8_t bytes[TTRPC_HEADER_BYTES];

    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&server.output, bytes, sizeof(bytes)), 0);
    assert_int_equal(buffer_append(&server.output, data, length), 0);
}

static void answer_oversize(uint32_t stream)
{
    answer_frame(stream, AGENT_REPLY_BYTES + 1, "", 0);
}

static void answer_longest(uint32_t stream)
{
    /* one unknown field (15) that fills the whole message */
    static const char data[AGENT_REPLY_BYTES] = "\x7a\xfc\xff\x03";

    answer_frame(stream, AGENT_REPLY_BYTES, data, sizeof(data));
}

static void answer_bad_message(uint32_t stream)
{
    answer_frame(stream, 2, "\x0a\x7f", 2);
}

static void answer_garbage(uint32_t stream)
{
    assert_int_equal(buffer_append_text(&server.output, "HTTP/1.1 400 Bad Request\r\n\r\n"), 0);
}

static void answer_endless_garbage(uint32_t stream)
{
    static const char data[9 * 1024 * 1024];

    assert_int_equal(buffer_append(&server.output, data, sizeof(data)), 0);
    script.piece = 64 * 1024;
}

static void a_resize_is_sent_and_answered(void **state)
{
    script.answer = answer_unimplemented;
    call(true);
    assert_int_equal(reply.outcome, AGENT_UNSUPPORTED);
    assert_string_equal(reply.error.text, "UNIMPLEMENTED");
    assert_string_equal(server.request.service, "grpc.AgentService");
    assert_string_equal(server.request.method, "ResizeVolume");
    assert_true(server.request.timeout_ns > 0 && server.request.timeout_ns <= LONG_TIME);
    assert_memory_equal(server.payload.data, "\x0a\x0b/mnt/volume\x10\x80\x20", 16);
    assert_int_equal(server.stream & 1, 1);
}

static void error_text_begins_with_the_status_name(void **state)
{
    script.answer = answer_refusal;
    call(true);
    assert_int_equal(reply.outcome, AGENT_LAYER);
    assert_string_equal(reply.error.text, "FAILED_PRECONDITION: dm-0 does not follow");
}

static void wrong_answers_are_refused(void **state)
{
    static const struct {
        const char *handshake;
        void (*answer)(uint32_t stream);
        bool close;
        const char *text;
    } rows[] = {
        {NULL, answer_foreign_only, true, "closed the connection without an answer"},
        {NULL, answer_oversize, false, "too long"},
        {NULL, answer_bad_message, false, "cannot be understood"},
        {NULL, answer_endless_garbage, false, "too much that is no reply"},
        {"OK 1\n", answer_garbage, false, "does not speak ttrpc"},
        {"NO\n", NULL, false, "did not answer OK"},
        {"", NULL, true, "nothing listens on that port"},
    };

    for (size_t i = 0; i < array_length(rows); i++) {
        assert_int_equal(tear_down(state) | set_up(state), 0);
        script.handshake = rows[i].handshake;
        script.answer = rows[i].answer;
        script.close = rows[i].close;
        call(false);
        assert_unreachable(rows[i].text);
        assert_int_equal(server.requests, rows[i].answer != NULL);
    }
}

static void the_longest_answer_is_taken(void **state)
{
    script.answer = answer_longest;
    call(true);
    assert_int_equal(reply.outcome, AGENT_DONE);
}

static void the_handshake_may_come_in_pieces(void **state)
{
    script.handshake = "OK 1073741824\n";
    script.answer = answer_stats;
    script.piece = 1;
    call(false);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_true(reply.stats.has_bytes && !reply.stats.has_inodes);
    assert_int_equal(reply.stats.total, 9);
    assert_int_equal(reply.stats.used, 4);
    assert_int_equal(reply.stats.available, 5);
    assert_int_equal(server.requests, 1);
}

/* Who listens is this process, and not the VMM: it gets neither request nor handshake. */
static void another_process_is_not_asked(void **state)
{
    vmm = getppid();
    script.close_at_once = true;
    call(true);
    assert_unreachable("neither the sandbox's VMM nor its shim");
    script.handshake = "OK 1073741824\n";
    call(true);
    assert_unreachable("neither the sandbox's VMM nor its shim");
    assert_false(server.shaken);
    assert_int_equal(server.requests, 0);
    vmm = 0;
}

static void failed_connection_is_unreachable(void **state)
{
    script.close_at_once = true;
    call(true);
    assert_unreachable("");
    call_with("unix:///nothing.sock", "/mnt/volume", true);
    assert_unreachable("No such file");
    call_with("nonsense", "/mnt/volume", true);
    assert_unreachable("nonsense");
}

static void an_endless_path_is_not_sent(void **state)
{
    static char path[3 * AGENT_PATH_BYTES];

    memset(path, 'a', sizeof(path) - 1);
    call_with("unix:///agent.sock", path, true);
    assert_unreachable("path is too long");
}

/* Of a resize, stats follow on the same connection, if it is still there. */
static void size_is_asked_for_after_a_resize(void **state)
{
    script.answer = answer_stats;
    call(true);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats_outcome, AGENT_DONE);
    assert_int_equal(reply.stats.total, 9);
    assert_string_equal(server.request.method, "GetVolumeStats");
    assert_int_equal(server.requests, 2);
    assert_int_equal(server.connections, 1);
    script.close = true;
    call(true);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats_outcome, AGENT_DONE);
    assert_int_equal(server.connections, 3);
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
        {4, "", AGENT_FAILED},
        {4, NULL, AGENT_FAILED},
        {4, "the file system is still growing", AGENT_FAILED}, /* an older agent's */
        {4, AGENT_GROWING_TEXT "1 of 2 bytes", AGENT_GROWING},
        {14, AGENT_GROWING_TEXT "1 of 2 bytes", AGENT_FAILED},
        {14, "", AGENT_FAILED},
        {14, "the file system is mounted read-only", AGENT_READ_ONLY}, /* as of all versions */
        {14, "the file system is being resized by another", AGENT_FAILED},
        {-1, "", AGENT_FAILED},
        {99, "", AGENT_FAILED},
    };

    static const int others[] = {1, 2, 6, 8, 10, 11, 15, 16};

    for (size_t i = 0; i < array_length(others); i++)
        assert_int_equal(agent_outcome_from_status(others[i], ""), AGENT_FAILED);
    for (size_t i = 0; i < array_length(table); i++)
        assert_int_equal(agent_outcome_from_status(table[i].status, table[i].message),
                         table[i].outcome);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_resize_is_sent_and_answered),    TEST(error_text_begins_with_the_status_name),
        TEST(wrong_answers_are_refused),        TEST(the_longest_answer_is_taken),
        TEST(the_handshake_may_come_in_pieces), TEST(another_process_is_not_asked),
        TEST(failed_connection_is_unreachable), TEST(an_endless_path_is_not_sent),
        TEST(size_is_asked_for_after_a_resize), cmocka_unit_test(statuses_have_outcomes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
