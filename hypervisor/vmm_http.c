/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http.c - one request after another, and every way in which they can end.
 *
 * The exchange that has just been answered owns the body, so it is freed after its answer has been
 * handled. By then the call itself may have been freed, so the exchange is kept in a local
 * variable.
 *
 * Neither VMM reports the size of a drive. A query can only find out that the drive exists; after
 * an acknowledged resize the drive has the size of the device.
 */
#include "hypervisor/vmm_http.h"

#include <string.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/text.h"

enum { STATUS_FULL = 503 };

static void on_done(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                    void *userdata);

int vmm_http_start(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                   vmm_http_answered *answered)
{
    uint64_t now_ns = clock_boottime();
    struct http_exchange_request request = {
        .directory = vmm->call.request.root,
        .socket_path = vmm->call.request.control_socket,
        .listener = {.vmm = vmm->call.request.vmm_pid, .sandbox_id = vmm->call.request.sandbox_id},
        .method = method,
        .target = target,
        .body = body,
        .body_limit = JSON_LIMITS_VMM_HTTP.bytes,
    };

    if (!vmm->until_ns)
        vmm->until_ns = now_ns + vmm->call.request.deadline_ns;
    request.deadline_ns = vmm->until_ns > now_ns ? vmm->until_ns - now_ns : 0;
    vmm->answered = answered;
    return http_exchange_new(vmm->call.loop, &request, on_done, vmm, &vmm->exchange);
}

void vmm_http_ask(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                  vmm_http_answered *answered)
{
    int r = vmm_http_start(vmm, method, target, body, answered);

    if (r < 0)
        vmm_http_fail(vmm, r);
}

void vmm_http_fail(struct vmm_http *vmm, int code)
{
    struct error error;

    (void)error_set_errno(&error, code, "cannot ask the VMM");
    vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
}

void vmm_http_finish(struct vmm_http *vmm, enum hypervisor_outcome outcome, uint64_t bytes,
                     const struct error *error)
{
    struct hypervisor_reply reply = {
        .outcome = outcome,
        .bytes = bytes,
        .list = vmm->list,
        .resize = vmm->resize,
        .guest = vmm->guest,
    };

    memcpy(reply.version, vmm->version, sizeof(reply.version));
    text_clean(vmm->drive, strlen(vmm->drive), reply.drive_id, sizeof(reply.drive_id));
    memcpy(reply.address, vmm->address, sizeof(vmm->address));
    if (outcome != HYPERVISOR_DONE)
        reply.error = *error;
    hypervisor_call_complete(&vmm->call, &reply);
}

void vmm_http_resized(struct vmm_http *vmm, const char *body, size_t length)
{
    (void)body;
    (void)length;
    vmm_http_finish(vmm, HYPERVISOR_DONE, vmm->call.request.bytes, NULL);
}

static enum hypervisor_outcome outcome_of(const struct vmm_http *vmm,
                                          const struct http_exchange_answer *answer,
                                          struct error *error)
{
    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        (void)error_set(error, 0, "the control socket: %s", answer->error.text);
        return answer->end == HTTP_EXCHANGE_NO_SOCKET ? HYPERVISOR_MONITOR_MISSING
                                                      : HYPERVISOR_UNREACHABLE;
    }
    if (answer->status / 100 == 2)
        return HYPERVISOR_DONE;
    if (answer->status == STATUS_FULL) {
        (void)error_set(error, 0, "other clients hold all of the control socket's connections");
        return HYPERVISOR_BUSY;
    }
    return vmm->refusal(answer->body, answer->length, error);
}

static void on_done(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                    void *userdata)
{
    struct vmm_http *vmm = userdata;
    enum hypervisor_outcome outcome;
    struct error error;

    vmm->exchange = NULL;
    outcome = outcome_of(vmm, answer, &error);
    if (outcome == HYPERVISOR_DONE)
        vmm->answered(vmm, answer->body, answer->length);
    else
        vmm_http_finish(vmm, outcome, 0, &error);
    (void)http_exchange_free(exchange);
}

/* A query also finds drives that cannot be resized, and VMMs that cannot resize any. */
static enum hypervisor_outcome foresee_resize(const struct vmm_http *vmm,
                                              struct vmm_resolver *resolver)
{
    struct vmm_wanted wanted = vmm_wanted_of(&vmm->call.request);
    const struct drive *drive = NULL;
    enum hypervisor_outcome outcome;
    struct error error;

    if (vmm->resize != HYPERVISOR_DONE)
        return vmm->resize;
    wanted.act = HYPERVISOR_RESIZE;
    outcome = drive_report_find(&vmm->report, &wanted, resolver, &drive, &error);
    return resolver->exhausted ? HYPERVISOR_UNREACHABLE : outcome;
}

static void note_drive(struct vmm_http *vmm, const struct drive *drive)
{
    memcpy(vmm->drive, drive->id, sizeof(vmm->drive));
    memcpy(vmm->address, drive->address, sizeof(vmm->address));
}

/* The one that was found earlier is looked for first. */
static struct vmm_wanted wanted_of(const struct vmm_http *vmm)
{
    struct vmm_wanted wanted = vmm_wanted_of(&vmm->call.request);

    if (vmm->is_last)
        wanted.recorded_drive = vmm->drive;
    return wanted;
}

/* Looks for the drive in the time that it has; *ret_again: that was not enough. NULL: there is no
 * such drive, or it cannot be used, for the reason in `error`. */
static const struct drive *look_for(struct vmm_http *vmm, struct vmm_process *process,
                                    enum hypervisor_outcome *ret_outcome, bool *ret_again,
                                    struct error *error)
{
    const struct vmm_wanted wanted = wanted_of(vmm);
    enum hypervisor_outcome resize = vmm->resize;
    const struct drive *drive = NULL;

    vmm_process_use_memory(process, &vmm->memory);
    *ret_outcome = drive_report_find(&vmm->report, &wanted, &process->resolver, &drive, error);
    vmm->list = vmm_search_list(&process->resolver, &wanted, drive, ret_outcome, error);
    if (vmm->list != HYPERVISOR_LIST_HAS)
        drive = NULL;
    if (drive && vmm->call.request.act == HYPERVISOR_QUERY)
        resize = foresee_resize(vmm, &process->resolver);
    *ret_again = vmm_process_is_to_go_on(process) && !vmm->is_last;
    if (!*ret_again)
        vmm->resize = resize;
    return drive;
}

/* The report, and what was examined because of it, may be as old as the call. */
static void read_anew(struct vmm_http *vmm)
{
    drive_report_done(&vmm->report);
    vmm_memory_done(&vmm->memory);
    vmm->is_long = false;
    vmm->is_last = true;
    vmm_http_ask(vmm, "GET", vmm->listing, NULL, vmm->answered);
}

static void conclude(struct vmm_http *vmm, enum hypervisor_outcome outcome,
                     const struct drive *drive, struct error *error)
{
    if (outcome == HYPERVISOR_MISMATCH && vmm->is_last) {
        (void)error_prefix(error, "the VMM's drives have changed while they were examined: ");
        outcome = HYPERVISOR_UNREACHABLE;
    }
    if (drive)
        note_drive(vmm, drive);
    if (outcome != HYPERVISOR_DONE || vmm->call.request.act != HYPERVISOR_RESIZE)
        vmm_http_finish(vmm, outcome, 0, error);
    else if (vmm->is_long)
        read_anew(vmm);
    else
        vmm->found(vmm, drive);
}

static void on_again(struct loop_timer *timer);

static void search(struct vmm_http *vmm)
{
    enum hypervisor_outcome outcome;
    const struct drive *drive;
    struct vmm_process process;
    struct error error;
    bool again;

    if (vmm_process_init(&process, vmm->call.request.vmm_pid, &error) < 0) {
        vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
        return;
    }
    drive = look_for(vmm, &process, &outcome, &again, &error);
    vmm_process_done(&process);
    if (!again) {
        conclude(vmm, outcome, drive, &error);
        return;
    }
    vmm->is_long = true;
    loop_timer_start(vmm->call.loop, &vmm->again, VMM_SEARCH_PAUSE_NS, on_again);
}

static void search_in_time(struct vmm_http *vmm)
{
    struct error error;

    if (clock_boottime() >= vmm->until_ns) {
        (void)vmm_resolver_refuse(&error);
        vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
    } else if (vmm_search_may_begin(vmm->call.loop)) {
        search(vmm);
    } else {
        loop_timer_start(vmm->call.loop, &vmm->again, 0, on_again);
    }
}

static void on_again(struct loop_timer *timer)
{
    search_in_time(container_of(timer, struct vmm_http, again));
}

void vmm_http_find(struct vmm_http *vmm, const char *listing, vmm_http_found *found)
{
    vmm->listing = listing;
    vmm->found = found;
    search_in_time(vmm);
}

void vmm_http_stop(struct hypervisor_call *call)
{
    struct vmm_http *vmm = container_of(call, struct vmm_http, call);

    loop_timer_stop(&vmm->again);
    vmm->exchange = http_exchange_free(vmm->exchange);
    vmm_memory_done(&vmm->memory);
    drive_report_done(&vmm->report);
}
