/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.h - bytes that grow up to a limit.
 *
 * One contiguous block; a NUL always follows the last byte, so text can be read as a C string.
 *
 * The first failure is latched: an enum buffer_failure. An append that fails changes nothing but
 * that, and every append after it does nothing, so a text is written in one go and checked once:
 * every append returns 0 or the latched failure, and so does buffer_error(). buffer_clear(),
 * buffer_done() and buffer_rewind() clear it. Code that needs to know whether one piece fits uses
 * buffer_try_append().
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Negative; each has the value of the errno that describes it. */
enum buffer_failure {
    BUFFER_FULL = -EMSGSIZE, /* past the limit */
    BUFFER_NO_MEMORY = -ENOMEM,
};

struct buffer {
    char *data;      /* NULL while nothing was ever appended */
    size_t length;   /* bytes in use */
    size_t capacity; /* bytes allocated, the NUL not counted */
    size_t limit;    /* never more than this in use; 0 means 16 MiB */
    int error;       /* 0, or the first failure: read it with buffer_error() */
};

#define BUFFER_INIT(limit_bytes)                                                                   \
    {                                                                                              \
        .limit = (limit_bytes)                                                                     \
    }

void buffer_init(struct buffer *buffer, size_t limit);
void buffer_done(struct buffer *buffer);  /* frees, resets to an empty buffer with the same limit */
void buffer_clear(struct buffer *buffer); /* forgets bytes and failure, keeps the memory */

/* 0 or the latched failure. */
int buffer_error(const struct buffer *buffer);

/* Latches a failure of the caller's own: -errno. 0 does nothing. */
int buffer_fail(struct buffer *buffer, int error);

int buffer_append(struct buffer *buffer, const void *data, size_t length);
int buffer_append_text(struct buffer *buffer, const char *text);
int buffer_append_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Like buffer_append(), but does not latch a failure: the buffer can go on without the piece. */
int buffer_try_append(struct buffer *buffer, const void *data, size_t length);

/* A place to go back to: the bytes and the failure that the buffer has now. */
struct buffer_mark {
    size_t length;
    int error;
};

struct buffer_mark buffer_mark(const struct buffer *buffer);

/* Takes back everything since the mark, including a failure. The limit may have changed meanwhile.
 */
void buffer_rewind(struct buffer *buffer, struct buffer_mark mark);

/* Drops the first `length` bytes. */
void buffer_consume(struct buffer *buffer, size_t length);

/* Never NULL. */
const char *buffer_text(const struct buffer *buffer);

/* Reads at most limit bytes until end of file. BUFFER_FULL if there is more, -errno of read(2); a
 * failure changes nothing and is not latched. */
int buffer_read_all(struct buffer *buffer, int fd);
