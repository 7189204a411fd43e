/* SPDX-License-Identifier: Apache-2.0 */
/* http_host.c - addresses are always allowed, because they cannot be rebound; names must be
 * known. */
#include "api/http_host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void http_hosts_add(struct http_hosts *hosts, const char *name)
{
    const size_t length = strlen(name);

    if (length == 0 || length >= HTTP_HOST_BYTES || hosts->count == HTTP_HOSTS)
        return;
    memcpy(hosts->name[hosts->count++], name, length + 1);
}

void http_hosts_add_own(struct http_hosts *hosts)
{
    char name[HTTP_HOST_BYTES] = "";

    if (gethostname(name, sizeof(name) - 1) < 0)
        return;
    http_hosts_add(hosts, name);
    name[strcspn(name, ".")] = '\0';
    http_hosts_add(hosts, name);
}

/* "[::1]:9824", "10.0.0.7:9824", "node-7": cuts off the port and the brackets. */
static bool cut_port(const char *host, char ret_name[static HTTP_HOST_BYTES])
{
    const char *begin = *host == '[' ? host + 1 : host;
    const size_t length = strcspn(begin, *host == '[' ? "]" : ":");
    const char *rest = begin + length;

    if (*host == '[' && *rest++ != ']')
        return false;
    if (*rest == ':')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest || length == 0 || length >= HTTP_HOST_BYTES)
        return false;
    memcpy(ret_name, begin, length);
    ret_name[length] = '\0';
    return true;
}

bool http_hosts_allow(const struct http_hosts *hosts, const char *host)
{
    char name[HTTP_HOST_BYTES];
    struct in6_addr address;

    if (!host)
        return true;
    if (!cut_port(host, name))
        return false;
    if (inet_pton(*host == '[' ? AF_INET6 : AF_INET, name, &address) == 1)
        return true;
    if (*host == '[')
        return false;
    for (unsigned i = 0; i < hosts->count; i++)
        if (strcasecmp(hosts->name[i], name) == 0)
            return true;
    return strcasecmp(name, "localhost") == 0;
}
