/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call.h - has a guest grow a file system, or report its usage, by the first route that
 * works.
 *
 * Routes are tried in the order of agent.routes:
 *
 *     companion   crust-guest-agent in the guest, by the agent's address with a port of its own
 *     agent       kata-agent, by the guest's path of the volume
 *     shim        the same agent by way of the sandbox's shim, which may reach it where nobody else
 *                 does; Go's knows the guest's path by itself
 *     helper      a program that crustd brings into the guest, by kata-agent
 *
 * A route that was found not to work in a sandbox is skipped, if the caller says so. If no route
 * works, the most specific reason is reported: "it failed", with the agent's text, before "its
 * policy forbids", that before "it has no such call", that before "it failed without a text", and
 * that before "no answer".
 *
 * After a resize the file system's size is asked for on the same route: an answer verifies the
 * resize, none leaves it unverified. A size that the file system cannot have is a failure of the
 * agent: it is broken, hostile, or speaks of another file system.
 *
 * The records of a sandbox usually tell where its agent listens. If they do not, its shim is asked:
 * GET /agent-url on its management socket, which both of Kata's runtimes have.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/agent_messages.h"
#include "agent-client/shim_client.h"
#include "lib/loop.h"
#include "lib/peer.h"
#include "model/reason.h"
#include "model/sandbox.h"

enum { GUEST_ADDRESS_BYTES = 512 };

/* Whether a resize that failed on one route for this reason has failed on all. No other route can
 * help with a problem of the file system itself. One that failed takes no other away: growing may
 * be repeated, and another program may be able to. */
bool guest_route_ends_resize(enum volume_reason reason);

struct helper_call;

struct guest_helper_reply {
    enum volume_reason reason; /* NONE: grown, or counted */
    struct error error;        /* when it is not NONE */
    struct agent_stats stats;  /* has_bytes false: not known */
    uint64_t age_ns;           /* of the stats */
};

typedef void guest_helper_done(const struct guest_helper_reply *reply, void *userdata);

/* How the caller brings a helper into the guest; `owner` is the request's. */
struct guest_helper_ops {
    bool (*is_possible)(void *owner);
    /* Exactly one `done`, from the loop and never from within; the call is freed then. 0 or -errno.
     */
    int (*begin)(void *owner, uint64_t allowed_ns, guest_helper_done *done, void *userdata,
                 struct helper_call **ret_call);
    struct helper_call *(*free)(struct helper_call *call); /* returns NULL */
};

/* Everything is borrowed until done. */
struct guest_request {
    bool resizes;             /* else it counts */
    int root;                 /* O_PATH of --root */
    struct listener listener; /* who may listen on the sandbox's sockets */
    enum guest_route order[GUEST_ROUTES];
    enum volume_reason inability[GUEST_ROUTES]; /* routes to be passed over; NONE: to be tried */

    char *agent_address; /* "": not known; the shim's answer is put there */
    size_t agent_address_size;
    const char *guest_path;
    bool asks_address; /* the shim, where it is not known */
    uint32_t agent_port, companion_port;

    const char *shim_socket; /* below root */
    enum shim_dialect shim_dialect;
    const char *shim_volume; /* as the dialect has it */

    const struct guest_helper_ops *helper;
    void *owner;

    uint64_t bytes;      /* of a resize: the device's size */
    uint64_t most_bytes; /* that the file system can have; 0: not known */
    uint64_t ends_at;    /* clock_boottime(), for all routes together */
};

struct guest_reply {
    enum volume_reason reason; /* NONE; UNVERIFIED: grown, and its size is not known */
    struct error error;        /* when it is not NONE */
    struct agent_stats stats;  /* has_bytes false: not said */
    uint64_t age_ns;           /* of the stats; 0: just read */
    bool address_learned;
    const char *ability[GUEST_ROUTES]; /* of a resize; NULL: nothing learned */
};

struct guest_call;

/* The call is to be freed by its owner, then or later. */
typedef void guest_done(struct guest_call *call, const struct guest_reply *reply, void *userdata);

/* Exactly one `done` from the loop, never from within. 0 or -ENOMEM. */
int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call);
/* Returns NULL; ends a running call. */
struct guest_call *guest_call_free(struct guest_call *call);
