/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http_test.c - one request to a VMM, and every way in which it can end. */
#include "tests/unit/hypervisor/http_call.h"

#include "lib/http_exchange.h"
#include "lib/json.h"

#define LIST "{\"drives\":[]}"

static void expect(const struct hypervisor_reply *reply, enum hypervisor_outcome outcome,
                   const char *text)
{
    if (reply->outcome != outcome || !strstr(reply->error.text, text))
        print_error("%s\n", reply->error.text);
    assert_int_equal(reply->outcome, outcome);
    assert_non_null(strstr(reply->error.text, text));
}

/* What a query is told that gets this answer to its only request. */
static struct hypervisor_reply query(struct http_server *server, const char *answer)
{
    const struct http_script script = {
        "GET /vm/config HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n", answer};

    return http_call_converse(server, firecracker_act, HYPERVISOR_QUERY, &script, 1);
}

static void answers_of_any_form_are_read(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 \r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\n" LIST,
        "HTTP/1.1 200 \r\nConnection: close\r\n\r\n" LIST,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 \r\nContent-Length: 13\r\n\r\n" LIST,
        "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"dri\r\n8\r\nves\":[]}\r\n"
        "0\r\n\r\n",
    };
    struct http_server *server = *state;

    for (unsigned i = 0; i < 2 * array_length(answers); i++) {
        struct hypervisor_reply reply;

        server->bytewise = i % 2;
        reply = query(server, answers[i / 2]);
        expect(&reply, HYPERVISOR_DRIVE_NOT_FOUND, "none of the VMM's 0 drives is the device");
    }
}

static void refusal_of_any_status_is_one(void **state)
{
    struct hypervisor_reply reply =
        query(*state, "HTTP/1.1 302 Found\r\nLocation: http://localhost/y\r\n"
                      "Content-Length: 0\r\n\r\n");

    expect(&reply, HYPERVISOR_REFUSED, "refused without a word");
    reply = query(*state, HTTP_JSON("400", "{\"fault_message\":\"no\"}"));
    expect(&reply, HYPERVISOR_REFUSED, "no");
}

/* Whether it reads the request or not. */
static void full_vmm_is_busy(void **state)
{
    const struct http_script unread = {NULL, HTTP_FULL};
    struct hypervisor_reply reply = query(*state, HTTP_FULL);

    expect(&reply, HYPERVISOR_BUSY, "other clients hold all of the control socket's connections");
    for (unsigned i = 0; i < 20; i++) {
        reply = http_call_converse(*state, firecracker_act, HYPERVISOR_QUERY, &unread, 1);
        expect(&reply, HYPERVISOR_BUSY, "other clients hold all");
    }
}

static void absence_of_a_listener_is_reported(void **state)
{
    struct hypervisor_request request = http_call_request(*state, HYPERVISOR_QUERY);
    struct hypervisor_reply reply = http_call_act(firecracker_act, &request);

    expect(&reply, HYPERVISOR_UNREACHABLE, "the control socket: ");
    request.control_socket = "/nonexistent/api.sock";
    reply = http_call_act(firecracker_act, &request);
    expect(&reply, HYPERVISOR_MONITOR_MISSING, "the control socket: cannot connect: ");
    request.control_socket = "/dev/null";
    reply = http_call_act(firecracker_act, &request);
    expect(&reply, HYPERVISOR_UNREACHABLE, "the control socket: ");
}

static void hang_up_is_reported(void **state)
{
    static const char cut[] = "the control socket: the connection was closed before the answer was "
                              "whole";
    struct http_server *server = *state;
    struct hypervisor_reply reply;

    server->close_at = 0;
    reply = query(server, "HTTP/1.1 204 \r\nServer: a name long enough\r\n\r\n");
    expect(&reply, HYPERVISOR_UNREACHABLE, cut);
    reply = query(server, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
                          "01234567890123456789012345678901234567890123456789");
    expect(&reply, HYPERVISOR_UNREACHABLE, cut);
    reply = query(server, "");
    expect(&reply, HYPERVISOR_UNREACHABLE, "the connection was closed without an answer");
}

static void deadline_is_kept(void **state)
{
    const struct http_script script = {"GET", ""};
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_QUERY);
    struct http_play *play;

    server->silent_at = 0;
    play = http_play_start(server, &script, 1);
    for (unsigned milliseconds = 0; milliseconds < 200; milliseconds += 50) {
        const uint64_t start_ns = clock_boottime();
        struct hypervisor_reply reply;
        uint64_t spent_ns;

        request.allowed_ns = milliseconds * NSEC_PER_MSEC;
        reply = http_call_act(firecracker_act, &request);
        spent_ns = clock_boottime() - start_ns;
        expect(&reply, HYPERVISOR_UNREACHABLE, "the control socket: no answer in time");
        assert_in_range(spent_ns, request.allowed_ns, request.allowed_ns + NSEC_PER_SEC);
    }
    assert_int_equal(http_play_end(play), 0);
}

static void answer_is_bounded(void **state)
{
    enum { MOST = 1024 * 1024 };
    static char header[HTTP_EXCHANGE_HEADER_BYTES + 100], body[MOST + 200];
    size_t used = (size_t)snprintf(header, sizeof(header), "HTTP/1.1 200 OK\r\n");
    struct hypervisor_reply reply;

    assert_int_equal(JSON_LIMITS_VMM_HTTP.bytes, MOST);
    while (used + 100 < sizeof(header))
        used += (size_t)snprintf(header + used, sizeof(header) - used, "X: %080d\r\n", 1);
    (void)snprintf(header + used, sizeof(header) - used, "X: %072d\r\n\r\n", 1);
    reply = query(*state, header);
    expect(&reply, HYPERVISOR_UNREACHABLE, "the control socket: the answer is too long");
    for (int longer = 0; longer < 2; longer++) {
        (void)snprintf(body, sizeof(body),
                       "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" LIST "%*s", MOST + longer,
                       MOST + longer - (int)strlen(LIST), "");
        reply = query(*state, body);
        expect(&reply, longer ? HYPERVISOR_UNREACHABLE : HYPERVISOR_DRIVE_NOT_FOUND,
               longer ? "the answer is too long" : "none of the VMM's 0 drives");
    }
}

static void nothing_else_is_taken_for_http(void **state)
{
    struct hypervisor_reply reply = query(*state, "+OK greetings\r\n\r\n");

    expect(&reply, HYPERVISOR_UNREACHABLE, "the control socket: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_CALL_TEST(answers_of_any_form_are_read),
        HTTP_CALL_TEST(refusal_of_any_status_is_one),
        HTTP_CALL_TEST(full_vmm_is_busy),
        HTTP_CALL_TEST(absence_of_a_listener_is_reported),
        HTTP_CALL_TEST(hang_up_is_reported),
        HTTP_CALL_TEST(deadline_is_kept),
        HTTP_CALL_TEST(answer_is_bounded),
        HTTP_CALL_TEST(nothing_else_is_taken_for_http),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
