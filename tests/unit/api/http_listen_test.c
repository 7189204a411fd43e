/* SPDX-License-Identifier: Apache-2.0 */
/* http_listen_test.c - the sockets: whose they are, whom they replace, where they may be. */
#include "tests/unit/api/fixture.h"

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

/* A server in the place of the one that set_up() made. */
static int start_again(struct fixture *fixture, const struct http_server_options *options)
{
    struct error error = {0};

    fixture->server = http_server_free(fixture->server);
    return http_server_new(&fixture->loop, &fixture->reconciler, options, &fixture->server, &error);
}

static void a_group_may_connect(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    /* Who is not root may give a socket to a group of their own. */
    const gid_t group = geteuid() == 0 ? 4711 : getegid();
    char number[16];
    struct stat status;

    (void)snprintf(number, sizeof(number), "%u", group);
    options.socket_group = "no such group";
    assert_int_equal(start_again(fixture, &options), -EINVAL);
    options.socket_group = number;
    assert_int_equal(start_again(fixture, &options), 0);
    assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    assert_int_equal(status.st_gid, group);
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
    assert_int_equal(start_again(fixture, &options), 0);
    expect_status(fixture, "GET", "/healthz", 200);
    fixture->server = http_server_free(fixture->server);

    fd = open(address.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    fd_close(fd);
    assert_int_equal(start_again(fixture, &options), -EADDRINUSE);
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

static void a_long_socket_path_works(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    char path[256], name[128];

    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(path, sizeof(path), "/%s/http.sock", name);
    options.socket_path = path;
    assert_int_equal(start_again(fixture, &options), 0);
    fixture->server = http_server_free(fixture->server);
}

/* A directory's length does not matter, that of the name in it does. */
static void a_socket_name_that_does_not_fit_is_not_cut(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    char path[256];

    (void)snprintf(path, sizeof(path), "/run/%0100d.sock", 1);
    options.socket_path = path;
    assert_int_equal(start_again(fixture, &options), -ENAMETOOLONG);
}

static void bad_listen_addresses_are_refused(void **state)
{
    static const char *const addresses[] = {"9824", "localhost:http", "256.0.0.1:1",
                                            "[::1", "127.0.0.1:",     "127.0.0.1:99999x"};
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);

    for (size_t i = 0; i < array_length(addresses); i++) {
        struct stat status;

        options.listen = addresses[i];
        options.metrics_listen = NULL;
        assert_int_equal(start_again(fixture, &options), -EINVAL);
        assert_int_equal(path_stat_in_root(fixture->root, "/run/http.sock", &status), -ENOENT);
        options.listen = NULL;
        options.metrics_listen = addresses[i];
        assert_int_equal(start_again(fixture, &options), -EINVAL);
    }
}

/* As the pod's configuration has it: its cluster may speak either family, or both. */
static void every_address_of_either_family(void **state)
{
    struct fixture *fixture = *state;
    struct http_server_options options = options_of(fixture);
    const struct sockaddr_in6 loopback = {
        .sin6_family = AF_INET6,
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
        .sin6_port = htons((uint16_t)fixture->port[HTTP_LISTENER_METRICS])};
    cleanup(fd_closep) int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cleanup(buffer_done) struct buffer reply = {0};
    char address[32];

    (void)snprintf(address, sizeof(address), "[::]:%u", fixture->port[HTTP_LISTENER_METRICS]);
    options.metrics_listen = address;
    assert_int_equal(start_again(fixture, &options), 0);
    reply = ask_listener(fixture, HTTP_LISTENER_METRICS, "GET", "/healthz");
    assert_int_equal(status_of(&reply), 200);
    if (fd >= 0)
        assert_int_equal(connect(fd, (const struct sockaddr *)&loopback, sizeof(loopback)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_socket_is_private_and_goes),
        TEST(a_group_may_connect),
        TEST(only_a_dead_socket_is_replaced),
        TEST(a_foreign_name_stays),
        TEST(a_socket_name_that_does_not_fit_is_not_cut),
        TEST(a_long_socket_path_works),
        TEST(bad_listen_addresses_are_refused),
        TEST(every_address_of_either_family),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
