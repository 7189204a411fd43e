/* SPDX-License-Identifier: Apache-2.0 */
/* http_server_test.c - what a client can do wrong, and how many it can be. */
#include "tests/unit/api/fixture.h"

static void large_bodies_are_refused(void **state)
{
    static const char announced[] = "POST /v1/resync HTTP/1.1\r\nHost: localhost\r\n"
                                    "Content-Length: 65537\r\n\r\n";
    static const char head[] = "POST /v1/resync HTTP/1.1\r\nHost: localhost\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n40000\r\n";
    cleanup(buffer_done) struct buffer reply = {0}, chunked = {0}, request = {0};

    talk(*state, HTTP_LISTENER_SOCKET, announced, strlen(announced), &reply);
    assert_int_equal(status_of(&reply), 413);
    assert_int_equal(buffer_append_text(&request, head), 0);
    for (unsigned i = 0; i < 0x40000 / 16; i++)
        assert_int_equal(buffer_append_text(&request, "0123456789abcdef"), 0);
    talk(*state, HTTP_LISTENER_SOCKET, request.data, request.length, &chunked);
    assert_int_equal(status_of(&chunked), 0);
    assert_int_equal(((struct fixture *)*state)->reconciler.resyncs, 0);
    expect_status(*state, "GET", "/healthz", 200);
}

static void small_bodies_are_dropped(void **state)
{
    static const char request[] =
        "POST /v1/resync HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: 4\r\n\r\n{\"\"}";
    cleanup(buffer_done) struct buffer reply = {0};

    talk(*state, HTTP_LISTENER_SOCKET, request, strlen(request), &reply);
    assert_int_equal(status_of(&reply), 202);
}

static void requests_can_be_pipelined(void **state)
{
    static const char requests[] =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "GET /v1/devices HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "\r\n";
    cleanup(buffer_done) struct buffer reply = {0};
    const char *second, *third;

    talk(*state, HTTP_LISTENER_SOCKET, requests, strlen(requests), &reply);
    assert_int_equal(status_of(&reply), 200);
    second = strstr(buffer_text(&reply), "HTTP/1.1 404");
    assert_non_null(second);
    third = strstr(second, "HTTP/1.1 200");
    assert_non_null(third);
    assert_non_null(strstr(third, "[]"));
}

static void garbage_is_not_answered_with_rows(void **state)
{
    static const char *const garbage[] = {
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n",
        "GET\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
    };

    for (size_t i = 0; i < array_length(garbage); i++) {
        cleanup(buffer_done) struct buffer reply = {0};

        talk(*state, HTTP_LISTENER_SOCKET, garbage[i], strlen(garbage[i]), &reply);
        assert_true(status_of(&reply) != 200);
    }
    expect_status(*state, "GET", "/healthz", 200);
}

static const char status_request[] =
    "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

static const char volumes_request[] = "GET /v1/volumes HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void client_send_all(struct client *client)
{
    while (client->sent < client->length)
        loop_run_once(&client->fixture->loop);
}

static void client_read_some(struct client *client)
{
    while (client->reply.length == 0)
        loop_run_once(&client->fixture->loop);
}

/* One byte at a time, one that never goes on, and one that closes its half: none holds another. */
static void slow_clients_hold_nobody(void **state)
{
    struct client stuck, slow, half;

    client_start(*state, &stuck, HTTP_LISTENER_SOCKET, status_request, 10);
    client_start(*state, &slow, HTTP_LISTENER_SOCKET, status_request, strlen(status_request));
    slow.chunk = 1;
    expect_status(*state, "GET", "/healthz", 200);
    client_finish(&slow);
    assert_int_equal(status_of(&slow.reply), 200);
    client_start(*state, &half, HTTP_LISTENER_SOCKET, status_request, strlen(status_request));
    client_send_all(&half);
    assert_int_equal(shutdown(half.fd, SHUT_WR), 0);
    client_finish(&half);
    assert_false(stuck.ended);
    client_done(&stuck);
    client_done(&slow);
    client_done(&half);
}

/* 32 connections are the limit; who comes then is served as soon as one of them ends. */
static void waiting_clients_get_a_free_place(void **state)
{
    struct client idle[32], waiting;

    for (size_t i = 0; i < array_length(idle); i++) {
        client_start(*state, &idle[i], HTTP_LISTENER_SOCKET, status_request, 10);
        client_send_all(&idle[i]);
    }
    client_start(*state, &waiting, HTTP_LISTENER_SOCKET, status_request, strlen(status_request));
    for (unsigned i = 0; i < 3; i++) {
        cleanup(buffer_done) struct buffer tcp =
            ask_listener(*state, HTTP_LISTENER_PAGES, "GET", "/healthz");

        assert_int_equal(status_of(&tcp), 200);
    }
    assert_int_equal(waiting.reply.length, 0);
    client_done(&idle[7]);
    client_finish(&waiting);
    assert_int_equal(status_of(&waiting.reply), 200);
    client_done(&waiting);
    for (size_t i = 0; i < array_length(idle); i++)
        if (i != 7)
            client_done(&idle[i]);
}

/* A client that asks and goes away leaves nothing behind (the sanitizers would tell). */
static void clients_may_vanish(void **state)
{
    struct client client;

    add_volumes(*state, 2000);
    for (unsigned i = 0; i < 8; i++) {
        client_start(*state, &client, HTTP_LISTENER_SOCKET, volumes_request,
                     strlen(volumes_request));
        client_read_some(&client);
        client_done(&client);
    }
    expect_status(*state, "GET", "/healthz", 200);
}

/* The memory for answers that nobody reads has an end, and is given back. */
static void unread_answers_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    char metadata[16 * 1024];
    struct client clients[30];

    /* Few and large, so that it is over before the first of them has been idle for too long. */
    (void)snprintf(metadata, sizeof(metadata), "{\"a\":\"%0*d\"}", (int)sizeof(metadata) - 16, 0);
    add_volumes_with(fixture, 150, metadata);
    for (size_t i = 0; i < array_length(clients); i++) {
        client_start(fixture, &clients[i], HTTP_LISTENER_SOCKET, volumes_request,
                     strlen(volumes_request));
        client_read_some(&clients[i]);
        loop_io_stop(&clients[i].io);
    }
    assert_int_equal(status_of(&clients[0].reply), 200);
    assert_int_equal(status_of(&clients[29].reply), 503);
    for (size_t i = 0; i < array_length(clients); i++)
        client_done(&clients[i]);
    expect_status(fixture, "GET", "/healthz", 200);
    expect_status(fixture, "GET", "/v1/volumes", 200);
}

/* ---- one listener against the others ---- */

static void expect_answer(struct fixture *fixture, enum http_listener listener, const char *path)
{
    cleanup(buffer_done) struct buffer reply = ask_listener(fixture, listener, "GET", path);

    if (status_of(&reply) != 200)
        fail_msg("%s: %s", path, buffer_text(&reply));
}

static const char doctor_request[] =
    "GET /v1/doctor HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/* Of the two that ask for thousands of rows over TCP the second has to wait for seven times as long
 * as the first one's answer took. */
static void tcp_rests_after_an_answer_and_the_socket_does_not(void **state)
{
    struct fixture *fixture = *state;
    struct client first, second;

    add_volumes(fixture, 4000);
    client_start(fixture, &first, HTTP_LISTENER_PAGES, volumes_request, strlen(volumes_request));
    client_start(fixture, &second, HTTP_LISTENER_PAGES, volumes_request, strlen(volumes_request));
    client_read_some(&first);
    expect_answer(fixture, HTTP_LISTENER_SOCKET, "/v1/status");
    assert_true(first.reply.length == 0 || second.reply.length == 0);
    client_read_some(&first);
    client_read_some(&second);
    client_done(&first);
    client_done(&second);
}

/* Those that still wait for their turn when they go, or when the server does. */
static void clients_may_vanish_before_their_turn(void **state)
{
    struct fixture *fixture = *state;
    struct client clients[16];

    for (size_t i = 0; i < array_length(clients); i++)
        client_start(fixture, &clients[i], i % 2 ? HTTP_LISTENER_PAGES : HTTP_LISTENER_SOCKET,
                     doctor_request, strlen(doctor_request));
    while (fixture->reconciler.examinations == 0)
        loop_run_once(&fixture->loop);
    for (size_t i = 0; i < array_length(clients); i++)
        client_done(&clients[i]);
    expect_status(fixture, "GET", "/v1/doctor", 200);
    expect_answer(fixture, HTTP_LISTENER_PAGES, "/v1/status");
    for (size_t i = 0; i < array_length(clients); i++)
        client_start(fixture, &clients[i], HTTP_LISTENER_SOCKET, doctor_request,
                     strlen(doctor_request));
    fixture->reconciler.examinations = 0;
    while (fixture->reconciler.examinations == 0)
        loop_run_once(&fixture->loop);
    fixture->server = http_server_free(fixture->server);
    for (size_t i = 0; i < array_length(clients); i++)
        client_done(&clients[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(large_bodies_are_refused),
        TEST(small_bodies_are_dropped),
        TEST(requests_can_be_pipelined),
        TEST(garbage_is_not_answered_with_rows),
        TEST(slow_clients_hold_nobody),
        TEST(waiting_clients_get_a_free_place),
        TEST(clients_may_vanish),
        TEST(unread_answers_are_bounded),
        TEST(tcp_rests_after_an_answer_and_the_socket_does_not),
        TEST(clients_may_vanish_before_their_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
