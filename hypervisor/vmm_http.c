/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http.c - acts on a VMM that is asked over HTTP.
 *
 *     [version], list, then
 *       QUERY, LIST     nothing more
 *       LIMIT, RESIZE   one request
 *       ATTACH          add, list: is it ours, and does the VMM have the disk open?
 *       DETACH          remove, list, until it is gone; the same for an ATTACH that failed
 *
 * The list that is read after a change decides, not the answer to the change. The path is compared
 * twice: before the VMM is asked to open it, because it would open whatever is there, and
 * afterwards, together with what the VMM has open.
 *
 * Neither VMM reports the size of a drive. A query can only find out that the drive exists; after
 * an acknowledged resize the drive has the size of the device.
 */
#include "hypervisor/vmm_http.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/json.h"
#include "lib/text.h"
#include "lib/workers.h"

enum { STATUS_MISSING = 404, STATUS_FULL = 503, REQUEST_BYTES = 32 * 1024 };

static const long pause_min_ns = 10 * NSEC_PER_MSEC, pause_max_ns = 500 * NSEC_PER_MSEC;

static const char prefix[] = VMM_HTTP_PREFIX;
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

static const struct drive *find_drive(const struct vmm_http *http)
{
    return drive_report_get(&http->drives, http->id);
}

/* The guest has the drive's device, and the VMM has forgotten the drive. */
static bool is_leaving(const struct vmm_http *http)
{
    return !find_drive(http) && drive_report_get(&http->leaving, http->id);
}

enum hypervisor_outcome vmm_http_fail(const struct vmm_http *http, enum hypervisor_outcome outcome,
                                      const char *text)
{
    (void)error_set(&http->reply->error, 0, "%s", text);
    return outcome;
}

void vmm_http_say_refusal(const char *fault, const char *body, size_t length, struct error *error)
{
    char text[ERROR_TEXT_BYTES];

    text_clean(fault ? fault : body, fault ? strlen(fault) : length, text, sizeof(text));
    (void)error_set(error, 0, "%s", text[0] ? text : "refused without a word");
}

/* ---- a drive's id in the VMM ---- */

static void encode_id(const struct vmm_http_kind *kind, const char *drive_id,
                      char ret_id[static DRIVE_ID_BYTES])
{
    char *at = stpcpy(ret_id, prefix);

    for (; *drive_id; drive_id++)
        if (kind->has_plain_ids && (*drive_id == '-' || *drive_id == '_'))
            at = stpcpy(at, *drive_id == '-' ? "_m" : "_u");
        else
            *at++ = *drive_id;
    *at = '\0';
}

/* false: crustd did not give it. */
static bool decode_id(const struct vmm_http_kind *kind, const char *id,
                      char ret_drive_id[static HYPERVISOR_DRIVE_ID_BYTES])
{
    size_t length = 0;

    if (strncmp(id, prefix, strlen(prefix)) != 0)
        return false;
    for (id += strlen(prefix); *id && length < HYPERVISOR_DRIVE_ID_BYTES - 1; id++) {
        char letter = *id;

        if (kind->has_plain_ids && letter == '_') {
            id++;
            letter = *id == 'm' ? '-' : *id == 'u' ? '_' : '\0';
        }
        if (!letter || !strchr(letters, letter))
            return false;
        ret_drive_id[length++] = letter;
    }
    ret_drive_id[length] = '\0';
    return length > 0 && !*id;
}

/* ---- requests ---- */

/* Nothing of the drive can be done as long as the VMM does not answer. */
static bool is_without_answer(enum hypervisor_outcome outcome)
{
    return outcome == HYPERVISOR_MONITOR_MISSING || outcome == HYPERVISOR_BUSY ||
           outcome == HYPERVISOR_UNREACHABLE;
}

/* Sends a request; `body` is JSON, NULL: there is none. DONE: the answer is a success. Otherwise
 * MONITOR_MISSING, BUSY, UNREACHABLE, or what `refusal` says. */
static enum hypervisor_outcome send_request(struct vmm_http *http, const char *method,
                                            const char *target, const char *body)
{
    const struct http_exchange_request request = {
        .directory = http->request->root,
        .socket_path = http->request->control_socket,
        .listener = {.vmm = http->request->vmm_pid, .sandbox_id = http->request->sandbox_id},
        .method = method,
        .target = target,
        .body = body,
        .body_limit = JSON_LIMITS_VMM_HTTP.bytes,
    };
    struct error *error = &http->reply->error;
    enum http_exchange_end end;

    http->status = 0;
    end = http_exchange_perform(&request, http->deadline_ns, &http->status, &http->answer, error);
    if (end != HTTP_EXCHANGE_ANSWERED) {
        (void)error_prefix(error, "the control socket: ");
        return end == HTTP_EXCHANGE_NO_SOCKET ? HYPERVISOR_MONITOR_MISSING : HYPERVISOR_UNREACHABLE;
    }
    if (http->status / 100 == 2)
        return HYPERVISOR_DONE;
    if (http->status == STATUS_FULL)
        return vmm_http_fail(http, HYPERVISOR_BUSY,
                             "other clients hold all of the control socket's connections");
    return http->kind->refusal(buffer_text(&http->answer), http->answer.length, error);
}

static enum hypervisor_outcome request_change(struct vmm_http *http, enum vmm_http_change change)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(REQUEST_BYTES);
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(REQUEST_BYTES);
    const char *method = http->kind->encode(http, change, find_drive(http), &target, &body);
    enum hypervisor_outcome outcome;
    int r = buffer_fail(&body, buffer_error(&target));

    if (!method)
        return HYPERVISOR_UNSUPPORTED;
    if (r < 0) {
        (void)error_set_errno(&http->reply->error, r, "cannot ask the VMM");
        return HYPERVISOR_UNREACHABLE;
    }
    job_await_go();
    outcome =
        send_request(http, method, buffer_text(&target), body.length ? buffer_text(&body) : NULL);
    http->is_read &= http->status != 0; /* without an answer it may have been done */
    return outcome;
}

/* A question about crustd's drives that is refused leaves everything unknown. */
static enum hypervisor_outcome ask(struct vmm_http *http, const char *target)
{
    enum hypervisor_outcome outcome = send_request(http, "GET", target, NULL);

    return http->is_own && outcome != HYPERVISOR_DONE && !is_without_answer(outcome)
               ? HYPERVISOR_UNREACHABLE
               : outcome;
}

/* Drives of any version can be read, so a query only foresees that they cannot be resized. */
static enum hypervisor_outcome check_version(struct vmm_http *http)
{
    enum hypervisor_outcome outcome = ask(http, http->kind->version_target);

    if (outcome == HYPERVISOR_DONE)
        outcome = http->kind->read_version(http);
    if (outcome != HYPERVISOR_VERSION || http->request->act != HYPERVISOR_QUERY)
        return outcome;
    http->reply->resize = outcome;
    return HYPERVISOR_DONE;
}

static enum hypervisor_outcome read_list(struct vmm_http *http)
{
    enum hypervisor_outcome outcome;

    drive_report_done(&http->drives);
    drive_report_done(&http->leaving);
    outcome = ask(http, http->kind->list_target);
    if (outcome == HYPERVISOR_DONE) {
        outcome = http->kind->read_list(http);
        if (http->is_own && outcome != HYPERVISOR_DONE)
            outcome = HYPERVISOR_UNREACHABLE;
    }
    http->is_read = outcome == HYPERVISOR_DONE;
    return outcome;
}

/* ---- a drive that the runtime attached ---- */

/* Finds the drive as the VMM's process sees it, and fills in the reply what the list of drives says
 * about it. DONE: the act may be done to it. */
static enum hypervisor_outcome find_device(struct vmm_http *http)
{
    struct hypervisor_reply *reply = http->reply;
    const struct drive *drive = NULL;
    cleanup(vmm_process_done) struct vmm_process process;
    enum hypervisor_outcome outcome;

    if (vmm_process_init(&process, http->request->vmm_pid, &reply->error) < 0)
        return HYPERVISOR_UNREACHABLE;
    outcome = drive_report_find(&http->drives, http->request, &process, &drive, &reply->error);
    reply->list = vmm_process_judge(&process, http->request, drive, &outcome, &reply->error);
    if (drive && reply->list == HYPERVISOR_LIST_HAS) {
        strcpy(http->id, drive->id);
        text_clean(drive->id, strlen(drive->id), reply->drive_id, sizeof(reply->drive_id));
        memcpy(reply->address, drive->address, sizeof(drive->address));
        /* A query also finds what cannot be resized, drives and VMMs. */
        if (http->request->act == HYPERVISOR_QUERY && reply->resize == HYPERVISOR_DONE)
            reply->resize = drive_report_judge(drive, http->request, HYPERVISOR_RESIZE, NULL);
    }
    return outcome;
}

static enum hypervisor_outcome act_on_device(struct vmm_http *http)
{
    enum hypervisor_outcome outcome = find_device(http);

    if (outcome == HYPERVISOR_DONE && http->request->act == HYPERVISOR_RESIZE) {
        outcome = request_change(http, VMM_HTTP_RESIZE);
        http->reply->bytes = outcome == HYPERVISOR_DONE ? http->request->bytes : 0;
    }
    return outcome == HYPERVISOR_DONE && http->is_paused
               ? vmm_http_fail(http, HYPERVISOR_PAUSED, "the VM is paused")
               : outcome;
}

/* ---- what the VMM's process sees ---- */

/* Whether the path leads to the disk, as the VMM sees it: DONE, or CONFLICT. UNREACHABLE: the
 * process cannot be examined. */
static enum hypervisor_outcome follow(struct vmm_http *http, const char *path)
{
    enum hypervisor_outcome outcome = HYPERVISOR_UNREACHABLE;
    cleanup(vmm_process_done) struct vmm_process process;
    struct hypervisor_disk found;

    if (vmm_process_init(&process, http->request->vmm_pid, NULL) == 0 &&
        vmm_process_path(&process, path, &found) == 0)
        outcome =
            vmm_disk_equal(&found, &http->request->disk) ? HYPERVISOR_DONE : HYPERVISOR_CONFLICT;
    else if (process.root >= 0 && !process.shortage)
        outcome = HYPERVISOR_CONFLICT;
    return outcome == HYPERVISOR_UNREACHABLE
               ? vmm_http_fail(http, outcome, "which disk the VMM has opened cannot be told now")
               : outcome;
}

/* The same for the path of a drive that the VMM has. */
static enum hypervisor_outcome follow_drive(struct vmm_http *http, const struct drive *drive)
{
    enum hypervisor_outcome outcome = follow(http, drive->path);

    if (outcome == HYPERVISOR_UNREACHABLE ||
        (outcome == HYPERVISOR_DONE &&
         hypervisor_may_hold(http->request->vmm_pid, &http->request->disk)))
        return outcome;
    return vmm_http_fail(http, HYPERVISOR_CONFLICT,
                         "the VMM has another disk under this drive's id");
}

/* For a VMM that makes serials: whether the drive's is known, and is `wanted` (NULL: any). */
static bool has_serial(const struct vmm_http *http, const struct drive *drive, const char *wanted)
{
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES];

    return !http->kind->make_serial || (http->kind->make_serial(http, drive, serial) &&
                                        (!wanted || strcmp(serial, wanted) == 0));
}

/* ---- detach ---- */

/* Begins with a list that has been read. */
static enum hypervisor_outcome detach(struct vmm_http *http)
{
    const struct hypervisor_request *request = http->request;
    struct timespec pause = {.tv_nsec = pause_min_ns};
    uint64_t since_ns = 0;
    enum hypervisor_outcome outcome;
    bool is_told = false;

    do {
        const char *obstacle = NULL;

        if (find_drive(http) && !is_told) {
            is_told = true;
            outcome = request_change(http, VMM_HTTP_REMOVE);
            if (outcome != HYPERVISOR_DONE && http->status != STATUS_MISSING)
                return outcome;
            continue;
        }
        if (find_drive(http) || is_leaving(http))
            obstacle = "the guest has not let go of the device";
        else if (request->disk.device && hypervisor_may_hold(request->vmm_pid, &request->disk))
            obstacle = "the VMM has not closed the disk";
        else
            return HYPERVISOR_DONE;
        if (!since_ns)
            since_ns = clock_boottime();
        if (clock_boottime() - since_ns >= request->removal_ns)
            return vmm_http_fail(http, HYPERVISOR_PENDING, obstacle);
        (void)nanosleep(&pause, NULL);
        pause.tv_nsec = 2 * pause.tv_nsec < pause_max_ns ? 2 * pause.tv_nsec : pause_max_ns;
    } while ((outcome = read_list(http)) == HYPERVISOR_DONE);
    return outcome;
}

/* ---- attach ---- */

/* Removes what there is of a failed attach, whose reason is the outcome as long as the VMM
 * answers. */
static enum hypervisor_outcome take_back(struct vmm_http *http, enum hypervisor_outcome failure)
{
    const struct error reason = http->reply->error;
    enum hypervisor_outcome outcome = detach(http);

    if (is_without_answer(outcome))
        return outcome;
    http->reply->error = reason;
    return failure;
}

static enum hypervisor_outcome add(struct vmm_http *http)
{
    const struct hypervisor_request *request = http->request;
    enum hypervisor_outcome outcome, listed;
    struct error reason;

    if (request->descriptor < 0)
        return vmm_http_fail(http, HYPERVISOR_NEEDS_DESCRIPTOR,
                             "the VMM does not have the disk: it has to be opened");
    outcome = follow(http, request->path);
    if (outcome == HYPERVISOR_CONFLICT) {
        (void)error_set(&http->reply->error, 0,
                        "%s does not lead to the disk as the VMM sees it: in another mount "
                        "namespace or a jail the disk needs a name of its own",
                        request->path);
        return HYPERVISOR_REFUSED;
    }
    if (outcome == HYPERVISOR_DONE)
        outcome = request_change(http, VMM_HTTP_ADD);
    if (is_without_answer(outcome))
        return outcome;
    reason = http->reply->error;
    listed = read_list(http);
    if (listed != HYPERVISOR_DONE || outcome == HYPERVISOR_DONE)
        return listed;
    http->reply->error = reason;
    return take_back(http, outcome);
}

/* Whether what the VMM has under the drive's id is what is asked for: DONE, CONFLICT, or
 * UNREACHABLE if that cannot be told. */
static enum hypervisor_outcome compare(struct vmm_http *http, const struct drive *drive)
{
    const struct hypervisor_request *request = http->request;
    enum hypervisor_outcome outcome;

    if (drive->read_only != request->read_only)
        return vmm_http_fail(http, HYPERVISOR_CONFLICT,
                             drive->read_only ? "the VMM has this drive as a read-only one"
                                              : "the VMM has this drive as a writable one");
    if (drive->serial[0] && strcmp(drive->serial, request->serial) != 0)
        return vmm_http_fail(http, HYPERVISOR_CONFLICT,
                             "the VMM has this drive with another serial");
    outcome = follow_drive(http, drive);
    if (outcome == HYPERVISOR_DONE && !has_serial(http, drive, NULL))
        outcome = vmm_http_fail(http, HYPERVISOR_CONFLICT,
                                "the serial that the guest sees is not known: what the drive's "
                                "path led to was replaced after the VMM had opened it");
    return outcome;
}

static void describe(const struct vmm_http *http, const struct drive *drive)
{
    struct hypervisor_reply *reply = http->reply;

    memcpy(reply->address, drive->address, sizeof(drive->address));
    if (http->kind->make_serial)
        (void)http->kind->make_serial(http, drive, reply->serial);
    else if (strlen(drive->serial) < sizeof(reply->serial))
        strcpy(reply->serial, drive->serial);
}

static enum hypervisor_outcome attach(struct vmm_http *http)
{
    bool is_new = !find_drive(http);
    enum hypervisor_outcome outcome = is_new && !is_leaving(http) ? add(http) : HYPERVISOR_DONE;
    const struct drive *drive = find_drive(http);

    if (outcome != HYPERVISOR_DONE)
        return outcome;
    if (is_leaving(http))
        return vmm_http_fail(http, HYPERVISOR_PENDING,
                             "the guest has not let go of this drive since it was detached");
    outcome = drive ? compare(http, drive)
                    : vmm_http_fail(http, HYPERVISOR_CONFLICT,
                                    "the VMM accepted the drive, and does not list it");
    if (outcome == HYPERVISOR_DONE)
        describe(http, drive);
    else if (is_new)
        outcome = take_back(http, outcome == HYPERVISOR_CONFLICT ? HYPERVISOR_REFUSED : outcome);
    return outcome;
}

/* ---- the other acts on crustd's drives ---- */

/* RESIZE and LIMIT. */
static enum hypervisor_outcome adjust(struct vmm_http *http)
{
    const struct drive *drive = find_drive(http);
    enum hypervisor_outcome outcome;

    if (!drive)
        return vmm_http_fail(http, HYPERVISOR_NOT_ATTACHED, "the VMM does not have this drive");
    if (http->request->act == HYPERVISOR_LIMIT)
        return request_change(http, VMM_HTTP_LIMIT);
    outcome = follow_drive(http, drive);
    if (outcome == HYPERVISOR_DONE && !has_serial(http, drive, http->request->serial))
        outcome = vmm_http_fail(http, HYPERVISOR_CONFLICT,
                                "what the drive's path led to was replaced: opened anew, the disk "
                                "would get another serial");
    if (outcome == HYPERVISOR_DONE)
        outcome = request_change(http, VMM_HTTP_RESIZE);
    if (outcome == HYPERVISOR_DONE)
        http->reply->bytes = http->request->bytes;
    return outcome;
}

static enum hypervisor_outcome list(struct vmm_http *http)
{
    const size_t most = http->drives.count + http->leaving.count;
    struct hypervisor_drive_entry *entries = calloc(most + 1, sizeof(*entries)), *entry = entries;
    cleanup(vmm_process_done) struct vmm_process process;
    const bool is_open = vmm_process_init(&process, http->request->vmm_pid, NULL) == 0;

    if (!entries) {
        (void)error_set_errno(&http->reply->error, -ENOMEM, "cannot ask the VMM");
        return HYPERVISOR_UNREACHABLE;
    }
    for (size_t i = 0; i < most; i++) {
        bool is_listed = i < http->drives.count;
        const struct drive *drive =
            is_listed ? &http->drives.entries[i] : &http->leaving.entries[i - http->drives.count];

        if (!decode_id(http->kind, drive->id, entry->drive_id) ||
            (!is_listed && drive_report_get(&http->drives, drive->id)))
            continue;
        entry->state = HYPERVISOR_DRIVE_PRESENT;
        entry->identified = is_open && is_listed &&
                            vmm_process_path(&process, drive->path, &entry->disk) == 0 &&
                            vmm_process_holds(&process, &entry->disk) != VMM_HOLDS_NOT;
        if (http->kind->make_serial)
            (void)http->kind->make_serial(http, drive, entry->serial);
        entry++;
    }
    http->reply->entries = entries;
    http->reply->entry_count = (size_t)(entry - entries);
    return HYPERVISOR_DONE;
}

/* ---- the act ---- */

static enum hypervisor_outcome act(struct vmm_http *http)
{
    enum hypervisor_act wanted = http->request->act;
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;

    if (wanted == HYPERVISOR_DESCRIBE && http->kind->read_guest) {
        outcome = ask(http, http->kind->list_target);
        return outcome == HYPERVISOR_DONE ? http->kind->read_guest(http) : outcome;
    }
    if (http->is_own ? wanted == HYPERVISOR_ATTACH || wanted == HYPERVISOR_RESIZE
                     : http->kind->resizes_by_version)
        outcome = check_version(http);
    if (outcome == HYPERVISOR_DONE)
        outcome = read_list(http);
    if (outcome != HYPERVISOR_DONE)
        return outcome;
    if (!http->is_own)
        return act_on_device(http);
    if (wanted == HYPERVISOR_ATTACH)
        return attach(http);
    if (wanted == HYPERVISOR_DETACH)
        return detach(http);
    if (wanted == HYPERVISOR_LIMIT || wanted == HYPERVISOR_RESIZE)
        return adjust(http);
    if (wanted == HYPERVISOR_LIST)
        return list(http);
    if (find_drive(http))
        describe(http, find_drive(http));
    return HYPERVISOR_DONE;
}

void vmm_http_act(const struct vmm_http_kind *kind, const struct hypervisor_request *request,
                  uint64_t deadline_ns, struct hypervisor_reply *reply)
{
    struct vmm_http http = {
        .kind = kind,
        .request = request,
        .reply = reply,
        .deadline_ns = deadline_ns,
        .is_own = request->drive_id || request->act == HYPERVISOR_LIST,
    };

    if (request->drive_id)
        encode_id(kind, request->drive_id, http.id);
    reply->outcome = act(&http);
    if (http.is_own && http.is_read)
        reply->state = find_drive(&http) || is_leaving(&http) ? HYPERVISOR_DRIVE_PRESENT
                                                              : HYPERVISOR_DRIVE_ABSENT;
    if (reply->outcome == HYPERVISOR_DONE)
        reply->error = (struct error){.code = 0};
    buffer_done(&http.answer);
    drive_report_done(&http.drives);
    drive_report_done(&http.leaving);
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

void vmm_http_append_limits(struct buffer *body, const char *name,
                            const struct hypervisor_limits *limits, bool all)
{
    (void)json_append_name(body, name);
    (void)buffer_append_text(body, "{");
    append_bucket(body, "bandwidth", &limits->bandwidth, all);
    append_bucket(body, "ops", &limits->operations, all);
    (void)buffer_append_text(body, "}");
}
