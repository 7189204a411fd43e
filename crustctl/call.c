/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - the daemon answers a resize when the guest has grown. Until then this process has time:
 * the request is on a loop, and so is a timer that has progress shown. */
#include "crustctl/call.h"

#include <errno.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/json.h"
#include "lib/loop.h"

enum { ANSWER_BYTES = 64 * 1024 };

/* The daemon gives up after 120 s, and says so. */
static const uint64_t DEADLINE_NS = 130 * NSEC_PER_SEC;
static const uint64_t PROGRESS_NS = 500 * NSEC_PER_MSEC;

struct call {
    struct loop loop;
    struct loop_timer timer;
    const struct call_request *request;
    const char *socket;
    unsigned *ret_status;
    struct buffer *ret_body;
    struct error *error;
    int result;
};

static void on_progress(struct loop_timer *timer)
{
    struct call *call = container_of(timer, struct call, timer);

    call->request->progress(call->request->userdata);
    loop_timer_start(&call->loop, timer, PROGRESS_NS, on_progress);
}

static int take_refusal(const struct call *call, const struct http_exchange_answer *answer)
{
    cleanup(json_deletep) cJSON *reply = NULL;
    const char *message = NULL;

    if (json_parse(answer->body, answer->length, JSON_LIMITS_HTTP, &reply, NULL) == 0)
        message = json_string(reply, "message");
    return error_set(call->error, SOURCE_REFUSED, "%s (HTTP status %u)",
                     message ? message : "the daemon refused", answer->status);
}

static void on_answer(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                      void *userdata)
{
    struct call *call = userdata;

    (void)exchange;
    loop_stop(&call->loop);
    if (answer->end == HTTP_EXCHANGE_NO_SOCKET || answer->end == HTTP_EXCHANGE_REFUSED) {
        call->result =
            error_set(call->error, SOURCE_UNREACHABLE, "no daemon answers on %s", call->socket);
        return;
    }
    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        call->result = error_set(call->error, -EPROTO, "%s: %s", call->socket, answer->error.text);
        return;
    }
    *call->ret_status = answer->status;
    call->result = answer->status == 200
                       ? buffer_append(call->ret_body, answer->body, answer->length)
                       : take_refusal(call, answer);
}

static int run(struct call *call, int root)
{
    const struct http_exchange_request request = {
        .directory = root,
        .socket_path = call->socket,
        .method = call->request->method,
        .target = call->request->target,
        .body = call->request->body,
        .body_limit = ANSWER_BYTES,
        .deadline_ns = DEADLINE_NS,
    };
    struct http_exchange *exchange = NULL;

    if (http_exchange_new(&call->loop, &request, on_answer, call, &exchange) < 0)
        return error_set(call->error, -ENOMEM, "out of memory");
    if (call->request->progress)
        loop_timer_start(&call->loop, &call->timer, PROGRESS_NS, on_progress);
    loop_run(&call->loop);
    loop_timer_stop(&call->timer);
    (void)http_exchange_free(exchange);
    return call->result;
}

int call_daemon(struct source *source, const struct call_request *request, unsigned *ret_status,
                struct buffer *ret_body, struct error *error)
{
    struct call call = {.request = request,
                        .socket = source_config(source)->paths.http_socket,
                        .ret_status = ret_status,
                        .ret_body = ret_body,
                        .error = error};
    int result = loop_init(&call.loop);

    if (result < 0)
        return error_set_errno(error, result, "cannot make an event loop");
    result = run(&call, source_root(source));
    loop_done(&call.loop);
    return result;
}
