/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor.c - the requests to a Cloud Hypervisor.
 *
 *     GET vmm.ping ─ version ─ GET vm.info ─ find the drive ─▶ done (query: its address in the
 *                                                  │             guest, size unknown)
 *                                                  └─ PUT vm.resize-disk ─▶ done
 *
 * On a block device vm.resize-disk changes nothing: it compares the requested size with the
 * device's own and notifies the guest. So it may be repeated. It is also exact: if the device has
 * grown again meanwhile, the request is refused, and the volume is tried again by itself. On a
 * regular file it would truncate. So a drive is only resized if the device is a block device to
 * which the VMM's path leads, and which the VMM has open.
 *
 * The version is always requested first: before v52 the call truncates, and fails on devices.
 *
 * The kind of guest needs only vm.info, of any version.
 */
#include <inttypes.h>
#include <string.h>

#include "hypervisor/cloud_hypervisor_report.h"
#include "hypervisor/vmm_http.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

#define VM_INFO "/api/v1/vm.info"

enum { SECTOR_BYTES = 512, REQUEST_BYTES = 4096 };

/* desired_size is a u64, of whole sectors. */
static int encode_resize(const struct drive *drive, uint64_t bytes, struct buffer *body)
{
    buffer_append_text(body, "{");
    json_append_member(body, "id", drive->id);
    return buffer_append_format(body, ",\"desired_size\":%" PRIu64 "}", bytes);
}

static void resize(struct vmm_http *vmm, const struct drive *drive)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(REQUEST_BYTES);
    uint64_t bytes = vmm->call.request.bytes;
    struct error error;
    int r = encode_resize(drive, bytes, &body);

    if (!bytes || bytes % SECTOR_BYTES) {
        (void)error_set(&error, 0, "%" PRIu64 " bytes are no whole number of sectors", bytes);
        vmm_http_finish(vmm, HYPERVISOR_UNSUPPORTED, 0, &error);
    } else if (r < 0) {
        vmm_http_fail(vmm, r);
    } else {
        vmm_http_ask(vmm, "PUT", "/api/v1/vm.resize-disk", buffer_text(&body), vmm_http_resized);
    }
}

static void received_info(struct vmm_http *vmm, const char *body, size_t length)
{
    char state[CLOUD_HYPERVISOR_WORD_BYTES];
    struct error error;

    if (cloud_hypervisor_read_info(body, length, state, &vmm->report, &error) < 0) {
        vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
        return;
    }
    if (strcmp(state, "Running") != 0 && strcmp(state, "Paused") != 0) {
        (void)error_set(&error, 0, "the VM is not running: its state is %s", state);
        vmm_http_finish(vmm, HYPERVISOR_BUSY, 0, &error);
        return;
    }
    if (strcmp(state, "Paused") == 0)
        (void)error_set(&vmm->call.paused, 0, "the VM is paused");
    vmm_http_find(vmm, VM_INFO, resize);
}

static void received_description(struct vmm_http *vmm, const char *body, size_t length)
{
    struct error error;

    if (cloud_hypervisor_read_guest(body, length, &vmm->guest, &error) < 0)
        vmm_http_finish(vmm, HYPERVISOR_UNREACHABLE, 0, &error);
    else
        vmm_http_finish(vmm, HYPERVISOR_DONE, 0, NULL);
}

static void received_ping(struct vmm_http *vmm, const char *body, size_t length)
{
    char version[CLOUD_HYPERVISOR_WORD_BYTES];
    enum hypervisor_outcome outcome = HYPERVISOR_UNREACHABLE;
    struct error error;

    if (cloud_hypervisor_read_ping(body, length, version, &error) == 0) {
        text_clean(version, strlen(version), vmm->version, sizeof(vmm->version));
        outcome = cloud_hypervisor_check_version(version, &error);
    }
    if (outcome == HYPERVISOR_VERSION && vmm->call.request.act == HYPERVISOR_QUERY) {
        vmm->resize = outcome;
        outcome = HYPERVISOR_DONE; /* its drives can be read nevertheless */
    }
    if (outcome == HYPERVISOR_DONE)
        vmm_http_ask(vmm, "GET", VM_INFO, NULL, received_info);
    else
        vmm_http_finish(vmm, outcome, 0, &error);
}

static int start(struct hypervisor_call *call)
{
    struct vmm_http *vmm = container_of(call, struct vmm_http, call);

    vmm->refusal = cloud_hypervisor_refusal;
    if (call->request.act == HYPERVISOR_DESCRIBE)
        return vmm_http_start(vmm, "GET", VM_INFO, NULL, received_description);
    return vmm_http_start(vmm, "GET", "/api/v1/vmm.ping", NULL, received_ping);
}

const struct hypervisor_ops hypervisor_cloud_hypervisor_ops = {
    .size = sizeof(struct vmm_http),
    .start = start,
    .stop = vmm_http_stop,
};
