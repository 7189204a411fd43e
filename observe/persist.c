/* SPDX-License-Identifier: Apache-2.0 */
/* persist.c - which drive is which device, and where its guest mounts it.
 *
 * The guest path is a function of the storage that is sent to the agent
 * (src/runtime/virtcontainers/kata_agent.go): GUEST_STORAGE + padded base64url of the storage's
 * source. The source depends on how the block device was attached:
 *
 *   virtio-scsi      "ID:LUN" of BlockDrive.SCSIAddr
 *   virtio-blk       PCI path "BRIDGE/SLOT" in hexadecimal. BlockDrive.PCIPath is always empty in
 *                    the file (its Go type has no exported field), so it is rebuilt from the bridge
 *                    whose DeviceAddr lists the drive
 *   virtio-blk-ccw   BlockDrive.DevNo
 *   virtio-mmio      BlockDrive.VirtPath
 *
 * The file is the runtime's own, yet it passes the strict parser like any other, and a member of an
 * unexpected type counts as unknown: newer runtimes may have changed it.
 */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/encode.h"
#include "observe/kata.h"

#define GUEST_STORAGE "/run/kata-containers/sandbox/storage/"

enum { SOURCE_BYTES = 256 };

static const char sandbox_names[] =
    "Devices{ID Type Major Minor BlockDrive{File ID SCSIAddr VirtPath DevNo}}"
    " HypervisorState{Type Pid Bridges{Addr ParentID ParentAddr DeviceAddr}}"
    " AgentState{URL} Config{HypervisorType HypervisorConfig{BlockDeviceDriver}}";
static const char container_names[] = "State Mounts{Source Destination BlockDeviceID}";

/* Kata makes at most 5 bridges; one has 32 slots. */
enum { BRIDGES = 16, SLOTS = 64 };

/* The guest's limit on the length of a name leaves this much for a source. */
int persist_guest_path(const char *source, char **ret_path)
{
    size_t length = strlen(source);
    char name[BASE64URL_ENCODED_LENGTH(SOURCE_BYTES) + 1];

    *ret_path = NULL;
    if (!length || length > BASE64URL_PATH_BYTES)
        return 0;
    base64url_encode(source, length, name);
    return asprintf(ret_path, GUEST_STORAGE "%s", name) < 0 ? -ENOMEM : 0;
}

/* An empty string is treated as absent, because Go writes every member. */
static const char *filled(const cJSON *object, const char *name)
{
    const char *text = json_string(object, name);

    return text && *text ? text : NULL;
}

/* ---- PCI --------------------------------------------------------------------------------- */

/* The slot under which a bridge lists the drive; -1 if it does not. */
static long slot_on_bridge(const cJSON *bridge, const char *drive_id)
{
    const cJSON *slots = json_member(bridge, "DeviceAddr"), *slot;
    unsigned seen = 0;

    cJSON_ArrayForEach(slot, slots)
    {
        char *end;
        long number;

        if (seen++ == SLOTS)
            break;
        if (!cJSON_IsString(slot) || !slot->string || strcmp(slot->valuestring, drive_id) != 0 ||
            json_member(slots, slot->string) != slot)
            continue;
        number = strtol(slot->string, &end, 10);
        return *slot->string && !*end && number >= 0 && number <= 0xFF ? number : -1;
    }
    return -1;
}

static bool pci_path(const cJSON *hypervisor, const char *drive_id, char *ret_path, size_t size)
{
    const cJSON *bridge;
    unsigned seen = 0;

    cJSON_ArrayForEach(bridge, json_member(hypervisor, "Bridges"))
    {
        long slot = seen++ < BRIDGES ? slot_on_bridge(bridge, drive_id) : -1;
        uint64_t address, parent = 0;
        bool nested = filled(bridge, "ParentID");

        if (slot < 0 || json_number(bridge, "Addr", &address) != JSON_NUMBER || address > 0xFF)
            continue;
        if (nested && (json_number(bridge, "ParentAddr", &parent) != JSON_NUMBER || parent > 0xFF))
            continue;
        if (nested)
            (void)snprintf(ret_path, size, "%02" PRIx64 "/%02" PRIx64 "/%02lx", parent, address,
                           slot);
        else
            (void)snprintf(ret_path, size, "%02" PRIx64 "/%02lx", address, slot);
        return true;
    }
    return false;
}

/* ---- devices ----------------------------------------------------------------------------- */

/* driver: BlockDeviceDriver, "" unknown. */
static int read_guest_path(const cJSON *hypervisor, const char *driver, const cJSON *drive,
                           struct persist_device *device)
{
    const char *source = NULL;
    char path[16];

    if (strcmp(driver, "virtio-scsi") == 0)
        source = filled(drive, "SCSIAddr");
    else if (strcmp(driver, "virtio-blk-ccw") == 0)
        source = filled(drive, "DevNo");
    else if (strcmp(driver, "virtio-mmio") == 0)
        source = filled(drive, "VirtPath");
    else if (strcmp(driver, "virtio-blk") == 0 && device->drive_id &&
             pci_path(hypervisor, device->drive_id, path, sizeof(path)))
        source = path;
    return source ? persist_guest_path(source, &device->guest_path) : 0;
}

/* A device number, or -1 for a regular file and for anything that is not a device number. */
static int64_t device_number(const cJSON *device, const char *name)
{
    uint64_t number;

    return json_number(device, name, &number) == 0 && number <= UINT32_MAX ? (int64_t)number : -1;
}

static void device_done(struct persist_device *device)
{
    free(device->id);
    free(device->drive_id);
    free(device->file);
    free(device->guest_path);
}

/* Skips other kinds of devices, and block devices that are not attached. */
static int read_device(const cJSON *hypervisor, const char *driver, const cJSON *object,
                       struct persist_sandbox *sandbox)
{
    const cJSON *drive = json_member(object, "BlockDrive");
    const char *type = json_string(object, "Type"), *id = filled(object, "ID");
    struct persist_device *device = &sandbox->device[sandbox->devices];
    int r;

    if (!cJSON_IsObject(drive) || !id || (type && *type && strcmp(type, "block") != 0))
        return 0;
    *device = (struct persist_device){.major = device_number(object, "Major"),
                                      .minor = device_number(object, "Minor")};
    r = kata_copy(id, &device->id);
    if (r == 0)
        r = kata_copy(filled(drive, "ID"), &device->drive_id);
    if (r == 0)
        r = kata_copy(filled(drive, "File"), &device->file);
    if (r == 0)
        r = read_guest_path(hypervisor, driver, drive, device);
    if (r < 0) {
        device_done(device);
        return r;
    }
    sandbox->devices++;
    return 0;
}

static int read_devices(const cJSON *object, struct persist_sandbox *sandbox, struct error *error)
{
    const cJSON *devices = json_member(object, "Devices"), *device;
    const cJSON *config = json_member(json_member(object, "Config"), "HypervisorConfig");
    const char *driver = json_text(config, "BlockDeviceDriver");
    const cJSON *hypervisor = json_member(object, "HypervisorState");
    void *room;
    int r =
        kata_make_room(devices, PERSIST_DEVICES, sizeof(*sandbox->device), &room, "Devices", error);

    if (r != 0)
        return r;
    sandbox->device = room;
    if (!cJSON_IsArray(devices))
        return 0;
    cJSON_ArrayForEach(device, devices)
    {
        if (r == 0)
            r = read_device(hypervisor, driver, device, sandbox);
    }
    return r;
}

/* ---- the two files ----------------------------------------------------------------------- */

/* Parses the text, and classifies a failure. */
static int parse_object(const char *text, size_t length, const char *names, cJSON **ret_object,
                        struct error *error)
{
    int r = json_read(text, length, JSON_LIMITS_PERSIST, names, ret_object, error);

    if (r != FILE_READ)
        return r;
    return cJSON_IsObject(*ret_object) ? FILE_READ : error_set(error, FILE_WRONG, "not an object");
}

int persist_parse_sandbox(const char *text, size_t length, struct persist_sandbox *ret_sandbox,
                          struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct persist_sandbox sandbox = {0};
    int r = parse_object(text, length, sandbox_names, &object, error);
    const cJSON *hypervisor = json_member(object, "HypervisorState");
    const char *type = filled(hypervisor, "Type");
    uint64_t pid;

    if (r != FILE_READ)
        return r;
    if (!type)
        type = filled(json_member(object, "Config"), "HypervisorType");
    if (json_number(hypervisor, "Pid", &pid) == 0 && pid <= INT_MAX)
        sandbox.pid = (pid_t)pid;
    r = kata_copy(type, &sandbox.hypervisor);
    if (r == 0)
        r = kata_copy(filled(json_member(object, "AgentState"), "URL"), &sandbox.agent_url);
    if (r == 0)
        r = read_devices(object, &sandbox, error);
    if (r == FILE_READ)
        *ret_sandbox = sandbox;
    else
        persist_sandbox_done(&sandbox);
    return r;
}

void persist_sandbox_done(struct persist_sandbox *sandbox)
{
    if (!sandbox)
        return;
    for (unsigned i = 0; i < sandbox->devices; i++)
        device_done(&sandbox->device[i]);
    free(sandbox->device);
    free(sandbox->hypervisor);
    free(sandbox->agent_url);
    *sandbox = (struct persist_sandbox){0};
}

static int read_mount(const cJSON *object, struct persist_container *container)
{
    struct persist_mount *mount = &container->mount[container->mounts];
    const char *source = filled(object, "Source");
    int r;

    if (!source)
        return 0;
    container->mounts++;
    r = kata_copy(source, &mount->source);
    if (r == 0)
        r = kata_copy(filled(object, "Destination"), &mount->destination);
    return r < 0 ? r : kata_copy(filled(object, "BlockDeviceID"), &mount->device_id);
}

int persist_parse_container(const char *text, size_t length,
                            struct persist_container *ret_container, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct persist_container container = {0};
    int r = parse_object(text, length, container_names, &object, error);
    const cJSON *mounts = json_member(object, "Mounts"), *mount;
    void *room;

    if (r == FILE_READ)
        r = kata_make_room(mounts, PERSIST_MOUNTS, sizeof(*container.mount), &room, "Mounts",
                           error);
    if (r != FILE_READ)
        return r;
    container.mount = room;
    container.ended = strcmp(json_text(object, "State"), "stopped") == 0;
    if (cJSON_IsArray(mounts))
        cJSON_ArrayForEach(mount, mounts)
        {
            if (r == FILE_READ)
                r = read_mount(mount, &container);
        }
    if (r == FILE_READ)
        *ret_container = container;
    else
        persist_container_done(&container);
    return r;
}

void persist_container_done(struct persist_container *container)
{
    if (!container)
        return;
    for (unsigned i = 0; i < container->mounts; i++) {
        free(container->mount[i].source);
        free(container->mount[i].destination);
        free(container->mount[i].device_id);
    }
    free(container->mount);
    *container = (struct persist_container){0};
}
