/* SPDX-License-Identifier: Apache-2.0 */
/* http2_memory.h - what nghttp2 may take for one session. Private to api/.
 *
 * How much it keeps for frames, fields and replies that wait follows from what the client does.
 * With this it has a bound, whatever that is: beyond it there is no memory for it, and nghttp2 ends
 * the session.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stddef.h>

struct http2_memory {
    size_t limit;
    size_t used;
};

/* The allocator that draws on it; the memory is borrowed for the session's life. */
nghttp2_mem http2_memory_use(struct http2_memory *memory);
