/* SPDX-License-Identifier: Apache-2.0 */
/* qmp.c - the messages of a QMP monitor, and one connection to it.
 *
 * The scanner only finds where an object ends; json_read() judges whether it is valid JSON. The
 * scanner remembers where it stopped, so a message that arrives byte by byte costs no more than one
 * that arrives whole. It never reads beyond QMP_MESSAGE_BYTES.
 */
#include "hypervisor/qmp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"

/* True when `byte` closes the object. */
static bool scan_byte(struct qmp_decoder *decoder, char byte)
{
    if (decoder->in_string) {
        if (decoder->escaped)
            decoder->escaped = false;
        else if (byte == '\\')
            decoder->escaped = true;
        else if (byte == '"')
            decoder->in_string = false;
        return false;
    }
    if (byte == '"')
        decoder->in_string = true;
    else if (byte == '{' || byte == '[')
        decoder->depth++;
    else if (byte == '}' || byte == ']')
        return --decoder->depth == 0;
    return false;
}

/* The length of the object at the front of the input; 0 if its end has not arrived. */
static size_t scan_object(struct qmp_decoder *decoder, const struct buffer *input)
{
    while (decoder->scanned < input->length)
        if (scan_byte(decoder, input->data[decoder->scanned++]))
            return decoder->scanned;
    return 0;
}

static void classify_error(struct qmp_message *message, const cJSON *failure)
{
    const char *name = json_string(failure, "class");
    const char *text = json_string(failure, "desc");

    message->kind = QMP_ERROR;
    message->error_class = name ? name : "";
    message->error_text = text ? text : "";
}

static void classify(struct qmp_message *message)
{
    const cJSON *failure = json_member(message->object, "error");

    message->id = json_string(message->object, "id");
    message->value = json_member(message->object, "return");
    if (json_member(message->object, "event"))
        message->kind = QMP_EVENT;
    else if (failure)
        classify_error(message, failure);
    else if (message->value)
        message->kind = QMP_RETURN;
    else if (json_member(message->object, "QMP"))
        message->kind = QMP_GREETING;
    else
        message->kind = QMP_OTHER;
}

int qmp_decode(struct qmp_decoder *decoder, struct buffer *input, struct qmp_message *ret_message,
               struct error *error)
{
    struct qmp_message message = {.kind = QMP_OTHER};
    size_t length = 0;
    int r;

    while (!decoder->scanned && length < input->length && strchr(" \t\r\n", input->data[length]) &&
           input->data[length])
        length++;
    buffer_consume(input, length);
    if (!input->length)
        return QMP_INCOMPLETE;
    if (input->data[0] != '{')
        return error_set(error, -EBADMSG, "the monitor sent something that is no JSON object");
    length = scan_object(decoder, input);
    if (length > QMP_MESSAGE_BYTES || (!length && input->length >= QMP_MESSAGE_BYTES))
        return error_set(error, -EMSGSIZE, "the monitor sent a message beyond %d bytes",
                         QMP_MESSAGE_BYTES);
    if (!length)
        return QMP_INCOMPLETE;
    r = json_read(input->data, length, JSON_LIMITS_QMP, "QMP return error event id",
                  &message.object, error);
    if (r != FILE_READ)
        return r < 0 ? r : -EBADMSG;
    classify(&message);
    buffer_consume(input, length);
    *decoder = (struct qmp_decoder){0};
    *ret_message = message;
    return QMP_DECODED;
}

void qmp_read_version(const struct qmp_message *greeting, char *ret_version, size_t size)
{
    const cJSON *qmp = json_member(greeting->object, "QMP");
    const cJSON *version = json_member(json_member(qmp, "version"), "qemu");
    uint64_t major, minor, micro;

    ret_version[0] = '\0';
    if (json_number(version, "major", &major) == 0 && json_number(version, "minor", &minor) == 0 &&
        json_number(version, "micro", &micro) == 0)
        (void)snprintf(ret_version, size, "%" PRIu64 ".%" PRIu64 ".%" PRIu64, major, minor, micro);
}

void qmp_message_done(struct qmp_message *message)
{
    cJSON_Delete(message->object);
    *message = (struct qmp_message){.kind = QMP_OTHER};
}

/* ---- a conversation ---- */

enum { COMMAND_BYTES = 16 * 1024 };

/* Several answers of the largest size, but no flood. */
enum { CONVERSATION_BYTES = 4 * QMP_MESSAGE_BYTES, CONVERSATION_MESSAGES = 4096 };

static int explain(const struct qmp *qmp, int failure, struct error *error)
{
    if (failure == PEER_FLOOD)
        return error_set(error, HYPERVISOR_UNREACHABLE,
                         "the monitor says more than it was asked for");
    if (failure == PEER_FULL || (failure == PEER_LATE && !qmp->is_greeted))
        return error_set(error, HYPERVISOR_BUSY,
                         "the monitor gives no greeting: another client holds it");
    (void)error_prefix(error, "the monitor: ");
    return failure == PEER_MISSING ? HYPERVISOR_MONITOR_MISSING : HYPERVISOR_UNREACHABLE;
}

/* The next message of any kind. QMP_WAITED: there is none before until_ns. */
static int receive(struct qmp *qmp, uint64_t until_ns, struct qmp_message *ret_message,
                   struct error *error)
{
    struct buffer *input = &qmp->peer.input;
    int r;

    for (;;) {
        if (!qmp->is_greeted && input->length && input->data[0] == 'Q')
            return error_set(error, HYPERVISOR_MONITOR_MISSING,
                             "this is a human monitor (HMP), which crustd does not use: crust-qemu "
                             "adds one that it uses");
        if (!qmp->is_greeted && input->length && input->data[0] != '{')
            return error_set(error, HYPERVISOR_UNREACHABLE,
                             "what listens there is no QEMU monitor");
        r = qmp_decode(&qmp->decoder, input, ret_message, error);
        if (r < 0)
            return HYPERVISOR_UNREACHABLE;
        if (r == QMP_DECODED && qmp->messages++ < CONVERSATION_MESSAGES)
            return 0;
        r = r == QMP_DECODED ? PEER_FLOOD : peer_receive_until(&qmp->peer, until_ns, error);
        if (r == PEER_LATE && until_ns < qmp->peer.deadline_ns)
            return QMP_WAITED;
        if (r != 0)
            return explain(qmp, r, error);
    }
}

static int receive_answer(struct qmp *qmp, struct qmp_message *ret_message, struct error *error)
{
    bool is_answer;
    char id[24];
    int r;

    (void)snprintf(id, sizeof(id), "%u", ++qmp->answered);
    do {
        qmp_message_done(ret_message);
        r = receive(qmp, UINT64_MAX, ret_message, error);
        is_answer = (ret_message->kind == QMP_RETURN || ret_message->kind == QMP_ERROR) &&
                    ret_message->id && strcmp(ret_message->id, id) == 0;
    } while (r == 0 && !is_answer);
    return r;
}

int qmp_ask(struct qmp *qmp, const char *command, const char *arguments, int descriptor,
            struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(COMMAND_BYTES);
    int r = buffer_append_format(&text, "{\"execute\":\"%s\"%s%s,\"id\":\"%u\"}\n", command,
                                 arguments ? ",\"arguments\":" : "", arguments ? arguments : "",
                                 ++qmp->asked);

    if (r < 0) {
        (void)error_set_errno(error, r, "cannot ask the monitor");
        return HYPERVISOR_UNREACHABLE;
    }
    r = peer_send(&qmp->peer, text.data, text.length, descriptor, error);
    return r == 0 ? 0 : explain(qmp, r, error);
}

int qmp_answer(struct qmp *qmp, struct qmp_message *ret_message, struct error *error)
{
    if (!qmp->answered) {
        int r = receive_answer(qmp, ret_message, error);

        if (r == 0 && ret_message->kind == QMP_ERROR)
            r = error_set(error, HYPERVISOR_UNREACHABLE, "qmp_capabilities: %s",
                          ret_message->error_text);
        if (r != 0)
            return r;
    }
    return receive_answer(qmp, ret_message, error);
}

int qmp_wait_event(struct qmp *qmp, uint64_t until_ns, struct error *error)
{
    enum qmp_kind kind = QMP_OTHER;
    int r = 0;

    while (r == 0 && kind != QMP_EVENT) {
        cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};

        r = receive(qmp, until_ns, &message, error);
        kind = message.kind;
    }
    return r;
}

/* Nothing is written before the greeting: a monitor serves one client at a time, and commands that
 * a waiting client has written may be executed after it has given up. */
int qmp_open(struct qmp *qmp, int root, const char *path, const struct listener *listener,
             uint64_t deadline_ns, struct error *error)
{
    cleanup(qmp_message_done) struct qmp_message greeting = {.kind = QMP_OTHER};
    int r;

    *qmp = (struct qmp){.asked = 0};
    r = peer_connect(&qmp->peer, root, path, listener, deadline_ns, CONVERSATION_BYTES, error);
    if (r != 0)
        return explain(qmp, r, error);
    r = receive(qmp, UINT64_MAX, &greeting, error);
    if (r != 0)
        return r;
    if (greeting.kind != QMP_GREETING)
        return error_set(error, HYPERVISOR_UNREACHABLE, "the monitor did not greet");
    qmp_read_version(&greeting, qmp->version, sizeof(qmp->version));
    qmp->is_greeted = true;
    return qmp_ask(qmp, "qmp_capabilities", NULL, -1, error);
}

void qmp_close(struct qmp *qmp)
{
    peer_close(&qmp->peer);
}
