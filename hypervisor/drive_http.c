/* SPDX-License-Identifier: Apache-2.0 */
/* drive_http.c - the way through a call about a drive, over HTTP.
 *
 *     [version] ─ list ─┬─ LOOK, LIST: done
 *                       ├─ LIMIT, RESIZE: one request
 *                       ├─ ATTACH: add ─ list: is it ours, and does the VMM have the disk open?
 *                       └─ DETACH, or an ATTACH that failed: remove ─ list, until it is gone
 *
 * What is believed is the list that is read after a change, not the answer to the change. The path
 * is compared twice: before the VMM is asked to open it, because it would open whatever is there,
 * and afterwards, together with what the VMM has open.
 *
 * Every path ends in finish(), after which nothing here uses the call, because its owner may have
 * freed it. A body belongs to the exchange that was answered, so that is freed last.
 */
#include "hypervisor/drive_http.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/text.h"

enum { STATUS_FULL = 503, STATUS_MISSING = 404, REQUEST_BYTES = 32 * 1024, HELD = 1024 };

static const char cannot_tell[] = "which disk the VMM has opened cannot be told now";
static const uint64_t pause_min_ns = 10 * NSEC_PER_MSEC, pause_max_ns = 500 * NSEC_PER_MSEC;

static const struct drive *find(const struct drive_report *report, const char *id)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->entries[i].id, id) == 0)
            return &report->entries[i];
    return NULL;
}

/* ---- the end ---- */

static enum hypervisor_drive_state state_of(const struct drive_http *http)
{
    if (!http->is_read)
        return HYPERVISOR_DRIVE_UNKNOWN;
    return find(&http->drives, http->id) || find(&http->leaving, http->id)
               ? HYPERVISOR_DRIVE_PRESENT
               : HYPERVISOR_DRIVE_ABSENT;
}

/* For `reply`, which may have more in it already. */
static void finish_with(struct drive_http *http, struct hypervisor_drive_reply *reply,
                        enum hypervisor_drive_outcome outcome, const struct error *error)
{
    reply->outcome = outcome;
    if (reply->state == HYPERVISOR_DRIVE_UNKNOWN)
        reply->state = state_of(http);
    if (outcome != HYPERVISOR_DRIVE_DONE)
        reply->error = *error;
    hypervisor_drive_complete(&http->call, reply);
}

static void finish(struct drive_http *http, enum hypervisor_drive_outcome outcome,
                   const struct error *error)
{
    struct hypervisor_drive_reply reply = {.outcome = outcome};

    finish_with(http, &reply, outcome, error);
}

static void finish_text(struct drive_http *http, enum hypervisor_drive_outcome outcome,
                        const char *text)
{
    struct error error;

    (void)error_set(&error, 0, "%s", text);
    finish(http, outcome, &error);
}

static void finish_unreachable(struct drive_http *http, int code)
{
    struct error error;

    (void)error_set_errno(&error, code, "cannot ask the VMM");
    http->is_read = false;
    finish(http, HYPERVISOR_DRIVE_UNREACHABLE, &error);
}

/* The drive is there and is ours. */
static void finish_attached(struct drive_http *http, const struct drive *drive)
{
    struct hypervisor_drive_reply reply = {.outcome = HYPERVISOR_DRIVE_DONE};

    memcpy(reply.address, drive->address, sizeof(reply.address));
    if (!http->kind->find_serial(http, drive, reply.serial))
        reply.serial[0] = '\0';
    finish_with(http, &reply, HYPERVISOR_DRIVE_DONE, NULL);
}

/* ---- requests ---- */

static void on_done(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                    void *userdata)
{
    struct drive_http *http = userdata;
    struct error error;

    http->exchange = NULL;
    if (answer->end == HTTP_EXCHANGE_ANSWERED && answer->status != STATUS_FULL) {
        http->answered(http, answer);
    } else if (answer->end == HTTP_EXCHANGE_ANSWERED) {
        finish_text(http, HYPERVISOR_DRIVE_BUSY,
                    "other clients hold all of the control socket's connections");
    } else {
        http->is_read = false;
        (void)error_set(&error, 0, "the control socket: %s", answer->error.text);
        finish(http,
               answer->end == HTTP_EXCHANGE_NO_SOCKET ? HYPERVISOR_DRIVE_MONITOR_MISSING
                                                      : HYPERVISOR_DRIVE_UNREACHABLE,
               &error);
    }
    (void)http_exchange_free(exchange);
}

static int start_request(struct drive_http *http, const char *method, const char *target,
                         const char *body, drive_http_answered *answered)
{
    uint64_t now_ns = clock_boottime();
    struct http_exchange_request request = {
        .directory = http->call.request.root,
        .socket_path = http->call.request.control_socket,
        .listener = {.vmm = http->call.request.vmm_pid,
                     .sandbox_id = http->call.request.sandbox_id},
        .method = method,
        .target = target,
        .body = body,
        .body_limit = JSON_LIMITS_VMM_HTTP.bytes,
        .deadline_ns = http->until_ns > now_ns ? http->until_ns - now_ns : 0,
    };

    http->answered = answered;
    return http_exchange_new(http->call.loop, &request, on_done, http, &http->exchange);
}

static void ask(struct drive_http *http, const char *method, const char *target, const char *body,
                drive_http_answered *answered)
{
    int r = start_request(http, method, target, body, answered);

    if (r < 0)
        finish_unreachable(http, r);
}

static void ask_for(struct drive_http *http, enum drive_http_change change,
                    drive_http_answered *answered)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(REQUEST_BYTES);
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(REQUEST_BYTES);
    const char *method;
    int r = http->kind->encode(http, change, &method, &target, &body);

    if (r < 0)
        finish_unreachable(http, r);
    else
        ask(http, method, buffer_text(&target), body.length ? buffer_text(&body) : NULL, answered);
}

static bool is_success(const struct http_exchange_answer *answer)
{
    return answer->status / 100 == 2;
}

/* ---- what the VMM's process sees ---- */

/* The process, to be released with vmm_process_done(). false: it cannot be examined. */
static bool open_process(const struct drive_http *http, struct vmm_process *ret_process)
{
    return vmm_process_init(ret_process, http->call.request.vmm_pid, NULL) == 0;
}

static struct vmm_identity identity_of(const struct hypervisor_disk *disk)
{
    return (struct vmm_identity){.block_device = !disk->regular_file,
                                 .device = disk->device,
                                 .inode = disk->regular_file ? disk->inode : 0};
}

enum lead { LEADS_ELSEWHERE, LEADS_TO_DISK, LEAD_UNKNOWN };

/* Where the path leads, as the VMM sees it. Unknown: the process cannot be examined, or not in the
 * time that there is, of which a machine whose own host is busy has less. */
static enum lead follow(const struct drive_http *http, const char *path)
{
    const struct vmm_identity wanted = identity_of(&http->call.request.disk);
    struct vmm_identity found;
    struct vmm_process process;
    enum lead lead = LEADS_ELSEWHERE;

    if (!open_process(http, &process))
        return LEAD_UNKNOWN;
    if (process.resolver.path(&process.resolver, path, &found) == 0)
        lead = vmm_identity_equal(&found, &wanted) ? LEADS_TO_DISK : LEADS_ELSEWHERE;
    else if (process.resolver.exhausted || process.resolver.shortage)
        lead = LEAD_UNKNOWN;
    vmm_process_done(&process);
    return lead;
}

/* Whether the VMM has it open, or may have. */
static bool holds_disk(const struct drive_http *http)
{
    return hypervisor_drive_may_be_held(http->call.request.vmm_pid, &http->call.request.disk);
}

/* follow(), for a path whose file the VMM has open. */
static enum lead follow_open(const struct drive_http *http, const char *path)
{
    enum lead lead = follow(http, path);

    return lead == LEADS_TO_DISK && !holds_disk(http) ? LEADS_ELSEWHERE : lead;
}

/* ---- down ---- */

static void read_list(struct drive_http *http);

static void on_waited(struct loop_timer *timer)
{
    read_list(container_of(timer, struct drive_http, waiting));
}

static void wait_a_little(struct drive_http *http, const char *for_what)
{
    uint64_t now_ns = clock_boottime();

    if (!http->waiting_since_ns)
        http->waiting_since_ns = now_ns;
    if (now_ns - http->waiting_since_ns >= http->call.request.removal_ns) {
        if (http->failure != HYPERVISOR_DRIVE_DONE)
            finish(http, http->failure, &http->error);
        else
            finish_text(http, HYPERVISOR_DRIVE_PENDING, for_what);
        return;
    }
    http->pause_ns = http->pause_ns ? 2 * http->pause_ns : pause_min_ns;
    if (http->pause_ns > pause_max_ns)
        http->pause_ns = pause_max_ns;
    loop_timer_start(http->call.loop, &http->waiting, http->pause_ns, on_waited);
}

static void answered_remove(struct drive_http *http, const struct http_exchange_answer *answer)
{
    enum hypervisor_drive_outcome outcome;
    struct error error;

    if (is_success(answer) || answer->status == STATUS_MISSING) {
        read_list(http);
        return;
    }
    outcome = http->kind->read_refusal(answer->body, answer->length, &error);
    if (http->failure != HYPERVISOR_DRIVE_DONE)
        finish(http, http->failure, &http->error); /* the first reason counts */
    else
        finish(http, outcome, &error);
}

static void go_down(struct drive_http *http)
{
    bool is_attached = find(&http->drives, http->id);

    if (is_attached && !http->told) {
        http->told = true;
        ask_for(http, DRIVE_HTTP_REMOVE, answered_remove);
    } else if (is_attached || find(&http->leaving, http->id)) {
        wait_a_little(http, "the guest has not let go of the device");
    } else if (http->call.request.disk.device && holds_disk(http)) {
        wait_a_little(http, "the VMM has not closed the disk");
    } else {
        finish(http, http->failure, &http->error);
    }
}

/* The attach has failed: what there is of it is taken back. */
static void fail(struct drive_http *http, enum hypervisor_drive_outcome outcome, const char *text)
{
    http->failure = outcome;
    (void)error_set(&http->error, 0, "%s", text);
    go_down(http);
}

/* ---- up ---- */

static void answered_add(struct drive_http *http, const struct http_exchange_answer *answer)
{
    http->is_added = true;
    if (!is_success(answer))
        http->failure = http->kind->read_refusal(answer->body, answer->length, &http->error);
    read_list(http);
}

static void add(struct drive_http *http)
{
    const struct hypervisor_drive_request *request = &http->call.request;
    struct error error;
    enum lead lead;

    if (find(&http->leaving, http->id)) {
        finish_text(http, HYPERVISOR_DRIVE_PENDING,
                    "the guest has not let go of this drive since it was detached");
    } else if (http->is_added) {
        fail(http, HYPERVISOR_DRIVE_REFUSED, "the VMM accepted the drive, and does not list it");
    } else if (request->descriptor < 0) {
        finish_text(http, HYPERVISOR_DRIVE_NEEDS_DESCRIPTOR,
                    "the VMM does not have the disk: it has to be opened");
    } else if ((lead = follow(http, request->path)) == LEAD_UNKNOWN) {
        finish_text(http, HYPERVISOR_DRIVE_UNREACHABLE, cannot_tell);
    } else if (lead == LEADS_ELSEWHERE) {
        (void)error_set(&error, 0,
                        "%s does not lead to the disk as the VMM sees it: in another mount "
                        "namespace or a jail the disk needs a name of its own",
                        request->path);
        finish(http, HYPERVISOR_DRIVE_REFUSED, &error);
    } else {
        ask_for(http, DRIVE_HTTP_ADD, answered_add);
    }
}

static bool makes_serial(const struct drive_http *http)
{
    return http->call.ops->traits.makes_serial;
}

/* Of a VMM that makes serials: whether this drive's is known, and is `wanted` (NULL: any). */
static bool has_found_serial(const struct drive_http *http, const struct drive *drive,
                             const char *wanted)
{
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES];

    return !makes_serial(http) || (http->kind->find_serial(http, drive, serial) &&
                                   (!wanted || strcmp(serial, wanted) == 0));
}

/* Why what the VMM has under this drive's id is not what is asked for; NULL: it is. */
static const char *compare(const struct drive_http *http, const struct drive *drive)
{
    const struct hypervisor_drive_request *request = &http->call.request;

    if (drive->read_only != request->read_only)
        return drive->read_only ? "the VMM has this drive as a read-only one"
                                : "the VMM has this drive as a writable one";
    if (drive->serial[0] && strcmp(drive->serial, request->serial) != 0)
        return "the VMM has this drive with another serial";
    switch (follow_open(http, drive->path)) {
    case LEADS_ELSEWHERE:
        return "the VMM has another disk under this drive's id";
    case LEAD_UNKNOWN:
        return cannot_tell;
    case LEADS_TO_DISK:
        break;
    }
    return has_found_serial(http, drive, NULL)
               ? NULL
               : "the serial that the guest sees is not known: what the drive's path led to was "
                 "replaced after the VMM had opened it";
}

static void go_up(struct drive_http *http)
{
    const struct drive *drive = find(&http->drives, http->id);
    const char *difference;
    bool is_unknown;

    if (!drive) {
        add(http);
        return;
    }
    difference = compare(http, drive);
    is_unknown = difference == cannot_tell;
    if (!difference)
        finish_attached(http, drive);
    else if (http->is_added)
        fail(http, is_unknown ? HYPERVISOR_DRIVE_UNREACHABLE : HYPERVISOR_DRIVE_REFUSED,
             difference);
    else
        finish_text(http, is_unknown ? HYPERVISOR_DRIVE_UNREACHABLE : HYPERVISOR_DRIVE_CONFLICT,
                    difference);
}

/* ---- the other acts ---- */

static void answered_change(struct drive_http *http, const struct http_exchange_answer *answer)
{
    struct hypervisor_drive_reply reply = {.outcome = HYPERVISOR_DRIVE_DONE};
    enum hypervisor_drive_outcome outcome;
    struct error error;

    if (is_success(answer)) {
        if (http->call.request.act == HYPERVISOR_DRIVE_RESIZE)
            reply.bytes = http->call.request.bytes;
        finish_with(http, &reply, HYPERVISOR_DRIVE_DONE, NULL);
        return;
    }
    outcome = http->kind->read_refusal(answer->body, answer->length, &error);
    finish(http, outcome, &error);
}

static void change(struct drive_http *http)
{
    const struct drive *drive = find(&http->drives, http->id);
    bool resizes = http->call.request.act == HYPERVISOR_DRIVE_RESIZE;
    enum lead lead = drive && resizes ? follow_open(http, drive->path) : LEADS_TO_DISK;

    if (!drive)
        finish_text(http, HYPERVISOR_DRIVE_NOT_ATTACHED, "the VMM does not have this drive");
    else if (lead == LEAD_UNKNOWN)
        finish_text(http, HYPERVISOR_DRIVE_UNREACHABLE, cannot_tell);
    else if (lead == LEADS_ELSEWHERE)
        finish_text(http, HYPERVISOR_DRIVE_CONFLICT,
                    "the VMM has another disk under this drive's id");
    else if (resizes && !has_found_serial(http, drive, http->call.request.serial))
        finish_text(http, HYPERVISOR_DRIVE_CONFLICT,
                    "what the drive's path led to was replaced: opened anew, the disk would get "
                    "another serial");
    else
        ask_for(http, resizes ? DRIVE_HTTP_RESIZE : DRIVE_HTTP_LIMIT, answered_change);
}

static void look(struct drive_http *http)
{
    const struct drive *drive = find(&http->drives, http->id);

    if (drive)
        finish_attached(http, drive);
    else
        finish(http, HYPERVISOR_DRIVE_DONE, NULL);
}

static void identify(struct vmm_process *process, const struct drive *drive,
                     struct hypervisor_drive_entry *entry)
{
    struct vmm_identity identity;

    entry->identified = process->resolver.path(&process->resolver, drive->path, &identity) == 0 &&
                        vmm_may_hold(&process->resolver, &identity);
    if (entry->identified)
        entry->disk = (struct hypervisor_disk){.regular_file = !identity.block_device,
                                               .device = identity.device,
                                               .inode = identity.inode};
}

static void list(struct drive_http *http)
{
    struct hypervisor_drive_reply reply = {.state = HYPERVISOR_DRIVE_UNKNOWN};
    size_t most = http->drives.count + http->leaving.count, count = 0;
    struct vmm_process process;
    bool is_open = open_process(http, &process);

    http->entries = calloc(most + 1, sizeof(*http->entries));
    for (size_t i = 0; http->entries && i < most; i++) {
        const struct drive *drive = i < http->drives.count
                                        ? &http->drives.entries[i]
                                        : &http->leaving.entries[i - http->drives.count];
        struct hypervisor_drive_entry *entry = &http->entries[count];

        if (!http->kind->decode_id(drive->id, entry->drive_id) ||
            (i >= http->drives.count && find(&http->drives, drive->id)))
            continue;
        entry->state = HYPERVISOR_DRIVE_PRESENT;
        if (is_open && i < http->drives.count)
            identify(&process, drive, entry);
        if (makes_serial(http) && !http->kind->find_serial(http, drive, entry->serial))
            entry->serial[0] = '\0';
        count++;
    }
    if (is_open)
        vmm_process_done(&process);
    if (!http->entries) {
        finish_unreachable(http, -ENOMEM);
        return;
    }
    reply.entries = http->entries;
    reply.entry_count = count;
    finish_with(http, &reply, HYPERVISOR_DRIVE_DONE, NULL);
}

/* ---- the list ---- */

static void go_on(struct drive_http *http)
{
    if (http->failure != HYPERVISOR_DRIVE_DONE) {
        go_down(http);
        return;
    }
    switch (http->call.request.act) {
    case HYPERVISOR_DRIVE_ATTACH:
        go_up(http);
        return;
    case HYPERVISOR_DRIVE_DETACH:
        go_down(http);
        return;
    case HYPERVISOR_DRIVE_LIMIT:
    case HYPERVISOR_DRIVE_RESIZE:
        change(http);
        return;
    case HYPERVISOR_DRIVE_LOOK:
        look(http);
        return;
    case HYPERVISOR_DRIVE_LIST:
        list(http);
        return;
    }
}

static void answered_list(struct drive_http *http, const struct http_exchange_answer *answer)
{
    struct error error;

    drive_report_done(&http->drives);
    drive_report_done(&http->leaving);
    if (!is_success(answer)) {
        (void)http->kind->read_refusal(answer->body, answer->length, &error);
        finish(http, HYPERVISOR_DRIVE_UNREACHABLE, &error);
    } else if (http->kind->read_list(http, answer->body, answer->length, &error) < 0) {
        finish(http, HYPERVISOR_DRIVE_UNREACHABLE, &error);
    } else {
        http->is_read = true;
        go_on(http);
    }
}

static void read_list(struct drive_http *http)
{
    http->is_read = false;
    ask(http, "GET", http->kind->list_target, NULL, answered_list);
}

static void answered_version(struct drive_http *http, const struct http_exchange_answer *answer)
{
    enum hypervisor_drive_outcome outcome = HYPERVISOR_DRIVE_UNREACHABLE;
    struct error error;

    if (is_success(answer))
        outcome = http->kind->read_version(answer->body, answer->length, &error);
    else
        (void)http->kind->read_refusal(answer->body, answer->length, &error);
    if (outcome == HYPERVISOR_DRIVE_DONE)
        read_list(http);
    else
        finish(http, outcome, &error);
}

/* ---- the call ---- */

int drive_http_start(struct drive_http *http, const struct drive_http_kind *kind)
{
    const struct hypervisor_drive_request *request = &http->call.request;

    http->kind = kind;
    http->failure = HYPERVISOR_DRIVE_DONE;
    http->until_ns = clock_boottime() + request->deadline_ns;
    if (request->drive_id)
        kind->encode_id(request->drive_id, http->id);
    if (request->act == HYPERVISOR_DRIVE_ATTACH || request->act == HYPERVISOR_DRIVE_RESIZE)
        return start_request(http, "GET", kind->version_target, NULL, answered_version);
    return start_request(http, "GET", kind->list_target, NULL, answered_list);
}

void drive_http_stop(struct hypervisor_drive_call *call)
{
    struct drive_http *http = container_of(call, struct drive_http, call);

    loop_timer_stop(&http->waiting);
    http->exchange = http_exchange_free(http->exchange);
    drive_report_done(&http->drives);
    drive_report_done(&http->leaving);
}

void drive_http_done(struct hypervisor_drive_call *call)
{
    free(container_of(call, struct drive_http, call)->entries);
}

/* ---- limits ---- */

static void append_bucket(struct buffer *body, const char *name,
                          const struct hypervisor_bucket *bucket, bool all)
{
    bool is_limit = bucket->size && bucket->refill_ms;

    if (!is_limit && !all)
        return;
    (void)json_append_name(body, name);
    (void)buffer_append_format(body, "{\"size\":%" PRIu64 ",\"refill_time\":%" PRIu64,
                               is_limit ? bucket->size : 0, is_limit ? bucket->refill_ms : 0);
    if (is_limit && bucket->one_time_burst)
        (void)buffer_append_format(body, ",\"one_time_burst\":%" PRIu64, bucket->one_time_burst);
    (void)buffer_append_text(body, "}");
}

void drive_http_append_limits(struct buffer *body, const char *name,
                              const struct hypervisor_limits *limits, bool all)
{
    (void)json_append_name(body, name);
    (void)buffer_append_text(body, "{");
    append_bucket(body, "bandwidth", &limits->bandwidth, all);
    append_bucket(body, "ops", &limits->operations, all);
    (void)buffer_append_text(body, "}");
}
