/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.c - libmicrohttpd on the daemon's loop. What becomes of a request is in
 * http_exchange.c.
 *
 * Each of the three listeners (the unix socket, http.listen, metrics.listen) is a microhttpd daemon
 * in epoll mode without a thread: the loop watches its epoll descriptor, calls MHD_run() and keeps
 * a timer for the time-outs that it requests. There are three daemons rather than one with three
 * sockets, so that a client that exhausts the connections of one does not affect the others.
 *
 * Bounds: CONNECTIONS at a time, each with CONNECTION_BYTES of request head, IDLE_SECONDS without a
 * byte in either direction, and what http_exchange.c takes of a body and keeps of answers. Each
 * listener has its own, for the same reason.
 */
#include "api/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http_exchange.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

enum { RUNS = 4 }; /* of microhttpd, in one pass of the loop */

enum {
    CONNECTIONS = 32,
    CONNECTION_BYTES = 8 * 1024,
    IDLE_SECONDS = 10,
    EXAMINATION_BYTES = 1024 * 1024,
};

__attribute__((format(printf, 2, 0))) static void write_log(void *data, const char *format,
                                                            va_list arguments)
{
    char text[256];

    (void)data;
    if (!log_enabled(LOG_DEBUG))
        return;
    (void)vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    log_debug(&(struct log_ids){.source = "http"}, "%s", text);
}

static void set_timer(struct listener *listener);

static bool is_full(const struct listener *listener)
{
    return MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
               ->num_connections >= CONNECTIONS;
}

/* Whether another run has something to do at once. */
static bool has_more(const struct listener *listener)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd waiting = {.fd = info->epoll_fd, .events = POLLIN};
    MHD_UNSIGNED_LONG_LONG milliseconds = 1;

    return poll(&waiting, 1, 0) > 0 ||
           (MHD_get_timeout(listener->daemon, &milliseconds) == MHD_YES && milliseconds == 0);
}

/* One run accepts a connection, the next one reads the request and answers it, another one finds
 * that the client has gone. Between passes of the loop other work has its turn, so a client would
 * wait for it several times.
 *
 * A full microhttpd stops listening, and resumes only at the start of a run after the one in which
 * a connection ended. Nothing else would cause that run. */
static void run_listener(struct listener *listener)
{
    const bool was_full = is_full(listener);

    for (unsigned run = 0; run < RUNS && (run == 0 || has_more(listener)); run++)
        (void)MHD_run(listener->daemon);
    if (was_full && !is_full(listener))
        (void)MHD_run(listener->daemon);
    set_timer(listener);
}

static void on_io(struct loop_io *io, int events)
{
    (void)events;
    run_listener(container_of(io, struct listener, io));
}

static void on_timer(struct loop_timer *timer)
{
    run_listener(container_of(timer, struct listener, timer));
}

void http_listener_wake(struct listener *listener)
{
    loop_timer_start(listener->server->loop, &listener->timer, 0, on_timer);
}

static void set_timer(struct listener *listener)
{
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;

    if (MHD_get_timeout(listener->daemon, &milliseconds) != MHD_YES)
        loop_timer_stop(&listener->timer);
    else
        loop_timer_start(listener->server->loop, &listener->timer, milliseconds * NSEC_PER_MSEC,
                         on_timer);
}

static void close_listener(struct listener *listener)
{
    if (!listener->daemon)
        return;
    listener->stops = true;
    http_exchange_refuse_all(listener);
    (void)MHD_run(listener->daemon);
    loop_io_stop(&listener->io);
    loop_timer_stop(&listener->timer);
    MHD_stop_daemon(listener->daemon);
    listener->daemon = NULL;
}

/* microhttpd takes over the descriptor. */
static int open_listener(struct http_server *server, struct listener *listener, int fd,
                         struct error *error)
{
    const union MHD_DaemonInfo *info;

    listener->server = server;
    listener->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        http_exchange_serve, listener, MHD_OPTION_EXTERNAL_LOGGER, write_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, http_exchange_forget, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, http_exchange_check_uri, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        http_exchange_check_client, listener, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!listener->daemon)
        return error_set(error, -ENOMEM, "cannot start the HTTP server");
    info = MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    loop_io_start(server->loop, &listener->io, info->epoll_fd, LOOP_READ, on_io);
    set_timer(listener);
    return 0;
}

/* If the address is "" or NULL, the listener stays closed. */
static int open_tcp_listener(struct http_server *server, struct listener *listener, const char *key,
                             const char *address, struct error *error)
{
    int fd = -1;
    int result;

    if (!address || !*address)
        return 0;
    result = http_listen_tcp(key, address, &fd, error);
    return result == 0 ? open_listener(server, listener, fd, error) : result;
}

static int open_listeners(struct http_server *server, const struct http_server_options *options,
                          struct error *error)
{
    struct listener *listener = server->listener;
    int result = unix_socket_listen(options->root, options->socket_path, options->socket_group,
                                    &server->unix_socket, error);

    if (result == 0)
        result = open_listener(server, &listener[HTTP_LISTENER_SOCKET],
                               take_fd(&server->unix_socket.fd), error);
    if (result == 0)
        result = open_tcp_listener(server, &listener[HTTP_LISTENER_PAGES], "http.listen",
                                   options->listen, error);
    if (result == 0)
        result = open_tcp_listener(server, &listener[HTTP_LISTENER_METRICS], "metrics.listen",
                                   options->metrics_listen, error);
    return result;
}

int http_server_new(struct loop *loop, struct reconciler *reconciler,
                    const struct http_server_options *options, struct http_server **ret_server,
                    struct error *error)
{
    struct http_server *server = calloc(1, sizeof(*server));
    int result;

    if (!server)
        return error_set(error, -ENOMEM, "cannot start the HTTP server: out of memory");
    server->loop = loop;
    server->reconciler = reconciler;
    server->operations = options->operations;
    server->unix_socket = (struct unix_socket)UNIX_SOCKET_INIT;
    for (unsigned i = 0; i < HTTP_LISTENERS; i++)
        server->listener[i].kind = (enum http_listener)i;
    server->hosts = options->hosts;
    http_hosts_add_own(&server->hosts);
    buffer_init(&server->examination.findings, EXAMINATION_BYTES);
    result = open_listeners(server, options, error);
    if (result < 0) {
        http_server_free(server);
        return result;
    }
    *ret_server = server;
    return 0;
}

struct http_server *http_server_free(struct http_server *server)
{
    if (!server)
        return NULL;
    for (unsigned i = 0; i < HTTP_LISTENERS; i++)
        close_listener(&server->listener[i]);
    unix_socket_close(&server->unix_socket);
    loop_timer_stop(&server->next_pass);
    buffer_done(&server->examination.findings);
    free(server);
    return NULL;
}

/* ---- http listen ---------------------------------------------------------------------------- */

/* Http.listen and metrics.listen: TCP sockets. */

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

/* ---- http host ------------------------------------------------------------------------------ */

/* Addresses are always allowed, because they cannot be rebound; names must be
 * known. */

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
