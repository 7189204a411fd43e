/* http_server_test.c - the HTTP server on a real loop, a real store and real sockets.
 *
 * The reconciler is three functions here. Clients are raw sockets on the same loop, because what is
 * tested is what a client can do wrong. A test that hangs is ended by the loop's own watchdog.
 */
#include "reconciler/serve/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/path.h"
#include "store/read.h"
#include "store/store.h"
#include "tests/unit/test.h"

/* ---- the reconciler, as far as the server sees it ---- */

struct reconciler {
    struct store *store;
    struct reconciler_health health;
    unsigned resyncs;
};

struct store_reader *reconciler_reader(struct reconciler *reconciler)
{
    return store_get_reader(reconciler->store);
}

void reconciler_resync(struct reconciler *reconciler)
{
    reconciler->resyncs++;
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    *ret_health = reconciler->health;
}

/* ---- one server with its surroundings ---- */

enum { WATCHDOG_SECONDS = 60 };

struct fixture {
    struct loop loop;
    struct loop_timer watchdog;
    struct reconciler reconciler;
    struct http_server *server;
    char directory[64];
    int root;
    unsigned port; /* of http.listen */
};

static void on_watchdog(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("the loop hangs");
}

static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    cleanup(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static struct http_server_options options_of(struct fixture *fixture)
{
    return (struct http_server_options){.root = fixture->root, .socket_path = "/run/http.sock"};
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct http_server_options options;
    char listen_address[32];
    struct error error = {0};

    (void)snprintf(fixture->directory, sizeof(fixture->directory), "/tmp/http-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    assert_int_equal(loop_init(&fixture->loop), 0);
    assert_int_equal(store_open(&(struct store_options){.boot_id = "boot", .max_rows = 1000000},
                                &fixture->reconciler.store, &error),
                     0);
    fixture->reconciler.health = (struct reconciler_health){
        .synced = true, .sources = 1, .source = {{"inotify", true, 7, 0}}};
    fixture->port = free_port();
    (void)snprintf(listen_address, sizeof(listen_address), "127.0.0.1:%u", fixture->port);
    options = options_of(fixture);
    options.listen = listen_address;
    if (http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error))
        fail_msg("%s", error.text);
    loop_timer_start(&fixture->loop, &fixture->watchdog, WATCHDOG_SECONDS * NSEC_PER_SEC,
                     on_watchdog);
    *state = fixture;
    return 0;
}

static void remove_below(const struct fixture *fixture, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s%s", fixture->directory, name);
    (void)remove(path);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    http_server_free(fixture->server);
    store_close(fixture->reconciler.store);
    loop_timer_stop(&fixture->watchdog);
    loop_done(&fixture->loop);
    fd_close(fixture->root);
    remove_below(fixture, "/run/http.sock");
    remove_below(fixture, "/run");
    assert_int_equal(rmdir(fixture->directory), 0);
    free(fixture);
    return 0;
}

/* ---- clients ---- */

struct client {
    struct fixture *fixture;
    struct loop_io io;
    int fd;
    const char *request;
    size_t length;
    size_t sent;
    size_t chunk; /* bytes per turn */
    struct buffer reply;
    bool ended;
};

static void on_client(struct loop_io *io, int events)
{
    struct client *client = container_of(io, struct client, io);
    char bytes[65536];
    ssize_t count;

    if ((events & LOOP_WRITE) && client->sent < client->length) {
        size_t rest = client->length - client->sent;

        count = send(client->fd, client->request + client->sent,
                     rest < client->chunk ? rest : client->chunk, MSG_NOSIGNAL);
        if (count > 0)
            client->sent += (size_t)count;
        else if (errno != EAGAIN)
            client->sent = client->length;
        if (client->sent == client->length)
            loop_io_start(&client->fixture->loop, io, client->fd, LOOP_READ, on_client);
    }
    if (!(events & LOOP_READ))
        return;
    count = recv(client->fd, bytes, sizeof(bytes), 0);
    if (count > 0)
        assert_int_equal(buffer_append(&client->reply, bytes, (size_t)count), 0);
    client->ended = count == 0 || (count < 0 && errno != EAGAIN);
    if (client->ended)
        loop_io_stop(io);
}

static int connect_to(const struct fixture *fixture, bool tcp)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)fixture->port)};
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(path.sun_path, sizeof(path.sun_path), "%.40s/run/http.sock", fixture->directory);
    assert_int_equal(tcp ? connect(fd, (struct sockaddr *)&address, sizeof(address))
                         : connect(fd, (struct sockaddr *)&path, sizeof(path)),
                     0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void client_start(struct fixture *fixture, struct client *client, bool tcp,
                         const char *request, size_t length)
{
    *client = (struct client){.fixture = fixture,
                              .fd = connect_to(fixture, tcp),
                              .request = request,
                              .length = length,
                              .chunk = 65536};
    buffer_init(&client->reply, 64 * 1024 * 1024);
    loop_io_start(&fixture->loop, &client->io, client->fd, LOOP_READ | LOOP_WRITE, on_client);
}

static void client_done(struct client *client)
{
    loop_io_stop(&client->io);
    fd_close(client->fd);
    buffer_done(&client->reply);
}

static void client_finish(struct client *client)
{
    while (!client->ended)
        loop_run_once(&client->fixture->loop);
}

/* Sends bytes, reads until the server closes. The reply is the caller's. */
static void talk(struct fixture *fixture, bool tcp, const char *request, size_t length,
                 struct buffer *ret_reply)
{
    struct client client;

    client_start(fixture, &client, tcp, request, length);
    client_finish(&client);
    *ret_reply = client.reply;
    client.reply = (struct buffer){0};
    client_done(&client);
}

static unsigned status_of(const struct buffer *reply)
{
    unsigned status = 0;

    (void)sscanf(buffer_text(reply), "HTTP/1.1 %u", &status);
    return status;
}

static const char *body_of(const struct buffer *reply)
{
    const char *end = strstr(buffer_text(reply), "\r\n\r\n");

    assert_non_null(end);
    return end + 4;
}

static struct buffer ask_door(struct fixture *fixture, bool tcp, const char *method,
                              const char *path)
{
    char request[2048];
    struct buffer reply;

    (void)snprintf(request, sizeof(request),
                   "%s %s HTTP/1.1\r\nHost: crustd\r\nConnection: close\r\n\r\n", method, path);
    talk(fixture, tcp, request, strlen(request), &reply);
    return reply;
}

static struct buffer ask(struct fixture *fixture, const char *method, const char *path)
{
    return ask_door(fixture, false, method, path);
}

static void expect_status(struct fixture *fixture, const char *method, const char *path,
                          unsigned status)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, method, path);

    if (status_of(&reply) != status)
        fail_msg("%s %s: %s", method, path, buffer_text(&reply));
}

/* The error's code and reason; its shape is checked. */
static void expect_error(struct fixture *fixture, const char *method, const char *path,
                         unsigned status, const char *reason)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, method, path);
    cleanup(json_deletep) cJSON *error = NULL;
    const char *body = body_of(&reply);

    assert_int_equal(status_of(&reply), status);
    assert_int_equal(json_parse(body, strlen(body), JSON_LIMITS_HTTP, &error, NULL), 0);
    assert_string_equal(json_string(error, "reason"), reason);
    assert_non_null(json_string(error, "code"));
    assert_non_null(json_string(error, "message"));
}

static void add_volumes(struct fixture *fixture, unsigned count)
{
    struct store *store = fixture->reconciler.store;

    assert_int_equal(store_begin(store), 0);
    for (unsigned i = 0; i < count; i++) {
        char key[64], path[160], pv[32], device[32];
        int64_t id;
        bool changed;
        const struct store_entry entry = {.key = key,
                                          .target_path = path,
                                          .pv = pv,
                                          .device = device,
                                          .volume_type = "block",
                                          .fs_type = "ext4",
                                          .options = "[\"rw\"]",
                                          .metadata = "{\"fsGroup\":\"1000\"}",
                                          .mount_info_sha256 = "0",
                                          .directory_inode = i + 1};

        (void)snprintf(key, sizeof(key), "key%u", i);
        (void)snprintf(pv, sizeof(pv), "pv-%u", i);
        (void)snprintf(device, sizeof(device), "/dev/loop%u", i);
        (void)snprintf(path, sizeof(path),
                       "/var/lib/kubelet/pods/12345678-aaaa-bbbb-cccc-%012u/volumes/"
                       "kubernetes.io~csi/pv-%u/mount",
                       i, i);
        assert_int_equal(store_put_entry(store, &entry, &id, &changed), 0);
    }
    assert_int_equal(store_commit(store), 0);
}

/* ---- what is answered ---- */

static void every_path_answers(void **state)
{
    static const char *const paths[] = {
        "/healthz",    "/readyz",      "/v1/status",  "/v1/volumes",  "/v1/sandboxes",
        "/v1/devices", "/v1/mappings", "/v1/resizes", "/v1/cleanups", "/v1/journal",
    };

    for (size_t i = 0; i < array_length(paths); i++) {
        cleanup(buffer_done) struct buffer reply = ask(*state, "GET", paths[i]);
        cleanup(buffer_done) struct buffer head = ask(*state, "HEAD", paths[i]);
        cleanup(buffer_done) struct buffer over_tcp = ask_door(*state, true, "GET", paths[i]);

        assert_int_equal(status_of(&reply), 200);
        assert_int_equal(status_of(&head), 200);
        assert_string_equal(body_of(&head), "");
        assert_int_equal(status_of(&over_tcp), 200);
        expect_error(*state, "POST", paths[i], 405, "wrong_method");
        expect_error(*state, "DELETE", paths[i], 405, "wrong_method");
    }
}

static void what_does_not_exist_is_not_found(void **state)
{
    static const char *const paths[] = {
        "/",          "/v1",           "/v1/",     "/v1/volumes/",
        "/v1/volume", "/v1/volumes/1", "/metricz", "/v1/../healthz"};

    for (size_t i = 0; i < array_length(paths); i++)
        expect_error(*state, "GET", paths[i], 404, "unknown_path");
}

static void rows_are_the_views(void **state)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    cleanup(buffer_done) struct buffer reply = {0};
    const char *body;

    add_volumes(*state, 3);
    reply = ask(*state, "GET", "/v1/volumes?volume=pv-1");
    body = body_of(&reply);
    assert_int_equal(json_parse(body, strlen(body), (struct json_limits){1 << 20, 8}, &rows, NULL),
                     0);
    assert_int_equal(cJSON_GetArraySize(rows), 1);
    assert_string_equal(json_string(rows->child, "pv"), "pv-1");
    assert_string_equal(json_string(json_member(rows->child, "metadata"), "fsGroup"), "1000");
}

static void bad_arguments_are_refused(void **state)
{
    static const char *const paths[] = {
        "/v1/volumes?id=x",         "/v1/volumes?id=-1",
        "/v1/volumes?id=",          "/v1/volumes?id=1x",
        "/v1/volumes?live=2",       "/v1/volumes?blocked=1",
        "/v1/volumes?id",           "/v1/journal?volume=pv-1",
        "/v1/sandboxes?volume=1",   "/v1/devices?after=1",
        "/v1/status?x=1",           "/v1/journal?after=99999999999999999999",
        "/v1/volumes?volume=a%00b", "/v1/volumes?id=1&id=1&id=1&id=1&id=1&id=1&id=1&id=1&id=1",
    };

    for (size_t i = 0; i < array_length(paths); i++)
        expect_error(*state, "GET", paths[i], 400, "bad_argument");
}

static void status_tells_health(void **state)
{
    struct fixture *fixture = *state;
    cleanup(buffer_done) struct buffer reply = {0};

    fixture->reconciler.health.degraded = true;
    (void)strcpy(fixture->reconciler.health.problem, "database \"read-only\"");
    reply = ask(fixture, "GET", "/v1/status");
    assert_non_null(strstr(buffer_text(&reply), "\"problem\":\"database \\\"read-only\\\"\""));
    assert_non_null(strstr(buffer_text(&reply), "{\"name\":\"inotify\",\"up\":true,\"events\":7,"));
    assert_non_null(strstr(buffer_text(&reply), "\"summary\":{\"volumes\":0"));
    expect_error(fixture, "GET", "/readyz", 503, "degraded");
    expect_status(fixture, "GET", "/healthz", 200);
    fixture->reconciler.health.synced = false;
    expect_error(fixture, "GET", "/readyz", 503, "not_synced");
}

static void resync_is_for_the_socket_only(void **state)
{
    struct fixture *fixture = *state;
    cleanup(buffer_done) struct buffer over_tcp = ask_door(fixture, true, "POST", "/v1/resync");

    assert_int_equal(status_of(&over_tcp), 404);
    expect_error(fixture, "GET", "/v1/resync", 405, "wrong_method");
    assert_int_equal(fixture->reconciler.resyncs, 0);
    expect_status(fixture, "POST", "/v1/resync", 202);
    assert_int_equal(fixture->reconciler.resyncs, 1);
}

static void thousands_of_volumes_fit(void **state)
{
    cleanup(json_deletep) cJSON *rows = NULL;
    cleanup(buffer_done) struct buffer reply = {0};
    const char *body;

    add_volumes(*state, 4000);
    reply = ask(*state, "GET", "/v1/volumes");
    body = body_of(&reply);
    assert_int_equal(json_parse(body, strlen(body), (struct json_limits){64 << 20, 8}, &rows, NULL),
                     0);
    assert_int_equal(cJSON_GetArraySize(rows), 4000);
}

/* ---- what a client can do wrong ---- */

static void large_bodies_are_refused(void **state)
{
    static const char announced[] = "POST /v1/resync HTTP/1.1\r\nHost: x\r\n"
                                    "Content-Length: 65537\r\n\r\n";
    static const char head[] = "POST /v1/resync HTTP/1.1\r\nHost: x\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n40000\r\n";
    cleanup(buffer_done) struct buffer reply = {0}, chunked = {0}, request = {0};

    talk(*state, false, announced, strlen(announced), &reply);
    assert_int_equal(status_of(&reply), 413);
    assert_int_equal(buffer_append_text(&request, head), 0);
    for (unsigned i = 0; i < 0x40000 / 16; i++)
        assert_int_equal(buffer_append_text(&request, "0123456789abcdef"), 0);
    talk(*state, false, request.data, request.length, &chunked);
    assert_int_equal(status_of(&chunked), 0);
    assert_int_equal(((struct fixture *)*state)->reconciler.resyncs, 0);
    expect_status(*state, "GET", "/healthz", 200);
}

static void small_bodies_are_dropped(void **state)
{
    static const char request[] = "POST /v1/resync HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                  "Content-Length: 4\r\n\r\n{\"\"}";
    cleanup(buffer_done) struct buffer reply = {0};

    talk(*state, false, request, strlen(request), &reply);
    assert_int_equal(status_of(&reply), 202);
}

static void requests_can_be_pipelined(void **state)
{
    static const char requests[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /v1/devices HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                   "\r\n";
    cleanup(buffer_done) struct buffer reply = {0};
    const char *second, *third;

    talk(*state, false, requests, strlen(requests), &reply);
    assert_int_equal(status_of(&reply), 200);
    second = strstr(buffer_text(&reply), "HTTP/1.1 404");
    assert_non_null(second);
    third = strstr(second, "HTTP/1.1 200");
    assert_non_null(third);
    assert_non_null(strstr(third, "[]"));
}

static void garbage_is_not_answered_with_rows(void **state)
{
    static const char *const garbage[] = {
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n",
        "GET\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
    };

    for (size_t i = 0; i < array_length(garbage); i++) {
        cleanup(buffer_done) struct buffer reply = {0};

        talk(*state, false, garbage[i], strlen(garbage[i]), &reply);
        assert_true(status_of(&reply) != 200);
    }
    expect_status(*state, "GET", "/healthz", 200);
}

static void long_heads_are_refused(void **state)
{
    cleanup(buffer_done) struct buffer request = {0}, reply = {0};

    assert_int_equal(buffer_append_text(&request, "GET /"), 0);
    for (unsigned i = 0; i < 4096; i++)
        assert_int_equal(buffer_append_text(&request, "aaaaaaaa"), 0);
    assert_int_equal(buffer_append_text(&request, " HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    talk(*state, false, request.data, request.length, &reply);
    assert_true(status_of(&reply) == 414 || status_of(&reply) == 431 || status_of(&reply) == 0);
    expect_status(*state, "GET", "/healthz", 200);
}

/* One byte at a time, one that never goes on, and one that closes its half: none holds another. */
static void slow_clients_hold_nobody(void **state)
{
    static const char request[] =
        "GET /v1/devices HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct client stuck, slow, half;

    client_start(*state, &stuck, false, request, 10);
    client_start(*state, &slow, false, request, strlen(request));
    slow.chunk = 1;
    expect_status(*state, "GET", "/healthz", 200);
    client_finish(&slow);
    assert_int_equal(status_of(&slow.reply), 200);
    client_start(*state, &half, false, request, strlen(request));
    while (half.sent < half.length)
        loop_run_once(&half.fixture->loop);
    assert_int_equal(shutdown(half.fd, SHUT_WR), 0);
    client_finish(&half);
    assert_false(stuck.ended);
    client_done(&stuck);
    client_done(&slow);
    client_done(&half);
}

static void many_clients_are_served(void **state)
{
    static const char request[] = "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct client clients[40];

    for (size_t i = 0; i < array_length(clients); i++) {
        client_start(*state, &clients[i], i % 2 != 0, request, strlen(request));
        loop_run_once(&clients[i].fixture->loop);
    }
    for (size_t i = 0; i < array_length(clients); i++) {
        client_finish(&clients[i]);
        assert_int_equal(status_of(&clients[i].reply), 200);
        client_done(&clients[i]);
    }
}

/* 32 connections are the limit; who comes then is served as soon as one of them ends. */
static void waiting_clients_get_a_free_place(void **state)
{
    static const char request[] = "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    cleanup(buffer_done) struct buffer tcp = {0};
    struct client idle[32], waiting;

    for (size_t i = 0; i < array_length(idle); i++) {
        client_start(*state, &idle[i], false, request, 10);
        while (idle[i].sent < idle[i].length)
            loop_run_once(&idle[i].fixture->loop);
    }
    tcp = ask_door(*state, true, "GET", "/healthz");
    assert_int_equal(status_of(&tcp), 200);
    client_start(*state, &waiting, false, request, strlen(request));
    client_done(&idle[7]);
    client_finish(&waiting);
    assert_int_equal(status_of(&waiting.reply), 200);
    client_done(&waiting);
    for (size_t i = 0; i < array_length(idle); i++)
        if (i != 7)
            client_done(&idle[i]);
}

/* A client that asks and goes away leaves nothing behind (the sanitizers would tell). */
static void clients_may_vanish(void **state)
{
    static const char request[] = "GET /v1/volumes HTTP/1.1\r\nHost: x\r\n\r\n";
    struct client client;

    add_volumes(*state, 2000);
    for (unsigned i = 0; i < 8; i++) {
        client_start(*state, &client, false, request, strlen(request));
        while (client.reply.length == 0)
            loop_run_once(&client.fixture->loop);
        client_done(&client);
    }
    expect_status(*state, "GET", "/healthz", 200);
}

/* The memory for answers that nobody reads has an end, and is given back. */
static void unread_answers_are_bounded(void **state)
{
    static const char request[] = "GET /v1/volumes HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture *fixture = *state;
    struct client clients[30];

    add_volumes(fixture, 6000);
    for (size_t i = 0; i < array_length(clients); i++) {
        client_start(fixture, &clients[i], false, request, strlen(request));
        while (clients[i].reply.length == 0)
            loop_run_once(&fixture->loop);
        loop_io_stop(&clients[i].io);
    }
    assert_int_equal(status_of(&clients[0].reply), 200);
    assert_int_equal(status_of(&clients[29].reply), 429);
    for (size_t i = 0; i < array_length(clients); i++)
        client_done(&clients[i]);
    expect_status(fixture, "GET", "/healthz", 200);
    expect_status(fixture, "GET", "/v1/volumes", 200);
}

/* ---- the socket ---- */

static void the_socket_is_private_and_goes(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;

    assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(path_stat_in_root(fixture->root, "/run", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0755);
    fixture->server = http_server_free(fixture->server);
    assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), -ENOENT);
}

static void a_group_may_connect(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    struct error error = {0};
    struct stat status;

    fixture->server = http_server_free(fixture->server);
    options.socket_group = "no such group";
    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error),
        -EINVAL);
    options.socket_group = "4711";
    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error),
        0);
    assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    assert_int_equal(status.st_gid, 4711);
}

static void only_a_dead_socket_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    struct http_server *second = NULL;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct error error = {0};
    struct stat status;
    int fd;

    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &second, &error),
        -EADDRINUSE);
    assert_non_null(strstr(error.text, "/run/http.sock"));
    expect_status(fixture, "GET", "/healthz", 200);
    fixture->server = http_server_free(fixture->server);

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.40s/run/http.sock",
                   fixture->directory);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    fd_close(fd);
    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error),
        0);
    expect_status(fixture, "GET", "/healthz", 200);
    fixture->server = http_server_free(fixture->server);

    fd = open(address.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    fd_close(fd);
    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error),
        -EADDRINUSE);
    assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), 0);
}

/* What somebody else has put in the socket's place is not removed at the end. */
static void a_foreign_name_stays(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/run/http.sock", fixture->directory);
    assert_int_equal(unlink(path), 0);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    fd_close(fd);
    fixture->server = http_server_free(fixture->server);
    assert_int_equal(stat(path, &status), 0);
}

static void a_long_path_is_no_obstacle(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    struct error error = {0};
    char path[256], name[128];

    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(path, sizeof(path), "/%s/http.sock", name);
    fixture->server = http_server_free(fixture->server);
    options.socket_path = path;
    assert_int_equal(
        http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server, &error),
        0);
    fixture->server = http_server_free(fixture->server);
    (void)snprintf(path, sizeof(path), "/%s", name);
    remove_below(fixture, path);
}

static void bad_listen_addresses_are_refused(void **state)
{
    static const char *const addresses[] = {"9824", "localhost:http", "256.0.0.1:1",
                                            "[::1", "127.0.0.1:",     "127.0.0.1:99999x"};
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    struct error error = {0};

    fixture->server = http_server_free(fixture->server);
    for (size_t i = 0; i < array_length(addresses); i++) {
        struct stat status;

        options.listen = addresses[i];
        assert_int_equal(http_server_new(&fixture->loop, &fixture->reconciler, &options,
                                         &fixture->server, &error),
                         -EINVAL);
        assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), -ENOENT);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_path_answers),
        TEST(what_does_not_exist_is_not_found),
        TEST(rows_are_the_views),
        TEST(bad_arguments_are_refused),
        TEST(status_tells_health),
        TEST(resync_is_for_the_socket_only),
        TEST(thousands_of_volumes_fit),
        TEST(large_bodies_are_refused),
        TEST(small_bodies_are_dropped),
        TEST(requests_can_be_pipelined),
        TEST(garbage_is_not_answered_with_rows),
        TEST(long_heads_are_refused),
        TEST(slow_clients_hold_nobody),
        TEST(many_clients_are_served),
        TEST(waiting_clients_get_a_free_place),
        TEST(clients_may_vanish),
        TEST(unread_answers_are_bounded),
        TEST(the_socket_is_private_and_goes),
        TEST(a_group_may_connect),
        TEST(only_a_dead_socket_is_replaced),
        TEST(a_foreign_name_stays),
        TEST(a_long_path_is_no_obstacle),
        TEST(bad_listen_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
