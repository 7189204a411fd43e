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

#include "guest-agent/guest_volume.h"
#include "lib/log.h"
#include "tests/unit/guest-agent/client_fixture.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"

#define IDLE_NS (3600 * NSEC_PER_SEC)

static struct server *server;
static char scratch[SCRATCH_BYTES], socket_path[108];
static struct loop_volume volume;

/* ---- the client's side */

static inline int dial(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(name.sun_path, socket_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static inline void append_call(struct buffer *frames, uint32_t stream, const char *method,
                               const char *path, uint64_t bytes, uint64_t timeout_ns)
{
    struct ttrpc_request request = {.service = AGENT_SERVICE, .timeout_ns = timeout_ns};
    struct buffer payload = BUFFER_INIT(0);

    strcpy(request.method, method);
    assert_int_equal(
        agent_append_request(&payload, path, strcmp(method, AGENT_METHOD_RESIZE) == 0 ? bytes : 0),
        0);
    assert_int_equal(
        ttrpc_append_request(frames, stream, &request, buffer_text(&payload), payload.length), 0);
    buffer_done(&payload);
}

static inline void post_call(int fd, uint32_t stream, const char *method, const char *path,
                             uint64_t bytes, uint64_t timeout_ns)
{
    struct buffer frames = BUFFER_INIT(0);

    append_call(&frames, stream, method, path, bytes, timeout_ns);
    post(fd, frames.data, frames.length);
    buffer_done(&frames);
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
    return start(IDLE_NS);
}

static inline int set_up_impatient(void **state)
{
    return start(NSEC_PER_SEC / 20);
}

static inline int tear_down(void **state)
{
    server = server_free(server);
    loop_done(&loop);
    buffer_done(&received);
    loop_volume_remove(&volume);
    return scratch_directory_remove(scratch);
}

static inline int private_mounts(void **state)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    log_set_descriptor(null);
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_WITH(name, argument)                                                                  \
    cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, (void *)(uintptr_t)(argument))
