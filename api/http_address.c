/* SPDX-License-Identifier: Apache-2.0 */
/* http_address.c - where HTTP over TCP is served, and by which names. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http_server.h"
#include "lib/cleanup.h"

enum { BACKLOG = 128 };

/* The failures of listening that are distinguished. */
enum {
    WRONG_ADDRESS = -EINVAL, /* not numeric */
    NO_FAMILY = -EAFNOSUPPORT,
    ABSENT_ADDRESS = -EADDRNOTAVAIL,
};

/* "[::1]:80" -> "::1", "80"; "localhost:80" -> "127.0.0.1", "80". */
static int split_address(const char *address, char *ret_host, size_t size, const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    size_t length;

    if (!colon || colon[1] == '\0')
        return WRONG_ADDRESS;
    length = (size_t)(colon - address);
    if (length >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        length -= 2;
    }
    if (length >= size)
        return WRONG_ADDRESS;
    memcpy(ret_host, address, length);
    ret_host[length] = '\0';
    if (strcmp(ret_host, "localhost") == 0)
        (void)snprintf(ret_host, size, "127.0.0.1");
    *ret_port = colon + 1;
    return 0;
}

/* [::] means every address of either family, regardless of net.ipv6.bindv6only. */
static int take_both_families(int fd, const struct addrinfo *info)
{
    const struct sockaddr_in6 *address = (const struct sockaddr_in6 *)(const void *)info->ai_addr;
    const int off = 0;

    if (info->ai_family != AF_INET6 || !IN6_IS_ADDR_UNSPECIFIED(&address->sin6_addr))
        return 0;
    return setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

static int listen_on(const struct addrinfo *info, int *ret_fd)
{
    cleanup(fd_closep) int fd =
        socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        take_both_families(fd, info) < 0 || bind(fd, info->ai_addr, info->ai_addrlen) < 0 ||
        listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int listen_at(const char *host, const char *port, int *ret_fd)
{
    const struct addrinfo hints = {
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
        .ai_socktype = SOCK_STREAM,
    };
    struct addrinfo *info = NULL;
    int result;

    if (getaddrinfo(*host ? host : NULL, port, &hints, &info) != 0)
        return WRONG_ADDRESS;
    result = listen_on(info, ret_fd);
    freeaddrinfo(info);
    return result;
}

int http_listen_tcp(const char *key, const char *address, int *ret_fd, struct error *error)
{
    const char *port;
    char host[64];
    int result = split_address(address, host, sizeof(host), &port);

    if (result == 0)
        result = listen_at(host, port, ret_fd);
    /* The kernel may have been booted without IPv6. */
    if ((result == NO_FAMILY || result == ABSENT_ADDRESS) && strcmp(host, "::") == 0)
        result = listen_at("0.0.0.0", port, ret_fd);
    if (result == WRONG_ADDRESS)
        return error_set(error, WRONG_ADDRESS, "%s: \"%s\" is not a numeric ADDRESS:PORT", key,
                         address);
    if (result < 0)
        return error_set_errno(error, result, "%s: cannot listen on %s", key, address);
    return 0;
}

/* ---- the Host header ---- */

/* Addresses are always allowed, because they cannot be rebound; names must be known. */

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
