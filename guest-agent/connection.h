/* SPDX-License-Identifier: Apache-2.0 */
/* connection.h - one peer that speaks ttrpc to us: frames in, calls out, replies back.
 *
 * A connection runs over a socket, or over a serial line, which has no connections of its own:
 * bytes of one client may be followed by those of the next one without notice. Source of what is
 * tolerated: containerd/ttrpc's and ttrpc-rust's clients (stream ids need not increase, frames
 * other than requests are skipped).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"

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
