/* SPDX-License-Identifier: Apache-2.0 */
/* kata.c - whether sandboxes of the configurations in use can be resized. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/vmm_version.h"
#include "model/hypervisor.h"
#include "model/runtime.h"

/* ---- what a configuration leads to --------------------------------------------------------- */

struct judgement {
    const struct kata_settings *settings;
    const struct kata_table *table;
    const struct program *program;
    const char *file;
    const char *runtimes;
    struct findings *findings;
    /* What sandboxes show that run with this runtime and hypervisor: their VMs have volumes as
     * devices; the hypervisor's version can resize block devices, or cannot. */
    bool has_devices, has_able_version, has_old_version;
};

static void look_at_sandboxes(struct judgement *judgement)
{
    const enum kata_runtime runtime =
        judgement->settings->is_rust ? RUNTIME_KATA_RS : RUNTIME_KATA_GO;
    const enum hypervisor_kind kind = hypervisor_kind_from_name(judgement->table->name);
    const cJSON *row;

    cJSON_ArrayForEach(row, judgement->findings->running)
    {
        const char *version = json_text(row, "vmm_version");
        uint64_t attached = 0;

        if (strcmp(json_text(row, "boot_id"), judgement->findings->boot_id) != 0 ||
            runtime_from_name(json_text(row, "runtime")) != runtime ||
            hypervisor_kind_from_name(json_text(row, "hypervisor")) != kind)
            continue;
        judgement->has_devices |= json_number(row, "attached", &attached) == 0 && attached > 0;
        judgement->has_able_version |= cloud_hypervisor_is_able(version);
        judgement->has_old_version |= *version && !cloud_hypervisor_is_able(version);
    }
}

static void say(const struct judgement *judgement, enum finding_level level, const char *remedy,
                const char *what)
{
    findings_add(judgement->findings, level, "kata_configuration", judgement->file, remedy,
                 "%s (%s, Kata's %s runtime): %s", judgement->runtimes, judgement->table->name,
                 judgement->settings->is_rust ? "Rust" : "Go", what);
}

/* What to change about Kata's own setting, in the file that has it; "" nothing. The Rust runtime's
 * leads to no monitor that crustd uses. */
static void format_setting(const struct judgement *judgement, const char *set_by, char *ret_text,
                           size_t size)
{
    const bool is_set = judgement->table->monitor[0], is_own = judgement->table->confidential;
    const char *file = *set_by ? set_by : judgement->file;

    *ret_text = '\0';
    if (judgement->settings->is_rust && is_set && !is_own)
        (void)snprintf(ret_text, size, "Remove extra_monitor_socket from %s, and ", file);
    else if (!judgement->settings->is_rust && (is_set || is_own))
        (void)snprintf(ret_text, size,
                       "Set enable_debug = true and extra_monitor_socket = \"qmp\" in %s. %s", file,
                       is_own ? "" : "Or better, without debug settings: ");
}

static void format_remedy(const struct judgement *judgement, const char *set_by, char *ret_text,
                          size_t size)
{
    const char *slash = strrchr(judgement->file, '/');
    char drop_in[DROP_IN_BYTES], own[640];

    drop_in_find(drop_in);
    format_setting(judgement, set_by, own, sizeof(own));
    if (judgement->table->confidential)
        (void)snprintf(
            ret_text, size, "%s%s", own,
            judgement->settings->is_rust
                ? "Restart a pod once its volume has grown: a confidential guest of this "
                  "runtime can have no monitor for crustd"
                : "Then restart the pods");
    else
        (void)snprintf(
            ret_text, size,
            "%s%s crustd's %s, whose head says what it costs, into %.*s/config.d, once the program "
            "that it names is on the node: Kata then starts QEMU through crust-qemu. Then restart "
            "the pods",
            own, *own ? "put" : "Put", drop_in, slash ? (int)(slash - judgement->file) : 1,
            slash ? judgement->file : ".");
}

static void say_monitor(const struct judgement *judgement, const char *set_by, const char *what)
{
    char remedy[2048], text[512];

    format_remedy(judgement, set_by, remedy, sizeof(remedy));
    (void)snprintf(text, sizeof(text), "%s%s%s%s", what, *set_by ? " (" : "", set_by,
                   *set_by ? ")" : "");
    say(judgement, FINDING_ERROR, remedy, text);
}

static bool is_monitor(const char *name)
{
    return strcmp(name, "qmp") == 0 || strcmp(name, "qmp-pretty") == 0;
}

/* Whether crustd can tell a VMM of this configuration of a new size; likewise all judge_…(). */
static bool judge_extra_monitor(const struct judgement *judgement)
{
    const struct kata_table *table = judgement->table;
    char text[128];

    if (!table->monitor[0])
        say_monitor(judgement, table->monitor_file,
                    "QEMU gets no monitor that crustd may use: extra_monitor_socket is empty");
    else if (!is_monitor(table->monitor))
        say_monitor(judgement, table->monitor_file,
                    "extra_monitor_socket is neither qmp nor qmp-pretty: crustd uses no other");
    else if (judgement->settings->is_rust)
        say_monitor(judgement, table->monitor_file,
                    "with extra_monitor_socket = \"qmp\" this runtime gives QEMU the path of its "
                    "own monitor twice, and no pod starts");
    else if (!table->enable_debug)
        say_monitor(judgement, table->debug_file,
                    "extra_monitor_socket is set, and ignored without enable_debug = true");
    else {
        (void)snprintf(text, sizeof(text), "QEMU gets a monitor for crustd (%s)", table->monitor);
        say(judgement, FINDING_OK, NULL, text);
        return true;
    }
    return false;
}

/* Its program is judged separately; it leaves a confidential guest alone. */
static bool has_crust_qemu(const struct judgement *judgement)
{
    return judgement->program->is_crust && !judgement->table->confidential;
}

static bool judge_crust_qemu(const struct judgement *judgement)
{
    const struct kata_table *table = judgement->table;
    const struct program *program = judgement->program;

    if (judgement->settings->is_rust && table->enable_debug && table->monitor[0] &&
        strcmp(table->monitor, "hmp") != 0)
        return judge_extra_monitor(judgement);
    if (program->state != PROGRAM_THERE || program->qemu != PROGRAM_THERE ||
        !program->has_directory)
        return false;
    say(judgement, FINDING_OK, NULL, "QEMU gets a monitor for crustd (crust-qemu)");
    return true;
}

static bool judge_qemu(const struct judgement *judgement, const struct config *config)
{
    bool tells;

    if (config->resize.qemu_monitor == QEMU_MONITOR_OFF) {
        say(judgement, FINDING_NOTE, NULL, "QEMU is never told, because resize.qemu_monitor = off");
        return false;
    }
    if (config->resize.qemu_monitor == QEMU_MONITOR_MAIN) {
        say(judgement, FINDING_NOTE, NULL,
            "QEMU is told on its main monitor where it has no other, because resize.qemu_monitor = "
            "main: a shim that uses it too can be hindered from ending its pod");
        return true;
    }
    tells =
        has_crust_qemu(judgement) ? judge_crust_qemu(judgement) : judge_extra_monitor(judgement);
    if (judgement->table->confidential)
        say(judgement, FINDING_NOTE, NULL,
            "the guests are confidential: an extra monitor changes QEMU's command line, and with "
            "it what they attest");
    return tells;
}

/* Its version is known only from a running sandbox. */
static bool judge_cloud_hypervisor(const struct judgement *judgement)
{
    if (judgement->has_able_version && !judgement->has_old_version) {
        say(judgement, FINDING_OK, NULL, "Cloud Hypervisor is told by its own API");
        return true;
    }
    say(judgement, FINDING_WARNING,
        "See that Kata uses Cloud Hypervisor 52 or later; Kata 4.1.0 comes with 51.1",
        judgement->has_old_version
            ? "an older Cloud Hypervisor runs here than version 52, the first that can grow a "
              "block device"
            : "Cloud Hypervisor cannot grow a block device before version 52; which one this is "
              "shows once crustd has talked to it");
    return false;
}

static bool judge_firecracker(const struct judgement *judgement, const struct config *config)
{
    if (config->resize.firecracker)
        say(judgement, FINDING_OK, NULL, "Firecracker is told by its own API");
    else
        say(judgement, FINDING_ERROR, "Set resize.firecracker = on in crustd's configuration",
            "Firecracker is told only where resize.firecracker allows it");
    return config->resize.firecracker;
}

static bool judge_hypervisor(const struct judgement *judgement, const struct config *config)
{
    switch (hypervisor_kind_from_name(judgement->table->name)) {
    case HYPERVISOR_QEMU:
        return judge_qemu(judgement, config);
    case HYPERVISOR_CLOUD_HYPERVISOR:
        return judge_cloud_hypervisor(judgement);
    case HYPERVISOR_FIRECRACKER:
        return judge_firecracker(judgement, config);
    case HYPERVISOR_UNKNOWN:
    case HYPERVISOR_DRAGONBALL:
    case HYPERVISOR_STRATOVIRT:
    case HYPERVISOR_OPENVMM:
    case HYPERVISOR_REMOTE:
    case HYPERVISOR_KINDS:
        break;
    }
    say(judgement, FINDING_ERROR, "Use QEMU, Cloud Hypervisor 52 or Firecracker",
        "crustd has no way to tell this hypervisor: a volume grows when its pod is restarted");
    return false;
}

/* Whether mounted volumes reach the guests as devices. A release of Kata's may ignore the key, and
 * a pod may lift it, so what VMs have counts more. */
static bool judge_block_devices(const struct judgement *judgement)
{
    if (judgement->table->no_block_devices && judgement->has_devices)
        say(judgement, FINDING_NOTE, NULL,
            "disable_block_device_use is set, and VMs that run have volumes as devices: this "
            "release ignores the key, their pods lift it, or it was set after they started");
    else if (judgement->table->no_block_devices)
        say(judgement, FINDING_ERROR,
            "Set disable_block_device_use = false, unless containers' root file systems are block "
            "devices that the node has mounted: those would be plugged into the VM as well",
            "with disable_block_device_use no mounted volume reaches a guest as a device (claims "
            "of volumeMode Block do)");
    return !judgement->table->no_block_devices || judgement->has_devices;
}

/* Both obstacles are said at once, so that Kata's configuration is changed once. */
static void judge_table(const struct judgement *judgement, const struct config *config)
{
    const bool has_devices = judge_block_devices(judgement);
    const bool tells = judge_hypervisor(judgement, config);

    if (!has_devices)
        return;
    judgement->findings->configurations++;
    judgement->findings->ignores_group |= judgement->settings->is_rust;
    judgement->findings->label_guests += judgement->table->enforces_labels;
    judgement->findings->tells_hypervisor |= tells;
}

void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, const struct config *config,
                struct findings *findings)
{
    struct judgement judgement = {.settings = settings,
                                  .table = kata_settings_table(settings),
                                  .program = program,
                                  .file = file,
                                  .runtimes = runtimes,
                                  .findings = findings};

    if (judgement.table) {
        look_at_sandboxes(&judgement);
        judge_table(&judgement, config);
    } else {
        findings_add(findings, FINDING_WARNING, "kata_configuration", file, NULL,
                     "%s: it does not say which hypervisor it uses", runtimes);
    }
}

/* ---- reading one --------------------------------------------------------------------------- */

static int read_settings(int root, const char *path, struct kata_settings *settings,
                         struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    int r = host_file_read(root, path, &text, error);

    if (r == HOST_ABSENT)
        return error_set(error, -ENOENT, "%s: no such file", path);
    return r < 0 ? r : kata_settings_read(settings, path, buffer_text(&text), text.length, error);
}

static int read_drop_ins(int root, const char *file, struct kata_settings *settings,
                         struct error *error)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    char directory[PATH_MAX], path[2 * PATH_MAX];
    const char *slash = strrchr(file, '/');
    int r;

    if (!slash || snprintf(directory, sizeof(directory), "%.*s/config.d", (int)(slash - file),
                           file) >= PATH_MAX)
        return error_set(error, -ENAMETOOLONG, "%s: the path is too long", file);
    r = host_names_read(root, directory, &names);
    if (r < 0)
        return error_set_errno(error, r, "%s", directory);
    for (unsigned i = 0; r == HOST_READ && i < names.count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", directory, names.name[i]);
        r = read_settings(root, path, settings, error);
    }
    return r < 0 ? r : 0;
}

static void examine_one(int root, const struct kata_configuration *configuration,
                        const struct config *config, struct findings *findings)
{
    struct kata_settings settings = {0};
    const struct kata_table *table;
    struct program program = {0};
    struct error error = {0};
    int r = read_settings(root, configuration->path, &settings, &error);

    if (r == 0)
        r = read_drop_ins(root, configuration->path, &settings, &error);
    if (r < 0) {
        findings_add(findings, FINDING_WARNING, "kata_unreadable", configuration->path,
                     "See whether Kata can read it: kata-runtime env, or kata-ctl env",
                     "%s: its configuration can't be judged: %s", configuration->runtimes,
                     error.text);
        return;
    }
    table = kata_settings_table(&settings);
    if (table) {
        program_find(root, table->path, &program);
        kata_program_judge(table, &program, configuration->runtimes, findings);
        kata_program_examine_valid(root, table, configuration->runtimes, findings);
    }
    kata_judge(&settings, &program, configuration->path, configuration->runtimes, config, findings);
}

void kata_examine(int root, const struct config *config, struct findings *findings)
{
    struct kata_in_use in_use;

    kata_in_use_find(root, &in_use, findings);
    if (in_use.count == 0)
        findings_add(findings, FINDING_WARNING, "kata_absent",
                     "/etc/kata-containers/configuration.toml",
                     "Install Kata Containers, or see that --root and the pod's mounts show its "
                     "configuration",
                     "no configuration of Kata's is here, so nothing can be said about the "
                     "sandboxes to come");
    for (unsigned i = 0; i < in_use.count; i++)
        examine_one(root, &in_use.configuration[i], config, findings);
}

/* ---- drop in -------------------------------------------------------------------------------- */

/* Finds the drop-ins at run time: PREFIX is not known when crustd is built. */

/* PREFIX of PREFIX/bin/PROGRAM; "" where it can't be told. */
static void find_prefix(char ret_prefix[static PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", ret_prefix, PATH_MAX - 1);

    ret_prefix[length > 0 ? length : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(ret_prefix, '/');

        if (slash)
            *slash = '\0';
    }
}

void drop_in_find(char ret_path[static DROP_IN_BYTES])
{
    static const char name[] = "crust-qemu.toml";
    char prefix[PATH_MAX];

    find_prefix(prefix);
    if (snprintf(ret_path, DROP_IN_BYTES, "%s/share/crustd/kata/%s", prefix, name) >=
            DROP_IN_BYTES ||
        access(ret_path, R_OK) < 0)
        (void)snprintf(ret_path, DROP_IN_BYTES, "config/deploy/kata/%s", name);
}
