/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - a stream on a loop of the test's own, and what its handlers saw.
 *
 * The peer's end is in the test's own hands. Each test runs the loop until the stream has ended or
 * the test has what it waits for; a deadline only ends tests whose subject it is.
 */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/stream.h"
#include "tests/unit/scratch.h"

enum { LIMIT = 64 };

#define LONG_TIME (3600 * NSEC_PER_SEC)

static struct loop loop;
static char scratch[SCRATCH_BYTES];

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

static inline int set_up(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.consume_up_to = sizeof(seen.text) - 1;
    seen.stop_at = SIZE_MAX;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    return loop_init(&loop);
}

static inline int tear_down(void **state)
{
    (void)state;
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static inline void free_stream(struct stream *stream)
{
    stream_done(stream);
    free(stream);
    loop_stop(&loop);
}

static inline void on_connected(struct stream *stream)
{
    seen.connected++;
    assert_int_equal(seen.received, 0);
    if (seen.free_in_connected)
        free_stream(stream);
}

static inline void on_received(struct stream *stream)
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

static inline void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
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

static inline void expect_end(enum stream_end end, int code)
{
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, end);
    assert_int_equal(seen.error.code, code);
    assert_true(strlen(seen.error.text) > 0);
}

static inline void say(int peer, const char *text)
{
    assert_int_equal(send(peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}
