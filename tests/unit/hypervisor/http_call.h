/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.h - acts on a VMM that a child plays by a script of HTTP answers. The test is the VMM's
 * process: it listens, and has the script's device open.
 */
#pragma once

#include "tests/unit/http_server.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "hypervisor/vmm_process.h"
#include "lib/clock.h"

/* Of unknown length, so that scripts need not count: it ends with the connection. */
#define HTTP_JSON(status, body) "HTTP/1.1 " status " \r\nConnection: close\r\n\r\n" body
#define HTTP_EMPTY              "HTTP/1.1 204 \r\nConnection: close\r\n\r\n"

/* What the child tells the test. */
struct http_play {
    pid_t child;
    volatile size_t position; /* requests that were as expected */
    volatile bool failed;
};

static void http_play_answer(struct http_server *server, struct http_play *play)
{
    const struct http_script *script = &server->script[play->position];
    cleanup(freep) char *answer = http_server_expand(server, script->answer);
    size_t length = strlen(answer), step = server->bytewise ? 1 : length;
    const bool closing = play->position == server->close_at;

    if (closing)
        length /= 2;
    play->position++;
    for (size_t at = 0; at < length; at += step) {
        size_t left = length - at;

        (void)send(server->client, answer + at, left < step ? left : step, MSG_NOSIGNAL);
    }
    if (closing || strstr(answer, "Connection: close"))
        (void)shutdown(server->client, script->expect ? SHUT_WR : SHUT_RDWR);
}

/* Until the client closes, as micro-http does. */
static void http_play_serve(struct http_server *server, struct http_play *play)
{
    const struct http_script *script =
        play->position < server->length ? &server->script[play->position] : NULL;
    cleanup(freep) char *expect = NULL;
    char bytes[4096];
    ssize_t count;

    if (script && !script->expect) {
        http_play_answer(server, play);
        return;
    }
    while ((count = read(server->client, bytes, sizeof(bytes))) > 0) {
        (void)buffer_append(&server->input, bytes, (size_t)count);
        if (!http_server_has_request(server))
            continue;
        expect = http_server_expand(server, script ? script->expect : "no more requests");
        if (!strstr(buffer_text(&server->input), expect)) {
            print_error("expected %s in %s\n", expect, buffer_text(&server->input));
            play->failed = true;
            return;
        }
        buffer_clear(&server->input);
        if (play->position != server->silent_at)
            http_play_answer(server, play);
    }
}

static inline struct http_play *http_play_start(struct http_server *server,
                                                const struct http_script *script, size_t length)
{
    struct http_play *play =
        mmap(NULL, sizeof(*play), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    pid_t child;

    assert_true(play != MAP_FAILED);
    *play = (struct http_play){.failed = false};
    server->script = script;
    server->length = length;
    assert_int_equal(fcntl(server->listener, F_SETFL, 0), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (child == 0) {
        server->client = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        http_play_serve(server, play);
        fd_close(take_fd(&server->client));
        buffer_clear(&server->input);
    }
    play->child = child;
    return play;
}

/* Returns how far the script was played. */
static inline size_t http_play_end(struct http_play *play)
{
    size_t position;

    assert_int_equal(kill(play->child, SIGKILL), 0);
    assert_int_equal(waitpid(play->child, NULL, 0), play->child);
    assert_false(play->failed);
    position = play->position;
    assert_int_equal(munmap(play, sizeof(*play)), 0);
    return position;
}

static inline struct hypervisor_request http_call_request(const struct http_server *server,
                                                          enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = server->root,
        .control_socket = server->path,
        .vmm_pid = getpid(),
        .disk = {.device = server->device_number},
        .bytes = 2048,
        .allowed_ns = 60 * NSEC_PER_SEC,
    };
}

static inline struct hypervisor_reply http_call_act(vmm_act *act,
                                                    const struct hypervisor_request *request)
{
    struct hypervisor_reply reply = {.bytes = 0};

    act(request, clock_boottime() + request->allowed_ns, &reply);
    assert_int_equal(reply.outcome == HYPERVISOR_DONE, !reply.error.text[0]);
    return reply;
}

/* A call that meets the whole script, and nothing but it. */
static inline struct hypervisor_reply http_call_run(struct http_server *server, vmm_act *act,
                                                    const struct hypervisor_request *request,
                                                    const struct http_script *script, size_t length)
{
    struct http_play *play = http_play_start(server, script, length);
    struct hypervisor_reply reply = http_call_act(act, request);

    assert_int_equal(http_play_end(play), length);
    return reply;
}

static inline struct hypervisor_reply http_call_converse(struct http_server *server, vmm_act *act,
                                                         enum hypervisor_act wanted,
                                                         const struct http_script *script,
                                                         size_t length)
{
    struct hypervisor_request request = http_call_request(server, wanted);

    return http_call_run(server, act, &request, script, length);
}

/* Skips the test on a machine without a block device. */
static inline void http_call_need_device(const struct http_server *server)
{
    if (!server->device[0])
        skip();
}

#define HTTP_CALL_TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, http_server_set_up, http_server_tear_down)
