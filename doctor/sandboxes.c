/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.c - whether a resize could reach each running sandbox.
 *
 * A resize needs the VMM, then the guest. Each gets a verdict from the sandbox's sockets, the
 * outcome of the last calls for its volumes, and the abilities of its routes. A route that was
 * never tried is a note, and so is every obstacle of a sandbox without volumes.
 */
#include "doctor/checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"
#include "lib/vmm_version.h"
#include "model/hypervisor.h"
#include "model/runtime.h"

/* Whether the VMM, or the guest, can be told. */
struct verdict {
    enum finding_level level; /* ok; note: not tried; error: cannot */
    char what[256];
    char remedy[DROP_IN_BYTES + 128]; /* "" none */
};

/* ---- the VMM ------------------------------------------------------------------------------- */

/* "QEMU 7.2.22", "Cloud Hypervisor" */
struct vmm {
    char name[80];
    const char *socket; /* "" none */
};

static struct verdict make_verdict(const struct vmm *vmm, const char *how)
{
    struct verdict verdict = {.level = FINDING_OK};

    (void)snprintf(verdict.what, sizeof(verdict.what), "%s %s", vmm->name, how);
    return verdict;
}

static struct verdict make_error(const struct vmm *vmm, const char *why, const char *remedy)
{
    struct verdict verdict = make_verdict(vmm, why);

    verdict.level = FINDING_ERROR;
    (void)snprintf(verdict.remedy, sizeof(verdict.remedy), "%s", remedy);
    return verdict;
}

static bool is_orphan(const cJSON *row)
{
    uint64_t orphaned = 0;

    return json_number(row, "orphaned", &orphaned) == 0 && orphaned;
}

/* What monitor it has for crustd; NULL: none. */
static const char *find_monitor(const cJSON *row)
{
    const char *socket = json_text(row, "control_socket");
    uint64_t pid = 0;

    (void)json_number(row, "vmm_pid", &pid);
    return *socket ? monitor_describe((pid_t)pid, socket) : NULL;
}

static bool lacks_monitor(const cJSON *row, const struct config *config)
{
    const enum hypervisor_kind kind = hypervisor_kind_from_name(json_text(row, "hypervisor"));

    return (kind == HYPERVISOR_QEMU || kind == HYPERVISOR_UNKNOWN) && !is_orphan(row) &&
           !find_monitor(row) && config->resize.qemu_monitor != QEMU_MONITOR_OFF;
}

static struct verdict find_qemu(const struct vmm *vmm, const cJSON *row,
                                const struct config *config)
{
    const char *monitor = find_monitor(row);
    char drop_in[DROP_IN_BYTES], how[96];
    struct verdict verdict;

    if (monitor) {
        (void)snprintf(how, sizeof(how), "has a monitor for crustd (%s)", monitor);
        return make_verdict(vmm, how);
    }
    if (config->resize.qemu_monitor != QEMU_MONITOR_OFF) {
        verdict =
            make_error(vmm,
                       *vmm->socket ? "has only a human monitor (HMP), which crustd does not use"
                                    : "has no monitor that crustd may use",
                       "");
        drop_in_find(drop_in);
        (void)snprintf(
            verdict.remedy, sizeof(verdict.remedy),
            "Put crustd's %s into Kata's config.d, once the program that it names is on the "
            "node, and restart the pod",
            drop_in);
        return verdict;
    }
    verdict = make_verdict(vmm, "is never told, because resize.qemu_monitor = off");
    verdict.level = FINDING_NOTE;
    return verdict;
}

static struct verdict find_firecracker(const struct vmm *vmm, const struct config *config)
{
    if (!config->resize.firecracker)
        return make_error(vmm, "is told only where resize.firecracker allows it",
                          "Set resize.firecracker = on");
    if (!*vmm->socket)
        return make_error(vmm, "has no API socket here", "See that its jail below /run is mounted");
    return make_verdict(vmm, "can be told");
}

static struct verdict refuse_version(const struct vmm *vmm, const char *version)
{
    char need[VMM_VERSION_TEXT_BYTES], why[VMM_VERSION_TEXT_BYTES + 64];

    cloud_hypervisor_say_need(version, need);
    (void)snprintf(why, sizeof(why), "cannot resize a block device: %s", need);
    return make_error(vmm, why,
                      "Install Cloud Hypervisor 52 or later where Kata's path leads, and restart "
                      "the pod");
}

static struct verdict find_cloud_hypervisor(const struct vmm *vmm, const char *version)
{
    struct verdict verdict;

    if (!*vmm->socket)
        return make_error(vmm, "has no API socket here",
                          "See that its directory below paths.kata_go_vms or "
                          "paths.kata_rs_sandboxes is mounted");
    if (*version)
        return cloud_hypervisor_is_able(version) ? make_verdict(vmm, "can be told")
                                                 : refuse_version(vmm, version);
    verdict = make_verdict(vmm, "has not said its version yet; 52 or later is needed");
    verdict.level = FINDING_NOTE;
    return verdict;
}

/* The results of the last calls outweigh which sockets exist. */
static struct verdict find_hypervisor(const cJSON *row, const struct config *config)
{
    const enum hypervisor_kind kind = hypervisor_kind_from_name(json_text(row, "hypervisor"));
    const char *version = json_text(row, "vmm_version");
    const char *reasons = json_text(row, "hypervisor_reasons");
    struct vmm vmm = {.socket = json_text(row, "control_socket")};
    bool is_old =
        kind == HYPERVISOR_CLOUD_HYPERVISOR && *version && !cloud_hypervisor_is_able(version);
    char why[160];

    (void)snprintf(vmm.name, sizeof(vmm.name), "%.32s%s%.32s", hypervisor_title(kind),
                   *version ? " " : "", version);
    if (*reasons && *vmm.socket && !is_old) {
        (void)snprintf(why, sizeof(why), "was asked in vain: %.128s", reasons);
        return make_error(&vmm, why,
                          "crustctl volumes shows which; crustctl explain VOL says what to do");
    }
    switch (kind) {
    case HYPERVISOR_QEMU:
    case HYPERVISOR_UNKNOWN:
        return find_qemu(&vmm, row, config);
    case HYPERVISOR_CLOUD_HYPERVISOR:
        return find_cloud_hypervisor(&vmm, version);
    case HYPERVISOR_FIRECRACKER:
        return find_firecracker(&vmm, config);
    case HYPERVISOR_DRAGONBALL:
    case HYPERVISOR_STRATOVIRT:
    case HYPERVISOR_OPENVMM:
    case HYPERVISOR_REMOTE:
    case HYPERVISOR_KINDS:
        break;
    }
    return make_error(&vmm, "cannot be told of a new size",
                      "Restart the pod after the device has grown");
}

/* ---- the guest ----------------------------------------------------------------------------- */

static const struct {
    const char *column;
    const char *name;
} routes[] = {
    [ROUTE_COMPANION] = {"companion_ability", "companion"},
    [ROUTE_AGENT] = {"agent_ability", "agent"},
    [ROUTE_SHIM] = {"shim_ability", "shim"},
    [ROUTE_HELPER] = {"helper_ability", "helper"},
};

static const char agent_remedy[] =
    "Put crust-guest-agent into the guest's image, or beside the container as a sidecar; where a "
    "policy denies, allow the helper's container. crustctl explain VOL says more";

static const char asked_remedy[] =
    "crustctl explain VOL says what helps; crust-guest-agent in the guest's image needs no helper";

static struct verdict find_guest(const cJSON *row, const struct config *config)
{
    const char *reasons = json_text(row, "guest_reasons");
    struct verdict verdict = {.level = FINDING_ERROR};
    size_t length = 0;

    if (*reasons) {
        (void)snprintf(verdict.what, sizeof(verdict.what), "its guest was asked in vain: %.128s",
                       reasons);
        (void)snprintf(verdict.remedy, sizeof(verdict.remedy), "%s", asked_remedy);
        return verdict;
    }

    for (unsigned i = 0; i < GUEST_ROUTES && config->agent.routes[i] != ROUTE_NONE; i++) {
        const enum guest_route route = config->agent.routes[i];
        const char *ability = json_text(row, routes[route].column);

        if (route == ROUTE_HELPER && !config_brings_helpers(config))
            continue;
        if (strcmp(ability, "able") == 0) {
            (void)snprintf(verdict.what, sizeof(verdict.what), "its guest grows by the %s",
                           routes[route].name);
            verdict.level = FINDING_OK;
            return verdict;
        }
        if (!*ability)
            verdict.level = FINDING_NOTE;
        length += (size_t)snprintf(verdict.what + length, sizeof(verdict.what) - length,
                                   "%s%s %.64s", length ? ", " : "its guest: ", routes[route].name,
                                   *ability ? ability : "not tried");
    }
    if (length == 0)
        return (struct verdict){.level = FINDING_NOTE, .what = "its guest is never told"};
    if (verdict.level == FINDING_ERROR)
        (void)snprintf(verdict.remedy, sizeof(verdict.remedy), "%s", agent_remedy);
    return verdict;
}

/* ---- one sandbox --------------------------------------------------------------------------- */

static enum finding_level worse(enum finding_level a, enum finding_level b)
{
    return a > b ? a : b;
}

static void format_place(const cJSON *row, char *ret_text, size_t size)
{
    const char *pod = json_text(row, "pod_name");

    (void)snprintf(ret_text, size, "sandbox %.128s%s%.64s%s%.256s%s", json_text(row, "sandbox_id"),
                   *pod ? " (" : "", *pod ? json_text(row, "pod_namespace") : "", *pod ? "/" : "",
                   pod, *pod ? ")" : "");
}

/* Nothing can be resized in it; whoever looks after the node has to end it. */
static bool judge_orphan(const cJSON *row, struct findings *findings)
{
    const char *names = json_text(row, "volume_names");
    char where[512], remedy[160];
    uint64_t pid = 0;

    if (!is_orphan(row))
        return false;
    (void)json_number(row, "vmm_pid", &pid);
    format_place(row, where, sizeof(where));
    (void)snprintf(remedy, sizeof(remedy),
                   "See with ps %" PRIu64 " that it is the VMM, then kill %" PRIu64
                   "; crustd never kills a process",
                   pid, pid);
    findings_add(findings, FINDING_ERROR, "orphan", where, remedy,
                 "its shim has ended, and process %" PRIu64
                 ", its VMM, runs on%s%.256s; no other VM gets its devices until it ends",
                 pid, *names ? " with the volume " : "", names);
    return true;
}

static void judge_one(const cJSON *row, const struct config *config, struct findings *findings)
{
    const struct verdict vmm = find_hypervisor(row, config), guest = find_guest(row, config);
    enum finding_level level = worse(vmm.level, guest.level);
    const char *names = json_text(row, "volume_names");
    const char *remedy = vmm.level == FINDING_ERROR ? vmm.remedy : guest.remedy;
    char where[512];
    uint64_t volumes = 0;

    findings->sandboxes++;
    findings->tells_hypervisor |= vmm.level == FINDING_OK;
    findings->resizes_guests |= guest.level != FINDING_ERROR;
    findings->ignores_group |= runtime_from_name(json_text(row, "runtime")) != RUNTIME_KATA_GO;
    (void)json_number(row, "volumes", &volumes);
    if (volumes == 0 && level == FINDING_ERROR)
        level = FINDING_NOTE;
    format_place(row, where, sizeof(where));
    findings_add(findings, level, "sandbox", where, *remedy ? remedy : NULL,
                 "%s; %s; %" PRIu64 " volume%s%s%.256s", vmm.what, guest.what, volumes,
                 volumes == 1 ? "" : "s", *names ? ": " : "", names);
}

/* ---- those that have to be restarted ------------------------------------------------------- */

/* QEMU opens its monitors when it starts. After Kata's configuration was corrected, this names the
 * pods that still run without one. */
struct restarts {
    char names[640];
    size_t length;
    unsigned named, count, with_volumes;
};

static void add_restart(struct restarts *restarts, const cJSON *row)
{
    const char *pod = json_text(row, "pod_name");
    char name[384];
    size_t length;

    if (*pod)
        (void)snprintf(name, sizeof(name), "%s%.64s/%.256s", restarts->named ? ", " : "",
                       json_text(row, "pod_namespace"), pod);
    else
        (void)snprintf(name, sizeof(name), "%ssandbox %.128s", restarts->named ? ", " : "",
                       json_text(row, "sandbox_id"));
    length = strlen(name);
    restarts->count++;
    if (restarts->named + 1 < restarts->count ||
        restarts->length + length >= sizeof(restarts->names))
        return;
    memcpy(restarts->names + restarts->length, name, length + 1);
    restarts->length += length;
    restarts->named++;
}

static bool has_volumes(const cJSON *row)
{
    uint64_t volumes = 0;

    return json_number(row, "volumes", &volumes) == 0 && volumes > 0;
}

static void list_restarts(const cJSON *sandboxes, const char *boot_id, const struct config *config,
                          struct findings *findings)
{
    struct restarts restarts = {0};
    char more[32] = "";

    for (int with_volumes = 1; with_volumes >= 0; with_volumes--) {
        const cJSON *row;

        cJSON_ArrayForEach(row, sandboxes)
        {
            if (strcmp(json_text(row, "boot_id"), boot_id) == 0 && lacks_monitor(row, config) &&
                has_volumes(row) == with_volumes)
                add_restart(&restarts, row);
        }
        if (with_volumes)
            restarts.with_volumes = restarts.count;
    }
    if (restarts.count == 0)
        return;
    if (restarts.count > restarts.named)
        (void)snprintf(more, sizeof(more), ", and %u more", restarts.count - restarts.named);
    findings_add(findings, restarts.with_volumes ? FINDING_ERROR : FINDING_NOTE, "restart", NULL,
                 "Restart these pods once the findings about Kata's configuration are ok: only a "
                 "QEMU that starts opens a monitor",
                 "%u running sandbox%s no monitor that crustd may use, %u of them with volumes%s: "
                 "%s%s",
                 restarts.count, restarts.count == 1 ? " has" : "es have", restarts.with_volumes,
                 restarts.with_volumes && restarts.with_volumes < restarts.count ? " (named first)"
                                                                                 : "",
                 restarts.names, more);
}

/* ---- what would happen ---------------------------------------------------------------------- */

/* As the daemon judged each volume in use. The sandbox's sockets alone do not decide: a drive may
 * not be found, or may be of a kind that cannot be resized. */
struct forecast {
    uint64_t volumes, not_resizable, unknown;
    char names[640];
    size_t length;
    bool cut; /* there are more than the names say */
};

static void add_names(struct forecast *forecast, const char *names)
{
    const char *comma = forecast->length ? ", " : "";
    size_t length = strlen(comma) + strlen(names);

    forecast->cut |= forecast->length + length >= sizeof(forecast->names);
    if (!*names || forecast->cut)
        return;
    forecast->length +=
        (size_t)snprintf(forecast->names + forecast->length,
                         sizeof(forecast->names) - forecast->length, "%s%s", comma, names);
}

static void add_forecast(struct forecast *forecast, const cJSON *row)
{
    uint64_t volumes = 0, not_resizable = 0, unknown = 0;

    (void)json_number(row, "volumes", &volumes);
    (void)json_number(row, "not_resizable", &not_resizable);
    (void)json_number(row, "resizable_unknown", &unknown);
    forecast->volumes += volumes;
    forecast->not_resizable += not_resizable;
    forecast->unknown += unknown;
    add_names(forecast, json_text(row, "not_resizable_names"));
}

static void judge_forecast(const cJSON *sandboxes, const char *boot_id, struct findings *findings)
{
    struct forecast forecast = {0};
    const cJSON *row;

    cJSON_ArrayForEach(row, sandboxes)
    {
        if (strcmp(json_text(row, "boot_id"), boot_id) == 0)
            add_forecast(&forecast, row);
    }
    if (forecast.not_resizable)
        findings_add(findings, FINDING_ERROR, "resizable", NULL,
                     "crustctl volumes --not-resizable lists them; crustctl explain VOL says what "
                     "to do",
                     "a resize would not reach %" PRIu64 " of %" PRIu64 " volumes in use: %s%s",
                     forecast.not_resizable, forecast.volumes, forecast.names,
                     forecast.cut ? ", …" : "");
    else if (forecast.unknown)
        findings_add(findings, FINDING_NOTE, "resizable", NULL, NULL,
                     "whether a resize would reach them is not known yet of %" PRIu64 " of %" PRIu64
                     " volumes in use",
                     forecast.unknown, forecast.volumes);
    else if (forecast.volumes)
        findings_add(findings, FINDING_OK, "resizable", NULL, NULL,
                     "nothing is known to keep a resize from any of the %" PRIu64
                     " volumes in use that crustd may resize",
                     forecast.volumes);
}

void sandboxes_judge(const cJSON *sandboxes, const char *boot_id, const struct config *config,
                     struct findings *findings)
{
    const cJSON *row;
    unsigned count = 0;

    cJSON_ArrayForEach(row, sandboxes)
    {
        if (strcmp(json_text(row, "boot_id"), boot_id) != 0)
            continue;
        if (!judge_orphan(row, findings))
            judge_one(row, config, findings);
        count++;
    }
    list_restarts(sandboxes, boot_id, config, findings);
    judge_forecast(sandboxes, boot_id, findings);
    if (count == 0)
        findings_add(findings, FINDING_NOTE, "sandbox", NULL,
                     "Run a pod of Kata's with a volume, and ask again",
                     "no sandbox is known to run: what guests are able to shows only in one");
}

/* Of a process, or of what the runtime recorded: nobody is to end a process because of a file. */
static void judge_doubt(const char *where, const char *text, struct findings *findings)
{
    if (strstr(text, "process "))
        findings_add(findings, FINDING_WARNING, "sandbox", where,
                     "Look at the process that is named (ps -o user,ppid,cgroup,args -p PID): end "
                     "one that is not Kata's, and look for who started it",
                     "not believed: %s", text);
    else
        findings_add(findings, FINDING_WARNING, "sandbox", where,
                     "Look at the file or directory that is named: whose it is, who may write to "
                     "it, and what is in it. No process has to end for it",
                     "a part of its records is left out: %s", text);
}

void sandboxes_judge_doubts(const cJSON *doubts, struct findings *findings)
{
    const cJSON *doubt;
    char where[160];

    cJSON_ArrayForEach(doubt, doubts)
    {
        (void)snprintf(where, sizeof(where), "sandbox %.128s", doubt->string);
        judge_doubt(where, doubt->valuestring, findings);
    }
}
