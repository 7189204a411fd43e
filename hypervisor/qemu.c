/* SPDX-License-Identifier: Apache-2.0 */
/* qemu.c - one conversation on a QEMU monitor, over QMP.
 *
 *     greeting ─ negotiate ─ frontends ─ nodes ─ sets ─ status ─ find the drive ─▶ done (query)
 *                                                                      └─ resize ─ check ─▶ done
 *
 * qemu_search.h finds the drive and says which step comes next.
 *
 * Commands that do not depend on the previous answer are sent together with the previous command:
 * all queries at once, and the check with the resize. QEMU executes commands one after another and
 * answers in their order (QEMU: docs/interop/qmp-spec.txt), so each saves one round trip.
 *
 * The guest's address of the drive is asked for last, if at all, and its failure does not fail the
 * call.
 *
 * Nothing is written before the greeting: a monitor serves one client at a time, and commands that
 * a waiting client has written may be executed after it has given up. No greeting in time therefore
 * means busy.
 *
 * QEMU is asked for the device's real size, never for less than the drive has.
 *
 * Every path ends in finish(), after which nothing here uses the call, because its owner may have
 * freed it. Functions that may have finished, or that wait for the search to go on, return false,
 * and their callers return at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/hypervisor_ops.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qemu_search.h"
#include "hypervisor/qmp_codec.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/stream.h"
#include "lib/text.h"

static const uint64_t greeting_ns = 2 * NSEC_PER_SEC;

enum { INPUT_BYTES = QMP_MESSAGE_BYTES + 64 * 1024, OUTPUT_BYTES = 4096 };

/* Bounds for one conversation, events included: several answers of the largest size, but no
 * flood. */
enum { CONVERSATION_BYTES = 4 * QMP_MESSAGE_BYTES, CONVERSATION_MESSAGES = 4096 };

enum step {
    STEP_GREETING,
    STEP_NEGOTIATE,
    STEP_FRONTENDS,
    STEP_NODES,
    STEP_SETS,
    STEP_STATUS,
    STEP_RESIZE,
    STEP_CHECK,
    STEP_TREE,
    STEPS,
};

struct qemu_call {
    struct hypervisor_call call;
    struct stream stream;
    uint64_t started_ns;
    enum step step;
    unsigned asked, answered; /* commands so far; they number the ids */
    struct qmp_decoder decoder;
    size_t taken_bytes; /* of the received bytes */
    unsigned taken_messages;
    struct qemu_search search;
    struct loop_timer again; /* active: the search goes on then, and nothing is read before */
    char version[HYPERVISOR_VERSION_BYTES];
    char address[QEMU_ADDRESS_BYTES];
};

static struct qemu_call *qemu_call_of(struct hypervisor_call *call)
{
    return container_of(call, struct qemu_call, call);
}

/* Ends the call with the text of `error`. Returns false, for the caller to return. */
static bool finish(struct qemu_call *qemu, enum hypervisor_outcome outcome,
                   const struct error *error)
{
    const struct qemu_search *search = &qemu->search;
    struct hypervisor_reply reply = {
        .bytes = search->drive_bytes,
        .list = search->list,
        .resize = search->resize,
    };

    if (qemu->step == STEP_TREE)
        outcome = HYPERVISOR_DONE;
    reply.outcome = outcome;
    memcpy(reply.version, qemu->version, sizeof(reply.version));
    (void)snprintf(reply.drive_id, sizeof(reply.drive_id), "%s", search->drive);
    (void)snprintf(reply.address, sizeof(reply.address), "%s", qemu->address);
    if (outcome != HYPERVISOR_DONE)
        reply.error = *error;
    hypervisor_call_complete(&qemu->call, &reply);
    return false;
}

static bool finish_unreachable(struct qemu_call *qemu, const struct error *error)
{
    return finish(qemu, HYPERVISOR_UNREACHABLE, error);
}

/* Commands */

static int encode(struct qemu_call *qemu, enum step step, struct buffer *output)
{
    static const char *const commands[STEPS] = {
        [STEP_NEGOTIATE] = "qmp_capabilities",    [STEP_FRONTENDS] = "query-block",
        [STEP_NODES] = "query-named-block-nodes", [STEP_SETS] = "query-fdsets",
        [STEP_RESIZE] = "block_resize",           [STEP_CHECK] = "query-block",
        [STEP_TREE] = "human-monitor-command",    [STEP_STATUS] = "query-status",
    };
    const struct qemu_search *search = &qemu->search;
    uint64_t bytes = qemu->call.request.bytes;
    char id[24], arguments[QEMU_NAME_BYTES + 64] = "";

    (void)snprintf(id, sizeof(id), "crustd-%u", ++qemu->asked);
    if (step == STEP_NODES)
        (void)snprintf(arguments, sizeof(arguments), "{\"flat\":true}");
    if (step == STEP_TREE)
        (void)snprintf(arguments, sizeof(arguments), "{\"command-line\":\"info qtree\"}");
    if (step == STEP_RESIZE) /* QMP's int is 64 bits with a sign, as the kernel's sizes are */
        (void)snprintf(arguments, sizeof(arguments), "{\"node-name\":\"%s\",\"size\":%" PRIu64 "}",
                       search->drive, bytes > search->drive_bytes ? bytes : search->drive_bytes);
    return qmp_encode(output, commands[step], arguments[0] ? arguments : NULL, id);
}

/* Goes on to `step` by sending its command and those up to `last`. */
static bool ask(struct qemu_call *qemu, enum step step, enum step last)
{
    cleanup(buffer_done) struct buffer output = BUFFER_INIT(OUTPUT_BYTES);
    struct error error;
    int r = 0;

    qemu->step = step;
    for (; r == 0 && step <= last; step++)
        r = encode(qemu, step, &output);
    if (r == 0)
        r = stream_send(&qemu->stream, output.data, output.length);
    if (r == 0)
        return true;
    (void)error_set_errno(&error, r, "cannot ask the monitor");
    return finish_unreachable(qemu, &error);
}

/* Answers */

/* {"status": "io-error", "running": false}: paused by hand, or by QEMU itself (QEMU:
 * qapi/run-state.json). One that was not started yet is not paused. */
static void note_status(struct qemu_call *qemu, const cJSON *value)
{
    const char *status = json_string(value, "status");
    char word[32];

    if (!status || !cJSON_IsFalse(json_member(value, "running")) ||
        strcmp(status, "prelaunch") == 0 || strcmp(status, "inmigrate") == 0)
        return;
    text_clean(status, strlen(status), word, sizeof(word));
    (void)error_set(&qemu->call.paused, 0, "the VM is paused: QEMU's status is %s", word);
}

static bool read_tree(struct qemu_call *qemu, const cJSON *value)
{
    const char *text = cJSON_GetStringValue(value);

    if (text)
        (void)qemu_tree_find(text, qemu->search.drive, qemu->address);
    return finish(qemu, HYPERVISOR_DONE, NULL);
}

/* ---- the search (qemu_search.h) ---- */

static void on_again(struct loop_timer *timer);

/* Goes on with what the search asks for. */
static bool follow(struct qemu_call *qemu, const struct qemu_search_result *result)
{
    bool wants_address = qemu->call.request.wants_address && qemu->search.drive[0];

    switch (result->next) {
    case QEMU_SEARCH_RESIZE:
        return ask(qemu, STEP_RESIZE, STEP_CHECK);
    case QEMU_SEARCH_FOUND:
        return wants_address ? ask(qemu, STEP_TREE, STEP_TREE)
                             : finish(qemu, HYPERVISOR_DONE, NULL);
    case QEMU_SEARCH_AGAIN:
        loop_timer_start(qemu->call.loop, &qemu->again, result->pause_ns, on_again);
        return false;
    case QEMU_SEARCH_ANEW:
        return ask(qemu, STEP_FRONTENDS, STEP_STATUS);
    case QEMU_SEARCH_END:
        break;
    }
    return finish(qemu, result->outcome, &result->error);
}

static void on_again(struct loop_timer *timer)
{
    struct qemu_call *qemu = container_of(timer, struct qemu_call, again);
    struct qemu_search_result result = qemu_search_find(&qemu->search);

    (void)follow(qemu, &result);
}

static bool refused(struct qemu_call *qemu, const struct qmp_message *message)
{
    const char *drive = qemu->search.drive;
    struct error error;

    (void)error_set(&error, 0, "%s%s%s", drive, drive[0] ? ": " : "", message->error_text);
    return finish(qemu, qemu_refusal(message->error_class, message->error_text), &error);
}

/* Reads the answer to the present step into the report. */
static int read_answer(struct qemu_call *qemu, const cJSON *value, struct error *error)
{
    struct qemu_report *report = &qemu->search.report;

    switch (qemu->step) {
    case STEP_FRONTENDS:
    case STEP_CHECK:
        qemu_nodes_done(&report->roots);
        return qemu_report_read_frontends(&report->roots, value, error);
    case STEP_NODES:
        return qemu_report_read_nodes(&report->nodes, value, error);
    case STEP_SETS:
        return qemu_report_read_sets(report, value, error);
    case STEP_GREETING:
    case STEP_NEGOTIATE:
    case STEP_STATUS:
    case STEP_RESIZE:
    case STEP_TREE:
    case STEPS:
        break;
    }
    return 0;
}

static bool find_drive(struct qemu_call *qemu)
{
    struct qemu_search_result result = qemu_search_find(&qemu->search);

    return follow(qemu, &result);
}

/* Processes the answer to one step and goes on to the next. */
static bool proceed(struct qemu_call *qemu, const struct qmp_message *message)
{
    struct qemu_search_result result;
    struct error error;

    if (message->kind == QMP_ERROR && qemu->step != STEP_STATUS)
        return refused(qemu, message);
    if (read_answer(qemu, message->value, &error) < 0)
        return finish_unreachable(qemu, &error);
    switch (qemu->step) {
    case STEP_GREETING:
        return ask(qemu, STEP_NEGOTIATE, STEP_STATUS);
    case STEP_STATUS:
        note_status(qemu, message->value);
        return find_drive(qemu);
    case STEP_NEGOTIATE:
    case STEP_FRONTENDS:
    case STEP_NODES:
    case STEP_SETS:
    case STEP_RESIZE:
        qemu->step++; /* its command was sent together with this one */
        return true;
    case STEP_TREE:
        return read_tree(qemu, message->value);
    case STEP_CHECK:
    case STEPS:
        break;
    }
    result = qemu_search_check(&qemu->search);
    return follow(qemu, &result);
}

/* The greeting has arrived: from now on the caller's deadline counts. */
static void greeted(struct qemu_call *qemu)
{
    uint64_t deadline_ns = qemu->call.request.deadline_ns;
    uint64_t elapsed_ns = clock_boottime() - qemu->started_ns;

    stream_set_deadline(&qemu->stream, deadline_ns > elapsed_ns ? deadline_ns - elapsed_ns : 0);
}

static bool received_message(struct qemu_call *qemu, const struct qmp_message *message)
{
    struct error error;
    char id[24];

    if (qemu->step == STEP_GREETING) {
        if (message->kind == QMP_GREETING) {
            qmp_read_version(message, qemu->version, sizeof(qemu->version));
            greeted(qemu);
            return proceed(qemu, message);
        }
        (void)error_set(&error, 0, "the monitor did not greet");
        return finish_unreachable(qemu, &error);
    }
    (void)snprintf(id, sizeof(id), "crustd-%u", qemu->answered + 1);
    if ((message->kind != QMP_RETURN && message->kind != QMP_ERROR) || !message->id ||
        strcmp(message->id, id) != 0)
        return true;
    qemu->answered++;
    return proceed(qemu, message);
}

/* Called after something was taken off the input, which had `before` bytes. 0; -EMSGSIZE: too
 * much. */
static int count_taken(struct qemu_call *qemu, size_t before, struct error *error)
{
    qemu->taken_bytes += before - qemu->stream.input.length;
    if (qemu->taken_bytes <= CONVERSATION_BYTES && qemu->taken_messages++ < CONVERSATION_MESSAGES)
        return 0;
    return error_set(error, -EMSGSIZE, "the monitor says more than it was asked for");
}

static void on_received(struct stream *stream)
{
    struct qemu_call *qemu = container_of(stream, struct qemu_call, stream);
    bool going = !loop_timer_is_active(&qemu->again);
    struct error error;

    if (qemu->step == STEP_GREETING && stream->input.data[0] != '{') {
        bool is_human = qmp_refuse_greeting(&stream->input, &error);

        (void)finish(qemu, is_human ? HYPERVISOR_MONITOR_MISSING : HYPERVISOR_UNREACHABLE, &error);
        return;
    }
    while (going) {
        cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
        size_t before = stream->input.length;
        int r = qmp_decode(&qemu->decoder, &stream->input, &message, &error);

        if (r == QMP_INCOMPLETE)
            return;
        if (r == 0)
            r = count_taken(qemu, before, &error);
        going = r < 0 ? finish_unreachable(qemu, &error) : received_message(qemu, &message);
    }
}

/* The connection ended before the conversation was complete. */
static enum hypervisor_outcome outcome_of_end(const struct qemu_call *qemu, enum stream_end end,
                                              int code)
{
    if (end == STREAM_REFUSED && path_is_missing(code))
        return HYPERVISOR_MONITOR_MISSING;
    if (end == STREAM_REFUSED && code == STREAM_BACKLOG_FULL)
        return HYPERVISOR_BUSY;
    if (end == STREAM_TIMEOUT && qemu->step == STEP_GREETING)
        return HYPERVISOR_BUSY;
    return HYPERVISOR_UNREACHABLE;
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    struct qemu_call *qemu = container_of(stream, struct qemu_call, stream);
    enum hypervisor_outcome outcome = outcome_of_end(qemu, end, error->code);
    struct error text = *error;

    if (outcome == HYPERVISOR_BUSY)
        (void)error_set(&text, 0, "the monitor gives no greeting: another client holds it");
    else if (end == STREAM_TIMEOUT && loop_timer_is_active(&qemu->again))
        (void)vmm_resolver_refuse(&text);
    else
        (void)error_prefix(&text, "the monitor: ");
    (void)finish(qemu, outcome, &text);
}

static const struct stream_handler stream_handler = {.received = on_received, .ended = on_ended};

static int qemu_start(struct hypervisor_call *call)
{
    struct qemu_call *qemu = qemu_call_of(call);
    const struct hypervisor_request *request = &call->request;
    const struct stream_address address = {
        .family = STREAM_UNIX,
        .directory = request->root,
        .path = request->control_socket,
        .listener = {.vmm = request->vmm_pid, .sandbox_id = request->sandbox_id},
    };

    qemu_search_init(&qemu->search, call->loop, request);
    qemu->started_ns = clock_boottime();
    return stream_connect(&qemu->stream, call->loop, &address,
                          request->deadline_ns < greeting_ns ? request->deadline_ns : greeting_ns,
                          INPUT_BYTES, OUTPUT_BYTES, &stream_handler);
}

static void qemu_stop(struct hypervisor_call *call)
{
    struct qemu_call *qemu = qemu_call_of(call);

    loop_timer_stop(&qemu->again);
    stream_done(&qemu->stream);
    qemu_search_done(&qemu->search);
}

const struct hypervisor_ops hypervisor_qemu_ops = {
    .size = sizeof(struct qemu_call),
    .start = qemu_start,
    .stop = qemu_stop,
};
