/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client_test.c - whole calls to a scripted shim. */
#include "tests/unit/http_server.h"

#include "agent-client/shim_client.h"
#include "lib/clock.h"

#define OK(body)     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body
#define FAILED(body) "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n" body
/* Nothing but the end of the connection: the server drops half of it. */
#define NOTHING "\n"

#define GO_RESIZE   "{\"VolumePath\":\"/dev/sdx\",\"Size\":4096}"
#define GO_STATS    "GET /direct-volume/stats?path=/dev/sdx HTTP/1.1\r\n"
#define RUST_RESIZE "{\"volume_guest_path\":\"/dev/sdx\",\"size\":4096}"
#define RUST_STATS  "POST http://localhost/direct-volume/stats?path=/dev/sdx HTTP/1.1\r\n"

#define GO_ANSWER OK("{\"usage\":[{\"available\":1,\"total\":3,\"used\":2,\"unit\":1}]}")
#define RUST_ANSWER                                                                                \
    OK("Usage: [VolumeUsage { available: 1, total: 3, used: 2, unit: BYTES }] Volume Condition: "  \
       "VolumeCondition { abnormal: false, message: \"\" }")

struct made {
    struct http_server *server;
    unsigned count;
    struct agent_reply reply;
};

static void on_done(struct shim_call *call, const struct agent_reply *reply, void *userdata)
{
    struct made *made = userdata;

    made->count++;
    made->reply = *reply;
    assert_true(reply->stats_outcome == AGENT_DONE || reply->error.text[0]);
    assert_null(shim_call_free(call));
    loop_stop(&made->server->loop);
}

static struct shim_request request_of(const struct http_server *server, enum shim_dialect dialect)
{
    return (struct shim_request){
        .root = server->root,
        .socket_path = server->path,
        .dialect = dialect,
        .volume = "/dev/sdx",
        .bytes = 4096,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static struct agent_reply run(struct http_server *server, const struct shim_request *request)
{
    struct made made = {.server = server};
    struct shim_call *call;

    assert_int_equal(shim_call_new(&server->loop, request, on_done, &made, &call), 0);
    assert_int_equal(made.count, 0);
    loop_run(&server->loop);
    assert_int_equal(made.count, 1);
    return made.reply;
}

static struct agent_reply converse(struct http_server *server, enum shim_dialect dialect,
                                   const struct http_script *script, size_t length)
{
    struct shim_request request = request_of(server, dialect);

    http_server_listen(server, script, length);
    return run(server, &request);
}

static void grows_and_asks_for_the_size(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        struct http_script script[2];
    } table[] = {
        {SHIM_GO, {{GO_RESIZE, OK("")}, {GO_STATS, GO_ANSWER}}},
        {SHIM_RUST, {{RUST_RESIZE, OK("")}, {RUST_STATS, RUST_ANSWER}}},
    };
    struct http_server *server = *state;

    for (size_t i = 0; i < 2 * array_length(table); i++) {
        const struct http_script *script = table[i / 2].script;
        struct agent_reply reply;

        server->bytewise = i % 2;
        reply = converse(server, table[i / 2].dialect, script, 2);
        assert_int_equal(server->position, 2);
        assert_int_equal(reply.outcome, AGENT_DONE);
        assert_int_equal(reply.stats_outcome, AGENT_DONE);
        assert_true(reply.stats.has_bytes);
        assert_int_equal(reply.stats.total, 3);
    }
}

/* Only Rust's shim means something by it. */
static void only_the_rust_shim_gives_empty_answers(void **state)
{
    const struct http_script go = {GO_RESIZE, NOTHING}, rust = {RUST_RESIZE, NOTHING};
    struct http_server *server = *state;

    server->close_at = 0;
    assert_int_equal(converse(server, SHIM_GO, &go, 1).outcome, AGENT_UNREACHABLE);
    assert_int_equal(converse(server, SHIM_RUST, &rust, 1).outcome, AGENT_UNEXPLAINED);
}

static void half_an_answer_is_refused(void **state)
{
    const struct http_script rust = {RUST_RESIZE,
                                     "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 9\r\n\r\n"};
    struct http_server *server = *state;

    server->close_at = 0;
    assert_int_equal(converse(server, SHIM_RUST, &rust, 1).outcome, AGENT_UNREACHABLE);
}

static void a_refusal_ends_it(void **state)
{
    const struct http_script script = {GO_RESIZE,
                                       FAILED("rpc error: code = Unimplemented desc = no")};
    struct agent_reply reply = converse(*state, SHIM_GO, &script, 1);

    assert_int_equal(reply.outcome, AGENT_UNSUPPORTED);
    assert_string_equal(reply.error.text, "by the shim: UNIMPLEMENTED: no");
}

static void grown_without_stats_is_grown(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        struct http_script script[2];
        enum agent_outcome stats;
    } table[] = {
        {SHIM_GO,
         {{GO_RESIZE, OK("")}, {GO_STATS, FAILED("rpc error: code = Internal desc = x")}},
         AGENT_FAILED},
        {SHIM_GO, {{GO_RESIZE, OK("")}, {GO_STATS, OK("what?")}}, AGENT_FAILED},
        {SHIM_RUST, {{RUST_RESIZE, OK("")}, {RUST_STATS, NOTHING}}, AGENT_UNEXPLAINED},
    };
    struct http_server *server = *state;

    server->close_at = 1;
    for (size_t i = 0; i < array_length(table); i++) {
        struct agent_reply reply;

        server->close_at = table[i].stats == AGENT_UNEXPLAINED ? 1 : HTTP_SERVER_NEVER;
        reply = converse(server, table[i].dialect, table[i].script, 2);
        assert_int_equal(reply.outcome, AGENT_DONE);
        assert_int_equal(reply.stats_outcome, table[i].stats);
        assert_false(reply.stats.has_bytes);
    }
}

static void stats_alone(void **state)
{
    const struct http_script go = {GO_STATS, GO_ANSWER},
                             no = {GO_STATS, FAILED("rpc error: code = Internal desc = x")};
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_GO);
    struct agent_reply reply;

    request.act = AGENT_STATS;
    http_server_listen(server, &go, 1);
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats.total, 3);
    http_server_listen(server, &no, 1);
    assert_int_equal(run(server, &request).outcome, AGENT_FAILED);
}

static void the_deadline_is_for_both(void **state)
{
    const struct http_script script[] = {{GO_RESIZE, OK("")}, {GO_STATS, GO_ANSWER}};
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_GO);
    struct agent_reply reply;

    request.deadline_ns = NSEC_PER_SEC / 5;
    server->silent_at = 1;
    http_server_listen(server, script, 2);
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats_outcome, AGENT_UNREACHABLE);
    server->silent_at = 0;
    http_server_listen(server, script, 2);
    assert_int_equal(run(server, &request).outcome, AGENT_UNREACHABLE);
}

static void an_endless_answer_is_cut(void **state)
{
    static char answer[AGENT_REPLY_BYTES + 200];
    const struct http_script script = {GO_RESIZE, answer};
    struct agent_reply reply;

    memset(answer, 'x', sizeof(answer) - 1);
    memcpy(answer, OK(""), strlen(OK("")));
    reply = converse(*state, SHIM_GO, &script, 1);
    assert_int_equal(reply.outcome, AGENT_UNREACHABLE);
    assert_string_equal(reply.error.text, "the shim: the answer is too long");
}

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    const struct http_script none = {"", ""};
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_RUST);
    struct agent_reply reply;

    http_server_listen(server, &none, 0);
    request.listener.vmm = getppid();
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_UNREACHABLE);
    assert_non_null(strstr(reply.error.text, "neither the sandbox's VMM nor its shim"));
    assert_int_equal(server->input.length, 0);
}

static void no_shim_listens(void **state)
{
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_RUST);

    assert_int_equal(run(server, &request).outcome, AGENT_UNREACHABLE);
    request.socket_path = "/nonexistent/shim-monitor.sock";
    assert_int_equal(run(server, &request).outcome, AGENT_UNREACHABLE);
}

static void a_request_that_cannot_be_written_is_not_sent(void **state)
{
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_GO);
    struct shim_call *call = NULL;

    request.volume = "/dev/\xff";
    assert_int_equal(shim_call_new(&server->loop, &request, on_done, NULL, &call), -EILSEQ);
    assert_null(call);
    assert_null(shim_call_free(call));
}

static void a_running_call_can_be_freed(void **state)
{
    const struct http_script script = {GO_RESIZE, OK("")};
    struct http_server *server = *state;
    struct shim_request request = request_of(server, SHIM_GO);
    struct shim_call *call;

    http_server_listen(server, &script, 1);
    assert_int_equal(shim_call_new(&server->loop, &request, on_done, NULL, &call), 0);
    assert_null(shim_call_free(call));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, http_server_set_up, http_server_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(grows_and_asks_for_the_size),
        TEST(only_the_rust_shim_gives_empty_answers),
        TEST(half_an_answer_is_refused),
        TEST(a_refusal_ends_it),
        TEST(grown_without_stats_is_grown),
        TEST(the_deadline_is_for_both),
        TEST(an_endless_answer_is_cut),
        TEST(another_process_is_not_asked),
        TEST(no_shim_listens),
        TEST(a_request_that_cannot_be_written_is_not_sent),
        TEST(a_running_call_can_be_freed),
        TEST(stats_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
