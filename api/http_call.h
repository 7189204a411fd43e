/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.h - a request that is answered once the reconciler has the result. Private to api/. */
#pragma once

#include "api/http_asked.h"
#include "api/http_routes.h"
#include "api/operations.h"
#include "lib/loop.h"

struct http_call;

struct http_call_options {
    struct loop *loop;
    struct reconciler *reconciler;
    struct operations *operations;
};

/* The callee takes over the reply's bytes; the call is freed afterwards. */
typedef void http_call_done(void *userdata, struct http_reply *reply);

enum { HTTP_CALL_LATER = 1 };

/* 0: ret_reply has the answer. HTTP_CALL_LATER: exactly one `done` follows, from the loop, never
 * from within this call. -ENOMEM. */
int http_call_begin(const struct http_call_options *options, const struct http_asked *asked,
                    http_call_done *done, void *userdata, struct http_reply *ret_reply,
                    struct http_call **ret_call);

/* The answer is no longer wanted; a resize that was begun continues. Returns NULL. */
struct http_call *http_call_cancel(struct http_call *call);
