/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client.c - one call: an exchange that resizes, an exchange that asks for the size.
 *
 * Each has its own connection, and both share the call's deadline. An exchange owns the body of its
 * answer, so it is freed last; the call may have been freed by then, so the exchange is kept in a
 * local variable. call_report() is the last thing that touches a call: its owner may free it there.
 *
 * The shim finishes a request even if the connection is closed. That does no harm: the agent's
 * calls may be repeated, and the next one gets the result.
 */
#include "agent-client/shim_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"

struct shim_call {
    struct loop *loop;
    int root;
    char *socket_path, *volume;
    struct listener listener;
    enum shim_dialect dialect;
    uint64_t ends_at; /* on clock_boottime() */
    bool stats_only;
    bool resized; /* the first half is done */
    struct http_exchange *exchange;
    shim_done *done;
    void *userdata;
};

static void on_answer(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                      void *userdata);

static int call_send(struct shim_call *call, const struct shim_query *query)
{
    uint64_t now = clock_boottime();
    struct http_exchange_request request = {
        .directory = call->root,
        .socket_path = call->socket_path,
        .listener = call->listener,
        .method = query->method,
        .target = buffer_text(&query->target),
        .body = query->body.length ? buffer_text(&query->body) : NULL,
        .body_limit = AGENT_REPLY_BYTES,
        .deadline_ns = call->ends_at > now ? call->ends_at - now : 1,
    };

    return http_exchange_new(call->loop, &request, on_answer, call, &call->exchange);
}

static int call_resize(struct shim_call *call, uint64_t bytes)
{
    cleanup(shim_query_done) struct shim_query query = {0};
    int r = shim_query_resize(&query, call->dialect, call->volume, bytes);

    return r < 0 ? r : call_send(call, &query);
}

static int call_ask_stats(struct shim_call *call)
{
    cleanup(shim_query_done) struct shim_query query = {0};
    int r = shim_query_stats(&query, call->dialect, call->volume);

    return r < 0 ? r : call_send(call, &query);
}

static void call_report(struct shim_call *call, struct agent_reply *reply)
{
    if (!call->stats_only)
        reply->stats_outcome = reply->outcome;
    if (call->resized)
        reply->outcome = AGENT_DONE;
    call->done(call, reply, call->userdata);
}

static enum agent_outcome outcome_of(const struct shim_call *call,
                                     const struct http_exchange_answer *answer, struct error *error)
{
    if (answer->end == HTTP_EXCHANGE_ANSWERED)
        return shim_outcome(answer->status, answer->body, answer->length, error);
    if (answer->end == HTTP_EXCHANGE_NOTHING && call->dialect == SHIM_RUST) {
        (void)error_set(error, 0,
                        "the shim closed the connection without a status, as Kata's Rust shim does "
                        "whatever the agent's error is; its log says which");
        return AGENT_UNEXPLAINED;
    }
    (void)error_set(error, 0, "the shim: %s", answer->error.text);
    return AGENT_UNREACHABLE;
}

static void read_stats(const struct shim_call *call, const struct http_exchange_answer *answer,
                       struct agent_reply *reply)
{
    if (shim_parse_stats(call->dialect, answer->body, answer->length, &reply->stats) == 0)
        return;
    reply->outcome = AGENT_FAILED;
    (void)error_set(&reply->error, 0, "the shim's answer to stats cannot be understood");
}

static void on_answer(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                      void *userdata)
{
    struct shim_call *call = userdata;
    struct agent_reply reply = {0};
    int r = 0;

    call->exchange = NULL;
    reply.outcome = outcome_of(call, answer, &reply.error);
    if (reply.outcome == AGENT_DONE && (call->resized || call->stats_only)) {
        read_stats(call, answer, &reply);
    } else if (reply.outcome == AGENT_DONE) {
        call->resized = true;
        r = call_ask_stats(call);
        if (r < 0) {
            reply.outcome = AGENT_UNREACHABLE;
            (void)error_set_errno(&reply.error, r, "cannot ask the shim for stats");
        }
    }
    if (!call->exchange)
        call_report(call, &reply);
    (void)http_exchange_free(exchange);
}

int shim_call_new(struct loop *loop, const struct shim_request *request, shim_done *done,
                  void *userdata, struct shim_call **ret_call)
{
    struct shim_call *call = calloc(1, sizeof(*call));
    int r;

    if (!call)
        return -ENOMEM;
    call->loop = loop;
    call->root = request->root;
    call->listener = request->listener;
    call->dialect = request->dialect;
    call->ends_at = clock_boottime() + request->deadline_ns;
    call->stats_only = request->act == AGENT_STATS;
    call->done = done;
    call->userdata = userdata;
    call->socket_path = strdup(request->socket_path);
    call->volume = strdup(request->volume);
    r = !call->socket_path || !call->volume ? -ENOMEM
        : call->stats_only                  ? call_ask_stats(call)
                                            : call_resize(call, request->bytes);
    if (r < 0) {
        (void)shim_call_free(call);
        return r;
    }
    *ret_call = call;
    return 0;
}

struct shim_call *shim_call_free(struct shim_call *call)
{
    if (!call)
        return NULL;
    (void)http_exchange_free(call->exchange);
    free(call->socket_path);
    free(call->volume);
    free(call);
    return NULL;
}
