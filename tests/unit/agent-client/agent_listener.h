/* SPDX-License-Identifier: Apache-2.0 */
/* agent_listener.h - where an agent of a test listens: one connection at a time, on the test's
 * loop. Its clients are jobs in workers. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/workers.h"
#include "tests/unit/scratch.h"

#define LONG_TIME  (3600 * NSEC_PER_SEC)
#define SHORT_TIME (400 * NSEC_PER_MSEC) /* a busy machine may stand still for a part of it */

static struct loop loop;
static int root;
static char scratch[SCRATCH_BYTES]; /* has agent.sock */

static struct {
    int listener, connection;
    struct loop_io accepting, receiving;
    struct loop_timer sending; /* more of an answer */
    struct buffer input;
    void (*accepted)(void);
    void (*received)(void); /* into the input */
} listening;

static inline void hang_up(void)
{
    loop_io_stop(&listening.receiving);
    loop_timer_stop(&listening.sending);
    fd_close(take_fd(&listening.connection));
    buffer_clear(&listening.input);
}

static inline void on_receive(struct loop_io *io, int events)
{
    static char bytes[256 * 1024];
    ssize_t count = read(listening.connection, bytes, sizeof(bytes));

    if (count <= 0) {
        hang_up();
        return;
    }
    assert_int_equal(buffer_append(&listening.input, bytes, (size_t)count), 0);
    listening.received();
}

static inline void on_accept(struct loop_io *io, int events)
{
    hang_up();
    listening.connection = accept4(listening.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(listening.connection >= 0);
    loop_io_start(&loop, &listening.receiving, listening.connection, LOOP_READ, on_receive);
    listening.accepted();
}

static inline void on_workers_lost(void *userdata)
{
    fail_msg("the workers' nursery has died");
}

static inline int listen_begin(void (*accepted)(void), void (*received)(void))
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    memset(&listening, 0, sizeof(listening));
    listening.connection = -1;
    listening.accepted = accepted;
    listening.received = received;
    if (workers_fork_nursery() < 0 || scratch_directory_make(scratch) < 0)
        return -1;
    root = open(scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/agent.sock", scratch);
    listening.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening.listener, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(listening.listener, 4) < 0 || loop_init(&loop) < 0)
        return -1;
    workers_start(&loop, on_workers_lost, NULL);
    loop_io_start(&loop, &listening.accepting, listening.listener, LOOP_READ, on_accept);
    return 0;
}

static inline int listen_end(void)
{
    workers_stop();
    hang_up();
    loop_io_stop(&listening.accepting);
    fd_close(listening.listener);
    fd_close(root);
    buffer_done(&listening.input);
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

/* The worker that has connected. */
static inline void kill_client(uint32_t stream)
{
    struct ucred client;
    socklen_t size = sizeof(client);

    assert_int_equal(getsockopt(listening.connection, SOL_SOCKET, SO_PEERCRED, &client, &size), 0);
    assert_int_equal(kill(client.pid, SIGKILL), 0);
}

/* Takes the request for a port, once it is complete; whether it was. */
static inline bool take_connect(void)
{
    if (!memchr(buffer_text(&listening.input), '\n', listening.input.length))
        return false;
    assert_memory_equal(listening.input.data, "CONNECT 1024\n", 13);
    buffer_consume(&listening.input, 13);
    return true;
}
