/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client.h - growing a file system, or asking for its size, through the sandbox's shim, which
 * forwards the call to the agent.
 *
 * The other way to make the agent's two calls (agent_client.h): one HTTP exchange for ResizeVolume,
 * and after its success another for GetVolumeStats. Go's shim forwards the agent's errors. Rust's
 * shim closes the connection without a word on any error (AGENT_UNEXPLAINED).
 */
#pragma once

#include "agent-client/shim_codec.h"
#include "lib/listener.h"

struct shim_request {
    enum agent_act act;       /* AGENT_RESIZE_AND_STATS, AGENT_STATS */
    int root;                 /* O_PATH of --root; borrowed until done */
    const char *socket_path;  /* below root */
    struct listener listener; /* who may listen there; borrowed until done */
    enum shim_dialect dialect;
    const char *volume;   /* as the dialect has it */
    uint64_t bytes;       /* GROW: the device's size */
    uint64_t deadline_ns; /* from now, for everything */
};

struct shim_call;

/* As of the agent's call. */
typedef void shim_done(struct shim_call *call, const struct agent_reply *reply, void *userdata);

/* Copies the request. Exactly one `done` from the loop, never from within. 0, or -EILSEQ, -EMSGSIZE
 * (a volume that the shim cannot be told of), -ENOMEM, and nothing has happened. */
int shim_call_new(struct loop *loop, const struct shim_request *request, shim_done *done,
                  void *userdata, struct shim_call **ret_call);
struct shim_call *shim_call_free(struct shim_call *call); /* returns NULL; ends a running call */
