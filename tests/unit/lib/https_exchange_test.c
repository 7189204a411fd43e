/* SPDX-License-Identifier: Apache-2.0 */
/* https_exchange_test.c - exchanges over TLS with `openssl s_server`: who is believed. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "tests/unit/scratch.h"

struct server {
    char directory[SCRATCH_BYTES];
    char certificate[96], key[96], other[96], other_key[96];
    pid_t pid;
    FILE *output;
    uint16_t port;
};

static pid_t spawn(const char *const argv[], int output)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t pid = fork();

    if (pid == 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(output < 0 ? null : output, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_true(pid > 0);
    fd_close(null);
    return pid;
}

static void make_certificate(const char *certificate, const char *key, const char *name)
{
    const char *const argv[] = {"openssl",
                                "req",
                                "-x509",
                                "-newkey",
                                "ec",
                                "-pkeyopt",
                                "ec_paramgen_curve:prime256v1",
                                "-nodes",
                                "-days",
                                "1",
                                "-subj",
                                "/CN=test",
                                "-addext",
                                name,
                                "-keyout",
                                key,
                                "-out",
                                certificate,
                                NULL};
    int status = 0;

    assert_true(waitpid(spawn(argv, -1), &status, 0) > 0);
    assert_int_equal(status, 0);
}

/* Until it says on which port. */
static void start_server(struct server *server, const char *certificate, const char *key)
{
    const char *const argv[] = {"openssl", "s_server",  "-accept", "127.0.0.1:0", "-www",
                                "-cert",   certificate, "-key",    key,           NULL};
    char line[200];
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    server->pid = spawn(argv, ends[1]);
    fd_close(ends[1]);
    server->output = fdopen(ends[0], "r");
    assert_non_null(server->output);
    server->port = 0;
    while (!server->port && fgets(line, sizeof(line), server->output))
        (void)sscanf(line, "ACCEPT 127.0.0.1:%hu", &server->port);
    assert_int_not_equal(server->port, 0);
}

static void stop_server(struct server *server)
{
    if (server->pid) {
        (void)kill(server->pid, SIGKILL);
        assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
        (void)fclose(server->output);
    }
    server->pid = 0;
}

static int set_up(void **state)
{
    struct server *server = calloc(1, sizeof(*server));

    if (scratch_directory_make(server->directory) < 0)
        return -1;
    (void)snprintf(server->certificate, sizeof(server->certificate), "%s/c", server->directory);
    (void)snprintf(server->key, sizeof(server->key), "%s/k", server->directory);
    (void)snprintf(server->other, sizeof(server->other), "%s/o", server->directory);
    (void)snprintf(server->other_key, sizeof(server->other_key), "%s/p", server->directory);
    make_certificate(server->certificate, server->key, "subjectAltName=IP:127.0.0.1");
    make_certificate(server->other, server->other_key, "subjectAltName=IP:127.0.0.2");
    *state = server;
    return 0;
}

static int tear_down(void **state)
{
    struct server *server = *state;

    stop_server(server);
    assert_int_equal(scratch_directory_remove(server->directory), 0);
    free(server);
    return 0;
}

static enum http_exchange_end run(struct server *server, const char *ca_file)
{
    cleanup(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct http_exchange_tls tls = {.socket = fd,
                                          .address = "127.0.0.1",
                                          .port = server->port,
                                          .ca_file = ca_file,
                                          .token = "secret"};
    const struct http_exchange_request request = {
        .tls = &tls, .method = "GET", .target = "/", .body_limit = 64 * 1024};
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct error error = {0};
    unsigned status;
    enum http_exchange_end end = http_exchange_perform(
        &request, clock_boottime() + 60 * NSEC_PER_SEC, &status, &body, &error);

    assert_int_equal(end != HTTP_EXCHANGE_ANSWERED, error.text[0] != '\0');
    return end;
}

static void only_what_the_ca_vouches_for_is_believed(void **state)
{
    struct server *server = *state;
    const struct {
        const char *certificate, *key, *ca_file;
        enum http_exchange_end end;
    } cases[] = {
        {server->certificate, server->key, server->certificate, HTTP_EXCHANGE_ANSWERED},
        {server->certificate, server->key, server->other, HTTP_EXCHANGE_UNTRUSTED},
        {server->certificate, server->key, "/nonexistent", HTTP_EXCHANGE_UNTRUSTED},
        {server->certificate, server->key, "/dev/null", HTTP_EXCHANGE_UNTRUSTED},
        {server->other, server->other_key, server->other, HTTP_EXCHANGE_UNTRUSTED}, /* 127.0.0.2 */
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        start_server(server, cases[i].certificate, cases[i].key);
        assert_int_equal(run(server, cases[i].ca_file), cases[i].end);
        stop_server(server);
    }
}

static void refused_connection_is_reported(void **state)
{
    struct server *server = *state;

    start_server(server, server->certificate, server->key);
    stop_server(server);
    assert_int_equal(run(server, server->certificate), HTTP_EXCHANGE_REFUSED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_what_the_ca_vouches_for_is_believed),
        TEST(refused_connection_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
