/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.h - the HTTP server on a real loop, a real store and real sockets.
 *
 * The reconciler is a few functions here. Clients are raw sockets on the same loop, because what is
 * tested is what a client can do wrong. A test that hangs is ended by the loop's own watchdog.
 */
#pragma once

#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/http_routes.h"
#include "api/server.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "store/read.h"
#include "store/store.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unasked_commands.h"
#include "tests/unit/volume_rows.h"

/* ---- the reconciler, as far as the server sees it ---- */

struct reconciler {
    struct store *store;
    struct reconciler_health health;
    struct reconciler_findings findings;
    unsigned resyncs;
    bool examination_fails;
    unsigned examinations;
    enum status_code outcome; /* of the commands below */
    bool dry_run;
    int64_t restored;
    bool per_volume; /* metrics.per_volume */
};

void reconciler_get_modes(const struct reconciler *reconciler, struct reconciler_modes *ret_modes)
{
    *ret_modes = (struct reconciler_modes){
        .resize = "observe", .cleanup = "report", .per_volume = reconciler->per_volume};
}

struct store_reader *reconciler_reader(struct reconciler *reconciler)
{
    return store_get_reader(reconciler->store);
}

void reconciler_resync(struct reconciler *reconciler)
{
    reconciler->resyncs++;
}

int reconciler_examine(struct reconciler *reconciler, struct buffer *ret_json, struct error *error)
{
    reconciler->examinations++;
    if (reconciler->examination_fails)
        return error_set(error, -EIO, "nothing can be read");
    return buffer_append_text(ret_json, "[{\"id\":\"kernel\",\"level\":\"ok\"}]");
}

enum status_code reconciler_gc(struct reconciler *reconciler, bool dry_run, int64_t volume_id,
                               struct buffer *ret_json, struct error *error)
{
    reconciler->dry_run = dry_run;
    assert_int_equal(buffer_append_text(ret_json, "[]"), 0);
    return error_set(error, (int)reconciler->outcome, "this is why");
}

enum status_code reconciler_restore(struct reconciler *reconciler, int64_t cleanup_id,
                                    struct error *error)
{
    reconciler->restored = cleanup_id;
    return error_set(error, (int)reconciler->outcome, "this is why");
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    *ret_health = reconciler->health;
}

const struct reconciler_findings *reconciler_get_findings(const struct reconciler *reconciler)
{
    return &reconciler->findings;
}

/* What clients ask of a volume; answered when the test says so. */
struct expansion {
    struct reconciler_expand asked;
    reconciler_expanded *done;
    void *userdata;
};

static struct expansion *asked_expansion;
static unsigned cancelled;

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    if (asked->target.volume_id == 404)
        return error_set(error, STATUS_NOT_FOUND, "there is no such volume here");
    asked_expansion = calloc(1, sizeof(*asked_expansion));
    *asked_expansion = (struct expansion){*asked, done, userdata};
    *ret_expansion = asked_expansion;
    return STATUS_OK;
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    cancelled++;
    free(expansion);
    asked_expansion = NULL;
    return NULL;
}

static inline void end_expansion(enum status_code code, uint64_t bytes, const char *text)
{
    struct expansion one = *asked_expansion;
    struct error error;

    free(asked_expansion);
    asked_expansion = NULL;
    (void)error_set(&error, 0, "%s", text);
    one.done(one.userdata, code, &(struct reconciler_capacity){.bytes = bytes}, &error);
}

/* ---- one server with its surroundings ---- */

enum { WATCHDOG_SECONDS = 60 };

struct fixture {
    struct loop loop;
    struct loop_timer watchdog;
    struct reconciler reconciler;
    struct operations operations;
    struct http_server *server;
    char directory[SCRATCH_BYTES];
    int root;
    unsigned port[HTTP_LISTENER_METRICS + 1]; /* of the listeners that have one */
};

static inline void on_watchdog(struct loop_timer *timer)
{
    fail_msg("the loop hangs");
}

static inline unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    cleanup(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static inline struct http_server_options options_of(struct fixture *fixture)
{
    return (struct http_server_options){
        .root = fixture->root, .socket_path = "/run/http.sock", .operations = &fixture->operations};
}

static inline void choose_address(struct fixture *fixture, enum http_listener listener,
                                  char ret_address[static 32])
{
    fixture->port[listener] = free_port();
    (void)snprintf(ret_address, 32, "127.0.0.1:%u", fixture->port[listener]);
}

static inline int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct http_server_options options;
    char listen_address[32], metrics_address[32];
    struct error error = {0};

    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    assert_int_equal(loop_init(&fixture->loop), 0);
    assert_int_equal(store_open(&(struct store_options){.boot_id = "boot", .max_rows = 1000000},
                                &fixture->reconciler.store, &error),
                     0);
    fixture->reconciler.health = (struct reconciler_health){
        .synced = true, .sources = 1, .source = {{"inotify", true, 7, 0}}};
    options = options_of(fixture);
    options.listen = listen_address;
    options.metrics_listen = metrics_address;
    http_hosts_add(&options.hosts, "a-name.of-ours.example");
    for (unsigned tries = 20; tries > 0 && !fixture->server;
         tries--) { /* a port may be taken by then */
        choose_address(fixture, HTTP_LISTENER_PAGES, listen_address);
        choose_address(fixture, HTTP_LISTENER_METRICS, metrics_address);
        (void)http_server_new(&fixture->loop, &fixture->reconciler, &options, &fixture->server,
                              &error);
    }
    if (!fixture->server)
        fail_msg("%s", error.text);
    loop_timer_start(&fixture->loop, &fixture->watchdog, WATCHDOG_SECONDS * NSEC_PER_SEC,
                     on_watchdog);
    *state = fixture;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *fixture = *state;

    http_server_free(fixture->server);
    operations_done(&fixture->operations);
    store_close(fixture->reconciler.store);
    loop_timer_stop(&fixture->watchdog);
    loop_done(&fixture->loop);
    fd_close(fixture->root);
    assert_int_equal(scratch_directory_remove(fixture->directory), 0);
    free(fixture);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

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

static inline void on_client(struct loop_io *io, int events)
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

static inline int connect_to(const struct fixture *fixture, enum http_listener listener)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)fixture->port[listener])};
    const bool tcp = listener != HTTP_LISTENER_SOCKET;
    const int kept = 64 * 1024; /* by the kernel, for a client that does not read */
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kept, sizeof(kept)), 0);
    (void)snprintf(path.sun_path, sizeof(path.sun_path), "%.40s/run/http.sock", fixture->directory);
    assert_int_equal(tcp ? connect(fd, (struct sockaddr *)&address, sizeof(address))
                         : connect(fd, (struct sockaddr *)&path, sizeof(path)),
                     0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static inline void client_start(struct fixture *fixture, struct client *client,
                                enum http_listener listener, const char *request, size_t length)
{
    *client = (struct client){.fixture = fixture,
                              .fd = connect_to(fixture, listener),
                              .request = request,
                              .length = length,
                              .chunk = 65536};
    buffer_init(&client->reply, 64 * 1024 * 1024);
    loop_io_start(&fixture->loop, &client->io, client->fd, LOOP_READ | LOOP_WRITE, on_client);
}

static inline void client_done(struct client *client)
{
    loop_io_stop(&client->io);
    fd_close(client->fd);
    buffer_done(&client->reply);
}

static inline void client_finish(struct client *client)
{
    while (!client->ended)
        loop_run_once(&client->fixture->loop);
}

/* Sends bytes, reads until the server closes. The reply is the caller's. */
static inline void talk(struct fixture *fixture, enum http_listener listener, const char *request,
                        size_t length, struct buffer *ret_reply)
{
    struct client client;

    client_start(fixture, &client, listener, request, length);
    client_finish(&client);
    *ret_reply = client.reply;
    client.reply = (struct buffer){0};
    client_done(&client);
}

static inline unsigned status_of(const struct buffer *reply)
{
    unsigned status = 0;

    (void)sscanf(buffer_text(reply), "HTTP/1.1 %u", &status);
    return status;
}

static inline struct buffer ask_listener(struct fixture *fixture, enum http_listener listener,
                                         const char *method, const char *path)
{
    char request[2048];
    struct buffer reply;

    (void)snprintf(request, sizeof(request),
                   "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method, path);
    talk(fixture, listener, request, strlen(request), &reply);
    return reply;
}

static inline struct buffer ask(struct fixture *fixture, const char *method, const char *path)
{
    return ask_listener(fixture, HTTP_LISTENER_SOCKET, method, path);
}

static inline void expect_status(struct fixture *fixture, const char *method, const char *path,
                                 unsigned status)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, method, path);

    if (status_of(&reply) != status)
        fail_msg("%s %s: %s", method, path, buffer_text(&reply));
}

static inline void add_volumes_with(struct fixture *fixture, unsigned count, const char *metadata)
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
                                          .metadata = metadata,
                                          .grows_file_system = true,
                                          .mount_info_sha256 = "0",
                                          .directory_inode = i + 1};

        (void)snprintf(key, sizeof(key), "key%u", i);
        (void)snprintf(pv, sizeof(pv), "pv-%u", i);
        (void)snprintf(device, sizeof(device), "/dev/loop%u", i);
        (void)snprintf(path, sizeof(path),
                       "/var/lib/kubelet/pods/12345678-aaaa-bbbb-cccc-%012u/volumes/"
                       "kubernetes.io~csi/pv-%u/mount",
                       i, i);
        assert_int_equal(row_put_entry(store, &entry, &id, &changed), 0);
    }
    assert_int_equal(store_commit(store), 0);
}

static inline void add_volumes(struct fixture *fixture, unsigned count)
{
    add_volumes_with(fixture, count, "{\"fsGroup\":\"1000\"}");
}

/* Within a transaction: a sandbox has volume 1. */
static inline void bind_first_volume(struct store *store)
{
    const struct store_sandbox sandbox = {.sandbox_id = "s1",
                                          .runtime = RUNTIME_KATA_GO,
                                          .hypervisor = HYPERVISOR_QEMU,
                                          .pod_namespace = "shop",
                                          .pod_name = "db-0",
                                          .vmm_pid = 1};
    struct store_binding binding = {.volume_id = 1, .source = "persist"};
    bool changed;

    assert_int_equal(store_put_sandbox(store, &sandbox, &binding.sandbox_ref, &changed), 0);
    assert_int_equal(store_open_binding(store, &binding), 0);
}
