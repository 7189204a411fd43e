/* SPDX-License-Identifier: Apache-2.0 */
/* serve_fixture.h - the whole agent, asked over a unix socket or a serial line, with real file
 * systems on loop devices that grow.
 *
 * The mounts live in a mount namespace of this process alone. What needs root, a loop device or a
 * file system that this machine lacks is skipped. ext4 needs CAP_SYS_RESOURCE: without it the test
 * is that the agent says so.
 */
#pragma once

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
#include "guest-agent/resize.h"
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

static inline int dial(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(name.sun_path, socket_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static bool out_of_patience;

static inline void give_up(struct loop_timer *timer)
{
    (void)timer;
    out_of_patience = true;
}

static inline void nothing(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
}

/* Reads what has come; false at the end of the stream. */
static inline bool receive(int fd)
{
    char bytes[4096];
    ssize_t count = read(fd, bytes, sizeof(bytes));

    if (count > 0)
        assert_int_equal(buffer_append(&received, bytes, (size_t)count), 0);
    return count > 0 || (count < 0 && errno == EAGAIN);
}

/* Runs the agent until the answer to the stream; false at the end of it or of the patience. */
static inline bool await_for(uint64_t patience_ns, int fd, uint32_t stream,
                             struct ttrpc_status *status, struct buffer *payload)
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

static inline bool await(int fd, uint32_t stream, struct ttrpc_status *status,
                         struct buffer *payload)
{
    bool found = await_for(60 * NSEC_PER_SEC, fd, stream, status, payload);

    assert_false(out_of_patience);
    return found;
}

static inline void append_call(struct buffer *frames, uint32_t stream, const char *method,
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

static inline void post(int fd, const void *bytes, size_t length)
{
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
}

static inline void post_call(int fd, uint32_t stream, const char *method, const char *path,
                             uint64_t bytes, uint64_t timeout_ns)
{
    struct buffer frames = BUFFER_INIT(0);

    append_call(&frames, stream, method, path, bytes, timeout_ns);
    post(fd, frames.data, frames.length);
    buffer_done(&frames);
}

static inline struct ttrpc_status await_status(int fd, uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status;

    assert_true(await(fd, stream, &status, &payload));
    buffer_done(&payload);
    return status;
}

static inline struct ttrpc_status ask_resize(int fd, const char *path, uint64_t bytes)
{
    post_call(fd, 1, AGENT_METHOD_RESIZE, path, bytes, 50 * NSEC_PER_SEC);
    return await_status(fd, 1);
}

static inline struct agent_stats ask_stats(int fd, const char *path)
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

static inline void make_volume(const char *file_system)
{
    loop_volume_make(&volume, scratch, "a mount", file_system);
}

static inline void grow_volume(void)
{
    loop_volume_resize(&volume, LARGE);
}

/* ---- around each test */

static inline int start(uint64_t idle_ns)
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

static inline int set_up(void **state)
{
    (void)state;
    return start(IDLE_NS);
}

static inline int set_up_impatient(void **state)
{
    (void)state;
    return start(NSEC_PER_SEC / 20);
}

static inline int tear_down(void **state)
{
    (void)state;
    server = server_free(server);
    loop_done(&loop);
    buffer_done(&received);
    loop_volume_remove(&volume);
    return scratch_directory_remove(scratch);
}

static inline int private_mounts(void **state)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    log_set_descriptor(null);
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
