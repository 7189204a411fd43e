/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_hotplug.c - drives of a Cloud Hypervisor.
 *
 *     GET vmm.ping, GET vm.info
 *     PUT vm.add-disk       the path, an id of ours, the serial; the format is always raw, because
 *                           a guest can write the header of another one
 *     PUT vm.remove-device  is answered at once, and takes the disk from vm.info's configuration;
 *                           the guest lets go of it later, and then the tree of devices loses it
 *     PUT vm.resize-disk    of a block device: the size must be the device's own (since v52)
 *
 * Limits are a part of vm.add-disk and cannot be changed afterwards.
 * (Cloud Hypervisor: vmm/src/api/openapi/cloud-hypervisor.yaml, vmm/src/device_manager.rs)
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/cloud_hypervisor_report.h"
#include "hypervisor/drive_http.h"
#include "lib/cleanup.h"
#include "lib/json.h"

static void encode_id(const char *drive_id, char ret_id[static DRIVE_ID_BYTES])
{
    (void)snprintf(ret_id, DRIVE_ID_BYTES, DRIVE_HTTP_PREFIX "%s", drive_id);
}

/* Cloud Hypervisor takes any text for an id. */
static bool decode_id(const char *id, char ret_drive_id[static HYPERVISOR_DRIVE_ID_BYTES])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t prefix = strlen(DRIVE_HTTP_PREFIX), length = strlen(id);

    if (strncmp(id, DRIVE_HTTP_PREFIX, prefix) != 0 || length == prefix ||
        length - prefix >= HYPERVISOR_DRIVE_ID_BYTES || strspn(id, letters) != length)
        return false;
    memcpy(ret_drive_id, id + prefix, length - prefix + 1);
    return true;
}

static enum hypervisor_drive_outcome read_version(const char *body, size_t length,
                                                  struct error *error)
{
    char version[CLOUD_HYPERVISOR_WORD_BYTES];

    if (cloud_hypervisor_read_ping(body, length, version, error) < 0)
        return HYPERVISOR_DRIVE_UNREACHABLE;
    return cloud_hypervisor_check_version(version, error) == HYPERVISOR_DONE
               ? HYPERVISOR_DRIVE_DONE
               : HYPERVISOR_DRIVE_VERSION;
}

static int read_list(struct drive_http *http, const char *body, size_t length, struct error *error)
{
    char state[CLOUD_HYPERVISOR_WORD_BYTES];
    int r = cloud_hypervisor_read_info(body, length, state, &http->drives, error);

    if (r < 0)
        return r;
    if (strcmp(state, "Running") != 0 && strcmp(state, "Paused") != 0)
        return error_set(error, -EBUSY, "the VM is not running: its state is %s", state);
    return cloud_hypervisor_read_devices(body, length, DRIVE_HTTP_PREFIX, &http->leaving, error);
}

static void append_disk(const struct drive_http *http, struct buffer *body)
{
    const struct hypervisor_drive_request *request = &http->call.request;

    (void)json_append_member(body, "path", request->path);
    (void)json_append_member(body, "serial", request->serial);
    (void)buffer_append_format(body, ",\"readonly\":%s,\"direct\":%s,\"image_type\":\"Raw\"",
                               request->read_only ? "true" : "false",
                               request->direct ? "true" : "false");
    drive_http_append_limits(body, "rate_limiter_config", &request->limits, false);
}

static int encode(const struct drive_http *http, enum drive_http_change change,
                  const char **ret_method, struct buffer *target, struct buffer *body)
{
    static const char *const targets[] = {
        [DRIVE_HTTP_ADD] = "/api/v1/vm.add-disk",
        [DRIVE_HTTP_REMOVE] = "/api/v1/vm.remove-device",
        [DRIVE_HTTP_RESIZE] = "/api/v1/vm.resize-disk",
    };
    int r;

    *ret_method = "PUT";
    r = buffer_append_text(target, targets[change]);
    (void)buffer_append_text(body, "{");
    (void)json_append_member(body, "id", http->id);
    if (change == DRIVE_HTTP_ADD)
        append_disk(http, body);
    if (change == DRIVE_HTTP_RESIZE)
        (void)buffer_append_format(body, ",\"desired_size\":%" PRIu64, http->call.request.bytes);
    (void)buffer_append_text(body, "}");
    return r < 0 ? r : buffer_error(body);
}

static enum hypervisor_drive_outcome read_refusal(const char *body, size_t length,
                                                  struct error *error)
{
    (void)cloud_hypervisor_refusal(body, length, error);
    return HYPERVISOR_DRIVE_REFUSED;
}

static bool find_serial(const struct drive_http *http, const struct drive *drive,
                        char ret_serial[static HYPERVISOR_DRIVE_SERIAL_BYTES])
{
    (void)http;
    if (!drive->serial[0] || strlen(drive->serial) >= HYPERVISOR_DRIVE_SERIAL_BYTES)
        return false;
    memcpy(ret_serial, drive->serial, strlen(drive->serial) + 1);
    return true;
}

static const struct drive_http_kind kind = {
    .version_target = "/api/v1/vmm.ping",
    .list_target = "/api/v1/vm.info",
    .encode_id = encode_id,
    .decode_id = decode_id,
    .read_version = read_version,
    .read_list = read_list,
    .encode = encode,
    .read_refusal = read_refusal,
    .find_serial = find_serial,
};

static int start(struct hypervisor_drive_call *call)
{
    return drive_http_start(container_of(call, struct drive_http, call), &kind);
}

const struct hypervisor_drive_ops hypervisor_drive_cloud_hypervisor_ops = {
    .traits = {.opens_path = true, .has_no_limit = true},
    .size = sizeof(struct drive_http),
    .start = start,
    .stop = drive_http_stop,
    .done = drive_http_done,
};
