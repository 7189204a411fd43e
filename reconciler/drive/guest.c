/* SPDX-License-Identifier: Apache-2.0 */
/* guest.c - see guest.h.
 *
 * drive_guest_finish() is the last thing that touches a call: its owner may free it there. What is
 * known before drive_guest_call_new() has returned is reported from the loop.
 */
#include "reconciler/drive/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "reconciler/drive/guest_state.h"

uint64_t drive_guest_time(const struct drive_guest_call *call)
{
    uint64_t now = clock_boottime();

    return call->ends_at > now ? call->ends_at - now : 1;
}

void drive_guest_finish(struct drive_guest_call *call)
{
    struct drive_guest_reply reply = call->reply;

    call->done(call, &reply, call->userdata);
}

void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text)
{
    call->reply.status = status;
    (void)error_set(&call->reply.error, (int)status, "%s", text);
    drive_guest_finish(call);
}

static void on_deferred(struct loop_timer *timer)
{
    drive_guest_finish(container_of(timer, struct drive_guest_call, deferred));
}

void drive_guest_fail_later(struct drive_guest_call *call, enum status_code status,
                            const char *text)
{
    call->reply.status = status;
    (void)error_set(&call->reply.error, (int)status, "%s", text);
    loop_timer_start(call->context->loop, &call->deferred, 0, on_deferred);
}

int drive_guest_options(const struct store_drive_mount *drive,
                        char options[static DRIVE_OPTIONS][DRIVE_OPTION_BYTES], size_t *ret_count)
{
    const char *text = drive->request.options ? drive->request.options : "[]";
    cleanup(json_deletep) cJSON *array = NULL;
    const cJSON *item;
    size_t count = 0;
    int r = json_parse(text, strlen(text), JSON_LIMITS_HTTP, &array, NULL);

    if (r < 0)
        return r;
    cJSON_ArrayForEach(item, array)
    {
        const char *option = cJSON_GetStringValue(item);

        if (!option || count == DRIVE_OPTIONS || strlen(option) >= DRIVE_OPTION_BYTES)
            return -EBADMSG;
        (void)strcpy(options[count++], option);
    }
    *ret_count = count;
    return 0;
}

/* ---- life ---- */

static int copy_drive(struct drive_guest_call *call, const struct store_drive_mount *drive)
{
    const char *options = drive->request.options;

    call->drive = *drive;
    call->drive.request.options = options ? strdup(options) : NULL;
    return options && !call->drive.request.options ? -ENOMEM : 0;
}

static void begin(struct drive_guest_call *call)
{
    int r = store_get_helper_sandbox(call->context->store, call->drive.sandbox_ref, &call->sandbox);

    if (r < 0)
        drive_guest_fail_later(call, STATUS_UNAVAILABLE, "the sandbox's record cannot be read");
    else if (!call->sandbox.sandbox_ref || !call->sandbox.is_alive)
        drive_guest_fail_later(call, STATUS_UNAVAILABLE, "the sandbox has ended");
    else if (!call->sandbox.agent_address[0])
        drive_guest_fail_later(call, STATUS_UNAVAILABLE,
                               "nothing says yet where the guest's agent listens");
    else
        drive_guest_ask_companion(call);
}

int drive_guest_call_new(const struct context *context, const struct drive_guest_request *request,
                         drive_guest_done *done, void *userdata, struct drive_guest_call **ret_call)
{
    struct drive_guest_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->context = context;
    call->act = request->act;
    call->scsi_id = request->scsi_id;
    call->lun = request->lun;
    call->bytes = request->bytes;
    call->ends_at = clock_boottime() + request->deadline_ns;
    call->done = done;
    call->userdata = userdata;
    if (copy_drive(call, request->drive) < 0) {
        (void)drive_guest_call_free(call);
        return -ENOMEM;
    }
    begin(call);
    *ret_call = call;
    return 0;
}

struct drive_guest_call *drive_guest_call_free(struct drive_guest_call *call)
{
    if (!call)
        return NULL;
    loop_timer_stop(&call->deferred);
    drive_guest_drop_companion(call);
    store_drive_mount_done(&call->drive);
    free(call);
    return NULL;
}
