/* SPDX-License-Identifier: Apache-2.0 */
/* http_call_test.c - requests that wait for the reconciler, and the server meanwhile. */
#include "tests/unit/api/fixture.h"

static const char resize[] = "POST /v1/volumes/1/resize HTTP/1.1\r\nHost: crustd\r\n"
                             "Connection: close\r\nContent-Length: 0\r\n\r\n";

static void begin(struct fixture *fixture, struct client *client)
{
    client_start(fixture, client, HTTP_LISTENER_SOCKET, resize, strlen(resize));
    while (!asked_expansion)
        loop_run_once(&fixture->loop);
}

static void a_refusal_has_gRPC_s_code(void **state)
{
    struct fixture *fixture = *state;
    struct client client;

    begin(fixture, &client);
    end_expansion(STATUS_PERMISSION_DENIED, 0, "the guest's policy forbids");
    client_finish(&client);
    assert_int_equal(status_of(&client.reply), 403);
    assert_non_null(strstr(buffer_text(&client.reply), "\"code\":\"PERMISSION_DENIED\""));
    client_done(&client);
    expect_status(fixture, "POST", "/v1/volumes/404/resize", 404);
    expect_status(fixture, "POST", "/v1/volumes/x/resize", 400);
    expect_status(fixture, "GET", "/v1/volumes/1/stats", 503);
    expect_status(fixture, "GET", "/v1/volumes/1/resize", 405);
}

static void waiting_clients_are_answered_at_shutdown(void **state)
{
    struct fixture *fixture = *state;
    struct client client;

    cancelled = 0;
    begin(fixture, &client);
    fixture->server = http_server_free(fixture->server);
    client_finish(&client);
    assert_int_equal(cancelled, 1);
    assert_int_equal(status_of(&client.reply), 503);
    client_done(&client);
}

/* Those who gave up make room for others; those who wait are not dropped. */
static void waiting_is_bounded(void **state)
{
    enum { MOST = 16 };
    struct fixture *fixture = *state;
    struct client client[MOST], one;

    cancelled = 0;
    for (size_t i = 0; i < MOST; i++) {
        asked_expansion = NULL; /* each is freed when it is cancelled */
        begin(fixture, &client[i]);
    }
    client_start(fixture, &one, HTTP_LISTENER_SOCKET, resize, strlen(resize));
    client_finish(&one);
    assert_int_equal(status_of(&one.reply), 429);
    client_done(&one);
    client_done(&client[3]);
    asked_expansion = NULL;
    begin(fixture, &one);
    assert_int_equal(cancelled, 1);
    end_expansion(STATUS_OK, 1, "");
    client_finish(&one);
    assert_int_equal(status_of(&one.reply), 200);
    client_done(&one);
    for (size_t i = 0; i < MOST; i++)
        if (i != 3)
            client_done(&client[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_refusal_has_gRPC_s_code),
        TEST(waiting_clients_are_answered_at_shutdown),
        TEST(waiting_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
