/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client.h - the two calls into the guest: ResizeVolume and GetVolumeStats.
 *
 * One call is one ttrpc request on one connection to kata-agent or crust-guest-agent. Address
 * forms: vsock://CID:PORT, hvsock://PATH:PORT, unix://PATH. Paths resolve below the root.
 *
 * Stale replies: a virtio-serial stream has no connections, so a reply meant for a client that died
 * may reach this one. Streams therefore start at a random odd id below 2^31, and any other id is
 * dropped (as is a partial frame left over in front: see ttrpc_codec.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/agent_messages.h"
#include "lib/listener.h"
#include "lib/loop.h"
#include "lib/result.h"

enum agent_act {
    AGENT_RESIZE,           /* grpc.AgentService/ResizeVolume */
    AGENT_STATS,            /* grpc.AgentService/GetVolumeStats */
    AGENT_RESIZE_AND_STATS, /* ResizeVolume and, where that is done, GetVolumeStats on the same
                               connection */
};

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

struct agent_request {
    enum agent_act act;
    int root;                 /* O_PATH of --root; borrowed until done */
    const char *address;      /* as above */
    struct listener listener; /* who may listen on a unix socket of that address */
    const char *volume_path;  /* guest mount point, or pci:02/01, scsi:0:1, /dev/NAME */
    uint64_t bytes;           /* RESIZE: the device's size */
    uint64_t deadline_ns;     /* from now, for everything */
};

struct agent_reply {
    enum agent_outcome outcome;
    bool is_foreign;          /* UNREACHABLE: the listener is not believed (listener.h) */
    int status;               /* the gRPC status code it answered with; 0 */
    struct error error;       /* for a person, when not DONE */
    struct agent_stats stats; /* STATS and DONE; GROW and stats_outcome DONE */
    /* GROW: `outcome` is that of ResizeVolume, and this the outcome of the stats after it (`error`
     * says why they failed); UNREACHABLE if the connection ended before. */
    enum agent_outcome stats_outcome;
};

struct agent_call;

typedef void agent_done(struct agent_call *call, const struct agent_reply *reply, void *userdata);

/* Copies the request. Exactly one `done` from the loop, never from within. 0 or -ENOMEM; a bad
 * address is reported through done as AGENT_UNREACHABLE. */
int agent_call_new(struct loop *loop, const struct agent_request *request, agent_done *done,
                   void *userdata, struct agent_call **ret_call);
struct agent_call *agent_call_free(struct agent_call *call); /* returns NULL; ends a running call */

/* Which outcome a status stands for. */
enum agent_outcome agent_outcome_from_status(int status, const char *message);
