/* SPDX-License-Identifier: Apache-2.0 */
/* agent_address.h - where an agent listens, from text.
 *
 *     vsock://CID:PORT    AF_VSOCK, into a QEMU or StratoVirt guest
 *     hvsock://PATH:PORT  a VMM's unix socket that asks for a port first (hybrid vsock)
 *     unix://PATH         a plain unix socket, perhaps QEMU's end of a virtio-serial port
 *
 * Read strictly: decimal numbers without sign or leading zero, absolute paths, nothing after them.
 * Cids below 3 are never a guest (vsock(7): the hypervisor, this machine itself, the host) and are
 * refused, so that no address can lead to a service of the host. These are the forms that Kata
 * writes and shows (src/runtime/virtcontainers/kata_agent.go, GET /agent-url of both shims).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/result.h"

enum agent_transport { AGENT_VSOCK, AGENT_HYBRID_VSOCK, AGENT_UNIX };

enum { AGENT_ADDRESS_PATH_BYTES = 4096 };

struct agent_address {
    enum agent_transport transport;
    uint32_t cid;                        /* VSOCK */
    uint32_t port;                       /* VSOCK, HYBRID_VSOCK */
    char path[AGENT_ADDRESS_PATH_BYTES]; /* HYBRID_VSOCK, UNIX; absolute */
};

/* 0 or -EINVAL with a text. */
int agent_address_parse(const char *text, struct agent_address *ret_address, struct error *error);

/* A decimal number in minimum…UINT32_MAX - 1 (the last one means "any" in AF_VSOCK). 0, -EINVAL. */
int agent_address_parse_number(const char *text, size_t length, uint32_t minimum,
                               uint32_t *ret_number);

/* The companion's address on the same transport: the port replaced. false: there is none, because
 * the text is no address, has no port (unix://), or the result does not fit. */
bool agent_companion_address(const char *agent_address, uint32_t companion_port, char *ret_address,
                             size_t size);

/* ---- hybrid vsock --------------------------------------------------------------------------- */

/* Asking a VMM's unix socket for a port of the guest.
 *
 * The client says "CONNECT <port>\n"; the VMM answers one line, "OK <number>\n", and from the next
 * byte on the stream is the guest's. Nothing listens: the VMM closes. Pure: bytes in, verdict out.
 * Sources: firecracker/docs/vsock.md, cloud-hypervisor/docs/vsock.md; Dragonball does the same.
 */

enum { HYBRID_VSOCK_LINE_BYTES = 32 }; /* either line, its newline included */

/* Outcomes. */
enum {
    HYBRID_VSOCK_CONNECTED, /* ret_used bytes were the line; what follows is the guest's */
    HYBRID_VSOCK_MORE,      /* so far so good, the line is not complete */
    HYBRID_VSOCK_REFUSED,   /* something else, or no end of line within the bound */
};

/* Reads the received bytes one by one and never beyond the newline. */
int hybrid_vsock_answer(const char *bytes, size_t length, size_t *ret_used);
