/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - the order of an examination: from the kernel up to the sandboxes. */
#include "doctor/doctor.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/mount_table.h"

static void examine_policy(const struct config *config, struct findings *findings)
{
    if (config->resize.mode != RESIZE_GROW)
        findings_add(findings, FINDING_NOTE, "policy", "resize.mode", "Set resize.mode = grow",
                     "nothing is grown: crustd's configuration says %s",
                     config->resize.mode == RESIZE_OBSERVE ? "observe" : "never");
    if (config->agent.routes[0] == ROUTE_NONE)
        findings_add(findings, FINDING_NOTE, "policy", "agent.routes",
                     "Set agent.routes = companion, agent, shim",
                     "no guest is ever told: agent.routes is empty");
}

static void examine_kernel(int root, const struct config *config, struct findings *findings)
{
    struct kernel_facts kernel;
    struct watch_facts watches;

    kernel_read(&kernel);
    watches_read(root, config, &watches);
    kernel_judge(&kernel, findings);
    watches_judge(&watches, findings);
    kernel_judge_process(&kernel, findings);
}

int doctor_find_abilities(const struct doctor_request *request,
                          struct doctor_abilities *ret_abilities)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(DOCTOR_BYTES);
    struct findings findings;
    char boot_id[CLOCK_BOOT_ID_BYTES];
    int r;

    findings_begin(&findings, &json);
    (void)clock_boot_id(boot_id);
    findings.running = request->sandboxes;
    findings.boot_id = boot_id;
    kata_version_examine(request->root, &findings);
    kata_examine(request->root, request->config, &findings);
    sandboxes_judge(request->sandboxes, boot_id, request->config, &findings);
    r = findings_end(&findings);
    if (findings.lacks_direct_volumes)
        findings.configurations = findings.sandboxes = 0;
    *ret_abilities = (struct doctor_abilities){
        .has_guests = findings.configurations || findings.sandboxes,
        .tells_hypervisor = findings.tells_hypervisor,
        .resizes_guests = findings.sandboxes ? findings.resizes_guests : findings.configurations,
        .applies_group = (findings.configurations || findings.sandboxes) && !findings.ignores_group,
        .ignores_labels = findings.configurations && !findings.label_guests,
        .enforces_labels =
            findings.configurations && findings.label_guests == findings.configurations,
    };
    return r;
}

int doctor_examine(const struct doctor_request *request, struct buffer *ret_json)
{
    cleanup(fd_closep) int mounts = open(mount_table_path(), O_RDONLY | O_CLOEXEC);
    struct findings findings;
    char boot_id[CLOCK_BOOT_ID_BYTES];

    findings_begin(&findings, ret_json);
    (void)clock_boot_id(boot_id);
    findings.running = request->sandboxes;
    findings.boot_id = boot_id;
    examine_kernel(request->root, request->config, &findings);
    paths_examine(request->root, request->config, &findings);
    examine_policy(request->config, &findings);
    drives_examine(request->root, request->config, &findings);
    kata_version_examine(request->root, &findings);
    kata_examine(request->root, request->config, &findings);
    sandboxes_judge(request->sandboxes, boot_id, request->config, &findings);
    sandboxes_judge_doubts(request->doubts, &findings);
    if (mounts >= 0)
        host_mounts_examine(request->root, request->config, mounts, request->sandboxes, boot_id,
                            &findings);
    return findings_end(&findings);
}

int doctor_find_crust_users(int root, struct buffer *ret_json)
{
    struct findings findings;

    findings_begin(&findings, ret_json);
    crust_users_find(root, &findings);
    return findings_end(&findings);
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Findings are written in the order of the examination; crustctl sorts them. */

enum { WHAT_BYTES = 1024 };

static const char *const levels[] = {
    [FINDING_OK] = "ok",
    [FINDING_NOTE] = "note",
    [FINDING_WARNING] = "warning",
    [FINDING_ERROR] = "error",
};

void findings_begin(struct findings *findings, struct buffer *json)
{
    *findings = (struct findings){.json = json};
    buffer_append_text(json, "[");
}

void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
{
    struct buffer *json = findings->json;
    char what[WHAT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    buffer_append_text(json, findings->count++ ? ",{" : "{");
    json_append_member(json, "id", id);
    json_append_member(json, "level", levels[level]);
    json_append_member(json, "what", what);
    json_append_member(json, "where", where);
    json_append_member(json, "remedy", remedy);
    buffer_append_text(json, "}");
}

int findings_end(struct findings *findings)
{
    return buffer_append_text(findings->json, "]");
}
