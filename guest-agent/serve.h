/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - where the agent can be reached.
 *
 *     vsock://PORT          of any cid of ours, for the host alone; the ordinary way
 *     unix://PATH           for tests and for peers in the same guest
 *     serial:///dev/...     a virtio-serial port (or a tty) carrying one client after another
 */
#pragma once

#include <errno.h>

#include "lib/loop.h"
#include "lib/result.h"

/* At once, on one socket. One more takes the place of the one that has been idle for longest; it is
 * closed where none is idle. */
enum { SERVE_CONNECTIONS = 16 };

struct server;

enum server_failure { SERVER_NO_ADDRESS = -EINVAL /* it is none of these three forms */ };

/* Starts serving. A connection over a socket ends after idle_ns without a request. A serial port
 * may appear later; a socket must be possible now. 0, SERVER_NO_ADDRESS or another -errno, with
 * a text. */
int server_new(struct loop *loop, const char *address, uint64_t idle_ns, struct server **ret_server,
               struct error *error);
struct server *server_free(struct server *server); /* NULL is fine; returns NULL */
