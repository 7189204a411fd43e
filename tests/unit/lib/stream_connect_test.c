/* SPDX-License-Identifier: Apache-2.0 */
/* stream_connect_test.c - where a stream connects to, and how it is refused. */
#include "tests/unit/lib/stream.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "lib/path.h"

/* A listener at scratch/`path`, reached by its directory, however long that is. */
static int listen_at(const char *folder, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(directory >= 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory,
                   name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 0), 0);
    return fd;
}

static void start_connecting(struct stream *stream, int directory, const char *path)
{
    struct stream_address address = {.family = STREAM_UNIX, .directory = directory, .path = path};

    assert_int_equal(stream_connect(stream, &loop, &address, LONG_TIME, LIMIT, LIMIT, &handler), 0);
    assert_int_equal(seen.connected, 0);
    assert_int_equal(seen.ended, 0);
}

/* Connects, exchanges a word, ends with the peer. */
static void expect_conversation(int listener, int directory, const char *path)
{
    struct stream stream;
    char word[8] = "";
    int peer;

    start_connecting(&stream, directory, path);
    assert_int_equal(stream_send(&stream, "ping", 4), 0); /* queued */
    while (!seen.connected && !seen.ended)
        loop_run_once(&loop);
    assert_int_equal(seen.connected, 1);
    peer = accept(listener, NULL, NULL);
    assert_int_equal(recv(peer, word, sizeof(word), 0), 4);
    assert_string_equal(word, "ping");
    say(peer, "pong");
    close(peer);
    loop_run(&loop);
    assert_string_equal(seen.text, "pong");
    expect_end(STREAM_CLOSED, -ECONNRESET);
    stream_done(&stream);
}

static void connects(void **state)
{
    int listener = listen_at(scratch, "s");
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/s", scratch);
    expect_conversation(listener, AT_FDCWD, path);
    close(listener);
}

static void connects_beyond_sun_path(void **state)
{
    char path[400];
    int listener;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/%0100d", scratch, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    listener = listen_at(path, "s");
    strcat(path, "/s");
    expect_conversation(listener, AT_FDCWD, path);
    close(listener);
}

static void connects_inside_a_root(void **state)
{
    char path[128];
    int listener, root;

    (void)state;
    assert_int_equal(path_open_root(scratch, &root), 0);
    (void)snprintf(path, sizeof(path), "%s/run", scratch);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(symlinkat("/run", root, "link"), 0);
    listener = listen_at(path, "s");
    assert_int_equal(symlinkat("/run/s", root, "s"), 0);
    expect_conversation(listener, root, "/run/s");
    memset(seen.text, 0, sizeof(seen.text));
    seen.connected = seen.ended = seen.received = 0;
    expect_conversation(listener, root, "/link/../s");
    close(listener);
    close(root);
}

/* An absolute link in the root must not lead to the machine's own socket of that name. */
static void does_not_leave_its_root(void **state)
{
    char inner[128], target[128];
    struct stream stream;
    int listener = listen_at(scratch, "s"), root;

    (void)state;
    (void)snprintf(inner, sizeof(inner), "%s/root", scratch);
    (void)snprintf(target, sizeof(target), "%s/s", scratch);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(path_open_root(inner, &root), 0);
    assert_int_equal(symlinkat(target, root, "absolute"), 0);
    assert_int_equal(symlinkat("../s", root, "upwards"), 0);
    start_connecting(&stream, root, "/absolute");
    loop_run(&loop);
    expect_end(STREAM_REFUSED, -ENOENT);
    stream_done(&stream);
    seen.ended = 0;
    start_connecting(&stream, root, "/upwards");
    loop_run(&loop);
    expect_end(STREAM_REFUSED, -ENOENT);
    stream_done(&stream);
    close(root);
    close(listener);
}

static void expect_refusal(const char *path, int code)
{
    struct stream stream;

    seen.ended = 0;
    start_connecting(&stream, AT_FDCWD, path);
    assert_int_equal(stream_send(&stream, "queued", 6), 0);
    stream_set_deadline(&stream, LONG_TIME); /* must not outlast the refusal */
    loop_run(&loop);
    expect_end(STREAM_REFUSED, code);
    stream_done(&stream);
}

static void reports_a_refusal(void **state)
{
    char path[300];
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/none", scratch);
    expect_refusal(path, -ENOENT);
    (void)snprintf(path, sizeof(path), "%s/%0150d/none", scratch, 1);
    expect_refusal(path, -ENOENT);
    (void)snprintf(path, sizeof(path), "%s/file", scratch);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    expect_refusal(path, -ECONNREFUSED);
    (void)snprintf(path, sizeof(path), "%s/dead", scratch);
    close(listen_at(scratch, "dead"));
    expect_refusal(path, -ECONNREFUSED);
    assert_int_equal(seen.connected, 0);
}

/* A server whose queue is full: not waited for. */
static void reports_a_full_backlog(void **state)
{
    struct stream queued[4];
    unsigned count = 0;
    char path[128];
    int listener = listen_at(scratch, "s");

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/s", scratch);
    while (!seen.ended && count < array_length(queued)) {
        seen.connected = 0;
        start_connecting(&queued[count++], AT_FDCWD, path);
        while (!seen.connected && !seen.ended)
            loop_run_once(&loop);
    }
    expect_end(STREAM_REFUSED, -EAGAIN);
    while (count)
        stream_done(&queued[--count]);
    close(listener);
}

static void may_be_freed_while_connecting(void **state)
{
    struct stream *stream = malloc(sizeof(*stream));
    int listener = listen_at(scratch, "s");
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/s", scratch);
    start_connecting(stream, AT_FDCWD, path);
    stream_done(stream);
    close(accept(listener, NULL, NULL)); /* leaves room in the backlog */
    start_connecting(stream, AT_FDCWD, "/nonexistent/socket");
    stream_done(stream);
    loop_run(&loop);
    assert_int_equal(seen.connected + seen.ended, 0);
    seen.free_in_connected = true;
    start_connecting(stream, AT_FDCWD, path);
    loop_run(&loop);
    assert_int_equal(seen.connected, 1);
    assert_int_equal(seen.ended, 0);
    close(listener);
}

/* Whether this kernel has vsock or not: one path reports it. */
static void reports_an_unreachable_vsock(void **state)
{
    struct stream_address address = {.family = STREAM_VSOCK, .cid = 4000000, .port = 1024};
    struct stream stream;

    (void)state;
    assert_int_equal(stream_connect(&stream, &loop, &address, LONG_TIME, LIMIT, LIMIT, &handler),
                     0);
    loop_run(&loop);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, STREAM_REFUSED);
    stream_done(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connects),
        TEST(connects_beyond_sun_path),
        TEST(connects_inside_a_root),
        TEST(does_not_leave_its_root),
        TEST(reports_a_refusal),
        TEST(reports_a_full_backlog),
        TEST(may_be_freed_while_connecting),
        TEST(reports_an_unreachable_vsock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
