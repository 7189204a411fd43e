/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange_test.c - exchanges of a child with a scripted server. */
#include "tests/unit/http_server.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "lib/clock.h"
#include "lib/http_exchange.h"

struct result {
    enum http_exchange_end end;
    unsigned status;
    char body[256];
    char text[ERROR_TEXT_BYTES];
    unsigned waited; /* how often the client was called back */
};

static uint64_t most_ns = 60 * NSEC_PER_SEC;

static struct http_exchange_request get(const struct http_server *server)
{
    return (struct http_exchange_request){
        .directory = server->root,
        .socket_path = server->path,
        .listener = {.vmm = getpid()},
        .method = "GET",
        .target = "/x?a=b",
        .body_limit = 200,
    };
}

static void perform(const struct http_exchange_request *request, struct result *result)
{
    struct buffer body = BUFFER_INIT(0);
    struct error error = {0};

    result->end =
        http_exchange_perform(request, clock_boottime() + most_ns, &result->status, &body, &error);
    if ((result->end == HTTP_EXCHANGE_ANSWERED) != (strlen(error.text) == 0))
        _exit(1);
    (void)snprintf(result->body, sizeof(result->body), "%s", buffer_text(&body));
    (void)snprintf(result->text, sizeof(result->text), "%s", error.text);
    _exit(0);
}

static void on_ended(struct loop_io *io, int events)
{
    loop_stop(io->loop);
}

static struct result run(struct http_server *server, const struct http_exchange_request *request)
{
    struct result *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct http_exchange_request asked = *request;
    struct loop_io ended = {0};
    struct result result;
    int ends[2], status;
    pid_t pid;

    assert_true(shared != MAP_FAILED);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    asked.userdata = shared;
    pid = fork();
    if (pid == 0)
        perform(&asked, shared);
    assert_true(pid > 0);
    fd_close(ends[1]);
    loop_io_start(&server->loop, &ended, ends[0], LOOP_READ, on_ended);
    loop_run(&server->loop);
    loop_io_stop(&ended);
    fd_close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    result = *shared;
    (void)munmap(shared, sizeof(*shared));
    return result;
}

static struct result run_get(struct http_server *server, const struct http_script *script)
{
    struct http_exchange_request request = get(server);

    http_server_listen(server, script, 1);
    return run(server, &request);
}

static void gets(void **state)
{
    const struct http_script script[] = {
        {"GET /x?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n",
         "HTTP/1.1 200 \r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello"},
    };

    for (unsigned bytewise = 0; bytewise < 2; bytewise++) {
        struct http_server *server = *state;
        struct result result;

        server->bytewise = bytewise;
        result = run_get(server, script);
        assert_int_equal(result.end, HTTP_EXCHANGE_ANSWERED);
        assert_int_equal(result.status, 200);
        assert_string_equal(result.body, "hello");
    }
}

static void sends_a_body(void **state)
{
    static const char *const methods[] = {"PUT", "PATCH", "POST"};
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);

    request.body = "{\"a\":1}";
    for (size_t i = 0; i < array_length(methods); i++) {
        char expect[200];
        struct http_script script = {expect, HTTP_NO_CONTENT};
        struct result result;

        (void)snprintf(expect, sizeof(expect),
                       "%s /x?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
                       "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
                       methods[i]);
        http_server_listen(server, &script, 1);
        request.method = methods[i];
        result = run(server, &request);
        assert_int_equal(result.end, HTTP_EXCHANGE_ANSWERED);
        assert_int_equal(result.status, 204);
        assert_string_equal(result.body, "");
    }
}

static void sends_an_empty_body(void **state)
{
    const struct http_script script = {
        "POST /x?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
        "Content-Length: 0\r\n",
        HTTP_NO_CONTENT,
    };
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);

    request.method = "POST";
    request.body = "";
    http_server_listen(server, &script, 1);
    assert_int_equal(run(server, &request).status, 204);
}

static void reads_until_the_end_and_chunks(void **state)
{
    const struct http_script unsized = {"GET",
                                        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end"};
    const struct http_script chunked = {
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"};
    struct result result = run_get(*state, &chunked);

    assert_int_equal(result.end, HTTP_EXCHANGE_ANSWERED);
    assert_string_equal(result.body, "abcde");
    result = run_get(*state, &unsized);
    assert_int_equal(result.end, HTTP_EXCHANGE_ANSWERED);
    assert_string_equal(result.body, "to the end");
}

static void any_status_is_an_answer(void **state)
{
    const struct http_script redirect = {
        "GET", "HTTP/1.1 302 Found\r\nLocation: http://localhost/y\r\nContent-Length: 0\r\n\r\n"};
    const struct http_script full = {"GET", HTTP_FULL};
    struct result result = run_get(*state, &redirect);

    assert_int_equal(result.status, 302);
    result = run_get(*state, &full);
    assert_int_equal(result.end, HTTP_EXCHANGE_ANSWERED);
    assert_int_equal(result.status, 503);
}

static void absence_of_a_listener_is_reported(void **state)
{
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);

    assert_int_equal(run(server, &request).end, HTTP_EXCHANGE_REFUSED); /* nobody listens */
    request.socket_path = "/nonexistent/api.sock";
    assert_int_equal(run(server, &request).end, HTTP_EXCHANGE_NO_SOCKET);
    request.socket_path = "/dev/null";
    assert_int_equal(run(server, &request).end, HTTP_EXCHANGE_REFUSED);
}

static void talks_to_no_other_process(void **state)
{
    const struct http_script none = {"", ""};
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);

    http_server_listen(server, &none, 0);
    request.listener.vmm = getppid();
    assert_int_equal(run(server, &request).end, HTTP_EXCHANGE_FOREIGN);
    assert_int_equal(server->input.length, 0);
}

static void hang_up_is_reported(void **state)
{
    const struct http_script script = {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
                                              "01234567890123456789012345678901234567890123456789"};
    const struct http_script headers = {"GET",
                                        "HTTP/1.1 204 \r\nServer: a name long enough\r\n\r\n"};
    const struct http_script nothing = {"GET", ""};
    struct http_server *server = *state;

    server->close_at = 0;
    assert_int_equal(run_get(server, &headers).end, HTTP_EXCHANGE_CLOSED);
    assert_int_equal(run_get(server, &script).end, HTTP_EXCHANGE_CLOSED);
    assert_int_equal(run_get(server, &nothing).end, HTTP_EXCHANGE_NOTHING);
}

static void sends_a_whole_url_where_it_is_given_one(void **state)
{
    const struct http_script script = {
        "GET http://localhost/x?path=/a%20b HTTP/1.1\r\nHost: localhost\r\n", HTTP_NO_CONTENT};
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);

    request.target = "http://localhost/x?path=/a%20b";
    http_server_listen(server, &script, 1);
    assert_int_equal(run(server, &request).end, HTTP_EXCHANGE_ANSWERED);
}

static void note_waiting(void *userdata)
{
    ((struct result *)userdata)->waited++;
}

/* Until then its caller has a turn about once a second. */
static void keeps_its_deadline(void **state)
{
    const struct http_script script = {"GET", ""};
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);
    struct result result;

    server->silent_at = 0;
    most_ns = 1500 * NSEC_PER_MSEC;
    request.on_waiting = note_waiting;
    http_server_listen(server, &script, 1);
    result = run(server, &request);
    most_ns = 60 * NSEC_PER_SEC;
    assert_int_equal(result.end, HTTP_EXCHANGE_TIMEOUT);
    assert_in_range(result.waited, 1, 20);
}

static void bounds_the_answer(void **state)
{
    static char header[HTTP_EXCHANGE_HEADER_BYTES + 100], body[400];
    const struct http_script many = {"GET", header}, long_body = {"GET", body};
    size_t used = (size_t)snprintf(header, sizeof(header), "HTTP/1.1 200 OK\r\n");

    while (used + 100 < sizeof(header))
        used += (size_t)snprintf(header + used, sizeof(header) - used, "X: %080d\r\n", 1);
    (void)snprintf(header + used, sizeof(header) - used, "X: %072d\r\n\r\n", 1);
    assert_int_equal(run_get(*state, &many).end, HTTP_EXCHANGE_OVERFLOW);
    (void)snprintf(body, sizeof(body), "HTTP/1.1 200 OK\r\nContent-Length: 201\r\n\r\n%0201d", 1);
    assert_int_equal(run_get(*state, &long_body).end, HTTP_EXCHANGE_OVERFLOW);
    (void)snprintf(body, sizeof(body), "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n%0200d", 1);
    assert_int_equal(run_get(*state, &long_body).end, HTTP_EXCHANGE_ANSWERED);
}

static void takes_nothing_else_for_http(void **state)
{
    const struct http_script garbage = {"GET", "+OK greetings\r\n\r\n"};

    assert_int_equal(run_get(*state, &garbage).end, HTTP_EXCHANGE_FAILED);
}

/* A path that no sockaddr_un can hold, with a link to the socket's directory. */
static void reaches_long_paths(void **state)
{
    const struct http_script script = {"GET", HTTP_NO_CONTENT};
    struct http_server *server = *state;
    struct http_exchange_request request = get(server);
    char path[400], socket_path[416], name[300];

    memset(name, 'n', 200);
    name[200] = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s", server->directory, name);
    assert_int_equal(symlink(".", path), 0);
    (void)snprintf(socket_path, sizeof(socket_path), "%s/api.sock", path);
    request.socket_path = socket_path;
    http_server_listen(server, &script, 1);
    assert_int_equal(run(server, &request).status, 204);
    assert_int_equal(unlink(path), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, http_server_set_up, http_server_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gets),
        TEST(sends_a_body),
        TEST(sends_an_empty_body),
        TEST(reads_until_the_end_and_chunks),
        TEST(any_status_is_an_answer),
        TEST(absence_of_a_listener_is_reported),
        TEST(talks_to_no_other_process),
        TEST(hang_up_is_reported),
        TEST(sends_a_whole_url_where_it_is_given_one),
        TEST(keeps_its_deadline),
        TEST(bounds_the_answer),
        TEST(takes_nothing_else_for_http),
        TEST(reaches_long_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
