/* SPDX-License-Identifier: Apache-2.0 */
/* http_idle_test.c - what becomes of a client that says nothing more. */
#include "tests/unit/api/fixture.h"

#include <sys/syscall.h>
#include <time.h>

static int later_seconds;

/* Of the loop and of microhttpd, which both call it. */
int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    const int r = (int)syscall(SYS_clock_gettime, clock, ret_time);

    ret_time->tv_sec += later_seconds;
    return r;
}

static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

enum { WHOLE = sizeof(request) - 1 };

static void start(struct fixture *fixture, struct client *client, size_t length)
{
    client_start(fixture, client, HTTP_LISTENER_SOCKET, request, length);
    while (client->sent < length)
        loop_run_once(&fixture->loop);
}

static void expect_answer(struct client *client)
{
    while (client->reply.length == 0)
        loop_run_once(&client->fixture->loop);
    assert_int_equal(status_of(&client->reply), 200);
}

/* Another client is served before and after, so the server has read what this one has sent, and has
 * looked at the clock. */
static void stays_after(int seconds, struct client *client)
{
    expect_status(client->fixture, "GET", "/healthz", 200);
    later_seconds += seconds;
    expect_status(client->fixture, "GET", "/healthz", 200);
    assert_false(client->ended);
}

/* Only the server's own timer runs it then. */
static void ends_after(int seconds, struct client *client)
{
    later_seconds += seconds;
    client_finish(client);
    client_done(client);
}

static void a_client_that_asks_nothing_is_hung_up_on(void **state)
{
    struct client client;

    start(*state, &client, 0);
    stays_after(5, &client);
    ends_after(15, &client);
}

static void a_client_that_does_not_finish_its_request_is_hung_up_on(void **state)
{
    struct client client;

    start(*state, &client, 10);
    stays_after(5, &client);
    ends_after(15, &client);
}

static void a_client_that_asks_nothing_more_is_hung_up_on(void **state)
{
    struct client client;

    start(*state, &client, WHOLE);
    expect_answer(&client);
    stays_after(5, &client);
    ends_after(15, &client);
}

static void a_slow_client_is_not_idle(void **state)
{
    struct client client;

    start(*state, &client, 10);
    for (size_t at = 10; at < WHOLE; at++) {
        if (at % 10 == 0)
            stays_after(7, &client);
        assert_int_equal(send(client.fd, &request[at], 1, MSG_NOSIGNAL), 1);
    }
    expect_answer(&client);
    client_done(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_client_that_asks_nothing_is_hung_up_on),
        TEST(a_client_that_does_not_finish_its_request_is_hung_up_on),
        TEST(a_client_that_asks_nothing_more_is_hung_up_on),
        TEST(a_slow_client_is_not_idle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
