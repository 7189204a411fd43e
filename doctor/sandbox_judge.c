/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_judge.c - whether a resize could reach each running sandbox.
 *
 * A resize needs the VMM, then the guest. Each gets a verdict from the sandbox's sockets, the
 * outcome of the last calls for its volumes, and the abilities of its routes. A route that was
 * never tried is a note, and so is every obstacle of a sandbox without volumes.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/process.h"
#include "model/sandbox.h"

enum { ARGUMENTS_BYTES = 256 * 1024, PLACE_BYTES = 512 };

/* Whether the VMM, or the guest, can be told. */
struct verdict {
    enum finding_level level; /* ok; note: not tried; error: cannot */
    char what[320];
    char remedy[DROP_IN_BYTES + 128]; /* "" none */
};

__attribute__((format(printf, 3, 4))) static struct verdict
judge(enum finding_level level, const char *remedy, const char *format, ...)
{
    struct verdict verdict = {.level = level};
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(verdict.what, sizeof(verdict.what), format, arguments);
    va_end(arguments);
    (void)snprintf(verdict.remedy, sizeof(verdict.remedy), "%s", remedy);
    return verdict;
}

static uint64_t number_of(const cJSON *row, const char *name)
{
    uint64_t number = 0;

    (void)json_number(row, name, &number);
    return number;
}

/* ---- the VMM ------------------------------------------------------------------------------- */

/* Finds the option of QEMU that names the socket: -qmp, -qmp-pretty or -monitor; "" if none does.
 */
static void find_option(pid_t pid, const char *socket, char *ret_option, size_t size)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    const char *argument, *end, *previous = "";

    ret_option[0] = '\0';
    if (process_read_arguments(pid, &arguments) < 0)
        return;
    argument = buffer_text(&arguments);
    end = argument + arguments.length;
    for (; argument < end; previous = argument, argument += strlen(argument) + 1) {
        const char *at = strstr(argument, socket);

        if (at && (at[strlen(socket)] == '\0' || at[strlen(socket)] == ','))
            (void)snprintf(ret_option, size, "%s", previous);
    }
}

/* What kind of monitor a QEMU has for crustd; NULL: none, or a human one (HMP), which crustd does
 * not use. crust-qemu/monitor_option.h has the path; both of Kata's runtimes call QEMU's main
 * monitor qmp.sock. */
static const char *find_monitor(const cJSON *row)
{
    const char *socket = json_text(row, "control_socket"), *slash = strrchr(socket, '/');
    char option[16];

    if (!*socket)
        return NULL;
    if (strncmp(socket, "/run/crustd/qemu/", strlen("/run/crustd/qemu/")) == 0)
        return "crust-qemu's, QMP";
    if (slash && strcmp(slash, "/qmp.sock") == 0)
        return "the main one, QMP";
    find_option((pid_t)number_of(row, "vmm_pid"), socket, option, sizeof(option));
    if (strncmp(option, "-qmp", 4) == 0)
        return "an extra monitor, QMP";
    return strcmp(option, "-monitor") == 0 ? NULL : "an extra monitor";
}

static struct verdict judge_qemu(const char *vmm, const cJSON *row, const struct config *config)
{
    const char *monitor = find_monitor(row);
    char drop_in[DROP_IN_BYTES], remedy[DROP_IN_BYTES + 128];

    if (monitor)
        return judge(FINDING_OK, "", "%s has a monitor for crustd (%s)", vmm, monitor);
    if (config->resize.qemu_monitor == QEMU_MONITOR_OFF)
        return judge(FINDING_NOTE, "", "%s is never told, because resize.qemu_monitor = off", vmm);
    drop_in_find(drop_in);
    (void)snprintf(remedy, sizeof(remedy),
                   "Put crustd's %s into Kata's config.d, once the program that it names is on the "
                   "node, and restart the pod",
                   drop_in);
    return judge(FINDING_ERROR, remedy, "%s %s", vmm,
                 *json_text(row, "control_socket")
                     ? "has only a human monitor (HMP), which crustd does not use"
                     : "has no monitor that crustd may use");
}

/* The results of the last calls outweigh which sockets exist. */
static struct verdict judge_vmm(const cJSON *row, const struct config *config)
{
    const enum hypervisor_kind kind = hypervisor_kind_from_name(json_text(row, "hypervisor"));
    const char *version = json_text(row, "vmm_version"), *socket = json_text(row, "control_socket");
    const char *reasons = json_text(row, "hypervisor_reasons");
    const bool is_cloud = kind == HYPERVISOR_CLOUD_HYPERVISOR;
    const bool is_old = is_cloud && *version && !cloud_hypervisor_is_able(version);
    char vmm[80], need[VMM_VERSION_TEXT_BYTES];

    (void)snprintf(vmm, sizeof(vmm), "%.32s%s%.32s", hypervisor_title(kind), *version ? " " : "",
                   version);
    if (*reasons && *socket && !is_old)
        return judge(FINDING_ERROR,
                     "crustctl volumes shows which; crustctl explain VOL says what to do",
                     "%s was asked in vain: %.128s", vmm, reasons);
    if (kind == HYPERVISOR_QEMU || kind == HYPERVISOR_UNKNOWN)
        return judge_qemu(vmm, row, config);
    if (kind != HYPERVISOR_FIRECRACKER && !is_cloud)
        return judge(FINDING_ERROR, "Restart the pod after the device has grown",
                     "%s cannot be told of a new size", vmm);
    if (!is_cloud && !config->resize.firecracker)
        return judge(FINDING_ERROR, "Set resize.firecracker = on",
                     "%s is told only where resize.firecracker allows it", vmm);
    if (!*socket)
        return judge(FINDING_ERROR,
                     is_cloud ? "See that its directory below paths.kata_go_vms or "
                                "paths.kata_rs_sandboxes is mounted"
                              : "See that its jail below /run is mounted",
                     "%s has no API socket here", vmm);
    if (is_cloud && !*version)
        return judge(FINDING_NOTE, "", "%s has not said its version yet; 52 or later is needed",
                     vmm);
    if (!is_old)
        return judge(FINDING_OK, "", "%s can be told", vmm);
    cloud_hypervisor_say_need(version, need);
    return judge(FINDING_ERROR,
                 "Install Cloud Hypervisor 52 or later where Kata's path leads, and restart the "
                 "pod",
                 "%s cannot resize a block device: %s", vmm, need);
}

/* ---- the guest ----------------------------------------------------------------------------- */

static struct verdict judge_guest(const cJSON *row, const struct config *config)
{
    static const struct {
        const char *column, *name;
    } routes[] = {
        [ROUTE_COMPANION] = {"companion_ability", "companion"},
        [ROUTE_AGENT] = {"agent_ability", "agent"},
        [ROUTE_SHIM] = {"shim_ability", "shim"},
        [ROUTE_HELPER] = {"helper_ability", "helper"},
    };
    const char *reasons = json_text(row, "guest_reasons");
    enum finding_level level = FINDING_ERROR;
    char tried[GUEST_ROUTES * 80] = "";
    size_t length = 0;

    if (number_of(row, "volumes") && number_of(row, "volumes") == number_of(row, "raw_claims"))
        return judge(FINDING_OK, "",
                     "its guest is asked nothing: its raw block claims are the pod's affair");
    if (*reasons)
        return judge(FINDING_ERROR,
                     "crustctl explain VOL says what helps; crust-guest-agent in the guest's image "
                     "needs no helper",
                     "its guest was asked in vain: %.128s", reasons);
    for (unsigned i = 0; i < GUEST_ROUTES && config->agent.routes[i] != ROUTE_NONE; i++) {
        const enum guest_route route = config->agent.routes[i];
        const char *ability = json_text(row, routes[route].column);

        if (route == ROUTE_HELPER && !config_brings_helpers(config))
            continue;
        if (strcmp(ability, "able") == 0)
            return judge(FINDING_OK, "", "its guest grows by the %s", routes[route].name);
        if (!*ability)
            level = FINDING_NOTE;
        length += (size_t)snprintf(tried + length, sizeof(tried) - length, "%s%s %.64s",
                                   length ? ", " : "", routes[route].name,
                                   *ability ? ability : "not tried");
    }
    if (length == 0)
        return judge(FINDING_NOTE, "", "its guest is never told");
    return judge(level,
                 level == FINDING_NOTE
                     ? ""
                     : "Put crust-guest-agent into the guest's image, or beside the container as a "
                       "sidecar; where a policy denies, allow the helper's container. crustctl "
                       "explain VOL says more",
                 "its guest: %s", tried);
}

/* ---- one sandbox --------------------------------------------------------------------------- */

/* "sandbox ID (NAMESPACE/POD)" */
static void format_place(const cJSON *row, char ret_text[static PLACE_BYTES])
{
    const char *pod = json_text(row, "pod_name");

    (void)snprintf(ret_text, PLACE_BYTES, "sandbox %.128s%s%.64s%s%.256s%s",
                   json_text(row, "sandbox_id"), *pod ? " (" : "",
                   *pod ? json_text(row, "pod_namespace") : "", *pod ? "/" : "", pod,
                   *pod ? ")" : "");
}

/* Nothing can be resized in it; whoever looks after the node has to end it. */
static void say_orphan(const cJSON *row, struct findings *findings)
{
    const char *names = json_text(row, "volume_names");
    const uint64_t pid = number_of(row, "vmm_pid");
    char where[PLACE_BYTES], remedy[160];

    format_place(row, where);
    (void)snprintf(remedy, sizeof(remedy),
                   "See with ps %" PRIu64 " that it is the VMM, then kill %" PRIu64
                   "; crustd never kills a process",
                   pid, pid);
    findings_add(findings, FINDING_ERROR, "orphan", where, remedy,
                 "its shim has ended, and process %" PRIu64
                 ", its VMM, runs on%s%.256s; no other VM gets its devices until it ends",
                 pid, *names ? " with the volume " : "", names);
}

static void judge_one(const cJSON *row, struct findings *findings)
{
    const struct verdict vmm = judge_vmm(row, findings->config),
                         guest = judge_guest(row, findings->config);
    enum finding_level level = vmm.level > guest.level ? vmm.level : guest.level;
    const char *names = json_text(row, "volume_names");
    const char *remedy = vmm.level == FINDING_ERROR ? vmm.remedy : guest.remedy;
    const uint64_t volumes = number_of(row, "volumes"), claims = number_of(row, "block_claims");
    char where[PLACE_BYTES], raw[48] = "";

    findings->running++;
    findings->tells_hypervisor |= vmm.level == FINDING_OK;
    findings->resizes_guests |= guest.level != FINDING_ERROR;
    findings->ignores_group |= runtime_from_name(json_text(row, "runtime")) != RUNTIME_KATA_GO;
    if (volumes == 0 && level == FINDING_ERROR)
        level = FINDING_NOTE;
    format_place(row, where);
    if (claims)
        (void)snprintf(raw, sizeof(raw), " (raw block claims: %" PRIu64 ")", claims);
    findings_add(findings, level, "sandbox", where, *remedy ? remedy : NULL,
                 "%s; %s; %" PRIu64 " volume%s%s%s%.256s", vmm.what, guest.what, volumes,
                 volumes == 1 ? "" : "s", raw, *names ? ": " : "", names);
}

/* ---- all of them --------------------------------------------------------------------------- */

/* A list of names, of which `more` did not fit. */
struct names {
    char text[640];
    size_t length;
    unsigned named, more;
};

static void add_name(struct names *names, const char *name)
{
    const char *comma = names->length ? ", " : "";

    if (names->more || names->length + strlen(comma) + strlen(name) >= sizeof(names->text)) {
        names->more++;
        return;
    }
    names->named++;
    names->length += (size_t)snprintf(names->text + names->length,
                                      sizeof(names->text) - names->length, "%s%s", comma, name);
}

/* QEMU opens its monitors when it starts. After Kata's configuration was corrected, this names the
 * pods that still run without one, those with volumes first. */
static void list_restarts(struct findings *findings)
{
    struct names names = {0};
    unsigned with_volumes = 0, count;
    char more[32] = "";

    if (findings->config->resize.qemu_monitor == QEMU_MONITOR_OFF)
        return;
    for (int pass = 1; pass >= 0; pass--) {
        const cJSON *row;

        cJSON_ArrayForEach(row, findings->sandboxes)
        {
            const enum hypervisor_kind kind =
                hypervisor_kind_from_name(json_text(row, "hypervisor"));
            const char *pod = json_text(row, "pod_name");
            char name[384];

            if ((number_of(row, "volumes") > 0) != pass || !findings_is_running(findings, row) ||
                (kind != HYPERVISOR_QEMU && kind != HYPERVISOR_UNKNOWN) ||
                number_of(row, "orphaned") || find_monitor(row))
                continue;
            (void)snprintf(name, sizeof(name), "%.64s%s%.256s",
                           *pod ? json_text(row, "pod_namespace") : "sandbox", *pod ? "/" : " ",
                           *pod ? pod : json_text(row, "sandbox_id"));
            add_name(&names, name);
            with_volumes += pass;
        }
    }
    count = names.named + names.more;
    if (count == 0)
        return;
    if (names.more)
        (void)snprintf(more, sizeof(more), ", and %u more", names.more);
    findings_add(findings, with_volumes ? FINDING_ERROR : FINDING_NOTE, "restart", NULL,
                 "Restart these pods once the findings about Kata's configuration are ok: only a "
                 "QEMU that starts opens a monitor",
                 "%u running sandbox%s no monitor that crustd may use, %u of them with volumes%s: "
                 "%s%s",
                 count, count == 1 ? " has" : "es have", with_volumes,
                 with_volumes && with_volumes < count ? " (named first)" : "", names.text, more);
}

/* As the daemon judged each volume in use. The sandbox's sockets alone do not decide: a drive may
 * not be found, or may be of a kind that cannot be resized. */
static void judge_forecast(struct findings *findings)
{
    uint64_t volumes = 0, not_resizable = 0, unknown = 0;
    struct names names = {0};
    const cJSON *row;

    cJSON_ArrayForEach(row, findings->sandboxes)
    {
        if (!findings_is_running(findings, row))
            continue;
        volumes += number_of(row, "volumes");
        not_resizable += number_of(row, "not_resizable");
        unknown += number_of(row, "resizable_unknown");
        if (*json_text(row, "not_resizable_names"))
            add_name(&names, json_text(row, "not_resizable_names"));
    }
    if (not_resizable)
        findings_add(findings, FINDING_ERROR, "resizable", NULL,
                     "crustctl volumes --not-resizable lists them; crustctl explain VOL says what "
                     "to do",
                     "a resize would not reach %" PRIu64 " of %" PRIu64 " volumes in use: %s%s",
                     not_resizable, volumes, names.text, names.more ? ", …" : "");
    else if (unknown)
        findings_add(findings, FINDING_NOTE, "resizable", NULL, NULL,
                     "whether a resize would reach them is not known yet of %" PRIu64 " of %" PRIu64
                     " volumes in use",
                     unknown, volumes);
    else if (volumes)
        findings_add(findings, FINDING_OK, "resizable", NULL, NULL,
                     "nothing is known to keep a resize from any of the %" PRIu64
                     " volumes in use that crustd may resize",
                     volumes);
}

void sandboxes_judge(struct findings *findings)
{
    const cJSON *row;
    bool is_none = true;

    cJSON_ArrayForEach(row, findings->sandboxes)
    {
        if (!findings_is_running(findings, row))
            continue;
        is_none = false;
        if (number_of(row, "orphaned"))
            say_orphan(row, findings);
        else
            judge_one(row, findings);
    }
    list_restarts(findings);
    judge_forecast(findings);
    if (is_none)
        findings_add(findings, FINDING_NOTE, "sandbox", NULL,
                     "Run a pod of Kata's with a volume, and ask again",
                     "no sandbox is known to run: what guests are able to shows only in one");
}

/* Nobody is to end a process because of what a runtime recorded. */
void sandboxes_judge_distrusted(const cJSON *distrusted, struct findings *findings)
{
    const cJSON *doubt;
    char where[PLACE_BYTES];

    cJSON_ArrayForEach(doubt, distrusted)
    {
        const bool is_process = strstr(doubt->valuestring, "process ");

        (void)snprintf(where, sizeof(where), "sandbox %.128s", doubt->string);
        findings_add(findings, FINDING_WARNING, "sandbox", where,
                     is_process
                         ? "Look at the process that is named (ps -o user,ppid,cgroup,args -p "
                           "PID): end one that is not Kata's, and look for who started it"
                         : "Look at the file or directory that is named: whose it is, who may "
                           "write to it, and what is in it. No process has to end for it",
                     "%s: %s", is_process ? "not believed" : "a part of its records is left out",
                     doubt->valuestring);
    }
}
