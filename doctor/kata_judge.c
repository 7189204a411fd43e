/* SPDX-License-Identifier: Apache-2.0 */
/* kata_judge.c - whether sandboxes of Kata's configurations in use can be resized, and which of its
 * configurations need crust-qemu. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "model/sandbox.h"

/* ---- what a configuration leads to --------------------------------------------------------- */

/* One configuration. What sandboxes show that run with its runtime and hypervisor outweighs it:
 * their VMs have mounted volumes as devices, or raw block claims and nothing else; the hypervisor's
 * version can resize block devices, or cannot. */
struct judgement {
    const struct kata_settings *settings;
    const struct kata_table *table;
    const struct program *program;
    const char *file, *runtimes;
    struct findings *findings;
    bool has_devices, has_claims, has_others, has_able_version, has_old_version;
};

static void look_at_sandboxes(struct judgement *judgement)
{
    const enum kata_runtime runtime =
        judgement->settings->is_rust ? RUNTIME_KATA_RS : RUNTIME_KATA_GO;
    const enum hypervisor_kind kind = hypervisor_kind_from_name(judgement->table->name);
    const cJSON *row;

    cJSON_ArrayForEach(row, judgement->findings->sandboxes)
    {
        const char *version = json_text(row, "vmm_version");
        uint64_t attached = 0, volumes = 0, claims = 0;

        if (!findings_is_running(judgement->findings, row) ||
            runtime_from_name(json_text(row, "runtime")) != runtime ||
            hypervisor_kind_from_name(json_text(row, "hypervisor")) != kind)
            continue;
        (void)json_number(row, "attached", &attached);
        (void)json_number(row, "volumes", &volumes);
        (void)json_number(row, "block_claims", &claims);
        judgement->has_devices |= attached > 0;
        judgement->has_claims |= claims > 0;
        judgement->has_others |= volumes > claims;
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

/* set_by: the file with Kata's own setting, "" none has it. The Rust runtime's leads to no monitor
 * that crustd uses. */
static void say_no_monitor(const struct judgement *judgement, const char *set_by, const char *what)
{
    const bool is_rust = judgement->settings->is_rust, is_own = judgement->table->confidential;
    const bool is_set = judgement->table->monitor[0];
    const char *file = *set_by ? set_by : judgement->file, *slash = strrchr(judgement->file, '/');
    char drop_in[DROP_IN_BYTES], own[640] = "", remedy[2048], text[512];

    if (is_rust && is_set && !is_own)
        (void)snprintf(own, sizeof(own), "Remove extra_monitor_socket from %s, and ", file);
    else if (!is_rust && (is_set || is_own))
        (void)snprintf(own, sizeof(own),
                       "Set enable_debug = true and extra_monitor_socket = \"qmp\" in %s. %s", file,
                       is_own ? "" : "Or better, without debug settings: ");
    drop_in_find(drop_in);
    if (is_own)
        (void)snprintf(remedy, sizeof(remedy), "%s%s", own,
                       is_rust ? "Restart a pod once its volume has grown: a confidential guest of "
                                 "this runtime can have no monitor for crustd"
                               : "Then restart the pods");
    else
        (void)snprintf(remedy, sizeof(remedy),
                       "%s%s crustd's %s, whose head says what it costs, into %.*s/config.d, once "
                       "the program that it names is on the node: Kata then starts QEMU through "
                       "crust-qemu. Then restart the pods",
                       own, *own ? "put" : "Put", drop_in,
                       slash ? (int)(slash - judgement->file) : 1, slash ? judgement->file : ".");
    (void)snprintf(text, sizeof(text), "%s%s%s%s", what, *set_by ? " (" : "", set_by,
                   *set_by ? ")" : "");
    say(judgement, FINDING_ERROR, remedy, text);
}

/* Whether crustd can tell a VMM of this configuration of a new size; likewise all judge_…(). */
static bool judge_extra_monitor(const struct judgement *judgement)
{
    const struct kata_table *table = judgement->table;
    const char *monitor = table->monitor;
    char text[128];

    if (!*monitor)
        say_no_monitor(judgement, table->monitor_file,
                       "QEMU gets no monitor that crustd may use: extra_monitor_socket is empty");
    else if (strcmp(monitor, "qmp") != 0 && strcmp(monitor, "qmp-pretty") != 0)
        say_no_monitor(judgement, table->monitor_file,
                       "extra_monitor_socket is neither qmp nor qmp-pretty: crustd uses no other");
    else if (judgement->settings->is_rust)
        say_no_monitor(judgement, table->monitor_file,
                       "with extra_monitor_socket = \"qmp\" this runtime gives QEMU the path of "
                       "its own monitor twice, and no pod starts");
    else if (!table->enable_debug)
        say_no_monitor(judgement, table->debug_file,
                       "extra_monitor_socket is set, and ignored without enable_debug = true");
    else {
        (void)snprintf(text, sizeof(text), "QEMU gets a monitor for crustd (%s)", monitor);
        say(judgement, FINDING_OK, NULL, text);
        return true;
    }
    return false;
}

/* judge_program() says what is wrong with crust-qemu, which leaves a confidential guest alone.
 */
static bool judge_qemu(const struct judgement *judgement)
{
    const enum config_qemu_monitor monitor = judgement->findings->config->resize.qemu_monitor;
    const struct kata_table *table = judgement->table;
    const struct program *program = judgement->program;
    bool tells;

    if (monitor == QEMU_MONITOR_OFF) {
        say(judgement, FINDING_NOTE, NULL, "QEMU is never told, because resize.qemu_monitor = off");
        return false;
    }
    if (monitor == QEMU_MONITOR_MAIN) {
        say(judgement, FINDING_NOTE, NULL,
            "QEMU may be told on its main monitor, because resize.qemu_monitor = main: a shim that "
            "uses it too can be hindered from ending its pod");
        return true;
    }
    if (!program->is_crust || table->confidential ||
        (judgement->settings->is_rust && table->enable_debug && table->monitor[0] &&
         strcmp(table->monitor, "hmp") != 0)) {
        tells = judge_extra_monitor(judgement);
    } else {
        tells = program->state == PROGRAM_THERE && program->qemu == PROGRAM_THERE &&
                program->has_directory;
        if (tells)
            say(judgement, FINDING_OK, NULL, "QEMU gets a monitor for crustd (crust-qemu)");
    }
    if (table->confidential)
        say(judgement, FINDING_NOTE, NULL,
            "the guests are confidential: an extra monitor changes QEMU's command line, and with "
            "it what they attest");
    return tells;
}

/* Its version is known only from a running sandbox. */
static bool judge_cloud_hypervisor(const struct judgement *judgement)
{
    if (judgement->has_able_version && !judgement->has_old_version) {
        say(judgement, FINDING_OK, NULL, "crustd uses Cloud Hypervisor's own API");
        return true;
    }
    say(judgement, FINDING_WARNING,
        "See that Kata uses Cloud Hypervisor 52 or later; Kata 4.1.0 comes with 51.1",
        judgement->has_old_version
            ? "an older Cloud Hypervisor runs here than 52, the first that can grow a block device"
            : "Cloud Hypervisor cannot grow a block device before version 52; which one this is "
              "shows once crustd has talked to it");
    return false;
}

static bool judge_hypervisor(const struct judgement *judgement)
{
    const enum hypervisor_kind kind = hypervisor_kind_from_name(judgement->table->name);
    const bool allows = judgement->findings->config->resize.firecracker;

    if (kind == HYPERVISOR_QEMU)
        return judge_qemu(judgement);
    if (kind == HYPERVISOR_CLOUD_HYPERVISOR)
        return judge_cloud_hypervisor(judgement);
    if (kind != HYPERVISOR_FIRECRACKER)
        say(judgement, FINDING_ERROR, "Use QEMU, Cloud Hypervisor 52 or Firecracker",
            "crustd has no way to tell this hypervisor: a volume grows when its pod is restarted");
    else if (allows)
        say(judgement, FINDING_OK, NULL, "crustd uses Firecracker's own API");
    else
        say(judgement, FINDING_ERROR, "Set resize.firecracker = on in crustd's configuration",
            "Firecracker is told only where resize.firecracker allows it");
    return kind == HYPERVISOR_FIRECRACKER && allows;
}

/* Both obstacles are said at once, so that Kata's configuration is changed once: that no volume is
 * a device of the VM, and that the VMM cannot be told. A release of Kata's may ignore
 * disable_block_device_use, and a pod may lift it, so what VMs have counts more. With the Go
 * runtime raw block claims reach the VM all the same, and a node may have no others. */
void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, struct findings *findings)
{
    struct judgement judgement = {.settings = settings,
                                  .table = kata_settings_table(settings),
                                  .program = program,
                                  .file = file,
                                  .runtimes = runtimes,
                                  .findings = findings};
    bool has_volumes, tells;

    if (!judgement.table) {
        findings_add(findings, FINDING_WARNING, "kata_configuration", file, NULL,
                     "%s: it does not say which hypervisor it uses", runtimes);
        return;
    }
    look_at_sandboxes(&judgement);
    has_volumes = judgement.has_devices || (judgement.has_claims && !judgement.has_others);
    if (judgement.table->no_block_devices && judgement.has_devices)
        say(&judgement, FINDING_NOTE, NULL,
            "disable_block_device_use is set, but VMs that run have volumes as devices");
    else if (judgement.table->no_block_devices)
        say(&judgement, has_volumes ? FINDING_NOTE : FINDING_ERROR,
            "Set disable_block_device_use = false, unless containers' root file systems are block "
            "devices that the node has mounted: those would be plugged into the VM as well",
            settings->is_rust ? "with disable_block_device_use no container is created that has a "
                                "volume on a block device"
                              : "with disable_block_device_use no mounted volume reaches a guest "
                                "as a device (claims of volumeMode Block do)");
    tells = judge_hypervisor(&judgement);
    if (judgement.table->no_block_devices && !has_volumes)
        return;
    findings->configurations++;
    findings->ignores_group |= settings->is_rust;
    findings->label_guests += judgement.table->enforces_labels;
    findings->tells_hypervisor |= tells;
}

/* ---- the VMM's program --------------------------------------------------------------------- */

/* With a wrong one, no pod of the configuration starts. */

static void say_unseen(const struct kata_table *table, const char *runtimes, const char *what,
                       struct findings *findings)
{
    findings_add(findings, FINDING_WARNING, "kata_program", table->path_file,
                 "Give crustd CAP_SYS_PTRACE and the node's processes (hostPID), or mount it",
                 "%s: whether %s is there cannot be told from here; if it is not, no pod of these "
                 "starts",
                 runtimes, what);
}

static void judge_crust(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings)
{
    if (program->qemu == PROGRAM_UNSEEN)
        say_unseen(table, runtimes, program->qemu_name, findings);
    else if (program->qemu != PROGRAM_THERE)
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "Put a copy of crust-qemu beside that QEMU, named crust- and QEMU's name, and "
                     "name the copy",
                     "%s: %s finds no %s beside itself, in /opt/kata/bin or in /usr/bin: no pod of "
                     "these starts",
                     runtimes, table->path, program->qemu_name);
    else if (!program->has_directory)
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "systemd-tmpfiles --create crustd.conf, which makes it root's with mode 0700; "
                     "in a cluster the component config/deploy/crust-qemu does",
                     "%s: crust-qemu adds no monitor, for /run/crustd/qemu is not there or not "
                     "root's alone",
                     runtimes);
    if (program->has_other_label)
        findings_add(findings, FINDING_WARNING, "kata_program", table->path,
                     "chcon --reference=QEMU CRUST-QEMU, and semanage fcontext, so that it lasts",
                     "%s: it and %s have different SELinux types: where SELinux is enforced, maybe "
                     "no pod of these starts",
                     runtimes, program->qemu_name);
}

static void judge_program(const struct kata_table *table, const struct program *program,
                          const char *runtimes, struct findings *findings)
{
    char remedy[2 * KATA_FILE_BYTES];

    if (program->state == PROGRAM_UNNAMED)
        return;
    if (program->state == PROGRAM_THERE) {
        if (program->is_crust)
            judge_crust(table, program, runtimes, findings);
        return;
    }
    if (program->state == PROGRAM_UNSEEN) {
        say_unseen(table, runtimes, table->path, findings);
        return;
    }
    (void)snprintf(remedy, sizeof(remedy), "%s%s",
                   program->is_crust ? "Install it (make install; in a cluster the component "
                                       "config/deploy/crust-qemu), or take the path out of "
                                     : "Install it, or correct the path in ",
                   table->path_file);
    findings_add(findings, FINDING_ERROR, "kata_program", table->path_file, remedy,
                 "%s: path = %s %s: no pod of these starts", runtimes, table->path,
                 program->state == PROGRAM_ABSENT ? "does not exist"
                                                  : "is no program that can be run");
}

void kata_judge_programs(const struct kata_table *table, const struct program *program,
                         const char *runtimes, struct findings *findings)
{
    judge_program(table, program, runtimes, findings);
    for (unsigned i = 0; i < table->valid_paths; i++) { /* which only restrict pods' annotations */
        const char *path = table->valid_path[i];
        struct program other;

        if (path[0] != '/' || strpbrk(path, "*?[{\\") || strcmp(path, table->path) == 0)
            continue;
        program_find(findings->root, path, &other);
        if (other.state == PROGRAM_ABSENT)
            findings_add(findings, FINDING_NOTE, "kata_program", table->path_file,
                         "Correct valid_hypervisor_paths",
                         "%s: valid_hypervisor_paths names %s, which is not there: a pod whose "
                         "annotation asks for it does not start",
                         runtimes, path);
    }
}

/* ---- all of them --------------------------------------------------------------------------- */

static int read_settings(int root, const char *path, struct kata_settings *settings,
                         struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    int r = path_read_in_root(root, path, &text, error);

    if (r == PATH_ABSENT)
        return error_set(error, -ENOENT, "%s: no such file", path);
    return r != PATH_OK
               ? -EINVAL
               : kata_settings_read(settings, path, buffer_text(&text), text.length, error);
}

/* Kata 4.1.0 reads the file and then every file of config.d beside it, in the order of their names;
 * what comes later wins (src/runtime/pkg/katautils/config.go decodeDropIns(), src/libs/kata-types/
 * src/config/drop_in.rs). */
static int read_whole(int root, const char *file, struct kata_settings *settings,
                      struct error *error)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    char directory[PATH_MAX], path[2 * PATH_MAX];
    const char *slash = strrchr(file, '/');
    int r = read_settings(root, file, settings, error);

    if (r < 0)
        return r;
    if (!slash || snprintf(directory, sizeof(directory), "%.*s/config.d", (int)(slash - file),
                           file) >= PATH_MAX)
        return error_set(error, -ENAMETOOLONG, "%s: the path is too long", file);
    r = host_names_read(root, directory, &names);
    if (r < 0)
        return error_set_errno(error, r, "%s", directory);
    for (unsigned i = 0; r == 0 && i < names.count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", directory, names.name[i]);
        r = read_settings(root, path, settings, error);
    }
    return r;
}

static void examine_one(const struct kata_configuration *configuration, struct findings *findings)
{
    const char *runtimes = configuration->runtimes;
    struct kata_settings settings = {0};
    const struct kata_table *table;
    struct program program = {0};
    struct error error = {0};

    if (read_whole(findings->root, configuration->path, &settings, &error) < 0) {
        findings_add(findings, FINDING_WARNING, "kata_unreadable", configuration->path,
                     "See whether Kata can read it: kata-runtime env, or kata-ctl env",
                     "%s: its configuration can't be judged: %s", runtimes, error.text);
        return;
    }
    table = kata_settings_table(&settings);
    if (table) {
        program_find(findings->root, table->path, &program);
        kata_judge_programs(table, &program, runtimes, findings);
    }
    kata_judge(&settings, &program, configuration->path, runtimes, findings);
}

/* As its static tarball and kata-deploy leave it. A distribution's package has no such file; then
 * there is no finding. */
static const char version_file[] = "/opt/kata/VERSION";

/* Kata reads the metadata of direct-assigned volumes since 2.4.0 (Go), 3.2.0 (runtime-rs). */
void kata_version_judge(const char *text, struct findings *findings)
{
    const size_t most = strspn(text, "0123456789.");
    unsigned major, minor, patch;
    int end = 0;

    /* "4.1.0" or "3.26.0-rc0", a line's end behind it or not. */
    if (*text == '.' || sscanf(text, "%4u.%4u.%4u%n", &major, &minor, &patch, &end) != 3 ||
        (size_t)end != most || !strchr("-+\n\r ", text[end])) {
        findings_add(findings, FINDING_WARNING, "kata_version", version_file, NULL,
                     "which release of Kata is installed can't be told: the file holds no version");
        return;
    }
    findings->lacks_direct_volumes = major < 2 || (major == 2 && minor < 4);
    if (findings->lacks_direct_volumes)
        findings_add(findings, FINDING_ERROR, "kata_version", version_file,
                     "Install Kata 2.4 or later (3.2 for the Rust runtime)",
                     "Kata %u.%u ignores the metadata of direct-assigned volumes, so no mounted "
                     "volume reaches a guest",
                     major, minor);
    else
        findings_add(findings, FINDING_OK, "kata_version", version_file, NULL,
                     "Kata %u.%u knows direct-assigned volumes", major, minor);
}

void kata_examine(struct findings *findings)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct error error = {0};
    struct kata_in_use in_use;
    int r = path_read_in_root(findings->root, version_file, &text, &error);

    if (r == PATH_OK)
        kata_version_judge(buffer_text(&text), findings);
    else if (r != PATH_ABSENT)
        findings_add(findings, FINDING_WARNING, "kata_version", version_file, NULL,
                     "which release of Kata is installed can't be told: %s", error.text);
    kata_in_use_find(&in_use, findings);
    if (in_use.count == 0)
        findings_add(findings, FINDING_WARNING, "kata_absent",
                     "/etc/kata-containers/configuration.toml",
                     "Install Kata Containers, or see that --root and the pod's mounts show its "
                     "configuration",
                     "no configuration of Kata's is here, so nothing can be said about the "
                     "sandboxes to come");
    for (unsigned i = 0; i < in_use.count; i++)
        examine_one(&in_use.configuration[i], findings);
}

/* PREFIX of PREFIX/bin/PROGRAM is not known when crustd is built. */
void drop_in_find(char ret_path[static DROP_IN_BYTES])
{
    char prefix[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", prefix, sizeof(prefix) - 1);

    prefix[length > 0 ? length : 0] = '\0';
    for (int i = 0; i < 2; i++)
        prefix[strrchr(prefix, '/') ? strrchr(prefix, '/') - prefix : 0] = '\0';
    if (snprintf(ret_path, DROP_IN_BYTES, "%s/share/crustd/kata/crust-qemu.toml", prefix) >=
            DROP_IN_BYTES ||
        access(ret_path, R_OK) < 0)
        (void)snprintf(ret_path, DROP_IN_BYTES, "config/deploy/kata/crust-qemu.toml");
}
