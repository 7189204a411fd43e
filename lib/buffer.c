/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c - one growing block of bytes.
 *
 * Always holds: length <= capacity, length <= limit, and data[length] is NUL once anything was
 * allocated. A failed append leaves the bytes as they were, and so does every append after it. The
 * block doubles, so appending byte by byte costs linear time; consuming moves what is left to the
 * front, which is cheap for its users: they consume whole messages, after which little is left.
 */
#include "lib/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_LIMIT = 16 * 1024 * 1024, FIRST_CAPACITY = 255, READ_STEP = 16 * 1024 };

static size_t buffer_limit(const struct buffer *buffer)
{
    return buffer->limit ? buffer->limit : DEFAULT_LIMIT;
}

void buffer_init(struct buffer *buffer, size_t limit)
{
    *buffer = (struct buffer)BUFFER_INIT(limit);
}

void buffer_done(struct buffer *buffer)
{
    if (!buffer)
        return;
    free(buffer->data);
    buffer_init(buffer, buffer->limit);
}

void buffer_clear(struct buffer *buffer)
{
    buffer_rewind(buffer, (struct buffer_mark){0});
}

int buffer_error(const struct buffer *buffer)
{
    return buffer->error;
}

int buffer_fail(struct buffer *buffer, int error)
{
    if (!buffer->error)
        buffer->error = error;
    return buffer->error;
}

struct buffer_mark buffer_mark(const struct buffer *buffer)
{
    return (struct buffer_mark){buffer->length, buffer->error};
}

void buffer_rewind(struct buffer *buffer, struct buffer_mark mark)
{
    buffer->length = mark.length;
    buffer->error = mark.error;
    if (buffer->data)
        buffer->data[mark.length] = '\0';
}

/* Makes room for `length` more bytes and their NUL. */
static int buffer_reserve(struct buffer *buffer, size_t length)
{
    size_t limit = buffer_limit(buffer);
    size_t needed, capacity;
    char *data;

    if (buffer->error)
        return buffer->error;
    if (length > limit - buffer->length)
        return -EMSGSIZE;
    needed = buffer->length + length;
    if (buffer->data && needed <= buffer->capacity)
        return 0;
    capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity = capacity < limit / 2 ? capacity * 2 : limit;
    data = realloc(buffer->data, capacity + 1);
    if (!data)
        return -ENOMEM;
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

int buffer_try_append(struct buffer *buffer, const void *data, size_t length)
{
    int r = buffer_reserve(buffer, length);

    if (r < 0)
        return r;
    if (length)
        memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
    return 0;
}

int buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    return buffer_fail(buffer, buffer_try_append(buffer, data, length));
}

int buffer_append_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}

int buffer_append_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    int length;

    if (buffer->error)
        return buffer->error;
    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (buffer_fail(buffer, length < 0 ? -EINVAL : buffer_reserve(buffer, (size_t)length)) < 0)
        return buffer->error;
    va_start(arguments, format);
    (void)vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
    return 0;
}

void buffer_consume(struct buffer *buffer, size_t length)
{
    if (!length)
        return;
    if (length > buffer->length)
        length = buffer->length;
    buffer->length -= length;
    if (buffer->data)
        memmove(buffer->data, buffer->data + length, buffer->length + 1);
}

const char *buffer_text(const struct buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

/* One read(2) into the buffer's own room; at the limit, one byte elsewhere tells "full" from "end".
 */
static int buffer_read_step(struct buffer *buffer, int fd, ssize_t *ret_count)
{
    size_t room = buffer_limit(buffer) - buffer->length;
    ssize_t count;
    char beyond;
    int r;

    if (room > READ_STEP)
        room = READ_STEP;
    r = buffer_reserve(buffer, room);
    if (r < 0)
        return r;
    do
        count = room ? read(fd, buffer->data + buffer->length, room) : read(fd, &beyond, 1);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        r = -errno;
    else if (count > 0 && !room)
        r = -EMSGSIZE;
    else
        buffer->length += (size_t)count;
    buffer->data[buffer->length] = '\0';
    *ret_count = count;
    return r;
}

int buffer_read_all(struct buffer *buffer, int fd)
{
    struct buffer_mark before = buffer_mark(buffer);
    ssize_t count = 1;
    int r = 0;

    while (r == 0 && count > 0)
        r = buffer_read_step(buffer, fd, &count);
    if (r < 0)
        buffer_rewind(buffer, before);
    return r;
}
