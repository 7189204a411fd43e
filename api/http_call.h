/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.h - a request that is answered once the reconciler has the result. Private to api/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/http_asked.h"
#include "api/http_routes.h"
#include "api/operations.h"
#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"

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

/* ---- http volume ---------------------------------------------------------------------------- */

/* One volume: its row, and all that explains it. */

struct reconciler;
struct store_reader;

enum http_volume_failure { HTTP_VOLUME_UNKNOWN = -ENOENT /* there is no such volume */ };

/* Each appends a JSON object about the volume with this id. 0, HTTP_VOLUME_UNKNOWN, another -errno
 * with a text. */
int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error);

/* {"volume_id","target_path","state","reason","resizable","resizable_reason", the members of
 * advice_append(), "volume":{…},"mapping","sandbox","resize","cleanup":{…}|null,"layers":[…],
 * "journal":[…],"judged":[…]|null}: the explanation, and the newest rows of the views. judge:
 * whether its metadata is judged now, which costs a look at the node; else "judged" is missing. */
int http_volume_explain(struct reconciler *reconciler, int64_t volume_id, bool judge,
                        struct buffer *json, struct error *error);
