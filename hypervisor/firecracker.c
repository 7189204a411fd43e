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
 * Ids have letters, digits and '_' only.
 *
 * (firecracker/docs/device-hotplug.md, firecracker/docs/api_requests/block-caching.md,
 * src/vmm/src/devices/virtio/block/virtio/device.rs; 1.17.0-dev was run)
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hypervisor/vmm_http.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/text.h"

enum { MAJOR = 1, MINOR = 16, VERSION_BYTES = 32 };

/* The drives of a Firecracker and the obstacles to resizing them.
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

static const char *obstacle_of(const cJSON *entry)
{
    const char *engine = json_string(entry, "io_engine");

    if (engine && strcmp(engine, "Sync") != 0)
        return "its I/O engine is not Sync: a drive that is re-read would lose the requests that "
               "are under way";
    return NULL;
}

static int read_drive(const cJSON *entry, struct drive_report *report, struct error *error)
{
    struct drive drive = {
        .read_only = cJSON_IsTrue(json_member(entry, "is_read_only")),
        .obstacle = obstacle_of(entry),
    };
    const char *id = json_string(entry, "drive_id"), *path = json_string(entry, "path_on_host");

    if (!path)
        return 0;
    if (!id || strlen(id) >= sizeof(drive.id) || !id_is_plain(id))
        return error_set(error, -EBADMSG, "/vm/config: a drive_id that is missing or malformed");
    memcpy(drive.id, id, strlen(id) + 1);
    return drive_report_add(report, &drive, path, error);
}

int firecracker_read_config(const char *body, size_t length, struct drive_report *report,
                            struct error *error)
{
    cleanup(json_deletep) cJSON *config = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &config, error);
    const cJSON *drives, *entry;

    if (r < 0)
        return r;
    drives = json_member(config, "drives");
    if (!cJSON_IsArray(drives))
        return error_set(error, -EBADMSG, "/vm/config: no list of drives");
    cJSON_ArrayForEach(entry, drives)
    {
        r = read_drive(entry, report, error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The wording differs between versions; but without PCI no repetition helps. */
enum hypervisor_outcome firecracker_refusal(const char *body, size_t length, struct error *error)
{
    cleanup(json_deletep) cJSON *refusal = NULL;
    const char *fault = NULL;

    if (json_parse(body, length, JSON_LIMITS_VMM_HTTP, &refusal, NULL) == 0)
        fault = json_string(refusal, "fault_message");
    vmm_http_say_refusal(fault, body, length, error);
    if (!strcasestr(error->text, "PCI") || !strcasestr(error->text, "enable"))
        return HYPERVISOR_REFUSED;
    (void)error_prefix(error, "Firecracker was started without --enable-pci");
    return HYPERVISOR_UNSUPPORTED;
}

/* ---- the kind ---- */

static bool is_able(const char *version)
{
    char *end;
    unsigned long major = strtoul(version, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

    return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

static enum hypervisor_outcome read_version(struct vmm_http *http)
{
    struct error *error = &http->reply->error;
    cleanup(json_deletep) cJSON *answer = NULL;
    int r = json_parse(buffer_text(&http->answer), http->answer.length, JSON_LIMITS_VMM_HTTP,
                       &answer, error);
    const char *version = r == 0 ? json_string(answer, "firecracker_version") : NULL;
    char shown[VERSION_BYTES];

    if (r == 0 && !version)
        (void)error_set(error, 0, "/version: no version");
    if (!version)
        return HYPERVISOR_UNREACHABLE;
    if (is_able(version))
        return HYPERVISOR_DONE;
    text_clean(version, strlen(version), shown, sizeof(shown));
    (void)error_set(error, 0, "needs Firecracker %d.%d or later (this is %s)", MAJOR, MINOR, shown);
    return HYPERVISOR_VERSION;
}

static enum hypervisor_outcome read_list(struct vmm_http *http)
{
    return firecracker_read_config(buffer_text(&http->answer), http->answer.length, &http->drives,
                                   &http->reply->error) < 0
               ? HYPERVISOR_UNREACHABLE
               : HYPERVISOR_DONE;
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

void firecracker_act(const struct hypervisor_request *request, uint64_t deadline_ns,
                     struct hypervisor_reply *reply)
{
    static const struct vmm_http_kind kind = {
        .version_target = "/version",
        .list_target = "/vm/config",
        .has_plain_ids = true,
        .refusal = firecracker_refusal,
        .read_version = read_version,
        .read_list = read_list,
        .encode = encode,
        .make_serial = make_serial,
    };

    vmm_http_act(&kind, request, deadline_ns, reply);
}
