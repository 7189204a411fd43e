/* SPDX-License-Identifier: Apache-2.0 */
/* agent_address.c - the three forms, and the companion's one.
 *
 * The port of hvsock:// stands after the last colon, since a path may contain others.
 */
#include "agent-client/agent_address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/quantity.h"

/* 0 is the hypervisor, 1 this machine itself, 2 the host (vsock(7)). */
enum { FIRST_GUEST_CID = 3 };

static const struct {
    const char *scheme;
    enum agent_transport transport;
} schemes[] = {
    {"vsock://", AGENT_VSOCK},
    {"hvsock://", AGENT_HYBRID_VSOCK},
    {"unix://", AGENT_UNIX},
};

int agent_address_parse_number(const char *text, size_t length, uint32_t minimum,
                               uint32_t *ret_number)
{
    if (numbers_read(text, "", 10, ret_number) != text + length || (text[0] == '0' && length > 1))
        return -EINVAL;
    return *ret_number < minimum || *ret_number == UINT32_MAX ? -EINVAL : 0;
}

static int copy_path(const char *text, size_t length, struct agent_address *address)
{
    if (length < 2 || length >= AGENT_ADDRESS_PATH_BYTES || text[0] != '/')
        return -EINVAL;
    memcpy(address->path, text, length);
    address->path[length] = '\0';
    return 0;
}

/* What follows the scheme. */
static int parse_place(const char *place, struct agent_address *address)
{
    const char *colon = strrchr(place, ':');
    int r;

    if (address->transport == AGENT_UNIX)
        return copy_path(place, strlen(place), address);
    if (!colon)
        return -EINVAL;
    r = agent_address_parse_number(colon + 1, strlen(colon + 1), 1, &address->port);
    if (r < 0)
        return r;
    if (address->transport == AGENT_VSOCK)
        return agent_address_parse_number(place, (size_t)(colon - place), FIRST_GUEST_CID,
                                          &address->cid);
    return copy_path(place, (size_t)(colon - place), address);
}

int agent_address_parse(const char *text, struct agent_address *ret_address, struct error *error)
{
    struct agent_address address = {0};

    for (size_t i = 0; i < array_length(schemes); i++) {
        size_t length = strlen(schemes[i].scheme);

        if (strncmp(text, schemes[i].scheme, length) != 0)
            continue;
        address.transport = schemes[i].transport;
        if (parse_place(text + length, &address) < 0)
            break;
        *ret_address = address;
        return 0;
    }
    return error_set(
        error, -EINVAL,
        "agent address is none of vsock://CID:PORT, hvsock:///PATH:PORT, unix:///PATH: "
        "%s",
        text);
}

bool agent_companion_address(const char *agent_address, uint32_t companion_port, char *ret_address,
                             size_t size)
{
    struct agent_address address;
    size_t length;
    char port[16];

    if (agent_address_parse(agent_address, &address, NULL) < 0 || address.transport == AGENT_UNIX)
        return false;
    length = (size_t)(strrchr(agent_address, ':') - agent_address) + 1;
    (void)snprintf(port, sizeof(port), "%u", companion_port);
    if (length + strlen(port) >= size)
        return false;
    memcpy(ret_address, agent_address, length);
    memcpy(ret_address + length, port, strlen(port) + 1);
    return true;
}

/* ---- hybrid vsock --------------------------------------------------------------------------- */

/* A wrong answer is refused at its first wrong byte, so that a peer with another protocol is
 * detected at once and not by the deadline. */
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
