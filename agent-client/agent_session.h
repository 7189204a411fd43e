/* SPDX-License-Identifier: Apache-2.0 */
/* agent_session.h - one connection to an agent, and calls on it one after another. Private to
 * agent-client/.
 *
 * On a unix:// address the bytes in front of a reply may be meant for a client that died
 * (ttrpc_codec.h). vsock has connections, so there the first bytes must look like ttrpc, and a
 * wrong peer is found at once. Replies are hostile: their length is checked before the rest is
 * waited for, their memory is bounded, their texts are cleaned.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/buffer.h"
#include "lib/listener.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "lib/stream.h"

/* Why there is no answer. */
enum agent_session_end {
    AGENT_SESSION_BROKEN,   /* no connection, no handshake, closed, nonsense */
    AGENT_SESSION_LATE,     /* the time allowed has passed */
    AGENT_SESSION_FOREIGN,  /* the listener is not believed, or a link leads to it: nothing is sent
                             */
    AGENT_SESSION_HINDERED, /* whether anything listens was not found out: no descriptor or memory
                               is left, the listener is busy, or its path may hang */
};

struct agent_session;

struct agent_session_handler {
    /* The reply to the call, borrowed. The handler may make the next call or end the session. */
    void (*answered)(struct agent_session *session, const struct ttrpc_status *status,
                     const struct buffer *payload);
    /* At most once; nothing follows. The handler calls agent_session_done(). */
    void (*ended)(struct agent_session *session, enum agent_session_end end,
                  const struct error *error);
};

struct agent_session_options {
    int root;                 /* O_PATH of --root; borrowed for the duration of the call */
    const char *address;      /* agent_address.h */
    struct listener listener; /* who may listen on a unix socket; borrowed likewise */
    const char *service;      /* whose methods are called; static. NULL: grpc.AgentService */
    size_t request_bytes;     /* the longest frame that is sent */
    /* The agent is told the time that is left, so that it can give its own reason before ours is
     * "no answer". kata-agent drops a call in its middle when that time is over. */
    bool tells_time;
};

struct agent_session {
    struct loop *loop;
    const struct agent_session_handler *handler;
    struct agent_address address;
    const char *service;
    struct stream stream;
    bool ready;   /* connected, and the port is there: a call can be sent */
    bool shaking; /* the port was asked for */
    bool tells_time;
    bool heard;     /* a reply has come on this connection */
    size_t foreign; /* bytes dropped in front of the reply to this call */
    uint32_t stream_id;
    uint64_t allowed_ns; /* as it was given, for the text */
    uint64_t ends_at;    /* on clock_boottime() */
    char method[TTRPC_NAME_BYTES];
    struct buffer payload; /* of the call, until it is sent */
};

/* Starts connecting; nothing is called from within. 0; -EINVAL: the address (error says why);
 * -errno. Then the session is as after agent_session_done(). */
int agent_session_start(struct agent_session *session, struct loop *loop,
                        const struct agent_session_options *options,
                        const struct agent_session_handler *handler, struct error *error);

/* From now on, for all that is still to come on this session. */
void agent_session_allow(struct agent_session *session, uint64_t nanoseconds);

/* Calls a method of the session's service, also while still connecting. 0, -EMSGSIZE, -ENOMEM,
 * -EPIPE. */
int agent_session_call(struct agent_session *session, const char *method, const void *payload,
                       size_t length);

/* Stops, closes, frees. Fine on a zeroed session, and from within its handlers. */
void agent_session_done(struct agent_session *session);
