/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_report.c - strict about the expected form, tolerant of additions.
 *
 * Unknown members are skipped, because each version adds some. A disk without a path has its image
 * elsewhere (vhost-user) and cannot be the device, so it is left out. A disk without an id cannot
 * be named, but Cloud Hypervisor assigns each an id before it reports it.
 */
#include "hypervisor/cloud_hypervisor_report.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "lib/vmm_version.h"

/* How many names may be compared to find the drives' places in the tree of devices. */
enum { COMPARISONS = 65536 };

static void copy_word(const char *text, char ret_word[static CLOUD_HYPERVISOR_WORD_BYTES])
{
    text_clean(text, strlen(text), ret_word, CLOUD_HYPERVISOR_WORD_BYTES);
}

int cloud_hypervisor_read_ping(const char *body, size_t length,
                               char ret_version[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct error *error)
{
    cleanup(json_deletep) cJSON *ping = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &ping, error);
    const char *version = r == 0 ? json_string(ping, "version") : NULL;

    if (r < 0)
        return r;
    if (!version)
        return error_set(error, -EBADMSG, "vmm.ping: no version");
    copy_word(version, ret_version);
    return 0;
}

enum hypervisor_outcome cloud_hypervisor_check_version(const char *version, struct error *error)
{
    char need[VMM_VERSION_TEXT_BYTES];

    if (cloud_hypervisor_is_able(version))
        return HYPERVISOR_DONE;
    cloud_hypervisor_say_need(version, need);
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

/* More than any VM has: the drives' addresses stay unknown. */
static bool is_crowded(const cJSON *disks, const cJSON *tree)
{
    return (int64_t)cJSON_GetArraySize(disks) * cJSON_GetArraySize(tree) > COMPARISONS;
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

int cloud_hypervisor_read_info(const char *body, size_t length,
                               char ret_state[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct drive_report *report, struct error *error)
{
    cleanup(json_deletep) cJSON *info = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &info, error);
    const cJSON *disks, *disk, *tree;
    const char *state;

    if (r < 0)
        return r;
    state = json_string(info, "state");
    disks = json_member(json_member(info, "config"), "disks");
    tree = json_member(info, "device_tree");
    if (!state)
        return error_set(error, -EBADMSG, "vm.info: no state");
    if (is_crowded(disks, tree))
        tree = NULL;
    if (disks && !cJSON_IsArray(disks) && !cJSON_IsNull(disks))
        return error_set(error, -EBADMSG, "vm.info: config.disks is no list");
    cJSON_ArrayForEach(disk, disks)
    {
        r = read_disk(disk, tree, report, error);
        if (r < 0)
            return r;
    }
    copy_word(state, ret_state);
    return 0;
}

int cloud_hypervisor_read_devices(const char *body, size_t length, const char *prefix,
                                  struct drive_report *report, struct error *error)
{
    cleanup(json_deletep) cJSON *info = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &info, error);
    const cJSON *device;

    if (r < 0)
        return r;
    cJSON_ArrayForEach(device, json_member(info, "device_tree"))
    {
        struct drive drive = {.read_only = false};

        if (!device->string || strncmp(device->string, prefix, strlen(prefix)) != 0 ||
            strlen(device->string) >= sizeof(drive.id))
            continue;
        memcpy(drive.id, device->string, strlen(device->string) + 1);
        r = drive_report_add(report, &drive, drive.id, error);
        if (r < 0)
            return r;
    }
    return r;
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
    char text[ERROR_TEXT_BYTES];

    if (json_parse(body, length, JSON_LIMITS_VMM_HTTP, &list, NULL) == 0)
        innermost = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    if (cJSON_IsString(innermost))
        text_clean(innermost->valuestring, strlen(innermost->valuestring), text, sizeof(text));
    else
        text_clean(body, length, text, sizeof(text));
    (void)error_set(error, 0, "%s", text[0] ? text : "refused without a word");
    for (size_t i = 0; i < array_length(causes); i++)
        if (strstr(text, causes[i].words))
            return causes[i].outcome;
    return HYPERVISOR_REFUSED;
}
