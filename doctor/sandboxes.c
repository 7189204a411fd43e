/* sandboxes.c - a volume grows through two doors: its VMM is told, then its guest. What is known of
 * each is what the sandbox has, how the last calls for its volumes ended, and what its routes
 * turned out to be able to do. A door that nobody has tried yet is a note. A sandbox without
 * volumes has nothing to lose, so its shut doors are notes too.
 */
#include "doctor/sandboxes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/json.h"

/* What is known of one door. */
struct door {
    enum finding_level level; /* ok, note: not tried, error: shut */
    char what[256];
    const char *remedy; /* NULL none */
};

static const char *text_of(const cJSON *row, const char *key)
{
    const char *text = json_string(row, key);

    return text ? text : "";
}

/* ---- the VMM ------------------------------------------------------------------------------- */

static struct door shut(const char *what, const char *remedy)
{
    struct door door = {.level = FINDING_ERROR, .remedy = remedy};

    (void)snprintf(door.what, sizeof(door.what), "%s", what);
    return door;
}

static struct door find_qemu(const char *socket, const char *runtime, const struct config *config)
{
    const bool is_rust = strcmp(runtime, "kata-rs") == 0;

    if (*socket)
        return (struct door){.what = "QEMU has a monitor for crustd"};
    if (config->resize.qemu_monitor == QEMU_MONITOR_OFF)
        return (struct door){.level = FINDING_NOTE,
                             .what = "QEMU is never told, as resize.qemu_monitor = off has it"};
    return shut("QEMU has no monitor that crustd may use",
                is_rust ? "Put config/deploy/kata/rust-qemu.toml into Kata's config.d, and restart "
                          "the pod"
                        : "Put config/deploy/kata/go-qemu.toml into Kata's config.d, and restart "
                          "the pod");
}

static struct door find_cloud_hypervisor(const char *socket)
{
    if (!*socket)
        return shut("Cloud Hypervisor has no API socket here",
                    "See that its directory below paths.kata_go_vms or paths.kata_rs_sandboxes is "
                    "mounted");
    return (struct door){.what = "Cloud Hypervisor can be told"};
}

static struct door find_firecracker(const char *socket, const struct config *config)
{
    if (!config->resize.firecracker)
        return shut("Firecracker is told only where resize.firecracker allows it",
                    "Set resize.firecracker = on");
    if (!*socket)
        return shut("Firecracker has no API socket here",
                    "See that its jail below /run is mounted");
    return (struct door){.what = "Firecracker can be told"};
}

/* How its last calls ended says more than what it has. */
static struct door ended(const char *who, const char *reasons, const char *remedy)
{
    struct door door = shut("", remedy);

    (void)snprintf(door.what, sizeof(door.what), "%s: %.128s", who, reasons);
    return door;
}

static struct door find_hypervisor(const cJSON *row, const struct config *config)
{
    const char *hypervisor = text_of(row, "hypervisor");
    const char *socket = text_of(row, "control_socket");
    const char *reasons = text_of(row, "hypervisor_reasons");

    if (*reasons && *socket)
        return ended(hypervisor, reasons,
                     "crustctl volumes shows which; crustctl explain VOL says what to do");

    if (strcmp(hypervisor, "cloud-hypervisor") == 0)
        return find_cloud_hypervisor(socket);
    if (strcmp(hypervisor, "firecracker") == 0)
        return find_firecracker(socket, config);
    if (strcmp(hypervisor, "qemu") == 0 || strcmp(hypervisor, "unknown") == 0)
        return find_qemu(socket, text_of(row, "runtime"), config);
    return shut("this hypervisor has no way to be told", "Restart the pod after a growth");
}

/* ---- the guest ----------------------------------------------------------------------------- */

static const struct {
    const char *column;
    const char *name;
} routes[] = {
    [ROUTE_COMPANION] = {"companion_ability", "companion"},
    [ROUTE_AGENT] = {"agent_ability", "agent"},
    [ROUTE_SHIM] = {"shim_ability", "shim"},
};

static const char agent_remedy[] =
    "Put crust-guest-agent into the guest's image, or beside the container as a sidecar; where a "
    "policy denies, allow ResizeVolume and GetVolumeStats. crustctl explain VOL says more";

static struct door find_guest(const cJSON *row, const struct config *config)
{
    const char *reasons = text_of(row, "guest_reasons");
    struct door door = {.level = FINDING_ERROR};
    size_t length = 0;

    if (*reasons)
        return ended("its guest", reasons, agent_remedy);

    for (unsigned i = 0; i < CONFIG_ROUTES && config->agent.routes[i] != ROUTE_NONE; i++) {
        const enum config_route route = config->agent.routes[i];
        const char *ability = text_of(row, routes[route].column);

        if (strcmp(ability, "able") == 0) {
            (void)snprintf(door.what, sizeof(door.what), "its guest grows by the %s",
                           routes[route].name);
            door.level = FINDING_OK;
            return door;
        }
        if (!*ability)
            door.level = FINDING_NOTE;
        length += (size_t)snprintf(door.what + length, sizeof(door.what) - length, "%s%s %.64s",
                                   length ? ", " : "its guest: ", routes[route].name,
                                   *ability ? ability : "not tried");
    }
    if (length == 0)
        return (struct door){.level = FINDING_NOTE, .what = "its guest is never told"};
    if (door.level == FINDING_ERROR)
        door.remedy = agent_remedy;
    return door;
}

/* ---- one sandbox --------------------------------------------------------------------------- */

static enum finding_level worse(enum finding_level a, enum finding_level b)
{
    return a > b ? a : b;
}

static void format_place(const cJSON *row, char *ret_text, size_t size)
{
    const char *pod = text_of(row, "pod_name");

    (void)snprintf(ret_text, size, "sandbox %.128s%s%.64s%s%.256s%s", text_of(row, "sandbox_id"),
                   *pod ? " (" : "", *pod ? text_of(row, "pod_namespace") : "", *pod ? "/" : "",
                   pod, *pod ? ")" : "");
}

static void judge_one(const cJSON *row, const struct config *config, struct findings *findings)
{
    const struct door vmm = find_hypervisor(row, config), guest = find_guest(row, config);
    enum finding_level level = worse(vmm.level, guest.level);
    const char *names = text_of(row, "volume_names");
    char where[512];
    uint64_t volumes = 0;

    (void)json_number(row, "volumes", &volumes);
    if (volumes == 0 && level == FINDING_ERROR)
        level = FINDING_NOTE;
    format_place(row, where, sizeof(where));
    findings_add(findings, level, "sandbox", where,
                 vmm.level == FINDING_ERROR ? vmm.remedy : guest.remedy,
                 "%s; %s; %" PRIu64 " volume%s%s%.256s", vmm.what, guest.what, volumes,
                 volumes == 1 ? "" : "s", *names ? ": " : "", names);
}

void sandboxes_judge(const cJSON *sandboxes, const char *boot_id, const struct config *config,
                     struct findings *findings)
{
    const cJSON *row;
    unsigned count = 0;

    cJSON_ArrayForEach(row, sandboxes)
    {
        if (strcmp(text_of(row, "boot_id"), boot_id) != 0)
            continue;
        judge_one(row, config, findings);
        count++;
    }
    if (count == 0)
        findings_add(findings, FINDING_NOTE, "sandbox", NULL,
                     "Run a pod of Kata's with a volume, and ask again",
                     "no sandbox is known to run: what guests are able to shows only in one");
}
