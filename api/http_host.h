/* SPDX-License-Identifier: Apache-2.0 */
/* http_host.h - by which names a browser may ask for the pages.
 *
 * A page of some website can have its own name lead to this machine (DNS rebinding), and then read
 * what http.listen serves as if it were its own. Its name gives it away: a browser always says in
 * Host by which name it asks.
 */
#pragma once

#include <stdbool.h>

enum {
    HTTP_HOSTS = 20,
    HTTP_HOST_BYTES = 256, /* a DNS name has 253 at most */
};

struct http_hosts {
    unsigned count;
    char name[HTTP_HOSTS][HTTP_HOST_BYTES];
};

/* One that does not fit is left out: it names nothing. */
void http_hosts_add(struct http_hosts *hosts, const char *name);

/* What this machine calls itself, with its domain and without. */
void http_hosts_add_own(struct http_hosts *hosts);

/* A Host header's value, with or without a port: an address, localhost, or one of the names in any
 * letter case. NULL, as HTTP/1.0 has it, is no browser's. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);
