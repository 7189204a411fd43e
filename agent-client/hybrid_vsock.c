/* SPDX-License-Identifier: Apache-2.0 */
/* hybrid_vsock.c - two lines.
 *
 * A wrong answer is refused at its first wrong byte, so that a peer with another protocol is
 * detected at once and not by the deadline.
 */
#include "agent-client/hybrid_vsock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t hybrid_vsock_request(uint32_t port, char ret_line[static HYBRID_VSOCK_LINE_BYTES])
{
    return (size_t)snprintf(ret_line, HYBRID_VSOCK_LINE_BYTES, "CONNECT %u\n", port);
}

int hybrid_vsock_answer(const char *bytes, size_t length, size_t *ret_used)
{
    static const char prefix[] = {'O', 'K', ' '};

    for (size_t i = 0; i < length && i < HYBRID_VSOCK_LINE_BYTES; i++) {
        bool digit = bytes[i] >= '0' && bytes[i] <= '9';

        if (i < sizeof(prefix) ? bytes[i] == prefix[i] : digit)
            continue;
        if (i <= sizeof(prefix) || bytes[i] != '\n')
            return HYBRID_VSOCK_REFUSED;
        *ret_used = i + 1;
        return HYBRID_VSOCK_CONNECTED;
    }
    return length < HYBRID_VSOCK_LINE_BYTES ? HYBRID_VSOCK_MORE : HYBRID_VSOCK_REFUSED;
}
