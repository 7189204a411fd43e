/* SPDX-License-Identifier: Apache-2.0 */
/* http_listen.h - a TCP socket of the HTTP server. Private to api/. */
#pragma once

#include "lib/result.h"

/* Listens on "ADDRESS:PORT", "[ADDRESS]:PORT" or ":PORT" (numbers only, so that nothing waits for a
 * name server). "[::]" means every address of either family. `key` is the configuration key, for
 * the error text. 0 or -errno with a text. */
int http_listen_tcp(const char *key, const char *address, int *ret_fd, struct error *error);
