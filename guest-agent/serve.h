/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - where the agent can be reached.
 *
 *     vsock://PORT          any cid; the ordinary way
 *     unix://PATH           for tests and for peers in the same guest
 *     serial:///dev/...     a virtio-serial port (or a tty) carrying one client after another
 */
#pragma once

#include "lib/loop.h"
#include "lib/result.h"

enum { SERVE_CONNECTIONS = 16 }; /* at once, on one socket; another one is closed at once */

struct server;

/* Starts serving. A serial port may appear later; a socket must be possible now. 0, -EINVAL (no
 * such address), -errno, with a text. */
int server_new(struct loop *loop, const char *address, struct server **ret_server,
               struct error *error);
struct server *server_free(struct server *server); /* NULL is fine; returns NULL */
