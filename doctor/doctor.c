/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - the order of an examination: from the kernel up to the sandboxes. */
#include "doctor/doctor.h"

#include <fcntl.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"

static void examine_policy(struct findings *findings)
{
    const struct config *config = findings->config;

    if (config->resize.mode != RESIZE_GROW)
        findings_add(findings, FINDING_NOTE, "policy", "resize.mode", "Set resize.mode = grow",
                     "nothing is grown: crustd's configuration says %s",
                     config->resize.mode == RESIZE_OBSERVE ? "observe" : "never");
    if (config->agent.routes[0] == ROUTE_NONE)
        findings_add(findings, FINDING_NOTE, "policy", "agent.routes",
                     "Set agent.routes = companion, agent, shim",
                     "no guest is ever told: agent.routes is empty");
}

static struct findings begin(const struct doctor_request *request, struct buffer *json)
{
    struct findings findings = {.root = request->root,
                                .config = request->config,
                                .sandboxes = request->sandboxes,
                                .json = json};

    (void)clock_boot_id(findings.boot_id);
    buffer_append_text(json, "[");
    return findings;
}

int doctor_find_abilities(const struct doctor_request *request,
                          struct doctor_abilities *ret_abilities)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(DOCTOR_BYTES);
    struct findings found = begin(request, &json);

    kata_examine(&found);
    sandboxes_judge(&found);
    if (found.lacks_direct_volumes)
        found.configurations = found.running = 0;
    *ret_abilities = (struct doctor_abilities){
        .has_guests = found.configurations || found.running,
        .tells_hypervisor = found.tells_hypervisor,
        .resizes_guests = found.running ? found.resizes_guests : found.configurations,
        .applies_group = (found.configurations || found.running) && !found.ignores_group,
        .ignores_labels = found.configurations && !found.label_guests,
        .enforces_labels = found.configurations && found.label_guests == found.configurations,
    };
    return buffer_error(&json);
}

int doctor_examine(const struct doctor_request *request, struct buffer *ret_json)
{
    cleanup(fd_closep) int mounts = open(mount_table_path(), O_RDONLY | O_CLOEXEC);
    struct findings findings = begin(request, ret_json);
    struct kernel_facts kernel;

    kernel_read(request->root, request->config, &kernel);
    kernel_judge(&kernel, &findings);
    paths_examine(&findings);
    examine_policy(&findings);
    drives_examine(&findings);
    kata_examine(&findings);
    sandboxes_judge(&findings);
    sandboxes_judge_distrusted(request->distrusted, &findings);
    if (mounts >= 0)
        host_mounts_examine(mounts, &findings);
    return buffer_append_text(ret_json, "]");
}

int doctor_find_crust_users(int root, struct buffer *ret_json)
{
    struct findings findings = begin(&(struct doctor_request){.root = root}, ret_json);

    crust_users_find(&findings);
    return buffer_append_text(ret_json, "]");
}
