/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client_test.c - whole calls to a scripted shim, from a worker. */
#include "tests/unit/http_server.h"

#include "agent-client/shim_client.h"
#include "tests/unit/agent-client/agent_job.h"

#define OK(body)     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body
#define FAILED(body) "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n" body

#define GO_RESIZE "{\"VolumePath\":\"/dev/sdx\",\"Size\":4096}"
#define GO_STATS  "GET /direct-volume/stats?path=/dev/sdx HTTP/1.1\r\n"

#define GO_ANSWER OK("{\"usage\":[{\"available\":1,\"total\":3,\"used\":2,\"unit\":1}]}")

static void call_shim(const struct job_input *input, struct buffer *ret_reply)
{
    struct agent_request request;
    struct agent_reply answer;

    read_request(input, &request);
    shim_call_run(&request, SHIM_GO, input->deadline_ns, &answer);
    (void)buffer_append(ret_reply, &answer, sizeof(answer));
}

static struct agent_request request_of(const struct http_server *server)
{
    return (struct agent_request){
        .resizes = true,
        .root = server->root,
        .address = server->path,
        .volume = "/dev/sdx",
        .bytes = 4096,
        .allowed_ns = 60 * NSEC_PER_SEC,
    };
}

static struct agent_reply run(struct http_server *server, const struct agent_request *request)
{
    struct agent_reply reply = run_in_worker(&server->loop, request, call_shim);

    assert_int_equal(answered.end, JOB_ANSWERED);
    assert_true(reply.stats_outcome == AGENT_DONE || reply.error.text[0]);
    return reply;
}

static void on_lost(void *userdata)
{
    fail_msg("the workers' nursery has died");
}

static int set_up(void **state)
{
    int r = workers_fork_nursery();

    if (r == 0)
        r = http_server_set_up(state);
    if (r == 0)
        workers_start(&((struct http_server *)*state)->loop, on_lost, NULL);
    return r;
}

static int tear_down(void **state)
{
    workers_stop();
    return http_server_tear_down(state);
}

static void resize_is_followed_by_stats(void **state)
{
    const struct http_script script[] = {{GO_RESIZE, OK("")}, {GO_STATS, GO_ANSWER}},
                             unsized[] = {{GO_RESIZE, OK("")},
                                          {GO_STATS,
                                           FAILED("rpc error: code = Internal desc = x")}},
                             refused = {GO_RESIZE, FAILED("rpc error: code = Internal desc = x")};
    struct http_server *server = *state;
    const struct agent_request request = request_of(server);
    struct agent_reply reply;

    http_server_listen(server, script, 2);
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats_outcome, AGENT_DONE);
    assert_int_equal(reply.stats.total, 3);
    http_server_listen(server, unsized, 2);
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats_outcome, AGENT_FAILED);
    http_server_listen(server, &refused, 1);
    assert_int_equal(run(server, &request).outcome, AGENT_FAILED);
}

static void stats_alone(void **state)
{
    const struct http_script go = {GO_STATS, GO_ANSWER},
                             no = {GO_STATS, FAILED("rpc error: code = Internal desc = x")},
                             what = {GO_STATS, OK("what?")};
    struct http_server *server = *state;
    struct agent_request request = request_of(server);
    struct agent_reply reply;

    request.resizes = false;
    http_server_listen(server, &go, 1);
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_DONE);
    assert_int_equal(reply.stats.total, 3);
    http_server_listen(server, &no, 1);
    assert_int_equal(run(server, &request).outcome, AGENT_FAILED);
    http_server_listen(server, &what, 1);
    assert_int_equal(run(server, &request).outcome, AGENT_FAILED);
}

static void ask_for_address(const struct job_input *input, struct buffer *ret_reply)
{
    char address[64] = "";
    struct agent_request request;
    struct error error;

    read_request(input, &request);
    (void)buffer_append_text(ret_reply, shim_ask_address(&request, input->deadline_ns, 1024,
                                                         address, sizeof(address), &error) == 0
                                            ? address
                                            : error.text);
    (void)buffer_append(ret_reply, "", 1);
}

static void shim_is_asked_for_the_address(void **state)
{
    static const struct {
        const char *answer, *text;
    } rows[] = {
        {OK("vsock://7:1024\n"), "vsock://7:1024"},
        {OK("nonsense"), "no agent address is known, and the shim answers 200: nonsense"},
        {FAILED("none"), "no agent address is known, and the shim answers 500: none"},
    };
    struct http_server *server = *state;

    for (size_t i = 0; i < array_length(rows); i++) {
        const struct http_script script = {"GET /agent-url HTTP/1.1\r\n", rows[i].answer};
        const struct agent_request request = request_of(server);

        http_server_listen(server, &script, 1);
        (void)run_in_worker(&server->loop, &request, ask_for_address);
        assert_string_equal(answered.reply, rows[i].text);
    }
}

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    const struct http_script none = {"", ""};
    struct http_server *server = *state;
    struct agent_request request = request_of(server);
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
    struct agent_request request = request_of(server);

    assert_int_equal(run(server, &request).outcome, AGENT_UNREACHABLE);
    request.address = "/nonexistent/shim-monitor.sock";
    assert_int_equal(run(server, &request).outcome, AGENT_UNREACHABLE);
}

static void a_request_that_cannot_be_written_is_not_sent(void **state)
{
    struct http_server *server = *state;
    struct agent_request request = request_of(server);
    struct agent_reply reply;

    request.volume = "/dev/\xff";
    reply = run(server, &request);
    assert_int_equal(reply.outcome, AGENT_UNREACHABLE);
    assert_non_null(strstr(reply.error.text, "cannot call the agent"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(resize_is_followed_by_stats),
        TEST(shim_is_asked_for_the_address),
        TEST(another_process_is_not_asked),
        TEST(no_shim_listens),
        TEST(a_request_that_cannot_be_written_is_not_sent),
        TEST(stats_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
