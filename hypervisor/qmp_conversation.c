/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_conversation.c - one connection to a QMP monitor.
 *
 * After each handler `freed` is checked before the conversation is touched, because the handler may
 * have freed it together with its owner. failed() comes last and once.
 */
#include "hypervisor/qmp_conversation.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

static const uint64_t greeting_ns = 2 * NSEC_PER_SEC;

enum { INPUT_BYTES = QMP_MESSAGE_BYTES + 64 * 1024, OUTPUT_BYTES = 16 * 1024 };

/* Several answers of the largest size, but no flood. */
enum { CONVERSATION_BYTES = 4 * QMP_MESSAGE_BYTES, CONVERSATION_MESSAGES = 4096 };

static struct qmp_conversation *conversation_of(struct stream *stream)
{
    return container_of(stream, struct qmp_conversation, stream);
}

/* The last thing done to a conversation. Returns false, for the caller to return. */
static bool fail(struct qmp_conversation *conversation, enum qmp_failure failure,
                 const struct error *error)
{
    const struct error copy = *error;

    stream_done(&conversation->stream);
    conversation->handler->failed(conversation, failure, &copy);
    return false;
}

int qmp_conversation_ask(struct qmp_conversation *conversation, const char *command,
                         const char *arguments, int descriptor)
{
    cleanup(buffer_done) struct buffer output = BUFFER_INIT(OUTPUT_BYTES);
    char id[24];
    int r;

    (void)snprintf(id, sizeof(id), "%u", ++conversation->asked);
    r = qmp_encode(&output, command, arguments, id);
    if (r < 0)
        return r;
    if (descriptor >= 0)
        return stream_send_descriptor(&conversation->stream, output.data, output.length,
                                      descriptor);
    return stream_send(&conversation->stream, output.data, output.length);
}

/* The greeting has arrived: from now on the caller's deadline counts. The caller's first commands
 * go with the negotiation, which the monitor reads before them. */
static void received_greeting(struct qmp_conversation *conversation)
{
    uint64_t deadline_ns = conversation->deadline_ns;
    uint64_t elapsed_ns = clock_boottime() - conversation->started_ns;
    struct error error;
    int r;

    conversation->greeted = true;
    stream_set_deadline(&conversation->stream,
                        deadline_ns > elapsed_ns ? deadline_ns - elapsed_ns : 0);
    r = qmp_conversation_ask(conversation, "qmp_capabilities", NULL, -1);
    if (r == 0) {
        conversation->handler->ready(conversation);
        return;
    }
    (void)error_set_errno(&error, r, "cannot ask the monitor");
    (void)fail(conversation, QMP_MONITOR_BROKEN, &error);
}

static bool is_answer(const struct qmp_conversation *conversation,
                      const struct qmp_message *message)
{
    char id[24];

    if (conversation->answers == conversation->asked)
        return false; /* the next id can be guessed */
    (void)snprintf(id, sizeof(id), "%u", conversation->answers + 1);
    return (message->kind == QMP_RETURN || message->kind == QMP_ERROR) && message->id &&
           strcmp(message->id, id) == 0;
}

static void received_negotiation(struct qmp_conversation *conversation,
                                 const struct qmp_message *message)
{
    struct error error;

    conversation->negotiated = message->kind != QMP_ERROR;
    if (conversation->negotiated)
        return;
    (void)error_set(&error, 0, "qmp_capabilities: %s", message->error_text);
    (void)fail(conversation, QMP_MONITOR_BROKEN, &error);
}

/* Hands the message on. The handler may free the conversation. */
static void received_message(struct qmp_conversation *conversation,
                             const struct qmp_message *message)
{
    struct error error;

    if (!conversation->greeted && message->kind == QMP_GREETING) {
        received_greeting(conversation);
    } else if (!conversation->greeted) {
        (void)error_set(&error, 0, "the monitor did not greet");
        (void)fail(conversation, QMP_MONITOR_BROKEN, &error);
    } else if (is_answer(conversation, message)) {
        conversation->answers++;
        if (conversation->negotiated)
            conversation->handler->answered(conversation, message);
        else
            received_negotiation(conversation, message);
    } else if (message->kind == QMP_EVENT && conversation->negotiated) {
        conversation->handler->event(conversation);
    }
}

static int count_taken(struct qmp_conversation *conversation, size_t before, struct error *error)
{
    conversation->taken_bytes += before - conversation->stream.input.length;
    if (conversation->taken_bytes <= CONVERSATION_BYTES &&
        conversation->taken_messages++ < CONVERSATION_MESSAGES)
        return 0;
    return error_set(error, -EMSGSIZE, "the monitor says more than it was asked for");
}

/* Takes one message off the input. false: there is none, or the conversation is over. */
static bool receive_one(struct qmp_conversation *conversation)
{
    cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
    size_t before = conversation->stream.input.length;
    struct error error;
    bool freed = false;
    int r = qmp_decode(&conversation->decoder, &conversation->stream.input, &message, &error);

    if (r == QMP_INCOMPLETE)
        return false;
    if (r == 0)
        r = count_taken(conversation, before, &error);
    if (r < 0)
        return fail(conversation, QMP_MONITOR_BROKEN, &error);
    /* cppcheck-suppress autoVariables ; taken back below, unless the conversation is gone */
    conversation->freed = &freed;
    received_message(conversation, &message);
    if (freed)
        return false;
    conversation->freed = NULL;
    return conversation->stream.handler; /* unless it has failed */
}

static void on_received(struct stream *stream)
{
    struct qmp_conversation *conversation = conversation_of(stream);
    struct error error;

    if (!conversation->greeted && stream->input.data[0] != '{') {
        bool is_human = qmp_refuse_greeting(&stream->input, &error);

        (void)fail(conversation, is_human ? QMP_MONITOR_MISSING : QMP_MONITOR_BROKEN, &error);
        return;
    }
    while (receive_one(conversation))
        ;
}

static enum qmp_failure failure_of(const struct qmp_conversation *conversation, enum stream_end end,
                                   int code)
{
    if (end == STREAM_REFUSED && path_is_missing(code))
        return QMP_MONITOR_MISSING;
    if (end == STREAM_REFUSED && code == STREAM_BACKLOG_FULL)
        return QMP_MONITOR_BUSY;
    if (end == STREAM_TIMEOUT && !conversation->greeted)
        return QMP_MONITOR_BUSY;
    return QMP_MONITOR_BROKEN;
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    struct qmp_conversation *conversation = conversation_of(stream);
    enum qmp_failure failure = failure_of(conversation, end, error->code);
    struct error text = *error;

    if (failure == QMP_MONITOR_BUSY)
        (void)error_set(&text, 0, "the monitor gives no greeting: another client holds it");
    else
        (void)error_prefix(&text, "the monitor: ");
    (void)fail(conversation, failure, &text);
}

static const struct stream_handler stream_handler = {.received = on_received, .ended = on_ended};

int qmp_conversation_start(struct qmp_conversation *conversation, struct loop *loop,
                           const struct stream_address *address, uint64_t deadline_ns,
                           const struct qmp_conversation_handler *handler)
{
    *conversation = (struct qmp_conversation){
        .handler = handler, .started_ns = clock_boottime(), .deadline_ns = deadline_ns};
    return stream_connect(&conversation->stream, loop, address,
                          deadline_ns < greeting_ns ? deadline_ns : greeting_ns, INPUT_BYTES,
                          OUTPUT_BYTES, &stream_handler);
}

void qmp_conversation_done(struct qmp_conversation *conversation)
{
    if (conversation->freed)
        *conversation->freed = true;
    conversation->freed = NULL;
    stream_done(&conversation->stream);
}
