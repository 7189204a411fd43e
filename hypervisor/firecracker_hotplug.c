/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_hotplug.c - drives of a Firecracker 1.16 or later that was started with --enable-pci.
 *
 *     GET /version, GET /vm/config
 *     PUT /drives/ID     attaches, to a running VM since 1.16; over MMIO it is refused
 *     DELETE /drives/ID  detaches at once, whatever the guest does
 *     PATCH /drives/ID   with limits, or with the path that it has, which reads the size again
 *
 * Firecracker opens the path in its jail and tells its guest nothing: the guest rescans its bus,
 * and removes the function before DELETE. "Writeback" is asked for, because by default Firecracker
 * says that it flushed what it did not. The serial is not to be chosen: it is st_dev, st_rdev and
 * st_ino of the file in decimal, without anything in between, of which the guest sees the first 20
 * characters.
 *
 * Ids have letters, digits and '_' only, so '-' and '_' of a drive's id are "_m" and "_u".
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

#include "hypervisor/drive_http.h"
#include "hypervisor/firecracker_report.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/path_guard.h"
#include "lib/text.h"

enum { MAJOR = 1, MINOR = 16, VERSION_BYTES = 32 };

static void encode_id(const char *drive_id, char ret_id[static DRIVE_ID_BYTES])
{
    char *at = stpcpy(ret_id, DRIVE_HTTP_PREFIX);

    for (; *drive_id; drive_id++) {
        if (*drive_id == '-')
            at = stpcpy(at, "_m");
        else if (*drive_id == '_')
            at = stpcpy(at, "_u");
        else
            *at++ = *drive_id;
    }
    *at = '\0';
}

static bool decode_id(const char *id, char ret_drive_id[static HYPERVISOR_DRIVE_ID_BYTES])
{
    size_t prefix = strlen(DRIVE_HTTP_PREFIX), length = 0;

    if (strncmp(id, DRIVE_HTTP_PREFIX, prefix) != 0)
        return false;
    for (id += prefix; *id && length < HYPERVISOR_DRIVE_ID_BYTES - 1; id++) {
        char letter = *id;

        if (letter == '_') {
            id++;
            if (*id != 'm' && *id != 'u')
                return false;
            letter = *id == 'm' ? '-' : '_';
        }
        ret_drive_id[length++] = letter;
    }
    ret_drive_id[length] = '\0';
    return length > 0 && !*id;
}

static bool is_able(const char *version)
{
    char *end;
    unsigned long major = strtoul(version, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

    return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

static enum hypervisor_drive_outcome read_version(const char *body, size_t length,
                                                  struct error *error)
{
    cleanup(json_deletep) cJSON *answer = NULL;
    int r = json_parse(body, length, JSON_LIMITS_VMM_HTTP, &answer, error);
    const char *version = r == 0 ? json_string(answer, "firecracker_version") : NULL;
    char shown[VERSION_BYTES];

    if (r < 0)
        return HYPERVISOR_DRIVE_UNREACHABLE;
    if (!version) {
        (void)error_set(error, 0, "/version: no version");
        return HYPERVISOR_DRIVE_UNREACHABLE;
    }
    if (is_able(version))
        return HYPERVISOR_DRIVE_DONE;
    text_clean(version, strlen(version), shown, sizeof(shown));
    (void)error_set(error, 0, "needs Firecracker %d.%d or later (this is %s)", MAJOR, MINOR, shown);
    return HYPERVISOR_DRIVE_VERSION;
}

static int read_list(struct drive_http *http, const char *body, size_t length, struct error *error)
{
    return firecracker_read_config(body, length, &http->drives, error);
}

static void append_drive(const struct drive_http *http, struct buffer *body)
{
    const struct hypervisor_drive_request *request = &http->call.request;

    (void)json_append_member(body, "path_on_host", request->path);
    (void)buffer_append_format(body,
                               ",\"is_root_device\":false,\"is_read_only\":%s,"
                               "\"cache_type\":\"Writeback\",\"io_engine\":\"Sync\"",
                               request->read_only ? "true" : "false");
    drive_http_append_limits(body, "rate_limiter", &request->limits, false);
}

/* The path that it has now; "" if it has none, which Firecracker refuses. */
static const char *present_path(const struct drive_http *http)
{
    for (size_t i = 0; i < http->drives.count; i++)
        if (strcmp(http->drives.entries[i].id, http->id) == 0)
            return http->drives.entries[i].path;
    return "";
}

static int encode(const struct drive_http *http, enum drive_http_change change,
                  const char **ret_method, struct buffer *target, struct buffer *body)
{
    static const char *const methods[] = {
        [DRIVE_HTTP_ADD] = "PUT",
        [DRIVE_HTTP_REMOVE] = "DELETE",
        [DRIVE_HTTP_LIMIT] = "PATCH",
        [DRIVE_HTTP_RESIZE] = "PATCH",
    };
    int r = buffer_append_format(target, "/drives/%s", http->id);

    *ret_method = methods[change];
    if (change == DRIVE_HTTP_REMOVE)
        return r;
    (void)buffer_append_text(body, "{");
    (void)json_append_member(body, "drive_id", http->id);
    if (change == DRIVE_HTTP_ADD)
        append_drive(http, body);
    else if (change == DRIVE_HTTP_LIMIT)
        drive_http_append_limits(body, "rate_limiter", &http->call.request.limits, true);
    else
        (void)json_append_member(body, "path_on_host", present_path(http));
    (void)buffer_append_text(body, "}");
    return r < 0 ? r : buffer_error(body);
}

/* The wording differs between versions; but without PCI no repetition helps. */
static enum hypervisor_drive_outcome read_refusal(const char *body, size_t length,
                                                  struct error *error)
{
    (void)firecracker_refusal(body, length, error);
    if (!strcasestr(error->text, "PCI") || !strcasestr(error->text, "enable"))
        return HYPERVISOR_DRIVE_REFUSED;
    (void)error_prefix(error, "Firecracker was started without --enable-pci");
    return HYPERVISOR_DRIVE_UNSUPPORTED;
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
static bool find_serial(const struct drive_http *http, const struct drive *drive,
                        char ret_serial[static HYPERVISOR_DRIVE_SERIAL_BYTES])
{
    struct vmm_process process;
    char serial[80];
    struct stat st;
    bool is_known;

    if (vmm_process_init(&process, http->call.request.vmm_pid, NULL) < 0)
        return false;
    is_known = path_guard_check_process(process.pid, process.root, drive->path) == 0 &&
               path_stat_in_root(process.root, drive->path, &st) == 0 && has_open(&process, &st);
    vmm_process_done(&process);
    if (!is_known)
        return false;
    (void)snprintf(serial, sizeof(serial), "%" PRIu64 "%" PRIu64 "%" PRIu64, (uint64_t)st.st_dev,
                   (uint64_t)st.st_rdev, (uint64_t)st.st_ino);
    (void)snprintf(ret_serial, HYPERVISOR_DRIVE_SERIAL_BYTES, "%.*s",
                   HYPERVISOR_DRIVE_SERIAL_BYTES - 1, serial);
    return true;
}

static const struct drive_http_kind kind = {
    .version_target = "/version",
    .list_target = "/vm/config",
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

const struct hypervisor_drive_ops hypervisor_drive_firecracker_ops = {
    .traits = {.opens_path = true, .makes_serial = true},
    .size = sizeof(struct drive_http),
    .start = start,
    .stop = drive_http_stop,
    .done = drive_http_done,
};
