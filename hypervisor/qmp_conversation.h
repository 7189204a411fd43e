/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_conversation.h - commands and their answers on a QMP monitor. Private to hypervisor/.
 *
 * Connects, waits for the greeting, negotiates, and numbers the commands so that each answer is
 * known by its id. What the monitor says is bounded, events included. Nothing is written before the
 * greeting: a monitor serves one client at a time, and commands that a waiting client has written
 * may be executed after it has given up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hypervisor/qmp_codec.h"
#include "lib/stream.h"

enum qmp_failure {
    QMP_MONITOR_MISSING, /* nothing listens at the path, or a human monitor */
    QMP_MONITOR_BUSY,    /* no greeting: another client holds the monitor */
    QMP_MONITOR_BROKEN,  /* closed or silent in mid-conversation, or invalid */
};

struct qmp_conversation;

/* Each may end the conversation and free its owner. */
struct qmp_conversation_handler {
    void (*ready)(struct qmp_conversation *conversation); /* for the first commands */
    /* The answer to the oldest command without one: QMP_RETURN or QMP_ERROR, borrowed. */
    void (*answered)(struct qmp_conversation *conversation, const struct qmp_message *message);
    void (*event)(struct qmp_conversation *conversation); /* of any kind */
    /* The end; called at most once, never after qmp_conversation_done(). */
    void (*failed)(struct qmp_conversation *conversation, enum qmp_failure failure,
                   const struct error *error);
};

struct qmp_conversation {
    const struct qmp_conversation_handler *handler;
    struct stream stream;
    struct qmp_decoder decoder;
    uint64_t started_ns, deadline_ns;
    bool greeted, negotiated;
    unsigned asked, answers; /* so far; they number the ids */
    size_t taken_bytes;
    unsigned taken_messages;
    bool *freed; /* set while a handler runs */
};

/* deadline_ns: from now, for everything. 0 or -errno. */
int qmp_conversation_start(struct qmp_conversation *conversation, struct loop *loop,
                           const struct stream_address *address, uint64_t deadline_ns,
                           const struct qmp_conversation_handler *handler);

/* Sends a command; `arguments` as for qmp_encode(). A descriptor >= 0 goes with it, and stays the
 * caller's. 0 or -errno. */
int qmp_conversation_ask(struct qmp_conversation *conversation, const char *command,
                         const char *arguments, int descriptor);

void qmp_conversation_done(struct qmp_conversation *conversation); /* a zeroed one is fine */
