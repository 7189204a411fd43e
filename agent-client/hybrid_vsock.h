/* SPDX-License-Identifier: Apache-2.0 */
/* hybrid_vsock.h - asking a VMM's unix socket for a port of the guest.
 *
 * The client says "CONNECT <port>\n"; the VMM answers one line, "OK <number>\n", and from the next
 * byte on the stream is the guest's. Nothing listens: the VMM closes. Pure: bytes in, verdict out.
 * Sources: firecracker/docs/vsock.md, cloud-hypervisor/docs/vsock.md; Dragonball does the same.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { HYBRID_VSOCK_LINE_BYTES = 32 }; /* either line, its newline included */

/* Returns the length; the text ends with a NUL. */
size_t hybrid_vsock_request(uint32_t port, char ret_line[static HYBRID_VSOCK_LINE_BYTES]);

/* Outcomes. */
enum {
    HYBRID_VSOCK_CONNECTED, /* ret_used bytes were the line; what follows is the guest's */
    HYBRID_VSOCK_MORE,      /* so far so good, the line is not complete */
    HYBRID_VSOCK_REFUSED,   /* something else, or no end of line within the bound */
};

/* Reads the received bytes one by one and never beyond the newline. */
int hybrid_vsock_answer(const char *bytes, size_t length, size_t *ret_used);
