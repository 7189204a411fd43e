/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.h - a scripted HTTP server on a unix socket, in the test's own loop.
 *
 * It expects requests in an order, each on a connection of its own, and answers from the script:
 * whole or byte by byte, or never, or by hanging up in mid-answer. It keeps a connection open after
 * its answer, as micro-http does, unless that says "Connection: close".
 */
#pragma once

#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/loop.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

enum { HTTP_SERVER_NEVER = 99 };

/* What is expected to be in a request (NULL: it is not even read), and the answer. In both, $DEVICE
 * stands for the path of a block device. */
struct http_script {
    const char *expect;
    const char *answer;
};

struct http_server {
    struct loop loop;
    char directory[SCRATCH_BYTES], path[96];
    char device[280]; /* some block device; "" the machine has none */
    dev_t device_number;
    int held; /* it is open, as a VMM would have it */
    int root; /* O_PATH of / */
    int listener, client;
    struct loop_io accepting, reading;
    struct loop_timer writer;
    struct buffer input, output;
    const struct http_script *script;
    size_t length, position;
    bool bytewise;    /* one byte in each turn of the loop */
    size_t silent_at; /* never answers this request */
    size_t close_at;  /* hangs up after half of this answer */
    bool closing;
};

static void http_server_hang_up(struct http_server *server)
{
    loop_io_stop(&server->reading);
    loop_timer_stop(&server->writer);
    buffer_clear(&server->input);
    buffer_clear(&server->output);
    fd_close(take_fd(&server->client));
}

static void http_server_on_writer(struct loop_timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, writer);
    size_t length = server->bytewise ? 1 : server->output.length;

    if (server->output.length) {
        ssize_t sent = send(server->client, server->output.data, length, MSG_NOSIGNAL);

        buffer_consume(&server->output, sent < 0 ? server->output.length : (size_t)sent);
    }
    if (server->output.length)
        loop_timer_start(&server->loop, timer, 0, http_server_on_writer);
    else if (server->closing)
        http_server_hang_up(server);
}

static char *http_server_expand(const struct http_server *server, const char *text)
{
    struct buffer expanded = BUFFER_INIT(0);

    assert_int_equal(buffer_append_text(&expanded, ""), 0);
    while (*text) {
        size_t plain = strcspn(text, "$");

        assert_int_equal(buffer_append(&expanded, text, plain), 0);
        text += plain;
        if (strncmp(text, "$DEVICE", 7) == 0) {
            assert_int_equal(buffer_append_text(&expanded, server->device), 0);
            text += 7;
        }
    }
    return expanded.data ? expanded.data : strdup("");
}

static void http_server_answer(struct http_server *server)
{
    const struct http_script *script = &server->script[server->position];
    cleanup(freep) char *answer = http_server_expand(server, script->answer);
    size_t length = strlen(answer);

    if (script->expect) {
        cleanup(freep) char *expect = http_server_expand(server, script->expect);

        if (!strstr(buffer_text(&server->input), expect))
            print_error("expected %s in %s\n", expect, buffer_text(&server->input));
        assert_non_null(strstr(buffer_text(&server->input), expect));
    }
    if (server->position == server->silent_at)
        return;
    server->closing = server->position == server->close_at;
    server->position++;
    assert_int_equal(buffer_append(&server->output, answer, server->closing ? length / 2 : length),
                     0);
    server->closing |= strstr(answer, "Connection: close") != NULL;
    loop_timer_start(&server->loop, &server->writer, 0, http_server_on_writer);
}

/* The whole request is there: its headers, and as many bytes of a body as they say. */
static bool http_server_has_request(const struct http_server *server)
{
    const char *text = buffer_text(&server->input), *end = strstr(text, "\r\n\r\n");
    const char *length = strstr(text, "Content-Length: ");

    return end && (!length || strlen(end + 4) >= strtoul(length + 16, NULL, 10));
}

static void http_server_on_reading(struct loop_io *io, int events)
{
    struct http_server *server = container_of(io, struct http_server, reading);
    char bytes[4096];
    ssize_t count = read(server->client, bytes, sizeof(bytes));

    if (count <= 0) {
        http_server_hang_up(server);
        return;
    }
    assert_int_equal(buffer_append(&server->input, bytes, (size_t)count), 0);
    if (!http_server_has_request(server))
        return;
    assert_true(server->position < server->length);
    http_server_answer(server);
    buffer_clear(&server->input);
}

static void http_server_on_accepting(struct loop_io *io, int events)
{
    struct http_server *server = container_of(io, struct http_server, accepting);

    http_server_hang_up(server); /* the connection before: its client has gone */
    server->client = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(server->client >= 0);
    loop_io_start(&server->loop, &server->reading, server->client, LOOP_READ,
                  http_server_on_reading);
    if (server->position < server->length && !server->script[server->position].expect)
        http_server_answer(server);
}

static void http_server_find_device(struct http_server *server)
{
    cleanup(dir_closep) DIR *directory = opendir("/dev");
    struct dirent *entry;
    struct stat st;

    while (directory && (entry = readdir(directory))) {
        (void)snprintf(server->device, sizeof(server->device), "/dev/%s", entry->d_name);
        if (stat(server->device, &st) == 0 && S_ISBLK(st.st_mode)) {
            server->device_number = st.st_rdev;
            server->held = open(server->device, O_PATH | O_CLOEXEC);
            return;
        }
    }
    server->device[0] = '\0';
}

static int http_server_set_up(void **state)
{
    static struct http_server server;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    server = (struct http_server){
        .held = -1,
        .listener = -1,
        .client = -1,
        .silent_at = HTTP_SERVER_NEVER,
        .close_at = HTTP_SERVER_NEVER,
    };
    assert_int_equal(loop_init(&server.loop), 0);
    assert_int_equal(scratch_directory_make(server.directory), 0);
    (void)snprintf(server.path, sizeof(server.path), "%s/api.sock", server.directory);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", server.path);
    assert_int_equal(path_open_root("/", &server.root), 0);
    http_server_find_device(&server);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    *state = &server;
    return 0;
}

static int http_server_tear_down(void **state)
{
    struct http_server *server = *state;

    http_server_hang_up(server);
    loop_io_stop(&server->accepting);
    fd_close(server->listener);
    fd_close(server->held);
    fd_close(server->root);
    buffer_done(&server->input);
    buffer_done(&server->output);
    loop_done(&server->loop);
    return scratch_directory_remove(server->directory);
}

static inline void http_server_listen(struct http_server *server, const struct http_script *script,
                                      size_t length)
{
    server->script = script;
    server->length = length;
    server->position = 0;
    assert_int_equal(listen(server->listener, 8), 0);
    loop_io_start(&server->loop, &server->accepting, server->listener, LOOP_READ,
                  http_server_on_accepting);
}

#define HTTP_NO_CONTENT "HTTP/1.1 204 \r\nServer: x\r\nConnection: keep-alive\r\n\r\n"
#define HTTP_FULL                                                                                  \
    "HTTP/1.1 503\r\nServer: Firecracker API\r\nConnection: close\r\nContent-Length: 40\r\n\r\n"   \
    "{ \"error\": \"Too many open connections\" }"
