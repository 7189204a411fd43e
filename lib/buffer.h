/* buffer.h - bytes that grow up to a limit.
 *
 * One contiguous block; a NUL always follows the last byte, so text can be read as a C string.
 * Appending past the limit changes nothing and returns -EMSGSIZE; out of memory is -ENOMEM.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buffer {
    char *data;      /* NULL while nothing was ever appended */
    size_t length;   /* bytes in use */
    size_t capacity; /* bytes allocated, the NUL not counted */
    size_t limit;    /* never more than this in use; 0 means 16 MiB */
};

#define BUFFER_INIT(limit_bytes)                                                                   \
    {                                                                                              \
        .limit = (limit_bytes)                                                                     \
    }

void buffer_init(struct buffer *buffer, size_t limit);
void buffer_done(struct buffer *buffer);  /* frees, resets to an empty buffer with the same limit */
void buffer_clear(struct buffer *buffer); /* forgets the bytes, keeps the memory */

int buffer_append(struct buffer *buffer, const void *data, size_t length);
int buffer_append_text(struct buffer *buffer, const char *text);
int buffer_append_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Drops the first `length` bytes. */
void buffer_consume(struct buffer *buffer, size_t length);

/* Never NULL. */
const char *buffer_text(const struct buffer *buffer);

/* Reads at most limit bytes until end of file. -EMSGSIZE if there is more, -errno of read(2). */
int buffer_read_all(struct buffer *buffer, int fd);
