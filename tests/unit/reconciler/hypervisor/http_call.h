/* http_call.h - calls to a VMM that the scripted HTTP server plays. The test is the VMM's process.
 */
#pragma once

#include "tests/unit/http_server.h"

#include "lib/clock.h"
#include "reconciler/hypervisor/hypervisor.h"

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
        .firecracker_allowed = true,
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
