/* SPDX-License-Identifier: Apache-2.0 */
/* client_fixture.h - what a client of the agent hears, on the loop that the agent runs on. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/guest_serve.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

static struct loop loop;
static struct buffer received;
static bool out_of_patience;
static size_t skipped; /* bytes before the last answer */

static inline void give_up(struct loop_timer *timer)
{
    out_of_patience = true;
}

static inline void nothing(struct loop_io *io, int events)
{
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

/* Runs the agent until it has answered the stream; false at the end of it or of the patience. What
 * was said to other streams stays. */
static inline bool await_for(uint64_t patience_ns, int fd, uint32_t stream,
                             struct ttrpc_status *status, struct buffer *payload)
{
    struct loop_io readable = {0};
    struct loop_timer patience = {0};
    struct ttrpc_frame frame;
    bool alive = true, found = false;

    loop_io_start(&loop, &readable, fd, LOOP_READ, nothing);
    loop_timer_start(&loop, &patience, patience_ns, give_up);
    out_of_patience = false;
    while (alive && !out_of_patience) {
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
        (void)memmove(received.data + skipped, received.data + skipped + frame.size,
                      received.length - skipped - frame.size);
        received.length -= frame.size;
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

static inline struct ttrpc_status await_status(int fd, uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status = {0};

    assert_true(await(fd, stream, &status, &payload));
    buffer_done(&payload);
    return status;
}

static inline void post(int fd, const void *bytes, size_t length)
{
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
}

/* A request with the payload; NULL: an empty one. */
static inline void post_request(int fd, uint32_t stream, const char *service, const char *method,
                                uint64_t timeout_ns, const struct buffer *payload)
{
    struct ttrpc_request request = {.timeout_ns = timeout_ns};
    struct buffer frame = BUFFER_INIT(0);

    strcpy(request.service, service);
    strcpy(request.method, method);
    assert_int_equal(ttrpc_append_request(&frame, stream, &request,
                                          payload ? buffer_text(payload) : NULL,
                                          payload ? payload->length : 0),
                     0);
    post(fd, frame.data, frame.length);
    buffer_done(&frame);
}
