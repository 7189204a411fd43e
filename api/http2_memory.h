/* SPDX-License-Identifier: Apache-2.0 */
/* http2_memory.h - limits the memory that nghttp2 takes for one session. Private to api/.
 *
 * How much nghttp2 stores for frames, fields and waiting replies depends on the client. This sets a
 * bound on it, whatever the cause: beyond it, allocations fail and nghttp2 ends the session.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stddef.h>

struct http2_memory {
    size_t limit;
    size_t used;
};

/* Returns an allocator that draws on `memory`, which is borrowed for the session's life. */
nghttp2_mem http2_memory_use(struct http2_memory *memory);
