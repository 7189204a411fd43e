/* SPDX-License-Identifier: Apache-2.0 */
/* shim_client.h - the two calls of agent_client.h by way of a sandbox's shim, over HTTP.
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
#include "lib/peer.h"

#define SHIM_SOCKET "shim-monitor.sock"

enum shim_dialect { SHIM_GO, SHIM_RUST };

enum { SHIM_QUERY_BYTES = 8 * AGENT_PATH_BYTES }; /* a byte becomes six at most */

/* Appends target and body (empty: none) of a request, and says its method. `stats`: of
 * GetVolumeStats, else of ResizeVolume. 0, -EILSEQ (the path is no UTF-8), -EMSGSIZE
 * (AGENT_PATH_BYTES), -ENOMEM. */
int shim_encode(enum shim_dialect dialect, const char *volume, bool stats, uint64_t bytes,
                const char **ret_method, struct buffer *target, struct buffer *body);

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

/* ---- shim client ---------------------------------------------------------------------------- */

/* Growing a file system, or asking for its size. Blocking, for workers; until_ns is on
 * CLOCK_BOOTTIME. The request's address is the path of the shim's socket below root.
 *
 * One HTTP exchange for ResizeVolume, and after its success another for GetVolumeStats. Go's shim
 * forwards the agent's errors. Rust's shim closes the connection without a word on any error
 * (AGENT_UNEXPLAINED).
 */
void shim_call_run(const struct agent_request *request, enum shim_dialect dialect,
                   uint64_t until_ns, struct agent_reply *ret_reply);

/* Asks where the agent listens. 0, or -EINVAL with a text. size: of ret_address. */
int shim_ask_address(const struct agent_request *request, uint64_t until_ns, uint32_t default_port,
                     char *ret_address, size_t size, struct error *error);
