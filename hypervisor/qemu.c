/* SPDX-License-Identifier: Apache-2.0 */
/* qemu.c - one conversation on a QEMU monitor, QMP or HMP.
 *
 * The steps are the same over both:
 *
 *     greeting ─ [negotiate] ─ frontends ─ nodes ─ [sets ─ status] ─ find the drive ─▶ done (query)
 *                                                                         └─ resize ─ check ─▶ done
 *
 * qemu_search.h finds the drive and says which step comes next.
 *
 * Commands that do not depend on the previous answer are sent together with the previous command:
 * all queries at once, and the check with the resize. QMP executes commands one after another and
 * answers in their order (QEMU: docs/interop/qmp-spec.txt), so each saves one round trip. HMP gets
 * one command at a time, because only its prompt shows where an answer ends.
 *
 * The guest's address of the drive is asked for last, if at all, and its failure does not fail the
 * call.
 *
 * The greeting tells which dialect it is, because a debug monitor speaks what the runtime was
 * configured to. Nothing is written before it: a monitor serves one client at a time, and commands
 * that a waiting client has written may be executed after it has given up. No greeting in time
 * therefore means busy.
 *
 * QMP is asked for the device's real size, never for less than the drive has. HMP's block_resize
 * cannot name a drive by its node; `qemu-io NODE "truncate N"` can. N is the drive's own size: over
 * host_device any size up to the real one means "read it again", and if the node is not the
 * expected one, its own size cuts nothing off. If HMP does not show which of several drives the
 * device is, all of them are re-read, one after the other (qemu_sets.h).
 *
 * Every path ends in finish(), after which nothing here uses the call, because its owner may have
 * freed it. Functions that may have finished, or that wait for the search to go on, return false,
 * and their callers return at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/hmp_codec.h"
#include "hypervisor/hypervisor_ops.h"
#include "hypervisor/qemu_drive.h"
#include "hypervisor/qemu_search.h"
#include "hypervisor/qemu_tree.h"
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

enum dialect { DIALECT_UNKNOWN, DIALECT_QMP, DIALECT_HMP };

struct qemu_call {
    struct hypervisor_call call;
    struct stream stream;
    uint64_t started_ns;
    enum dialect dialect;
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

/* The answer to a step, in either dialect. */
struct answer {
    const cJSON *value;      /* QMP */
    const char *text;        /* HMP */
    const char *error_class; /* "" over HMP */
    const char *error_text;  /* NULL: not refused */
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
    reply.others_refreshed = search->sets.next > 0;
    if (outcome != HYPERVISOR_DONE)
        reply.error = *error;
    else
        reply.doubt = search->doubt;
    hypervisor_call_complete(&qemu->call, &reply);
    return false;
}

static bool finish_unreachable(struct qemu_call *qemu, const struct error *error)
{
    return finish(qemu, HYPERVISOR_UNREACHABLE, error);
}

/* Commands */

static int encode_qmp(struct qemu_call *qemu, enum step step, struct buffer *output)
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

static int encode_hmp(const struct qemu_call *qemu, enum step step, struct buffer *output)
{
    const struct qemu_search *search = &qemu->search;

    if (step == STEP_RESIZE && search->refreshing)
        return hmp_encode_truncate(output, search->refreshing->name, search->refreshing->bytes);
    if (step == STEP_RESIZE)
        return hmp_encode_truncate(output, search->drive, search->drive_bytes);
    if (step == STEP_TREE)
        return buffer_append_text(output, "info qtree\n");
    return buffer_append_text(output,
                              step == STEP_NODES ? "info block -n -v\n" : "info block -v\n");
}

/* Goes on to `step` by sending its command; over QMP also the commands up to `last`. */
static bool ask(struct qemu_call *qemu, enum step step, enum step last)
{
    cleanup(buffer_done) struct buffer output = BUFFER_INIT(OUTPUT_BYTES);
    struct error error;
    int r = 0;

    qemu->step = step;
    if (qemu->dialect == DIALECT_HMP)
        r = encode_hmp(qemu, step, &output);
    for (; qemu->dialect == DIALECT_QMP && r == 0 && step <= last; step++)
        r = encode_qmp(qemu, step, &output);
    if (r == 0)
        r = stream_send(&qemu->stream, output.data, output.length);
    if (r == 0)
        return true;
    (void)error_set_errno(&error, r, "cannot ask the monitor");
    return finish_unreachable(qemu, &error);
}

/* Goes on to `step`, whose command QMP was sent together with an earlier one. */
static bool go_on(struct qemu_call *qemu, enum step step)
{
    if (qemu->dialect == DIALECT_HMP)
        return ask(qemu, step, step);
    qemu->step = step;
    return true;
}

/* Answers */

static int read_roots(struct qemu_call *qemu, const struct answer *answer, struct error *error)
{
    qemu_nodes_done(&qemu->search.report.roots);
    if (qemu->dialect == DIALECT_QMP)
        return qemu_report_read_frontends(&qemu->search.report.roots, answer->value, error);
    return hmp_read_blocks(answer->text, true, &qemu->search.report.roots, error);
}

static int read_nodes(struct qemu_call *qemu, const struct answer *answer, struct error *error)
{
    if (qemu->dialect == DIALECT_QMP)
        return qemu_report_read_nodes(&qemu->search.report.nodes, answer->value, error);
    return hmp_read_blocks(answer->text, false, &qemu->search.report.nodes, error);
}

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

static bool read_tree(struct qemu_call *qemu, const struct answer *answer)
{
    const char *text =
        qemu->dialect == DIALECT_QMP ? cJSON_GetStringValue(answer->value) : answer->text;

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
    case QEMU_SEARCH_CHECK:
        return go_on(qemu, STEP_CHECK);
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
    struct qemu_search_result result = qemu_search_again(&qemu->search);

    (void)follow(qemu, &result);
}

static bool refused(struct qemu_call *qemu, const struct answer *answer)
{
    enum hypervisor_outcome outcome = qemu_refusal(answer->error_class, answer->error_text);
    size_t length = strcspn(answer->error_text, "\n");
    struct qemu_search_result result;

    if (length > ERROR_TEXT_BYTES)
        length = ERROR_TEXT_BYTES;
    result = qemu_search_refused(&qemu->search, outcome, answer->error_text, length);
    return follow(qemu, &result);
}

/* Reads the answer to the present step into the report. */
static int read_answer(struct qemu_call *qemu, const struct answer *answer, struct error *error)
{
    switch (qemu->step) {
    case STEP_FRONTENDS:
    case STEP_CHECK:
        return read_roots(qemu, answer, error);
    case STEP_NODES:
        return read_nodes(qemu, answer, error);
    case STEP_SETS:
        return qemu_report_read_sets(&qemu->search.report, answer->value, error);
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
static bool proceed(struct qemu_call *qemu, const struct answer *answer)
{
    struct qemu_search_result result;
    struct error error;

    if (answer->error_text && qemu->step != STEP_STATUS)
        return refused(qemu, answer);
    if (read_answer(qemu, answer, &error) < 0)
        return finish_unreachable(qemu, &error);
    switch (qemu->step) {
    case STEP_GREETING:
        return ask(qemu, qemu->dialect == DIALECT_QMP ? STEP_NEGOTIATE : STEP_FRONTENDS,
                   STEP_STATUS);
    case STEP_NEGOTIATE:
        return go_on(qemu, STEP_FRONTENDS);
    case STEP_FRONTENDS:
        return go_on(qemu, STEP_NODES);
    case STEP_NODES:
        return qemu->dialect == DIALECT_QMP ? go_on(qemu, STEP_SETS) : find_drive(qemu);
    case STEP_SETS:
        return go_on(qemu, STEP_STATUS);
    case STEP_STATUS:
        note_status(qemu, answer->value);
        return find_drive(qemu);
    case STEP_RESIZE:
        result = qemu_search_resized(&qemu->search);
        return follow(qemu, &result);
    case STEP_TREE:
        return read_tree(qemu, answer);
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
    struct answer answer = {.value = message->value, .error_class = ""};
    struct error error;
    char id[24];

    if (qemu->step == STEP_GREETING) {
        if (message->kind == QMP_GREETING) {
            qmp_read_version(message, qemu->version, sizeof(qemu->version));
            greeted(qemu);
            return proceed(qemu, &answer);
        }
        (void)error_set(&error, 0, "the monitor did not greet");
        return finish_unreachable(qemu, &error);
    }
    (void)snprintf(id, sizeof(id), "crustd-%u", qemu->answered + 1);
    if ((message->kind != QMP_RETURN && message->kind != QMP_ERROR) || !message->id ||
        strcmp(message->id, id) != 0)
        return true;
    qemu->answered++;
    if (message->kind == QMP_ERROR) {
        answer.error_class = message->error_class;
        answer.error_text = message->error_text;
    }
    return proceed(qemu, &answer);
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

static bool receive_qmp(struct qemu_call *qemu)
{
    bool going = true;

    while (going) {
        cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
        size_t before = qemu->stream.input.length;
        struct error error;
        int r = qmp_decode(&qemu->decoder, &qemu->stream.input, &message, &error);

        if (r == QMP_INCOMPLETE)
            return true;
        if (r == 0)
            r = count_taken(qemu, before, &error);
        if (r < 0)
            return finish_unreachable(qemu, &error);
        going = received_message(qemu, &message);
    }
    return false;
}

/* HMP reports failures only as text: a successful resize prints nothing. */
static bool is_refusal(enum step step, const char *text)
{
    return step == STEP_RESIZE
               ? text[0] != '\0'
               : strncmp(text, "unknown command", 15) == 0 || strncmp(text, "Error: ", 7) == 0;
}

static bool receive_hmp(struct qemu_call *qemu)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HMP_REPLY_BYTES);
    struct answer answer = {.error_class = ""};
    size_t before = qemu->stream.input.length;
    struct error error;
    int r;

    if (qemu->step == STEP_GREETING)
        hmp_read_version(&qemu->stream.input, qemu->version, sizeof(qemu->version));
    r = hmp_decode(&qemu->stream.input, &text, &error);
    if (r == HMP_INCOMPLETE)
        return true;
    if (r == 0)
        r = count_taken(qemu, before, &error);
    if (r < 0)
        return finish_unreachable(qemu, &error);
    answer.text = buffer_text(&text);
    if (qemu->step == STEP_GREETING)
        greeted(qemu);
    else if (is_refusal(qemu->step, answer.text))
        answer.error_text = answer.text;
    return proceed(qemu, &answer);
}

static void on_received(struct stream *stream)
{
    struct qemu_call *qemu = container_of(stream, struct qemu_call, stream);
    struct error error;

    if (loop_timer_is_active(&qemu->again))
        return;
    if (qemu->dialect == DIALECT_UNKNOWN) {
        if (stream->input.data[0] == '{')
            qemu->dialect = DIALECT_QMP;
        else if (stream->input.data[0] == 'Q')
            qemu->dialect = DIALECT_HMP;
    }
    if (qemu->dialect == DIALECT_QMP) {
        (void)receive_qmp(qemu);
    } else if (qemu->dialect == DIALECT_HMP) {
        (void)receive_hmp(qemu);
    } else {
        (void)error_set(&error, 0, "what listens there is no QEMU monitor");
        (void)finish_unreachable(qemu, &error);
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
