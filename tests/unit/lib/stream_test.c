/* stream_test.c - a stream against peers that answer in pieces, flood, hang, refuse and vanish.
 *
 * The peer's end is in the test's own hands. Each test runs the loop until the stream has ended or
 * the test has what it waits for; a deadline only ends tests whose subject it is.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/stream.h"

enum { LIMIT = 64 };

#define LONG_TIME (3600 * NSEC_PER_SEC)

static struct loop loop;
static char scratch[64];

/* What the handlers saw. */
static struct {
    unsigned connected, received, ended;
    enum stream_end end;
    struct error error;
    char text[256];       /* all that was consumed */
    size_t consume_up_to; /* the handler consumes only while this is not reached */
    size_t stop_at;       /* bytes after which the loop stops */
    bool free_in_received, free_in_connected, free_in_ended;
} seen;

static int set_up(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.consume_up_to = sizeof(seen.text) - 1;
    seen.stop_at = SIZE_MAX;
    (void)snprintf(scratch, sizeof(scratch), "/tmp/stream-test-XXXXXX");
    if (!mkdtemp(scratch))
        return -1;
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    loop_done(&loop);
    (void)snprintf(command, sizeof(command), "rm -rf %s", scratch);
    return system(command);
}

static void free_stream(struct stream *stream)
{
    stream_done(stream);
    free(stream);
    loop_stop(&loop);
}

static void on_connected(struct stream *stream)
{
    seen.connected++;
    assert_int_equal(seen.received, 0);
    if (seen.free_in_connected)
        free_stream(stream);
}

static void on_received(struct stream *stream)
{
    size_t used = strlen(seen.text), length = stream->input.length;

    seen.received++;
    assert_int_equal(seen.ended, 0);
    if (seen.free_in_received) {
        free_stream(stream);
        return;
    }
    if (length > seen.consume_up_to - used)
        length = seen.consume_up_to - used;
    memcpy(seen.text + used, stream->input.data, length);
    buffer_consume(&stream->input, length);
    if (used + length >= seen.stop_at)
        loop_stop(&loop);
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    seen.ended++;
    seen.end = end;
    seen.error = *error;
    assert_int_equal(stream_send(stream, "x", 1), -EPIPE);
    stream_set_deadline(stream, 0); /* too late, and harmless */
    if (seen.free_in_ended)
        free_stream(stream);
    loop_stop(&loop);
}

static const struct stream_handler handler = {on_connected, on_received, on_ended};

/* A stream on one end of a pair; the other end is returned. */
static int adopt_pair(struct stream *stream, uint64_t deadline)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(stream_adopt(stream, &loop, ends[0], deadline, LIMIT, LIMIT, &handler), 0);
    return ends[1];
}

static void expect_end(enum stream_end end, int code)
{
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, end);
    assert_int_equal(seen.error.code, code);
    assert_true(strlen(seen.error.text) > 0);
}

static void say(int peer, const char *text)
{
    assert_int_equal(send(peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void delivers_what_comes_in_pieces(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        say(peer, (char[]){"hello"[i], '\0'});
        seen.stop_at = i + 1;
        loop_run(&loop);
    }
    assert_string_equal(seen.text, "hello");
    assert_int_equal(seen.received, 5);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    stream_done(&stream);
    close(peer);
}

static void delivers_before_it_ends(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    say(peer, "last words");
    close(peer);
    loop_run(&loop);
    assert_string_equal(seen.text, "last words");
    expect_end(STREAM_CLOSED, -ECONNRESET);
    assert_int_equal(stream.fd, -1);
    loop_run(&loop); /* nothing is left to happen */
    assert_int_equal(seen.ended, 1);
    stream_done(&stream);
}

/* The peer hung up before the request left: its words still count. */
static void reads_although_it_cannot_write(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    say(peer, "go away");
    close(peer);
    assert_int_equal(stream_send(&stream, "request", 7), 0);
    loop_run(&loop);
    assert_string_equal(seen.text, "go away");
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, STREAM_CLOSED);
    stream_done(&stream);
}

/* A peer that closes with our bytes unread resets the connection. */
static void reports_a_reset(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    assert_int_equal(stream_send(&stream, "request", 7), 0);
    close(peer);
    loop_run(&loop);
    expect_end(STREAM_CLOSED, -ECONNRESET);
    stream_done(&stream);
}

/* A peer that no longer reads but keeps its end open. */
static void ends_when_the_peer_takes_nothing(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    assert_int_equal(shutdown(peer, SHUT_RD), 0);
    assert_int_equal(stream_send(&stream, "request", 7), 0);
    loop_run(&loop);
    expect_end(STREAM_CLOSED, -EPIPE);
    stream_done(&stream);
    close(peer);
}

static void ends_at_its_deadline(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, NSEC_PER_MSEC);

    (void)state;
    loop_run(&loop);
    expect_end(STREAM_TIMEOUT, -ETIMEDOUT);
    stream_done(&stream);
    close(peer);
}

/* Bytes that keep coming do not move the deadline. */
static void deadline_is_absolute(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    stream_set_deadline(&stream, 5 * NSEC_PER_MSEC);
    seen.consume_up_to = 0; /* so that input would overflow rather than grow */
    while (!seen.ended) {
        if (stream.input.length < LIMIT / 2)
            say(peer, "x");
        loop_run_once(&loop);
    }
    expect_end(STREAM_TIMEOUT, -ETIMEDOUT);
    stream_done(&stream);
    close(peer);
}

static void deadline_can_be_taken_away(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, NSEC_PER_MSEC);

    (void)state;
    stream_set_deadline(&stream, STREAM_NO_DEADLINE);
    assert_false(loop_timer_is_active(&stream.deadline));
    stream_done(&stream);
    close(peer);
}

static void ends_a_flood(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);
    char flood[4 * LIMIT];

    (void)state;
    memset(flood, 'x', sizeof(flood));
    seen.consume_up_to = 0;
    assert_int_equal(send(peer, flood, sizeof(flood), 0), sizeof(flood));
    loop_run(&loop);
    expect_end(STREAM_OVERFLOW, -EMSGSIZE);
    assert_int_equal(stream.input.length, LIMIT);
    stream_done(&stream);
    close(peer);
}

/* More than the limit in all is fine as long as it is consumed. */
static void lets_a_consumed_flood_pass(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    for (int i = 0; i < 20; i++)
        say(peer, "0123456789");
    seen.stop_at = 200;
    loop_run(&loop);
    assert_int_equal(strlen(seen.text), 200);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    close(peer);
}

static void keeps_to_its_output_limit(void **state)
{
    struct stream stream;
    char bytes[LIMIT + 1] = "";
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    assert_int_equal(stream_send(&stream, bytes, LIMIT + 1), -EMSGSIZE);
    /* A peer that reads nothing: the kernel's buffer fills, then ours, then no more is taken. */
    while (stream.output.length + LIMIT <= LIMIT)
        assert_int_equal(stream_send(&stream, bytes, LIMIT), 0);
    assert_int_equal(stream_send(&stream, bytes, LIMIT), -EMSGSIZE);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    close(peer);
}

static void writes_on_when_the_peer_reads(void **state)
{
    struct stream stream;
    char bytes[LIMIT] = "", taken[4096];
    size_t sent = 0, got = 0;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    for (; stream.output.length + LIMIT <= LIMIT; sent += LIMIT)
        assert_int_equal(stream_send(&stream, bytes, LIMIT), 0);
    assert_true(stream.output.length > 0);
    while (got < sent) {
        ssize_t count = recv(peer, taken, sizeof(taken), MSG_DONTWAIT);

        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            loop_run_once(&loop);
            continue;
        }
        got += (size_t)count;
    }
    loop_stop(&loop);
    assert_int_equal(got, sent);
    assert_int_equal(stream.output.length, 0);
    stream_done(&stream);
    close(peer);
}

static void handlers_may_free_the_stream(void **state)
{
    struct stream *stream;
    int peer;

    (void)state;
    stream = malloc(sizeof(*stream));
    peer = adopt_pair(stream, LONG_TIME);
    seen.free_in_received = true;
    say(peer, "x");
    loop_run(&loop);
    assert_int_equal(seen.received, 1);
    assert_int_equal(seen.ended, 0);
    close(peer);

    stream = malloc(sizeof(*stream));
    peer = adopt_pair(stream, LONG_TIME);
    seen.free_in_ended = true;
    close(peer);
    loop_run(&loop);
    assert_int_equal(seen.ended, 1);
}

static void adopts_only_descriptors(void **state)
{
    struct stream stream;

    (void)state;
    assert_int_equal(stream_adopt(&stream, &loop, -1, LONG_TIME, LIMIT, LIMIT, &handler), -EBADF);
    stream_done(&stream);
    stream_done(NULL);
    memset(&stream, 0, sizeof(stream));
    stream_done(&stream); /* would close descriptor 0 if it were careless */
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
    assert_int_equal(stream_send(&stream, "x", 1), -EPIPE);
}

/* A terminal or a virtio port is no socket. */
static void adopts_what_is_no_socket(void **state)
{
    struct stream stream;
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(stream_adopt(&stream, &loop, ends[0], LONG_TIME, LIMIT, LIMIT, &handler), 0);
    assert_int_equal(write(ends[1], "hi", 2), 2);
    seen.stop_at = 2;
    loop_run(&loop);
    assert_string_equal(seen.text, "hi");
    stream_done(&stream);
    close(ends[1]);
}

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
    unsigned uid;
    int peer, pid;

    start_connecting(&stream, directory, path);
    assert_int_equal(stream_send(&stream, "ping", 4), 0); /* queued */
    while (!seen.connected && !seen.ended)
        loop_run_once(&loop);
    assert_int_equal(seen.connected, 1);
    assert_int_equal(stream_peer(&stream, &pid, &uid), 0);
    assert_int_equal(pid, getpid());
    assert_int_equal(uid, getuid());
    peer = accept(listener, NULL, NULL);
    assert_int_equal(recv(peer, word, sizeof(word), 0), 4);
    assert_string_equal(word, "ping");
    say(peer, "pong");
    close(peer);
    loop_run(&loop);
    assert_string_equal(seen.text, "pong");
    expect_end(STREAM_CLOSED, -ECONNRESET);
    assert_int_equal(stream_peer(&stream, &pid, &uid), -ENOTCONN);
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

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(delivers_what_comes_in_pieces),
        TEST(delivers_before_it_ends),
        TEST(reads_although_it_cannot_write),
        TEST(reports_a_reset),
        TEST(ends_when_the_peer_takes_nothing),
        TEST(ends_at_its_deadline),
        TEST(deadline_is_absolute),
        TEST(deadline_can_be_taken_away),
        TEST(ends_a_flood),
        TEST(lets_a_consumed_flood_pass),
        TEST(keeps_to_its_output_limit),
        TEST(writes_on_when_the_peer_reads),
        TEST(handlers_may_free_the_stream),
        TEST(adopts_only_descriptors),
        TEST(adopts_what_is_no_socket),
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
