/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker.c - the requests to a Firecracker.
 *
 *     GET /version       1.16 or later attaches drives, if it was started with --enable-pci
 *     GET /vm/config     the drives
 *     PUT /drives/ID     attaches, to a running VM since 1.16; over MMIO it is refused
 *     DELETE /drives/ID  detaches at once, whatever the guest does
 *     PATCH /drives/ID   with limits, or with the path that it has, which reads the size again
 *
 * The PATCH makes Firecracker open the path again, inside its jail, use whatever it finds there as
 * the drive, and notify the guest of its size. So the path must be known to lead to the device,
 * because any other file would become the guest's disk. The PATCH may be repeated. With the Async
 * engine, requests in flight would be dropped, so only Sync is supported. Firecracker's
 * documentation covers only drives that the guest has not mounted; therefore an operator has to
 * enable this (resize.firecracker, checked by hypervisor.c).
 *
 * Firecracker opens the path of a new drive in its jail and tells its guest nothing: the guest
 * rescans its bus, and removes the function before DELETE. "Writeback" is asked for, because by
 * default Firecracker says that it flushed what it did not. The serial is not to be chosen: it is
 * st_dev, st_rdev and st_ino of the file in decimal, without anything in between, of which the
 * guest sees the first 20 characters.
 *
 *     GET /vm/config    {"drives": [{"drive_id": "drive_0", "path_on_host": "/drive_0",
 *                        "is_read_only": false, "io_engine": "Sync", …}], …}
 *     a refusal         {"fault_message": "…"}; its wording differs between versions
 *
 * (firecracker/docs/device-hotplug.md, firecracker/docs/api_requests/block-caching.md,
 * firecracker/docs/api_requests/patch-block.md, src/firecracker/swagger/firecracker.yaml,
 * src/vmm/src/devices/virtio/block/virtio/device.rs; 1.17.0-dev was run)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hypervisor/vmm_http.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/text.h"

enum { MAJOR = 1, MINOR = 16, VERSION_BYTES = 32 };

/* ---- answers ----
 *
 * A vhost-user drive has a socket and no path, and is left out. Firecracker before 1.0 had only one
 * I/O engine and did not name it: a drive without io_engine is served synchronously.
 *
 * An id becomes part of a URL. Firecracker allows only letters, digits and '_' in it, so any other
 * id did not come from Firecracker and is rejected.
 */

static bool id_is_plain(const char *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    return id[0] && !id[strspn(id, allowed)];
}

static enum hypervisor_outcome read_drive(struct vmm_http *http, const cJSON *entry)
{
    const char *engine = json_string(entry, "io_engine");
    const char *id = json_string(entry, "drive_id"), *path = json_string(entry, "path_on_host");
    struct drive drive = {.read_only = cJSON_IsTrue(json_member(entry, "is_read_only"))};

    if (!path)
        return HYPERVISOR_DONE;
    if (engine && strcmp(engine, "Sync") != 0)
        drive.obstacle = "its I/O engine is not Sync: a drive that is re-read would lose the "
                         "requests that are under way";
    if (!id || strlen(id) >= sizeof(drive.id) || !id_is_plain(id))
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE,
                             "/vm/config: a drive_id that is missing or malformed");
    memcpy(drive.id, id, strlen(id) + 1);
    return drive_report_add(&http->drives, &drive, path, &http->reply->error);
}

static enum hypervisor_outcome read_list(struct vmm_http *http, const cJSON *config)
{
    const cJSON *drives = json_member(config, "drives"), *entry;
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;

    if (!cJSON_IsArray(drives))
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "/vm/config: no list of drives");
    cJSON_ArrayForEach(entry, drives)
    {
        if (outcome == HYPERVISOR_DONE)
            outcome = read_drive(http, entry);
    }
    return outcome;
}

static const char *find_fault(const cJSON *refusal)
{
    return json_string(refusal, "fault_message");
}

/* The wording differs between versions; but without PCI no repetition helps. */
static enum hypervisor_outcome judge_fault(struct error *text)
{
    if (!strcasestr(text->text, "PCI") || !strcasestr(text->text, "enable"))
        return HYPERVISOR_REFUSED;
    (void)error_prefix(text, "Firecracker was started without --enable-pci");
    return HYPERVISOR_UNSUPPORTED;
}

static bool is_able(const char *version)
{
    char *end;
    unsigned long major = strtoul(version, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

    return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

static enum hypervisor_outcome read_version(struct vmm_http *http, const cJSON *answer)
{
    const char *version = json_string(answer, "firecracker_version");
    char shown[VERSION_BYTES];

    if (!version)
        return vmm_http_fail(http, HYPERVISOR_UNREACHABLE, "/version: no version");
    if (is_able(version))
        return HYPERVISOR_DONE;
    text_clean(version, strlen(version), shown, sizeof(shown));
    return error_set(&http->reply->error, HYPERVISOR_VERSION,
                     "needs Firecracker %d.%d or later (this is %s)", MAJOR, MINOR, shown);
}

static const char *encode(const struct vmm_http *http, enum vmm_http_change change,
                          const struct drive *drive, struct buffer *target, struct buffer *body)
{
    const struct hypervisor_request *request = http->request;

    (void)buffer_append_format(target, "/drives/%s", http->id);
    if (change == VMM_HTTP_REMOVE)
        return "DELETE";
    (void)buffer_append_text(body, "{");
    (void)json_append_member(body, "drive_id", http->id);
    if (change == VMM_HTTP_ADD) {
        (void)json_append_member(body, "path_on_host", request->path);
        (void)buffer_append_format(body,
                                   ",\"is_root_device\":false,\"is_read_only\":%s,"
                                   "\"cache_type\":\"Writeback\",\"io_engine\":\"Sync\"",
                                   request->read_only ? "true" : "false");
        vmm_http_append_limits(body, "rate_limiter", &request->limits, false);
    } else if (change == VMM_HTTP_LIMIT) {
        vmm_http_append_limits(body, "rate_limiter", &request->limits, true);
    } else {
        (void)json_append_member(body, "path_on_host", drive ? drive->path : "");
    }
    (void)buffer_append_text(body, "}");
    return change == VMM_HTTP_ADD ? "PUT" : "PATCH";
}

/* Whether the process has this very node or file open. */
static bool has_open(const struct vmm_process *process, const struct stat *wanted)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    struct stat st;

    if (directory_list(process->descriptors, &names) < 0)
        return false;
    for (unsigned seen = 0; seen < VMM_DESCRIPTORS && (name = directory_next(names)); seen++)
        if (vmm_process_stat(process, name, &st) == 0 && st.st_dev == wanted->st_dev &&
            st.st_ino == wanted->st_ino && st.st_rdev == wanted->st_rdev)
            return true;
    return false;
}

/* As Firecracker computes it when it opens the file. A path whose node was replaced since then
 * would give another one. */
static bool make_serial(const struct vmm_http *http, const struct drive *drive,
                        char ret_serial[static HYPERVISOR_DRIVE_SERIAL_BYTES])
{
    cleanup(vmm_process_done) struct vmm_process process;
    char serial[80];
    struct stat st;

    if (vmm_process_init(&process, http->request->vmm_pid, NULL) < 0 ||
        path_guard_check_process(process.pid, process.root, drive->path) < 0 ||
        path_stat_in_root(process.root, drive->path, &st) < 0 || !has_open(&process, &st))
        return false;
    (void)snprintf(serial, sizeof(serial), "%" PRIu64 "%" PRIu64 "%" PRIu64, (uint64_t)st.st_dev,
                   (uint64_t)st.st_rdev, (uint64_t)st.st_ino);
    (void)snprintf(ret_serial, HYPERVISOR_DRIVE_SERIAL_BYTES, "%.*s",
                   HYPERVISOR_DRIVE_SERIAL_BYTES - 1, serial);
    return true;
}

const struct vmm_http_kind firecracker_kind = {
    .version_target = "/version",
    .list_target = "/vm/config",
    .has_plain_ids = true,
    .read_version = read_version,
    .read_list = read_list,
    .find_fault = find_fault,
    .judge_fault = judge_fault,
    .encode = encode,
    .make_serial = make_serial,
};

void firecracker_act(const struct hypervisor_request *request, uint64_t deadline_ns,
                     struct hypervisor_reply *reply)
{
    vmm_http_act(&firecracker_kind, request, deadline_ns, reply);
}
