/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client.h - a connection to an agent in a guest, the calls on it one after another, and the
 * two calls that Kata's shim can hand on, too: ResizeVolume and GetVolumeStats. Blocking, for
 * workers (lib/workers.h).
 *
 * A call is one ttrpc request to kata-agent or crust-guest-agent. Addresses are those of
 * agent_address.h. Replies are hostile: their length is checked before the rest is waited for,
 * their memory is bounded, their texts are cleaned.
 *
 * Stale replies: a virtio-serial stream (unix://) has no connections, so a reply meant for a client
 * that died may reach this one. Streams therefore start at a random odd id below 2^31, and any
 * other id is dropped (as is a partial frame left over in front: see ttrpc_codec.h). vsock has
 * connections, so there the first bytes must look like ttrpc, and a wrong peer is found at once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/buffer.h"
#include "lib/peer.h"
#include "lib/result.h"

struct agent_connection {
    /* Set by the caller; borrowed until the connection is closed. */
    int root;                        /* O_PATH of --root */
    const char *address;             /* agent_address.h */
    const struct listener *listener; /* who may listen on a unix socket */
    const char *service;             /* whose methods are called */
    /* The request carries the time that is left, so that the agent can give its own reason before
     * ours is "no answer". kata-agent drops a call in its middle when that time is over. */
    bool tells_time;

    enum agent_transport transport;
    struct peer peer;
    uint64_t allowed_ns; /* as it was given, for the text */
    uint32_t stream_id;  /* random at first, then up by two, as servers that check it require */
    bool is_open;        /* connected, and the port is there: a call can be sent */
    bool is_heard;       /* a reply has come */
};

/* Connects unless it is open. until_ns (CLOCK_BOOTTIME) is for that and for what follows;
 * allowed_ns is how long that is, for the text. 0, or an enum peer_failure and its reason in
 * `error`: nothing was sent. FULL and HINDERED: whether anything listens was not found out. A
 * closed connection can be opened anew. */
int agent_connect(struct agent_connection *connection, uint64_t until_ns, uint64_t allowed_ns,
                  struct error *error);

/* Calls a method and waits for its reply. 0 fills status and payload; any other result is an enum
 * peer_failure or -errno, and leaves the connection to be closed. Nonsense is PEER_CLOSED. */
int agent_ask(struct agent_connection *connection, const char *method, const struct buffer *request,
              struct ttrpc_status *ret_status, struct buffer *ret_payload, struct error *error);

void agent_close(struct agent_connection *connection);

/* ---- ResizeVolume and GetVolumeStats -------------------------------------------------------- */

enum agent_outcome {
    AGENT_DONE,
    AGENT_UNREACHABLE,  /* no connection, no handshake, closed, no answer in time, nonsense, a
                           listener that is not believed */
    AGENT_UNSUPPORTED,  /* the call does not exist there: UNIMPLEMENTED, NOT_FOUND, or
                           INVALID_ARGUMENT saying "does not exist" */
    AGENT_DENIED,       /* its policy forbids: PERMISSION_DENIED, or INTERNAL naming the policy
                           check */
    AGENT_LAYER,        /* FAILED_PRECONDITION: a layer in the guest does not follow */
    AGENT_NOT_GROWABLE, /* FAILED_PRECONDITION beginning with AGENT_NOT_GROWABLE_TEXT */
    AGENT_READ_ONLY,    /* UNAVAILABLE beginning with AGENT_READ_ONLY_TEXT */
    AGENT_SHUT_DOWN,    /* NOT_GROWABLE, and then AGENT_SHUT_DOWN_TEXT */
    AGENT_LIMIT,        /* the same, beginning with AGENT_LIMIT_TEXT */
    AGENT_GROWING,      /* DEADLINE_EXCEEDED beginning with AGENT_GROWING_TEXT */
    AGENT_FAILED,       /* any other status */
    AGENT_UNEXPLAINED,  /* it failed, and the shim between does not say why (shim_client.h) */
    AGENT_OUTCOMES,
};

/* Which outcome a status stands for. */
enum agent_outcome agent_outcome_from_status(int status, const char *message);

/* A status that is not OK, with its message, for people; `call`: its name, NULL: none. */
void agent_describe_status(const struct ttrpc_status *status, const char *call,
                           struct error *ret_error);

struct agent_request {
    bool resizes;             /* ResizeVolume, and GetVolumeStats on the same connection if that is
                                 done; else GetVolumeStats alone */
    int root;                 /* O_PATH of --root */
    const char *address;      /* of a shim: the path of its socket */
    struct listener listener; /* who may listen on a unix socket of that address */
    const char *volume;       /* guest mount point, or pci:02/01, scsi:0:1, /dev/NAME; as a shim's
                                 dialect has it */
    uint64_t bytes;           /* of a resize: the device's size */
    uint64_t allowed_ns;      /* for everything, as a text says it */
};

struct agent_reply {
    enum agent_outcome outcome;
    struct error error;       /* for a person, when not DONE */
    struct agent_stats stats; /* if stats_outcome is DONE */
    /* The outcome of the stats. After a resize `outcome` is that of ResizeVolume, and `error` says
     * why the stats failed; UNREACHABLE if the connection ended before. */
    enum agent_outcome stats_outcome;
};

/* The whole call, until until_ns (CLOCK_BOOTTIME). */
void agent_call_run(const struct agent_request *request, uint64_t until_ns,
                    struct agent_reply *ret_reply);
