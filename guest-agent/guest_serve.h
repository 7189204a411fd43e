/* SPDX-License-Identifier: Apache-2.0 */
/* guest_serve.h - where the agent can be reached.
 *
 *     vsock://PORT          of any cid of ours, for the host alone; the ordinary way
 *     unix://PATH           for tests and for peers in the same guest
 *     serial:///dev/...     a virtio-serial port (or a tty) carrying one client after another
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

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

/* ---- connection ----------------------------------------------------------------------------- */

/* One peer that speaks ttrpc to us: frames in, calls out, replies back.
 *
 * A connection runs over a socket, or over a serial line, which has no connections of its own:
 * bytes of one client may be followed by those of the next one without notice. Source of what is
 * tolerated: containerd/ttrpc's and ttrpc-rust's clients (stream ids need not increase, frames
 * other than requests are skipped).
 */

struct connection;

typedef void connection_ended(struct connection *connection, void *userdata);

/* Takes fd over. `ended` comes once, from the loop, when the peer has gone; the owner then frees
 * the connection. On a serial line malformed bytes are dropped, and so is half a frame after a
 * second of silence. On a socket they end the connection, and so do idle_ns without a complete
 * request while nothing is in progress. 0 or -errno. */
int connection_new(struct loop *loop, int fd, bool serial, uint64_t idle_ns,
                   connection_ended *ended, void *userdata, struct connection **ret_connection);

/* A serial line that `ended` has a peer again, over fd (taken over): requests in progress go on and
 * are answered to it. 0 or -errno. */
int connection_resume(struct connection *connection, int fd);

/* When something was last asked or answered, on the boottime clock; UINT64_MAX while a request is
 * in progress. */
uint64_t connection_idle_since(const struct connection *connection);

/* Drops unanswered requests. NULL is fine; returns NULL. */
struct connection *connection_free(struct connection *connection);

/* ---- auto ----------------------------------------------------------------------------------- */

/* Grows every mounted file system whose device has grown, without being asked, until the program
 * ends. Scans at once, then whenever the kernel reports a change to a block device, and every half
 * minute, because a mount or an event may have been missed. */
void automatic_start(struct loop *loop);
