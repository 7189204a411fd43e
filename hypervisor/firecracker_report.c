/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_report.c - the drives of a Firecracker and the obstacles to resizing them.
 *
 * A vhost-user drive has a socket and no path, and is left out. Firecracker before 1.0 had only one
 * I/O engine and did not name it: a drive without io_engine is served synchronously.
 *
 * An id becomes part of a URL. Firecracker allows only letters, digits and '_' in it, so any other
 * id did not come from Firecracker and is rejected.
 */
#include "hypervisor/firecracker_report.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

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

enum hypervisor_outcome firecracker_refusal(const char *body, size_t length, struct error *error)
{
    cleanup(json_deletep) cJSON *refusal = NULL;
    const char *fault = NULL;
    char text[ERROR_TEXT_BYTES];

    if (json_parse(body, length, JSON_LIMITS_VMM_HTTP, &refusal, NULL) == 0)
        fault = json_string(refusal, "fault_message");
    text_clean(fault ? fault : body, fault ? strlen(fault) : length, text, sizeof(text));
    (void)error_set(error, 0, "%s", text[0] ? text : "refused without a word");
    return HYPERVISOR_REFUSED;
}
