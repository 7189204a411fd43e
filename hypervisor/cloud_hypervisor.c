/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor.c - the requests to a Cloud Hypervisor.
 *
 *     GET vmm.ping          the version: before v52 vm.resize-disk truncates, and fails on devices
 *     GET vm.info           the drives, their addresses in the guest, and the kind of guest
 *     PUT vm.resize-disk    of a block device: the size must be the device's own
 *     PUT vm.add-disk       the path, an id of ours, the serial; the format is always raw, because
 *                           a guest can write the header of another one
 *     PUT vm.remove-device  is answered at once, and takes the disk from vm.info's configuration;
 *                           the guest lets go of it later, and then the tree of devices loses it
 *
 * On a block device vm.resize-disk changes nothing: it compares the requested size with the
 * device's own and notifies the guest. So it may be repeated. It is also exact: if the device has
 * grown again meanwhile, the request is refused, and the volume is tried again by itself. On a
 * regular file it would truncate. So a drive is only resized if the device is a block device to
 * which the VMM's path leads, and which the VMM has open.
 *
 * Limits are a part of vm.add-disk and cannot be changed afterwards.
 *
 *     vmm.ping          {"build_version": "v52.0", "version": "52.0.0", "pid": 7, …};
 * "v52.0-dirty", "v52.0-12-gabcdef" vm.info           {"config": {"disks": [{"id": "_disk0",
 * "path": "/dev/sdb", "readonly": false, "image_type": "Raw", …}], "fs": [{…}], "platform": {"tdx":
 * true, "sev_snp": true, …}, …}, "state": "Running", "device_tree": {"crust_data": {…}, …}, …} a
 * refusal         ["Error from API", …, "the innermost cause"]; before v47 plain text. Up to v52
 * all are 500, later some are 404
 *
 * (Cloud Hypervisor: vmm/src/api/openapi/cloud-hypervisor.yaml, vmm/src/device_manager.rs,
 * vmm/src/vm_config.rs; release notes of v47 and v52)
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/vmm_http.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "model/sandbox.h"

enum { SECTOR_BYTES = 512, WORD_BYTES = 64 };

/* ---- answers ----
 *
 * Strict about the expected form, tolerant of additions: each version adds members. A disk without
 * a path has its image elsewhere (vhost-user) and cannot be the device, so it is left out. A disk
 * without an id cannot be named, but Cloud Hypervisor assigns each an id before it reports it.
 */

static enum hypervisor_outcome read_version(struct vmm_http *http, const cJSON *ping)
{
    const char *version = json_string(ping, "version");
    char word[WORD_BYTES], need[VMM_VERSION_TEXT_BYTES];

    if (!version)
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "vmm.ping: no version");
    text_clean(version, strlen(version), http->reply->version, sizeof(http->reply->version));
    text_clean(version, strlen(version), word, sizeof(word));
    if (cloud_hypervisor_is_able(word))
        return HYPERVISOR_DONE;
    cloud_hypervisor_say_need(word, need);
    return vmm_http_fail(http, HYPERVISOR_VERSION, need);
}

/* With another format, a resize would change the image instead of re-reading the device. */
static const char *obstacle_of(const cJSON *disk)
{
    const char *type = json_string(disk, "image_type");

    if (cJSON_IsTrue(json_member(disk, "vhost_user")))
        return "a vhost-user drive belongs to another process, which has to be told";
    if (type && strcasecmp(type, "Raw") != 0 && strcasecmp(type, "Unknown") != 0)
        return "a format other than raw lies over the device";
    return NULL;
}

/* "0000:00:03.0": function 0 on the first bus of the first segment, where Kata's Go runtime expects
 * a disk (src/runtime/virtcontainers/clh.go, clhPciInfoToPath). */
static bool is_on_first_bus(const char *bdf)
{
    return strlen(bdf) == strlen("0000:00:03.0") && strncmp(bdf, "0000:00:", 8) == 0 &&
           isxdigit((unsigned char)bdf[8]) && isxdigit((unsigned char)bdf[9]) &&
           strcmp(bdf + 10, ".0") == 0;
}

/* In the tree of devices, a disk's parent is its virtio device, which has the PCI address. */
static void read_address(const cJSON *tree, const char *id, struct drive *drive)
{
    const char *parent = json_string(json_member(tree, id), "parent");
    const char *bdf = parent ? json_string(json_member(tree, parent), "pci_bdf") : NULL;

    if (bdf && is_on_first_bus(bdf))
        (void)snprintf(drive->address, sizeof(drive->address), "pci:%.2s", bdf + 8);
}

static enum hypervisor_outcome read_disk(struct vmm_http *http, const cJSON *disk,
                                         const cJSON *tree)
{
    struct drive drive = {
        .read_only = cJSON_IsTrue(json_member(disk, "readonly")),
        .obstacle = obstacle_of(disk),
    };
    const char *id = json_string(disk, "id"), *path = json_string(disk, "path");
    const char *serial = json_string(disk, "serial");

    if (!path)
        return HYPERVISOR_DONE;
    if (serial)
        text_clean(serial, strlen(serial), drive.serial, sizeof(drive.serial));
    if (!id || strlen(id) >= sizeof(drive.id))
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE,
                             "vm.info: a disk without an id, or with too long a one");
    memcpy(drive.id, id, strlen(id) + 1);
    read_address(tree, id, &drive);
    return drive_report_add(&http->drives, &drive, path, &http->reply->error);
}

/* A disk that was removed leaves the configuration at once, and the tree when the guest has let go
 * of it. */
static enum hypervisor_outcome read_device(struct vmm_http *http, const cJSON *device)
{
    struct drive drive = {.read_only = false};

    if (!device->string || strncmp(device->string, VMM_HTTP_PREFIX, strlen(VMM_HTTP_PREFIX)) != 0 ||
        strlen(device->string) >= sizeof(drive.id))
        return HYPERVISOR_DONE;
    strcpy(drive.id, device->string);
    return drive_report_add(&http->leaving, &drive, drive.id, &http->reply->error);
}

static enum hypervisor_outcome read_list(struct vmm_http *http, const cJSON *info)
{
    const char *state = json_string(info, "state");
    const cJSON *disks = json_member(json_member(info, "config"), "disks"), *each;
    const cJSON *tree = json_member(info, "device_tree");
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;
    char word[WORD_BYTES];

    if (!state)
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "vm.info: no state");
    if (disks && !cJSON_IsArray(disks) && !cJSON_IsNull(disks))
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "vm.info: config.disks is no list");
    cJSON_ArrayForEach(each, disks)
    {
        if (outcome == HYPERVISOR_DONE)
            outcome = read_disk(http, each, tree);
    }
    cJSON_ArrayForEach(each, tree)
    {
        if (outcome == HYPERVISOR_DONE)
            outcome = read_device(http, each);
    }
    http->is_paused = strcmp(state, "Paused") == 0;
    if (outcome != HYPERVISOR_DONE || http->is_paused || strcmp(state, "Running") == 0)
        return outcome;
    text_clean(state, strlen(state), word, sizeof(word));
    return error_set(&http->reply->error, HYPERVISOR_BUSY, "the VM is not running: its state is %s",
                     word);
}

/* A build without support for a kind of confidential guest does not name that kind. */
static enum hypervisor_outcome read_guest(struct vmm_http *http, const cJSON *info)
{
    const cJSON *config = json_member(info, "config"), *platform = json_member(config, "platform");

    if (!cJSON_IsObject(config))
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "vm.info: no config");
    http->reply->guest = (struct hypervisor_guest){
        .is_confidential = cJSON_IsTrue(json_member(platform, "tdx")) ||
                           cJSON_IsTrue(json_member(platform, "sev_snp")),
        .has_share = cJSON_GetArraySize(json_member(config, "fs")) > 0,
    };
    return HYPERVISOR_DONE;
}

static const char *find_fault(const cJSON *refusal)
{
    return cJSON_GetStringValue(cJSON_GetArrayItem(refusal, cJSON_GetArraySize(refusal) - 1));
}

static enum hypervisor_outcome judge_fault(struct error *text)
{
    static const struct {
        const char *words;
        enum hypervisor_outcome outcome;
    } causes[] = {
        {"Failed to find device", HYPERVISOR_DRIVE_NOT_FOUND},
        {"does not match requested size", HYPERVISOR_REFUSED}, /* the device grew again meanwhile */
        {"Unsupported operation", HYPERVISOR_UNSUPPORTED},
    };

    for (size_t i = 0; i < array_length(causes); i++)
        if (strstr(text->text, causes[i].words))
            return causes[i].outcome;
    return HYPERVISOR_REFUSED;
}

/* ---- requests ---- */

static const char *encode(const struct vmm_http *http, enum vmm_http_change change,
                          const struct drive *drive, struct buffer *target, struct buffer *body)
{
    static const char *const targets[] = {
        [VMM_HTTP_ADD] = "/api/v1/vm.add-disk",
        [VMM_HTTP_REMOVE] = "/api/v1/vm.remove-device",
        [VMM_HTTP_RESIZE] = "/api/v1/vm.resize-disk",
    };
    const struct hypervisor_request *request = http->request;

    (void)drive;
    if (!targets[change]) {
        (void)error_set(&http->reply->error, 0, "the VMM has no such request");
        return NULL;
    }
    if (change == VMM_HTTP_RESIZE && (!request->bytes || request->bytes % SECTOR_BYTES)) {
        (void)error_set(&http->reply->error, 0, "%" PRIu64 " bytes are no whole number of sectors",
                        request->bytes);
        return NULL;
    }
    (void)buffer_append_text(target, targets[change]);
    (void)buffer_append_text(body, "{");
    (void)json_append_member(body, "id", http->id);
    if (change == VMM_HTTP_ADD) {
        (void)json_append_member(body, "path", request->path);
        (void)json_append_member(body, "serial", request->serial);
        (void)buffer_append_format(body, ",\"readonly\":%s,\"direct\":%s,\"image_type\":\"Raw\"",
                                   request->read_only ? "true" : "false",
                                   request->direct ? "true" : "false");
        vmm_http_append_limits(body, "rate_limiter_config", &request->limits, false);
    }
    if (change == VMM_HTTP_RESIZE)
        (void)buffer_append_format(body, ",\"desired_size\":%" PRIu64, request->bytes);
    (void)buffer_append_text(body, "}");
    return "PUT";
}

const struct vmm_http_kind cloud_hypervisor_kind = {
    .version_target = "/api/v1/vmm.ping",
    .list_target = "/api/v1/vm.info",
    .resizes_by_version = true,
    .read_version = read_version,
    .read_list = read_list,
    .read_guest = read_guest,
    .find_fault = find_fault,
    .judge_fault = judge_fault,
    .encode = encode,
};

void cloud_hypervisor_act(const struct hypervisor_request *request, uint64_t deadline_ns,
                          struct hypervisor_reply *reply)
{
    vmm_http_act(&cloud_hypervisor_kind, request, deadline_ns, reply);
}
