/* SPDX-License-Identifier: Apache-2.0 */
/* peer_test.c - where a peer is connected to, how it is refused, and what ends a conversation. */
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/peer.h"

enum { MOST = 64 };

static const uint64_t SOON = 5 * NSEC_PER_SEC, SHORT = 20 * NSEC_PER_MSEC;

static char scratch[SCRATCH_BYTES];
static int root;
static struct listener anybody;
static struct error error;

static int set_up(void **state)
{
    return scratch_directory_make(scratch) < 0 ? -1 : path_open_root(scratch, &root);
}

static int tear_down(void **state)
{
    fd_close(root);
    return scratch_directory_remove(scratch);
}

/* Reached by its directory, however long that is. */
static int listen_at(const char *folder, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int directory = -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(path_open_directory_in_root(root, folder, &directory), 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory,
                   name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 0), 0);
    return fd;
}

static int connect_to(struct peer *peer, int directory, const char *path, uint64_t deadline_ns)
{
    return peer_connect(peer, directory, path, &anybody, clock_boottime() + deadline_ns, MOST,
                        &error);
}

/* Connects, exchanges a word, ends with the peer. */
static void expect_conversation(int listener, const char *path)
{
    struct peer peer = PEER_INIT;
    char word[8] = "";
    int other;

    assert_int_equal(connect_to(&peer, root, path, SOON), 0);
    assert_int_equal(peer_send(&peer, "ping", 4, -1, &error), 0);
    other = accept(listener, NULL, NULL);
    assert_int_equal(recv(other, word, sizeof(word), 0), 4);
    assert_string_equal(word, "ping");
    assert_int_equal(send(other, "pong", 4, MSG_NOSIGNAL), 4);
    close(other);
    assert_int_equal(peer_receive(&peer, &error), 0);
    assert_string_equal(buffer_text(&peer.input), "pong");
    assert_int_equal(peer_receive(&peer, &error), PEER_CLOSED);
    assert_string_equal(error.text, "the connection was closed");
    peer_close(&peer);
    peer_close(&peer);
}

static void connects_inside_a_root(void **state)
{
    int listener;

    assert_int_equal(mkdirat(root, "run", 0700), 0);
    assert_int_equal(symlinkat("/run", root, "link"), 0);
    listener = listen_at("/run", "s");
    assert_int_equal(symlinkat("/run/s", root, "s"), 0);
    expect_conversation(listener, "/run/s");
    expect_conversation(listener, "/link/../s");
    close(listener);
}

static void connects_beyond_sun_path(void **state)
{
    char path[128];
    int listener;

    (void)snprintf(path, sizeof(path), "%0110d", 1);
    assert_int_equal(mkdirat(root, path, 0700), 0);
    listener = listen_at(path, "s");
    strcat(path, "/s");
    expect_conversation(listener, path);
    close(listener);
}

/* A link in the root must not lead to the machine's own socket of that name. */
static void does_not_leave_its_root(void **state)
{
    int listener = listen_at("/", "s"), inner;
    struct peer peer;
    char target[128];

    (void)snprintf(target, sizeof(target), "%s/s", scratch);
    assert_int_equal(mkdirat(root, "root", 0700), 0);
    assert_int_equal(path_open_directory_in_root(root, "/root", &inner), 0);
    assert_int_equal(symlinkat(target, inner, "absolute"), 0);
    assert_int_equal(symlinkat("../s", inner, "upwards"), 0);
    assert_int_equal(connect_to(&peer, inner, "/absolute", SOON), PEER_MISSING);
    peer_close(&peer);
    assert_int_equal(connect_to(&peer, inner, "/upwards", SOON), PEER_MISSING);
    peer_close(&peer);
    close(inner);
    close(listener);
}

static void expect_failure(const char *path, int failure, const char *text)
{
    struct peer peer;

    assert_int_equal(connect_to(&peer, root, path, SOON), failure);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    peer_close(&peer);
}

static void refusals_have_outcomes(void **state)
{
    expect_failure("/none", PEER_MISSING, "cannot connect: No such file");
    close(openat(root, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    expect_failure("/file", PEER_CLOSED, "cannot connect: Connection refused");
    expect_failure("/file/s", PEER_MISSING, "cannot connect: Not a directory");
    close(listen_at("/", "dead"));
    expect_failure("/dead", PEER_CLOSED, "cannot connect: Connection refused");
}

static void another_process_is_foreign(void **state)
{
    int listener = listen_at("/", "s");

    assert_int_equal(symlinkat("s", root, "link"), 0);
    anybody.vmm = getppid();
    expect_failure("/s", PEER_FOREIGN, "neither the sandbox's VMM nor its shim");
    anybody.vmm = getpid();
    expect_failure("/link", PEER_FOREIGN, "a link is on the way");
    anybody.vmm = 0;
    close(listener);
}

/* A server whose queue is full is not waited for. */
static void full_queue_is_reported(void **state)
{
    int listener = listen_at("/", "s"), r = 0;
    struct peer queued[4];
    unsigned count = 0;

    while (r == 0 && count < array_length(queued))
        r = connect_to(&queued[count++], root, "/s", SOON);
    assert_int_equal(r, PEER_FULL);
    while (count)
        peer_close(&queued[--count]);
    close(listener);
}

/* Whether this kernel has vsock or not. */
static void unreachable_vsock_is_reported(void **state)
{
    struct peer peer;
    int r = peer_connect_vsock(&peer, 4000000, 1024, clock_boottime() + SOON, MOST, &error);

    assert_true(r == PEER_CLOSED || r == PEER_MISSING);
    assert_non_null(strstr(error.text, "cannot connect"));
    peer_close(&peer);
}

static void conversation_ends_at_its_deadline(void **state)
{
    int listener = listen_at("/", "s");
    uint64_t start = clock_boottime();
    struct peer peer;

    assert_int_equal(connect_to(&peer, root, "/s", SHORT), 0);
    assert_int_equal(peer_receive_until(&peer, start + SHORT / 2, &error), PEER_LATE);
    assert_int_equal(peer_receive(&peer, &error), PEER_LATE);
    assert_true(clock_boottime() - start >= SHORT);
    peer_close(&peer);
    close(listener);
}

static void flood_ends_a_conversation(void **state)
{
    int listener = listen_at("/", "s"), other;
    char bytes[MOST + 1] = "";
    struct peer peer;

    assert_int_equal(connect_to(&peer, root, "/s", SOON), 0);
    other = accept(listener, NULL, NULL);
    assert_int_equal(send(other, bytes, MOST, MSG_NOSIGNAL), MOST);
    assert_int_equal(peer_receive(&peer, &error), 0);
    buffer_clear(&peer.input); /* what was consumed counts, too */
    assert_int_equal(send(other, bytes, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(peer_receive(&peer, &error), PEER_FLOOD);
    peer_close(&peer);
    close(other);
    close(listener);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connects_inside_a_root),        TEST(connects_beyond_sun_path),
        TEST(does_not_leave_its_root),       TEST(refusals_have_outcomes),
        TEST(another_process_is_foreign),    TEST(full_queue_is_reported),
        TEST(unreachable_vsock_is_reported), TEST(conversation_ends_at_its_deadline),
        TEST(flood_ends_a_conversation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
