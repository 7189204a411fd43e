/* SPDX-License-Identifier: Apache-2.0 */
/* http_host.h - the names by which a browser may request the pages.
 *
 * A page of some website can make its own name resolve to this machine (DNS rebinding), and then
 * read what http.listen serves as if it were its own. The name in the Host header reveals this,
 * because a browser always sends the name that it used.
 */
#pragma once

#include <stdbool.h>

enum {
    HTTP_HOSTS = 20,
    HTTP_HOST_BYTES = 256, /* a DNS name has at most 253 */
};

struct http_hosts {
    unsigned count;
    char name[HTTP_HOSTS][HTTP_HOST_BYTES];
};

/* Adds a name. A name that does not fit is ignored: no Host header can match it. */
void http_hosts_add(struct http_hosts *hosts, const char *name);

/* Adds this machine's own name, with and without its domain. */
void http_hosts_add_own(struct http_hosts *hosts);

/* Whether a Host header's value, with or without a port, is an address, localhost, or one of the
 * names in any letter case. NULL is allowed: HTTP/1.0 clients omit the header, browsers do not. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);
