/* SPDX-License-Identifier: Apache-2.0 */
/* qmp.h - QEMU's machine protocol: its messages, and a conversation. Private to hypervisor/.
 *
 * A message is one JSON object. QEMU ends each with CR LF, but with pretty=on it spreads an object
 * over several lines, so the end is found by counting brackets (QEMU: docs/interop/qmp-spec.txt).
 *
 *     {"QMP": {…}}                                  greeting; that of a human monitor (HMP) is
 *                                                   "QEMU 7.2.22 monitor - type 'help' …"
 *     {"return": …, "id": …}                        success
 *     {"error": {"class": …, "desc": …}, "id": …}   failure
 *     {"event": …, "data": {…}, "timestamp": {…}}   may come at any time, before a reply too
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hypervisor/hypervisor.h"
#include "lib/buffer.h"
#include "lib/json.h"
#include "lib/peer.h"

enum { QMP_MESSAGE_BYTES = 2 * 1024 * 1024 }; /* the limit of JSON_LIMITS_QMP */

enum qmp_kind {
    QMP_GREETING,
    QMP_RETURN,
    QMP_ERROR,
    QMP_EVENT, /* unsolicited */
    QMP_OTHER, /* an object that is none of these */
};

struct qmp_message {
    enum qmp_kind kind;
    cJSON *object;           /* owned; the members below point into it */
    const char *id;          /* of a reply: NULL if it has none, or it is not a string */
    const cJSON *value;      /* QMP_RETURN */
    const char *error_class; /* QMP_ERROR: never NULL */
    const char *error_text;  /* QMP_ERROR: never NULL */
};

/* How far the front of the input has been scanned; zero-initialise. */
struct qmp_decoder {
    size_t scanned;
    size_t depth;
    bool in_string;
    bool escaped;
};

enum { QMP_DECODED = 0, QMP_INCOMPLETE = 1 };

/* Takes one message off the front of the input. QMP_DECODED, QMP_INCOMPLETE (wait for more bytes),
 * -EBADMSG, -EMSGSIZE or -ENOMEM with `error` filled; after an error the input cannot be used any
 * more. */
int qmp_decode(struct qmp_decoder *decoder, struct buffer *input, struct qmp_message *ret_message,
               struct error *error);

/* Reads "7.2.22" from a greeting: {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro":
 * 22}}}}. "" if it contains no version. */
void qmp_read_version(const struct qmp_message *greeting, char *ret_version, size_t size);

void qmp_message_done(struct qmp_message *message);

/* ---- qmp session ---------------------------------------------------------------------------- */

/* A conversation with a QMP monitor, in blocking code.
 *
 * Several commands may be sent ahead: QEMU executes them one after another and answers in their
 * order. Each answer is known by its id. What the monitor says is bounded, events included.
 */

enum { QMP_WAITED = HYPERVISOR_OUTCOMES }; /* qmp_wait_event() only: nothing has happened */

struct qmp {
    struct peer peer;
    struct qmp_decoder decoder;
    bool is_greeted;
    char version[HYPERVISOR_VERSION_BYTES]; /* QEMU's, from its greeting; empty if it has none */
    unsigned asked, answered;               /* commands so far: their ids are these numbers */
    unsigned messages;
};

/* Connects and sends the negotiation, whose answer the first qmp_answer() reads: the first commands
 * go with it. All functions return HYPERVISOR_DONE, or say why not in `error`: MONITOR_MISSING
 * (nothing listens at the path, or a human monitor), BUSY (no greeting: another client holds the
 * monitor), UNREACHABLE (closed or silent in mid-conversation, or invalid). qmp_close() has to be
 * called in any case. */
int qmp_open(struct qmp *qmp, int root, const char *path, const struct listener *listener,
             uint64_t deadline_ns, struct error *error);

/* Sends a command, one of crustd's own plain words; `arguments` is a JSON object as text, or NULL.
 * A copy of the descriptor goes with it, unless it is -1. */
int qmp_ask(struct qmp *qmp, const char *command, const char *arguments, int descriptor,
            struct error *error);

/* The answer to the oldest command without one: QMP_RETURN or QMP_ERROR. */
int qmp_answer(struct qmp *qmp, struct qmp_message *ret_message, struct error *error);

/* Waits for an event of any kind while no command is without an answer. */
int qmp_wait_event(struct qmp *qmp, uint64_t until_ns, struct error *error);

void qmp_close(struct qmp *qmp);
