/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.h - one blocking HTTP request over a unix socket, for crustctl.
 *
 * The daemon never uses this: it has no blocking calls.
 */
#pragma once

#include "lib/buffer.h"
#include "lib/result.h"

/* Outcome of http_request(). */
enum { HTTP_UNREACHABLE = 1 }; /* nothing listens there */

/* Sends one request and reads the whole answer, at most ret_body's limit. `body` is JSON, or NULL
 * for none. Any status is a success: ret_status tells. No redirects, no proxies.
 * 0, HTTP_UNREACHABLE, -ETIMEDOUT, -EMSGSIZE, -ENOMEM, -EPROTO. ret_body is appended to. */
int http_request(const char *socket_path, const char *method, const char *path_and_query,
                 const char *body, unsigned timeout_seconds, long *ret_status,
                 struct buffer *ret_body, struct error *error);
