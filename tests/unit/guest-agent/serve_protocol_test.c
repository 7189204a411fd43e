/* SPDX-License-Identifier: Apache-2.0 */
/* serve_protocol_test.c - calls, connections and addresses that the agent has to bear. */
#include "tests/unit/guest-agent/serve_fixture.h"

#include <sys/syscall.h>

/* ---- the protocol */

static void other_calls_are_not_implemented(void **state)
{
    cleanup(fd_closep) int fd = dial();

    post_request(fd, 7, AGENT_SERVICE, "ExecProcess", 0, NULL);
    post_request(fd, 5, "grpc.Health", "ExecProcess", 0, NULL); /* lower: fine */
    assert_int_equal(await_status(fd, 7).code, STATUS_UNIMPLEMENTED);
    assert_int_equal(await_status(fd, 5).code, STATUS_UNIMPLEMENTED);
}

static void a_failed_resize_is_reported(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

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

    post(fd, data_frame, sizeof(data_frame) - 1);
    post(fd, unknown_type, sizeof(unknown_type) - 1);
    post(fd, no_request, sizeof(no_request) - 1);
    assert_int_equal(await_status(fd, 0x17).code, STATUS_INVALID_ARGUMENT);
    post(fd, oversize, sizeof(oversize));
    assert_int_equal(await_status(fd, 0x19).code, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(ask_resize(fd, "/nope", 1).code, STATUS_INVALID_ARGUMENT);
}

/* Until the agent has ended the connection. */
static void await_end(int fd)
{
    struct ttrpc_status status;

    assert_false(await(fd, 1, &status, &received));
}

static void nonsense_ends_a_connection(void **state)
{
    cleanup(fd_closep) int fd = dial();

    post(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    await_end(fd);
}

static void the_idlest_connection_gives_way(void **state)
{
    int fds[SERVE_CONNECTIONS + 1];

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

    post(slow, "\0\0\0", 3);
    await_end(silent);
    await_end(slow);
}

/* Whom accept4() names as the peer; 0: whoever it is. */
static unsigned peer_cid;

/* The server's accept4(): this machine may have no vsock. */
int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    const struct sockaddr_vm peer = {.svm_family = AF_VSOCK, .svm_cid = peer_cid};
    int accepted = (int)syscall(SYS_accept4, fd, address, size, flags);

    if (accepted >= 0 && peer_cid) {
        memcpy(address, &peer, sizeof(peer));
        *size = sizeof(peer);
    }
    return accepted;
}

/* Another guest, a process of this one and the hypervisor are not the host. */
static void only_the_host_is_served(void **state)
{
    static const unsigned others[] = {VMADDR_CID_LOCAL, 3, VMADDR_CID_ANY};
    cleanup(fd_closep) int host = -1;

    for (size_t i = 0; i < array_length(others); i++) {
        cleanup(fd_closep) int other = dial();

        peer_cid = others[i];
        await_end(other);
    }
    peer_cid = VMADDR_CID_HOST;
    host = dial();
    assert_int_equal(ask_resize(host, "/nope", 1).code, STATUS_INVALID_ARGUMENT);
    peer_cid = 0;
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

static void only_root_may_connect(void **state)
{
    struct stat status;

    assert_int_equal(stat(socket_path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

static void requests_in_progress_are_bounded_and_end_with_their_connection(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

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

    for (size_t i = 0; i < array_length(bad); i++) {
        assert_int_equal(server_new(&loop, bad[i], IDLE_NS, &other, &error), -EINVAL);
        assert_null(other);
    }
    assert_int_equal(server_new(&loop, "unix:///no/such/dir/sock", IDLE_NS, &other, &error),
                     -ENOENT);
    assert_non_null(strstr(error.text, "/no/such/dir/sock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(other_calls_are_not_implemented),
        TEST(a_failed_resize_is_reported),
        TEST(a_request_may_come_byte_by_byte),
        TEST(strange_frames_are_survived),
        TEST(nonsense_ends_a_connection),
        TEST(the_idlest_connection_gives_way),
        TEST(a_connection_with_a_request_in_progress_stays),
        cmocka_unit_test_setup_teardown(an_idle_connection_ends, set_up_impatient, tear_down),
        TEST(only_the_host_is_served),
        TEST(only_the_host_is_served_on_vsock),
        TEST(only_root_may_connect),
        TEST(requests_in_progress_are_bounded_and_end_with_their_connection),
        TEST(addresses_are_checked),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
