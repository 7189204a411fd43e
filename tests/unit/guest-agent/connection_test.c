/* SPDX-License-Identifier: Apache-2.0 */
/* connection_test.c - a serial line whose clients come on each other's heels, and clients that do
 * not read.
 *
 * Socket pairs stand for the line: one that is full takes nothing, as a virtio-serial port without
 * a peer does, and one that its peer has shut down reads end-of-file.
 */
#include "tests/unit/guest-agent/client_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/log.h"

enum { REPLY_BYTES = 64 * 1024 }; /* that are kept for a client that does not read */

static struct connection *connection;
static bool ended;
static int line; /* the client's end */

static void on_ended(struct connection *one, void *userdata)
{
    ended = true;
}

/* A line to which a client has come; returns the agent's end. */
static int new_line(void)
{
    int ends[2];

    fd_close(line);
    buffer_clear(&received);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    line = ends[0];
    return ends[1];
}

/* Returns how many bytes it took. */
static size_t fill(int fd)
{
    char bytes[4096] = {0};
    size_t length = 0;
    ssize_t count;

    while ((count = write(fd, bytes, sizeof(bytes))) > 0)
        length += (size_t)count;
    assert_int_equal(errno, EAGAIN);
    return length;
}

static void ask(uint32_t stream)
{
    post_request(line, stream, AGENT_SERVICE, AGENT_METHOD_STATS, 0, NULL);
}

static void leave(void)
{
    assert_int_equal(shutdown(line, SHUT_WR), 0);
    while (!ended)
        loop_run_once(&loop);
    ended = false;
}

/* The next thing said is the reply to this stream. */
static void expect_reply(uint32_t stream)
{
    (void)await_status(line, stream);
    assert_int_equal(skipped, 0);
}

static void on_turn(struct loop_timer *timer)
{
}

/* Lets the agent say all that it has to say; returns how many bytes the client read. */
static size_t read_all(void)
{
    struct loop_timer turn = {0};
    char bytes[65536];
    size_t length = 0;
    ssize_t count;

    do {
        while ((count = read(line, bytes, sizeof(bytes))) > 0)
            length += (size_t)count;
        loop_timer_start(&loop, &turn, 0, on_turn);
        loop_run_once(&loop);
        count = read(line, bytes, sizeof(bytes));
        length += count > 0 ? (size_t)count : 0;
    } while (count > 0);
    loop_timer_stop(&turn);
    return length;
}

/* Asks more than there is room for answers to, on a line that takes nothing. */
static void ask_without_reading(int port)
{
    enum { ASKED = 4 * REPLY_BYTES / TTRPC_HEADER_BYTES };
    const size_t filled = fill(port);

    for (uint32_t i = 0; i < ASKED; i++) {
        ask(2 * i + 1);
        loop_run_once(&loop);
    }
    assert_in_range(read_all() - filled, REPLY_BYTES / 2, REPLY_BYTES);
    ask(2 * ASKED + 1);
    expect_reply(2 * ASKED + 1);
}

static int set_up(void **state)
{
    line = -1;
    ended = false;
    buffer_init(&received, 0);
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    connection = connection_free(connection);
    fd_close(line);
    buffer_done(&received);
    loop_done(&loop);
    return 0;
}

/* The request was heard before it was known that the client before had left: the line takes no
 * reply, then ends, then has a peer. */
static void a_reply_that_the_line_did_not_take_reaches_the_next_peer(void **state)
{
    int port = new_line();

    fill(port);
    assert_int_equal(connection_new(&loop, port, true, NSEC_PER_SEC, on_ended, NULL, &connection),
                     0);
    ask(7);
    ask(9);
    leave();
    assert_int_equal(connection_resume(connection, new_line()), 0);
    expect_reply(7);
    expect_reply(9);
    leave();
    assert_int_equal(connection_resume(connection, new_line()), 0);
    ask(11);
    expect_reply(11); /* and nothing is said twice */
}

static void replies_that_nobody_fetches_are_bounded(void **state)
{
    int port = new_line();

    assert_int_equal(
        connection_new(&loop, port, false, 60 * NSEC_PER_SEC, on_ended, NULL, &connection), 0);
    ask_without_reading(port);
}

static void they_are_bounded_for_every_client_of_a_line(void **state)
{
    int port = new_line();

    assert_int_equal(connection_new(&loop, port, true, NSEC_PER_SEC, on_ended, NULL, &connection),
                     0);
    ask_without_reading(port);
    leave();
    port = new_line();
    assert_int_equal(connection_resume(connection, port), 0);
    ask_without_reading(port);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reply_that_the_line_did_not_take_reaches_the_next_peer),
        TEST(replies_that_nobody_fetches_are_bounded),
        TEST(they_are_bounded_for_every_client_of_a_line),
    };
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    log_set_descriptor(null);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
