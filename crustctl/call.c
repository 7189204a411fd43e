/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - one HTTP exchange on the source's loop, and a timer that shows progress.
 *
 * The daemon answers a resize when it is finished, and everything else at once. Showing progress
 * asks the daemon as well, so a call may run inside another one: each runs the loop until its own
 * answer is there. */
#include "crustctl/source.h"

#include <errno.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/json.h"
#include "lib/loop.h"

enum { ANSWER_BYTES = 64 * 1024 * 1024 };

static const uint64_t PROGRESS_NS = 500 * NSEC_PER_MSEC;

struct call {
    struct loop *loop;
    struct loop_timer timer;
    bool answered;
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
    loop_timer_start(call->loop, timer, PROGRESS_NS, on_progress);
}

static int take_refusal(const struct call *call, const struct http_exchange_answer *answer)
{
    cleanup(json_deletep) cJSON *reply = NULL;
    const char *message = NULL;

    if (json_parse(answer->body, answer->length, JSON_LIMITS_HTTP, &reply, NULL) == 0)
        message = json_string(reply, "message");
    return message
               ? error_set(call->error, SOURCE_REFUSED, "%s", message)
               : error_set(call->error, SOURCE_REFUSED,
                           "the daemon refused without a word (HTTP status %u)", answer->status);
}

static void on_answer(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                      void *userdata)
{
    struct call *call = userdata;

    (void)exchange;
    call->answered = true;
    if (answer->is_forbidden) {
        call->result =
            error_set(call->error, -EACCES,
                      "no permission to ask the daemon on %s: be root, or in the group that "
                      "paths.socket_group names",
                      call->socket);
        return;
    }
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
    call->result = buffer_append(call->ret_body, answer->body, answer->length);
    if (call->result == 0 && (answer->status < 200 || answer->status > 299))
        call->result = take_refusal(call, answer);
}

int call_daemon(struct source *source, const struct call_request *request, unsigned *ret_status,
                struct buffer *ret_body, struct error *error)
{
    struct call call = {.loop = source_loop(source),
                        .request = request,
                        .socket = source_config(source)->paths.http_socket,
                        .ret_status = ret_status,
                        .ret_body = ret_body,
                        .error = error};
    const struct http_exchange_request exchange_request = {
        .directory = source_root(source),
        .socket_path = call.socket,
        .method = request->method,
        .target = request->target,
        .body = request->body,
        .body_limit = ret_body->limit ? ret_body->limit : ANSWER_BYTES,
        .deadline_ns = request->deadline_seconds * NSEC_PER_SEC,
    };
    struct http_exchange *exchange = NULL;

    if (http_exchange_new(call.loop, &exchange_request, on_answer, &call, &exchange) < 0)
        return error_set(error, -ENOMEM, "out of memory");
    if (request->progress)
        loop_timer_start(call.loop, &call.timer, PROGRESS_NS, on_progress);
    while (!call.answered)
        loop_run_once(call.loop);
    loop_timer_stop(&call.timer);
    (void)http_exchange_free(exchange);
    return call.result;
}
