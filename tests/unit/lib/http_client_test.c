/* SPDX-License-Identifier: Apache-2.0 */
/* http_client_test.c - one request against a server that a child process plays.
 *
 * The client blocks, so the peer is a child: it accepts once, reads the request up to its blank
 * line and body, sends what the test scripted and closes.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/http_client.h"
#include "tests/unit/scratch.h"

static char scratch[SCRATCH_BYTES], path[100];
static int listener;
static pid_t child;
static int requests[2]; /* the child passes on what it was asked */

static int set_up(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)state;
    if (scratch_directory_make(scratch) < 0 || pipe(requests) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/s", scratch);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    child = -1;
    return bind(listener, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(listener, 4) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(listener);
    close(requests[0]);
    close(requests[1]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return scratch_directory_remove(scratch);
}

/* One request; `end` is the text after which it is complete. NULL answer: hangs up at once. */
static void serve(const char *end, const char *answer)
{
    char request[4096] = "";
    size_t length = 0;
    ssize_t count;
    int peer;

    child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return;
    peer = accept(listener, NULL, NULL);
    while (!strstr(request, end)) {
        count = read(peer, request + length, sizeof(request) - 1 - length);
        if (count <= 0)
            _exit(1);
        length += (size_t)count;
    }
    count = write(requests[1], request, length);
    if (answer)
        count = write(peer, answer, strlen(answer));
    _exit(count < 0);
}

static const char *take_request(void)
{
    static char request[4096];
    ssize_t length = read(requests[0], request, sizeof(request) - 1);

    assert_true(length > 0);
    request[length] = '\0';
    return request;
}

static void gets(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    struct error error;
    long status = 0;

    (void)state;
    serve("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    assert_int_equal(http_request(path, "GET", "/v1/volumes?a=b", NULL, 10, &status, &body, &error),
                     0);
    assert_int_equal(status, 200);
    assert_string_equal(buffer_text(&body), "hello");
    assert_memory_equal(take_request(), "GET /v1/volumes?a=b HTTP/1.1\r\n", 30);
    buffer_done(&body);
}

static void posts_a_body(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    const char *request;
    long status = 0;

    (void)state;
    serve("{\"a\":1}", "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_int_equal(http_request(path, "POST", "/x", "{\"a\":1}", 10, &status, &body, NULL), 0);
    assert_int_equal(status, 409);
    assert_string_equal(buffer_text(&body), "");
    request = take_request();
    assert_memory_equal(request, "POST /x HTTP/1.1\r\n", 18);
    assert_non_null(strstr(request, "Content-Type: application/json\r\n"));
    buffer_done(&body);
}

static void posts_nothing(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    long status = 0;

    (void)state;
    serve("\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    assert_int_equal(http_request(path, "POST", "/v1/resync", NULL, 10, &status, &body, NULL), 0);
    assert_int_equal(status, 204);
    assert_non_null(strstr(take_request(), "Content-Length: 0\r\n"));
    buffer_done(&body);
}

static void follows_no_redirect(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    long status = 0;

    (void)state;
    serve("\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n"
                      "Content-Length: 0\r\nConnection: close\r\n\r\n");
    assert_int_equal(http_request(path, "GET", "/", NULL, 10, &status, &body, NULL), 0);
    assert_int_equal(status, 302);
    buffer_done(&body);
}

static void refuses_a_long_answer(void **state)
{
    struct buffer body = BUFFER_INIT(4);
    struct error error;
    long status = 77;

    (void)state;
    serve("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    assert_int_equal(http_request(path, "GET", "/", NULL, 10, &status, &body, &error), -EMSGSIZE);
    assert_non_null(strstr(error.text, "too long"));
    assert_int_equal(body.length, 0);
    assert_int_equal(status, 77);
    buffer_done(&body);
}

static void refuses_what_is_no_http(void **state)
{
    static const char *const answers[] = {NULL, "garbage\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"};
    struct error error;
    long status = 77;

    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct buffer body = BUFFER_INIT(100);

        serve("\r\n\r\n", answers[i]);
        assert_int_equal(http_request(path, "GET", "/", NULL, 10, &status, &body, &error), -EPROTO);
        assert_true(strlen(error.text) > 0);
        assert_int_equal(status, 77);
        assert_int_equal(body.length, 0);
        buffer_done(&body);
        (void)take_request();
        waitpid(child, NULL, 0);
        child = -1;
    }
}

static void says_that_nobody_listens(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    struct error error;
    long status;

    (void)state;
    assert_int_equal(
        http_request("/nonexistent/socket", "GET", "/", NULL, 10, &status, &body, &error),
        HTTP_UNREACHABLE);
    assert_string_equal(error.text, "/nonexistent/socket: No such file or directory");
    close(listener);
    assert_int_equal(http_request(path, "GET", "/", NULL, 10, &status, &body, &error),
                     HTTP_UNREACHABLE);
    listener = -1;
    buffer_done(&body);
}

static void reaches_beyond_sun_path(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    char detour[300];
    long status = 0;

    (void)state;
    (void)snprintf(detour, sizeof(detour), "%s", path);
    for (int i = 0; i < 30; i++)
        (void)snprintf(detour + strlen(detour) - 1, 8, i < 29 ? "././s" : "s");
    assert_true(strlen(detour) > 108);
    serve("\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    assert_int_equal(http_request(detour, "GET", "/", NULL, 10, &status, &body, NULL), 0);
    assert_int_equal(status, 204);
    buffer_done(&body);
}

/* The listener's queue takes the connection, and nobody ever answers. */
static void gives_up_in_time(void **state)
{
    struct buffer body = BUFFER_INIT(100);
    long status;

    (void)state;
    assert_int_equal(http_request(path, "GET", "/", NULL, 1, &status, &body, NULL), -ETIMEDOUT);
    buffer_done(&body);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gets),
        TEST(posts_a_body),
        TEST(posts_nothing),
        TEST(follows_no_redirect),
        TEST(refuses_a_long_answer),
        TEST(refuses_what_is_no_http),
        TEST(says_that_nobody_listens),
        TEST(reaches_beyond_sun_path),
        TEST(gives_up_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
