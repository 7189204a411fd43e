/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.h - calls to a VMM that the scripted HTTP server plays. The test is the VMM's process.
 */
#pragma once

#include "tests/unit/http_server.h"

#include "hypervisor/hypervisor.h"
#include "lib/clock.h"

/* Of unknown length, so that scripts need not count: it ends with the connection. */
#define HTTP_JSON(status, body) "HTTP/1.1 " status " \r\nConnection: close\r\n\r\n" body

struct http_call {
    struct http_server *server;
    unsigned count;
    struct hypervisor_reply reply;
};

static void http_call_on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                              void *userdata)
{
    struct http_call *made = userdata;

    made->count++;
    made->reply = *reply;
    assert_int_equal(reply->error.code, (int)reply->outcome);
    assert_true(reply->outcome == HYPERVISOR_DONE || reply->error.text[0]);
    (void)hypervisor_call_free(call);
    loop_stop(&made->server->loop);
}

static struct hypervisor_request http_call_request(const struct http_server *server,
                                                   enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = server->root,
        .control_socket = server->path,
        .vmm_pid = getpid(),
        .device = server->device_number,
        .bytes = 2048,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static struct hypervisor_reply http_call_run(struct http_server *server, enum hypervisor_kind kind,
                                             const struct hypervisor_request *request)
{
    struct http_call made = {.server = server};
    struct hypervisor_call *call;

    assert_int_equal(
        hypervisor_call_new(&server->loop, kind, request, http_call_on_done, &made, &call), 0);
    assert_int_equal(made.count, 0);
    loop_run(&server->loop);
    assert_int_equal(made.count, 1);
    return made.reply;
}

/* A call that meets the whole script, and nothing but it. */
static struct hypervisor_reply http_call_converse(struct http_server *server,
                                                  enum hypervisor_kind kind,
                                                  enum hypervisor_act act,
                                                  const struct http_script *script, size_t length)
{
    struct hypervisor_request request = http_call_request(server, act);
    struct hypervisor_reply reply;

    http_server_listen(server, script, length);
    reply = http_call_run(server, kind, &request);
    assert_int_equal(server->position, length);
    return reply;
}

/* Skips the test on a machine without a block device. */
static void http_call_need_device(const struct http_server *server)
{
    if (!server->device[0])
        skip();
}

#define HTTP_CALL_TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, http_server_set_up, http_server_tear_down)
