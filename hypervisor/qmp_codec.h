/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_codec.h - QEMU's machine protocol: decodes messages, encodes commands. No I/O. Private to
 * hypervisor/.
 *
 * A message is one JSON object. QEMU ends each with CR LF, but with pretty=on it spreads an object
 * over several lines, so the end is found by counting brackets (QEMU: docs/interop/qmp-spec.txt).
 *
 *     {"QMP": {…}}                                  greeting
 *     {"return": …, "id": …}                        success
 *     {"error": {"class": …, "desc": …}, "id": …}   failure
 *     {"event": …, "data": {…}, "timestamp": {…}}   may come at any time, before a reply too
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/buffer.h"
#include "lib/json.h"

enum { QMP_MESSAGE_BYTES = 2 * 1024 * 1024 }; /* the limit of JSON_LIMITS_QMP */

enum qmp_kind {
    QMP_GREETING,
    QMP_RETURN,
    QMP_ERROR,
    QMP_EVENT, /* unsolicited: not parsed, without an object */
    QMP_OTHER, /* an object that is none of these */
};

struct qmp_message {
    enum qmp_kind kind;
    cJSON *object;           /* owned; the members below point into it. NULL: an event */
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

/* What listens greets in another way: says so in `error`. true: it is a human monitor (HMP), whose
 * greeting is "QEMU 7.2.22 monitor - type 'help' for more information". */
bool qmp_refuse_greeting(const struct buffer *input, struct error *error);

void qmp_message_done(struct qmp_message *message);

/* Appends {"execute": command, "arguments": arguments, "id": id} and a line end. `arguments` is a
 * JSON object as text or NULL; `command` and `id` are crustd's own plain words. */
int qmp_encode(struct buffer *output, const char *command, const char *arguments, const char *id);
