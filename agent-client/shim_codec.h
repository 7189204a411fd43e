/* SPDX-License-Identifier: Apache-2.0 */
/* shim_codec.h - the requests to a sandbox's shim over HTTP, and the meaning of its answers; no
 * I/O.
 *
 * Kata's shims serve a management socket, shim-monitor.sock, whose /direct-volume/… hands
 * ResizeVolume and GetVolumeStats on to the agent in the guest. They touch no VMM. Two dialects:
 *
 *                 Go                                     Rust
 *   a volume is   its device as mountInfo.json had it    its mount point in the guest
 *   resize        {"VolumePath": …, "Size": …}           {"volume_guest_path": …, "size": …}
 *   stats         JSON of VolumeStatsResponse            what Rust prints for debugging
 *   an error      status 500, its text for a body        closed without a status
 *
 * Their quirks are handled here. Go decodes the path of stats twice, so it is encoded twice. Rust
 * parses the target of stats as a whole URL, so it gets one: a mere path it takes for an error.
 * Rust lets stats be asked by POST only. Neither accepts a path that is no UTF-8.
 *
 * Source: kata-containers 4.1, src/runtime/pkg/containerd-shim-v2/shim_management.go,
 * src/runtime/virtcontainers/{sandbox,kata_agent}.go, src/runtime-rs/crates/runtimes/src/shim_mgmt/
 * handlers.rs, src/runtime-rs/crates/agent/src/{types.rs,kata/trans.rs}.
 */
#pragma once

#include "agent-client/agent_client.h"

#define SHIM_SOCKET "shim-monitor.sock"

enum shim_dialect { SHIM_GO, SHIM_RUST };

struct shim_query {
    const char *method; /* static */
    struct buffer target;
    struct buffer body; /* empty: none */
};

/* Fill a query of zeros; done with it in any case. 0, -EILSEQ (the path is no UTF-8), -EMSGSIZE
 * (AGENT_PATH_BYTES), -ENOMEM. */
int shim_query_resize(struct shim_query *query, enum shim_dialect dialect, const char *volume,
                      uint64_t bytes);
int shim_query_stats(struct shim_query *query, enum shim_dialect dialect, const char *volume);
void shim_query_done(struct shim_query *query);

/* The meaning of an answer: the agent's own status if the body has it, else the shim's. DONE, or
 * `error` has a text for people. */
enum agent_outcome shim_outcome(unsigned status, const char *body, size_t length,
                                struct error *error);

/* The body of an answer to stats; a NUL follows it. 0, -EBADMSG, -ENOMEM. */
int shim_parse_stats(enum shim_dialect dialect, const char *body, size_t length,
                     struct agent_stats *ret_stats);

/* The body of an answer to GET /agent-url, which either dialect has: a URL of agent_address.h, with
 * white space around it, perhaps without its port. 0 or -EINVAL; size: of ret_address. */
int shim_parse_agent_url(const char *body, size_t length, uint32_t default_port, char *ret_address,
                         size_t size);
