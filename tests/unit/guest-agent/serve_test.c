/* SPDX-License-Identifier: Apache-2.0 */
/* serve_test.c - the whole agent, asked over a unix socket and a serial line, with real file
 * systems on loop devices that grow.
 *
 * The mounts live in a mount namespace of this process alone. What needs root, a loop device or a
 * file system that this machine lacks is skipped. ext4 needs CAP_SYS_RESOURCE: without it the test
 * is that the agent says so.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <pty.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/grow_task.h"
#include "guest-agent/serve.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"

#define IDLE_NS (3600 * NSEC_PER_SEC)

static struct loop loop;
static struct server *server;
static char scratch[SCRATCH_BYTES], socket_path[108];
static struct loop_volume volume;
static struct buffer received;

/* ---- the client's side */

static int dial(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(name.sun_path, socket_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static bool out_of_patience;

static void give_up(struct loop_timer *timer)
{
    (void)timer;
    out_of_patience = true;
}

static void nothing(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
}

/* Reads what has come; false at the end of the stream. */
static bool receive(int fd)
{
    char bytes[4096];
    ssize_t count = read(fd, bytes, sizeof(bytes));

    if (count > 0)
        assert_int_equal(buffer_append(&received, bytes, (size_t)count), 0);
    return count > 0 || (count < 0 && errno == EAGAIN);
}

/* Runs the agent until the answer to the stream; false at the end of it or of the patience. */
static bool await_for(uint64_t patience_ns, int fd, uint32_t stream, struct ttrpc_status *status,
                      struct buffer *payload)
{
    struct loop_io readable = {0};
    struct loop_timer patience = {0};
    struct ttrpc_frame frame;
    size_t skipped;
    bool alive = true, found = false;

    loop_io_start(&loop, &readable, fd, LOOP_READ, nothing);
    loop_timer_start(&loop, &patience, patience_ns, give_up);
    out_of_patience = false;
    while (alive && !found && !out_of_patience) {
        found = ttrpc_find_response(buffer_text(&received), received.length, stream, 65536,
                                    &skipped, &frame) == TTRPC_FRAME;
        if (found)
            break;
        loop_run_once(&loop);
        alive = receive(fd);
    }
    loop_io_stop(&readable);
    loop_timer_stop(&patience);
    if (found) {
        assert_int_equal(ttrpc_parse_response(&frame, status, payload), 0);
        buffer_consume(&received, skipped + frame.size);
    }
    return found;
}

static bool await(int fd, uint32_t stream, struct ttrpc_status *status, struct buffer *payload)
{
    bool found = await_for(60 * NSEC_PER_SEC, fd, stream, status, payload);

    assert_false(out_of_patience);
    return found;
}

static void append_call(struct buffer *frames, uint32_t stream, const char *method,
                        const char *path, uint64_t bytes, uint64_t timeout_ns)
{
    struct ttrpc_request request = {.service = AGENT_SERVICE, .timeout_ns = timeout_ns};
    struct buffer payload = BUFFER_INIT(0);

    strcpy(request.method, method);
    if (strcmp(method, AGENT_METHOD_RESIZE) == 0)
        assert_int_equal(agent_append_resize_request(&payload, path, bytes), 0);
    else
        assert_int_equal(agent_append_stats_request(&payload, path), 0);
    assert_int_equal(
        ttrpc_append_request(frames, stream, &request, buffer_text(&payload), payload.length), 0);
    buffer_done(&payload);
}

static void post(int fd, const void *bytes, size_t length)
{
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
}

static void post_call(int fd, uint32_t stream, const char *method, const char *path, uint64_t bytes,
                      uint64_t timeout_ns)
{
    struct buffer frames = BUFFER_INIT(0);

    append_call(&frames, stream, method, path, bytes, timeout_ns);
    post(fd, frames.data, frames.length);
    buffer_done(&frames);
}

static struct ttrpc_status await_status(int fd, uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status;

    assert_true(await(fd, stream, &status, &payload));
    buffer_done(&payload);
    return status;
}

static struct ttrpc_status ask_resize(int fd, const char *path, uint64_t bytes)
{
    post_call(fd, 1, AGENT_METHOD_RESIZE, path, bytes, 50 * NSEC_PER_SEC);
    return await_status(fd, 1);
}

static struct agent_stats ask_stats(int fd, const char *path)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status;
    struct agent_stats stats;

    post_call(fd, 3, AGENT_METHOD_STATS, path, 0, 0);
    assert_true(await(fd, 3, &status, &payload));
    assert_int_equal(status.code, STATUS_OK);
    assert_int_equal(agent_parse_stats(buffer_text(&payload), payload.length, &stats), 0);
    buffer_done(&payload);
    return stats;
}

/* ---- the volume's side */

static void make_volume(const char *file_system)
{
    loop_volume_make(&volume, scratch, "a mount", file_system);
}

static void grow_volume(void)
{
    loop_volume_resize(&volume, LARGE);
}

/* ---- around each test */

static int start(uint64_t idle_ns)
{
    char address[128];
    struct error error;

    volume.loop = -1;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    (void)snprintf(socket_path, sizeof(socket_path), "%s/agent.sock", scratch);
    (void)snprintf(address, sizeof(address), "unix://%s", socket_path);
    buffer_init(&received, 0);
    if (loop_init(&loop) < 0)
        return -1;
    return server_new(&loop, address, idle_ns, &server, &error);
}

static int set_up(void **state)
{
    (void)state;
    return start(IDLE_NS);
}

static int set_up_impatient(void **state)
{
    (void)state;
    return start(NSEC_PER_SEC / 20);
}

static int tear_down(void **state)
{
    (void)state;
    server = server_free(server);
    loop_done(&loop);
    buffer_done(&received);
    loop_volume_remove(&volume);
    return scratch_directory_remove(scratch);
}

static int private_mounts(void **state)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    log_set_descriptor(null);
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

/* ---- growing */

static void grows(const char *file_system)
{
    cleanup(fd_closep) int fd = dial();
    uint64_t before;
    struct ttrpc_status status;

    make_volume(file_system);
    before = ask_stats(fd, volume.mount_point).total;
    assert_true(before < SMALL * MIB + 1);
    assert_int_equal(ask_resize(fd, volume.mount_point, SMALL * MIB).code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before);
    grow_volume();
    status = ask_resize(fd, volume.mount_point, LARGE * MIB);
    assert_string_equal(status.message, "");
    assert_int_equal(status.code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before + (LARGE - SMALL) * MIB);
    assert_int_equal(ask_resize(fd, volume.mount_point, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(ask_resize(fd, volume.mount_point, 0).code, STATUS_OK);
    assert_int_equal(ask_resize(fd, volume.mount_point, MIB).code, STATUS_OK); /* never shrinks */
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before + (LARGE - SMALL) * MIB);
}

static void xfs_grows(void **state)
{
    (void)state;
    grows("xfs");
}

static void btrfs_grows(void **state)
{
    (void)state;
    grows("btrfs");
}

static void ext4_grows_or_says_what_it_lacks(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;
    uint64_t before;

    (void)state;
    make_volume("ext4");
    before = ask_stats(fd, volume.mount_point).total;
    grow_volume();
    status = ask_resize(fd, volume.mount_point, LARGE * MIB);
    if (status.code == STATUS_OK) {
        assert_true(ask_stats(fd, volume.mount_point).total > before + (LARGE - SMALL) / 2 * MIB);
        return;
    }
    assert_int_equal(status.code, STATUS_PERMISSION_DENIED);
    assert_non_null(strstr(status.message, "CAP_SYS_RESOURCE"));
    skip();
}

static void the_device_names_the_volume_too(void **state)
{
    cleanup(fd_closep) int fd = dial();

    (void)state;
    make_volume("btrfs");
    grow_volume();
    assert_int_equal(ask_resize(fd, volume.device, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.device).total, LARGE * MIB);
}

static void a_request_waits_for_its_device_and_nobody_waits_for_it(void **state)
{
    cleanup(fd_closep) int fd = dial();

    (void)state;
    make_volume("xfs");
    post_call(fd, 1001, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB, 60 * NSEC_PER_SEC);
    (void)ask_stats(fd, volume.mount_point);
    assert_int_equal(ask_resize(fd, volume.mount_point, SMALL * MIB).code, STATUS_OK);
    grow_volume();
    assert_int_equal(await_status(fd, 1001).code, STATUS_OK);
    assert_true(ask_stats(fd, volume.mount_point).total > SMALL * MIB);
}

static void a_device_that_does_not_grow_is_waited_for_until_the_deadline(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

    (void)state;
    make_volume("xfs");
    post_call(fd, 5, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB, NSEC_PER_SEC / 20);
    status = await_status(fd, 5);
    assert_int_equal(status.code, STATUS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(status.message, "not yet"));
}

static void a_read_only_mount_is_left_for_a_writable_one(void **state)
{
    cleanup(fd_closep) int fd = dial();
    char other[128];

    (void)state;
    make_volume("xfs");
    (void)snprintf(other, sizeof(other), "%s/other", scratch);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mount(volume.mount_point, other, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, other, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    grow_volume();
    assert_int_equal(ask_resize(fd, other, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(mount(NULL, volume.mount_point, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    loop_volume_resize(&volume, 2 * LARGE);
    assert_int_equal(ask_resize(fd, other, 2 * LARGE * MIB).code, STATUS_UNAVAILABLE);
    assert_int_equal(umount(other), 0);
}

/* ---- the protocol */

static void other_calls_are_not_implemented(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_request request = {.service = AGENT_SERVICE, .method = "ExecProcess"};
    struct buffer frames = BUFFER_INIT(0);

    (void)state;
    assert_int_equal(ttrpc_append_request(&frames, 7, &request, NULL, 0), 0);
    strcpy(request.service, "grpc.Health");
    assert_int_equal(ttrpc_append_request(&frames, 5, &request, NULL, 0), 0); /* lower: fine */
    post(fd, frames.data, frames.length);
    assert_int_equal(await_status(fd, 7).code, STATUS_UNIMPLEMENTED);
    assert_int_equal(await_status(fd, 5).code, STATUS_UNIMPLEMENTED);
    buffer_done(&frames);
}

static void what_cannot_be_grown_is_told(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

    (void)state;
    assert_int_equal(ask_resize(fd, "/nope", 1).code, STATUS_INVALID_ARGUMENT);
    status = ask_resize(fd, "/proc", 1);
    assert_int_equal(status.code, STATUS_FAILED_PRECONDITION);
    assert_string_equal(status.message, AGENT_NOT_GROWABLE_TEXT "proc is not ext4, xfs or btrfs");
    assert_int_equal(ask_resize(fd, "", 1).code, STATUS_INVALID_ARGUMENT);
    assert_true(ask_stats(fd, "/proc").has_bytes);
    post_call(fd, 9, AGENT_METHOD_STATS, "/nope", 0, 0);
    assert_int_equal(await_status(fd, 9).code, STATUS_INVALID_ARGUMENT);
}

static void a_request_may_come_byte_by_byte(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct buffer frames = BUFFER_INIT(0);

    (void)state;
    append_call(&frames, 11, AGENT_METHOD_RESIZE, "/nope", 1, 0);
    append_call(&frames, 13, AGENT_METHOD_STATS, "/nope", 1, 0);
    loop_run_once(&loop);
    for (size_t i = 0; i < frames.length; i++) {
        post(fd, frames.data + i, 1);
        loop_run_once(&loop);
    }
    assert_int_equal(await_status(fd, 11).code, STATUS_INVALID_ARGUMENT);
    assert_int_equal(await_status(fd, 13).code, STATUS_INVALID_ARGUMENT);
    buffer_done(&frames);
}

static void strange_frames_are_survived(void **state)
{
    static const char data_frame[] = "\0\0\0\2\0\0\0\x15\3\1xy";
    static const char unknown_type[] = "\0\0\0\0\0\0\0\x15\x63\0";
    static const char no_request[] = "\0\0\0\1\0\0\0\x17\1\0\xff";
    cleanup(fd_closep) int fd = dial();
    char oversize[TTRPC_HEADER_BYTES + 65537] = "\0\1\0\1\0\0\0\x19\1\0";

    (void)state;
    post(fd, data_frame, sizeof(data_frame) - 1);
    post(fd, unknown_type, sizeof(unknown_type) - 1);
    post(fd, no_request, sizeof(no_request) - 1);
    assert_int_equal(await_status(fd, 0x17).code, STATUS_INVALID_ARGUMENT);
    post(fd, oversize, sizeof(oversize));
    assert_int_equal(await_status(fd, 0x19).code, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(ask_resize(fd, "/nope", 1).code, STATUS_INVALID_ARGUMENT);
}

static void nonsense_ends_a_connection(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

    (void)state;
    post(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    assert_false(await(fd, 1, &status, &received));
}

/* Until the agent has ended the connection. */
static void await_end(int fd)
{
    struct ttrpc_status status;

    assert_false(await(fd, 1, &status, &received));
}

static void the_idlest_connection_gives_way(void **state)
{
    int fds[SERVE_CONNECTIONS + 1];

    (void)state;
    for (size_t i = 0; i < array_length(fds); i++) {
        fds[i] = dial();
        assert_int_equal(ask_resize(fds[i], "/nope", 1).code, STATUS_INVALID_ARGUMENT);
        /* The first one is heard of again, so the second is idle for longest. */
        assert_int_equal(ask_resize(fds[0], "/nope", 1).code, STATUS_INVALID_ARGUMENT);
    }
    await_end(fds[1]);
    assert_int_equal(ask_resize(fds[2], "/nope", 1).code, STATUS_INVALID_ARGUMENT);
    for (size_t i = 0; i < array_length(fds); i++)
        fd_close(fds[i]);
}

static void a_connection_with_a_request_in_progress_stays(void **state)
{
    int fds[SERVE_CONNECTIONS + 1];

    (void)state;
    make_volume("xfs");
    for (size_t i = 0; i < array_length(fds); i++) {
        fds[i] = dial();
        post_call(fds[i], 1001, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB,
                  60 * NSEC_PER_SEC);
        if (i < SERVE_CONNECTIONS)
            (void)ask_stats(fds[i], volume.mount_point); /* so the other has been taken, too */
    }
    await_end(fds[SERVE_CONNECTIONS]);
    for (size_t i = 0; i < array_length(fds); i++)
        fd_close(fds[i]);
}

/* Half a frame is no request. */
static void an_idle_connection_ends(void **state)
{
    cleanup(fd_closep) int silent = dial(), slow = dial();

    (void)state;
    post(slow, "\0\0\0", 3);
    await_end(silent);
    await_end(slow);
}

/* Run where there is a vsock: tests/node has it run in a node. */
static void only_the_host_is_served_on_vsock(void **state)
{
    cleanup(fd_closep) int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_vm name = {.svm_family = AF_VSOCK,
                               .svm_cid = VMADDR_CID_LOCAL,
                               .svm_port = 1 << 20 | (unsigned)getpid()};
    struct server *on_vsock = NULL;
    char address[64];

    (void)state;
    (void)snprintf(address, sizeof(address), "vsock://%u", name.svm_port);
    if (fd < 0 || server_new(&loop, address, IDLE_NS, &on_vsock, NULL) < 0)
        skip();
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0) {
        (void)server_free(on_vsock);
        skip();
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    await_end(fd);
    (void)server_free(on_vsock);
}

static void requests_in_progress_are_bounded_and_end_with_their_connection(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

    (void)state;
    make_volume("xfs");
    for (uint32_t i = 0; i <= 16; i++)
        post_call(fd, 101 + 2 * i, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB,
                  60 * NSEC_PER_SEC);
    status = await_status(fd, 101 + 2 * 16);
    assert_int_equal(status.code, STATUS_RESOURCE_EXHAUSTED);
}

static void addresses_are_checked(void **state)
{
    static const char *const bad[] = {"",         "vsock://",  "vsock://0", "vsock://3:4",
                                      "unix://a", "serial://", "tcp://1",   "vsock://99999999999"};
    struct server *other = NULL;
    struct error error;

    (void)state;
    for (size_t i = 0; i < array_length(bad); i++) {
        assert_int_equal(server_new(&loop, bad[i], IDLE_NS, &other, &error), -EINVAL);
        assert_null(other);
    }
    assert_int_equal(server_new(&loop, "unix:///no/such/dir/sock", IDLE_NS, &other, &error),
                     -ENOENT);
    assert_non_null(strstr(error.text, "/no/such/dir/sock"));
}

/* ---- a serial line */

/* A request that comes on the heels of nonsense goes with it, so the client asks again. */
static void ask_until_answered(int line)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status = {0};
    uint32_t stream = 201;

    do {
        stream += 2;
        post_call(line, stream, AGENT_METHOD_RESIZE, "/nope", 1, 0);
    } while (!await_for(3 * NSEC_PER_SEC / 2, line, stream, &status, &payload) && stream < 241);
    assert_int_equal(status.code, STATUS_INVALID_ARGUMENT);
    assert_true(stream < 241);
    buffer_done(&payload);
}

static void a_serial_line_carries_one_client_after_another(void **state)
{
    char name[64], address[96];
    struct buffer half = BUFFER_INIT(0);
    struct server *serial;
    int line, port;

    (void)state;
    if (openpty(&line, &port, name, NULL, NULL) < 0)
        skip();
    assert_int_equal(fcntl(line, F_SETFL, O_NONBLOCK), 0);
    (void)snprintf(address, sizeof(address), "serial://%s", name);
    assert_int_equal(server_new(&loop, address, IDLE_NS, &serial, NULL), 0);
    loop_run_once(&loop); /* opens the port, which makes it raw */
    ask_until_answered(line);
    post(line, "garbage", 7);
    ask_until_answered(line);
    append_call(&half, 31, AGENT_METHOD_RESIZE, "/nope", 1, 0);
    post(line, half.data, half.length / 2);
    ask_until_answered(line);
    buffer_done(&half);
    (void)server_free(serial);
    fd_close(line);
    fd_close(port);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(xfs_grows),
        TEST(btrfs_grows),
        TEST(ext4_grows_or_says_what_it_lacks),
        TEST(the_device_names_the_volume_too),
        TEST(a_request_waits_for_its_device_and_nobody_waits_for_it),
        TEST(a_device_that_does_not_grow_is_waited_for_until_the_deadline),
        TEST(a_read_only_mount_is_left_for_a_writable_one),
        TEST(other_calls_are_not_implemented),
        TEST(what_cannot_be_grown_is_told),
        TEST(a_request_may_come_byte_by_byte),
        TEST(strange_frames_are_survived),
        TEST(nonsense_ends_a_connection),
        TEST(the_idlest_connection_gives_way),
        TEST(a_connection_with_a_request_in_progress_stays),
        cmocka_unit_test_setup_teardown(an_idle_connection_ends, set_up_impatient, tear_down),
        TEST(only_the_host_is_served_on_vsock),
        TEST(requests_in_progress_are_bounded_and_end_with_their_connection),
        TEST(addresses_are_checked),
        TEST(a_serial_line_carries_one_client_after_another),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
