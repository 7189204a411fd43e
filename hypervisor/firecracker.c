/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker.c - two requests to a Firecracker.
 *
 *     GET /vm/config ─ find the drive ─▶ done (query, size unknown)
 *                            └─ PATCH /drives/ID with the path it has ─▶ done
 *
 * The PATCH makes Firecracker open the path again, inside its jail, use whatever it finds there as
 * the drive, and notify the guest of its size. So the path must be known to lead to the device,
 * because any other file would become the guest's disk. The PATCH may be repeated.
 *
 * With the Async engine, requests in flight would be dropped, so only Sync is supported.
 * Firecracker's documentation covers only drives that the guest has not mounted; therefore an
 * operator has to enable this (resize.firecracker, checked by hypervisor.c).
 */
#include "hypervisor/firecracker_report.h"
#include "hypervisor/vmm_http.h"
#include "lib/cleanup.h"
#include "lib/json.h"

#define CONFIGURATION "/vm/config"

enum { REQUEST_BYTES = 32 * 1024 };

static int encode_patch(const struct drive *drive, struct buffer *target, struct buffer *body)
{
    int r = buffer_append_format(target, "/drives/%s", drive->id);

    buffer_append_text(body, "{");
    json_append_member(body, "drive_id", drive->id);
    json_append_member(body, "path_on_host", drive->path);
    buffer_append_text(body, "}");
    return r < 0 ? r : buffer_error(body);
}

static void patch(struct vmm_http *vmm, const struct drive *drive)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(REQUEST_BYTES);
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(REQUEST_BYTES);
    int r = encode_patch(drive, &target, &body);

    if (r < 0)
        vmm_http_fail(vmm, r);
    else
        vmm_http_ask(vmm, "PATCH", buffer_text(&target), buffer_text(&body), vmm_http_resized);
}

static void received_config(struct vmm_http *vmm, const char *body, size_t length)
{
    struct error error;

    if (firecracker_read_config(body, length, &vmm->report, &error) < 0) {
        vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
        return;
    }
    vmm_http_find(vmm, CONFIGURATION, patch);
}

static int start(struct hypervisor_call *call)
{
    struct vmm_http *vmm = container_of(call, struct vmm_http, call);

    vmm->refusal = firecracker_refusal;
    return vmm_http_start(vmm, "GET", CONFIGURATION, NULL, received_config);
}

const struct hypervisor_ops hypervisor_firecracker_ops = {
    .size = sizeof(struct vmm_http),
    .start = start,
    .stop = vmm_http_stop,
};
