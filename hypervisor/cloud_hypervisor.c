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
 * (Cloud Hypervisor: vmm/src/api/openapi/cloud-hypervisor.yaml, vmm/src/device_manager.rs)
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/vmm_http.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "model/sandbox.h"

enum { SECTOR_BYTES = 512 };

/* ---- answers ----
 *
 * Strict about the expected form, tolerant of additions: each version adds members. A disk without
 * a path has its image elsewhere (vhost-user) and cannot be the device, so it is left out. A disk
 * without an id cannot be named, but Cloud Hypervisor assigns each an id before it reports it.
 */

static void copy_word(const char *text, char ret_word[static CLOUD_HYPERVISOR_WORD_BYTES])
{
    text_clean(text, strlen(text), ret_word, CLOUD_HYPERVISOR_WORD_BYTES);
}

enum hypervisor_outcome
cloud_hypervisor_read_ping(const char *body, size_t length,
                           char ret_version[static CLOUD_HYPERVISOR_WORD_BYTES],
                           struct error *error)
{
    cleanup(json_deletep) cJSON *ping = NULL;
    char need[VMM_VERSION_TEXT_BYTES];
    const char *version;

    if (json_parse(body, length, JSON_LIMITS_VMM_HTTP, &ping, error) < 0)
        return HYPERVISOR_UNREACHABLE;
    version = json_string(ping, "version");
    if (!version) {
        (void)error_set(error, 0, "vmm.ping: no version");
        return HYPERVISOR_UNREACHABLE;
    }
    copy_word(version, ret_version);
    if (cloud_hypervisor_is_able(ret_version))
        return HYPERVISOR_DONE;
    cloud_hypervisor_say_need(ret_version, need);
    (void)error_set(error, 0, "%s", need);
    return HYPERVISOR_VERSION;
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

static int read_disk(const cJSON *disk, const cJSON *tree, struct drive_report *report,
                     struct error *error)
{
    struct drive drive = {
        .read_only = cJSON_IsTrue(json_member(disk, "readonly")),
        .obstacle = obstacle_of(disk),
    };
    const char *id = json_string(disk, "id"), *path = json_string(disk, "path");
    const char *serial = json_string(disk, "serial");

    if (!path)
        return 0;
    if (serial)
        text_clean(serial, strlen(serial), drive.serial, sizeof(drive.serial));
    if (!id || strlen(id) >= sizeof(drive.id))
        return error_set(error, -EBADMSG, "vm.info: a disk without an id, or with too long a one");
    memcpy(drive.id, id, strlen(id) + 1);
    read_address(tree, id, &drive);
    return drive_report_add(report, &drive, path, error);
}

/* A disk that was removed leaves the configuration at once, and the tree when the guest has let go
 * of it (vmm/src/device_manager.rs). */
static int read_device(const cJSON *device, const char *prefix, struct drive_report *leaving,
                       struct error *error)
{
    struct drive drive = {.read_only = false};

    if (!device->string || strncmp(device->string, prefix, strlen(prefix)) != 0 ||
        strlen(device->string) >= sizeof(drive.id))
        return 0;
    strcpy(drive.id, device->string);
    return drive_report_add(leaving, &drive, drive.id, error);
}

int cloud_hypervisor_read_info(const char *body, size_t length,
                               char ret_state[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct drive_report *report, const char *prefix,
                               struct drive_report *leaving, struct error *error)
{
    cleanup(json_deletep) cJSON *info = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &info, error);
    const cJSON *disks, *each, *tree;
    const char *state;

    if (r < 0)
        return r;
    state = json_string(info, "state");
    disks = json_member(json_member(info, "config"), "disks");
    tree = json_member(info, "device_tree");
    if (!state)
        return error_set(error, -EBADMSG, "vm.info: no state");
    if (disks && !cJSON_IsArray(disks) && !cJSON_IsNull(disks))
        return error_set(error, -EBADMSG, "vm.info: config.disks is no list");
    cJSON_ArrayForEach(each, disks)
    {
        r = read_disk(each, tree, report, error);
        if (r < 0)
            return r;
    }
    cJSON_ArrayForEach(each, tree)
    {
        r = read_device(each, prefix, leaving, error);
        if (r < 0)
            return r;
    }
    copy_word(state, ret_state);
    return 0;
}

int cloud_hypervisor_read_guest(const char *body, size_t length, struct hypervisor_guest *ret_guest,
                                struct error *error)
{
    cleanup(json_deletep) cJSON *info = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &info, error);
    const cJSON *config, *platform;

    if (r < 0)
        return r;
    config = json_member(info, "config");
    if (!cJSON_IsObject(config))
        return error_set(error, -EBADMSG, "vm.info: no config");
    platform = json_member(config, "platform");
    *ret_guest = (struct hypervisor_guest){
        .is_confidential = cJSON_IsTrue(json_member(platform, "tdx")) ||
                           cJSON_IsTrue(json_member(platform, "sev_snp")),
        .has_share = cJSON_GetArraySize(json_member(config, "fs")) > 0,
    };
    return 0;
}

enum hypervisor_outcome cloud_hypervisor_refusal(const char *body, size_t length,
                                                 struct error *error)
{
    static const struct {
        const char *words;
        enum hypervisor_outcome outcome;
    } causes[] = {
        {"Failed to find device", HYPERVISOR_DRIVE_NOT_FOUND},
        {"does not match requested size", HYPERVISOR_REFUSED}, /* the device grew again meanwhile */
        {"Unsupported operation", HYPERVISOR_UNSUPPORTED},
    };
    cleanup(json_deletep) cJSON *list = NULL;
    const cJSON *innermost = NULL;

    if (json_parse(body, length, JSON_LIMITS_VMM_HTTP, &list, NULL) == 0)
        innermost = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    vmm_http_say_refusal(cJSON_GetStringValue(innermost), body, length, error);
    for (size_t i = 0; i < array_length(causes); i++)
        if (strstr(error->text, causes[i].words))
            return causes[i].outcome;
    return HYPERVISOR_REFUSED;
}

/* ---- the kind ---- */

static enum hypervisor_outcome read_version(struct vmm_http *http)
{
    struct hypervisor_reply *reply = http->reply;
    char version[CLOUD_HYPERVISOR_WORD_BYTES] = "";
    enum hypervisor_outcome outcome = cloud_hypervisor_read_ping(
        buffer_text(&http->answer), http->answer.length, version, &reply->error);

    text_clean(version, strlen(version), reply->version, sizeof(reply->version));
    return outcome;
}

static enum hypervisor_outcome read_list(struct vmm_http *http)
{
    const struct buffer *answer = &http->answer;
    struct error *error = &http->reply->error;
    char state[CLOUD_HYPERVISOR_WORD_BYTES];

    if (cloud_hypervisor_read_info(buffer_text(answer), answer->length, state, &http->drives,
                                   VMM_HTTP_PREFIX, &http->leaving, error) < 0)
        return HYPERVISOR_UNREACHABLE;
    http->is_paused = strcmp(state, "Paused") == 0;
    if (http->is_paused || strcmp(state, "Running") == 0)
        return HYPERVISOR_DONE;
    (void)error_set(error, 0, "the VM is not running: its state is %s", state);
    return HYPERVISOR_BUSY;
}

static enum hypervisor_outcome read_guest(struct vmm_http *http)
{
    return cloud_hypervisor_read_guest(buffer_text(&http->answer), http->answer.length,
                                       &http->reply->guest, &http->reply->error) < 0
               ? HYPERVISOR_UNREACHABLE
               : HYPERVISOR_DONE;
}

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

void cloud_hypervisor_act(const struct hypervisor_request *request, uint64_t deadline_ns,
                          struct hypervisor_reply *reply)
{
    static const struct vmm_http_kind kind = {
        .version_target = "/api/v1/vmm.ping",
        .list_target = "/api/v1/vm.info",
        .resizes_by_version = true,
        .refusal = cloud_hypervisor_refusal,
        .read_version = read_version,
        .read_list = read_list,
        .read_guest = read_guest,
        .encode = encode,
    };

    vmm_http_act(&kind, request, deadline_ns, reply);
}
