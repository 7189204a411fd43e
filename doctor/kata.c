/* kata.c - which of Kata's configurations this node uses, and what becomes of their sandboxes.
 *
 * kata-deploy installs a configuration for each of some thirty runtimes, of which a node uses one
 * or two; only those are looked at. A runtime class names a handler, the engine's configuration
 * gives it a file, and where it gives none the runtime takes the first that it finds on its own
 * list. That list is built into the runtime; these are the ones that Kata 4.1.0 is built with
 * (src/runtime/Makefile, src/libs/kata-types/src/config/default.rs). An environment variable
 * KATA_CONF_FILE of the engine would change it, and is not seen.
 */
#include "doctor/kata.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/drop_in.h"
#include "doctor/engine.h"
#include "doctor/host_file.h"
#include "lib/cleanup.h"

enum { CONFIGURATIONS = 32, NAMES_BYTES = 256 };

/* One in use. */
struct configuration {
    char path[PATH_MAX]; /* links followed, for config.d stands beside the file itself */
    char runtimes[NAMES_BYTES];
};

struct configurations {
    unsigned count;
    struct configuration configuration[CONFIGURATIONS];
};

static const char *const engine_files[] = {
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/etc/crio/crio.conf",
};

static const char *const engine_directories[] = {
    "/etc/containerd/conf.d",
    "/etc/containerd/config.d",
    "/opt/kata/containerd/config.d",
    "/etc/k0s/containerd.d",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d",
    "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.d",
    "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d",
    "/etc/crio/crio.conf.d",
};

static const char *const go_defaults[] = {
    "/etc/kata-containers/configuration.toml",
    "/usr/share/defaults/kata-containers/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/configuration.toml",
};

static const char *const rust_defaults[] = {
    "/etc/kata-containers/runtime-rs/configuration.toml",
    "/usr/share/defaults/kata-containers/runtime-rs/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/runtime-rs/configuration.toml",
};

/* ---- what a configuration leads to --------------------------------------------------------- */

struct judgement {
    const struct kata_settings *settings;
    const struct kata_table *table;
    const char *file;
    const char *runtimes;
    struct findings *findings;
};

static void say(const struct judgement *judgement, enum finding_level level, const char *remedy,
                const char *what)
{
    findings_add(judgement->findings, level, "kata_configuration", judgement->file, remedy,
                 "%s (%s, Kata's %s runtime): %s", judgement->runtimes, judgement->table->name,
                 judgement->settings->is_rust ? "Rust" : "Go", what);
}

static void format_drop_in(const struct judgement *judgement, const char *after, char *ret_text,
                           size_t size)
{
    const char *slash = strrchr(judgement->file, '/');
    const char *monitor = judgement->settings->is_rust ? "hmp" : "qmp";
    char drop_in[DROP_IN_BYTES];

    drop_in_find(judgement->settings->is_rust, drop_in);
    (void)snprintf(ret_text, size,
                   "Put crustd's %s, whose head says what it costs, into "
                   "%.*s/config.d: [hypervisor.%s] enable_debug = true, extra_monitor_socket = "
                   "\"%s\"%s%s. Then restart the pods",
                   drop_in, slash ? (int)(slash - judgement->file) : 1,
                   slash ? judgement->file : ".", judgement->table->name, monitor,
                   *after ? ", by a name that sorts behind " : "", after);
}

static void say_monitor(const struct judgement *judgement, const char *set_by, const char *what)
{
    const bool by_drop_in = strcmp(set_by, judgement->file) != 0;
    char remedy[1536], text[512];

    format_drop_in(judgement, by_drop_in ? set_by : "", remedy, sizeof(remedy));
    (void)snprintf(text, sizeof(text), "%s%s%s%s", what, *set_by ? " (" : "", set_by,
                   *set_by ? ")" : "");
    say(judgement, FINDING_ERROR, remedy, text);
}

static bool is_monitor(const char *name)
{
    return strcmp(name, "hmp") == 0 || strcmp(name, "qmp") == 0 || strcmp(name, "qmp-pretty") == 0;
}

static void judge_extra_monitor(const struct judgement *judgement)
{
    const struct kata_table *table = judgement->table;
    char text[128];

    if (!table->monitor[0])
        say_monitor(judgement, table->monitor_file,
                    "QEMU gets no monitor that crustd may use: extra_monitor_socket is empty");
    else if (!is_monitor(table->monitor))
        say_monitor(judgement, table->monitor_file,
                    "extra_monitor_socket is none of hmp, qmp, qmp-pretty");
    else if (judgement->settings->is_rust && strcmp(table->monitor, "hmp") != 0)
        say_monitor(judgement, table->monitor_file,
                    "with extra_monitor_socket = \"qmp\" this runtime gives QEMU the path of its "
                    "own monitor twice, and no pod starts");
    else if (!table->enable_debug)
        say_monitor(judgement, table->debug_file,
                    "extra_monitor_socket is set, and ignored without enable_debug = true");
    else {
        judgement->findings->tells_hypervisor = true;
        (void)snprintf(text, sizeof(text), "QEMU gets a monitor for crustd (%s)", table->monitor);
        say(judgement, FINDING_OK, NULL, text);
    }
}

static void judge_qemu(const struct judgement *judgement, const struct config *config)
{
    switch (config->resize.qemu_monitor) {
    case QEMU_MONITOR_OFF:
        say(judgement, FINDING_NOTE, NULL,
            "QEMU is never told, as resize.qemu_monitor = off has it");
        break;
    case QEMU_MONITOR_MAIN:
        judgement->findings->tells_hypervisor = true;
        say(judgement, FINDING_NOTE, NULL,
            "QEMU is told on its main monitor, as resize.qemu_monitor = main has it: a shim that "
            "uses it too can be hindered from ending its pod");
        break;
    case QEMU_MONITOR_EXTRA:
        judge_extra_monitor(judgement);
        if (judgement->table->confidential)
            say(judgement, FINDING_NOTE, NULL,
                "the guests are confidential: an extra monitor changes QEMU's command line, and "
                "with it what they attest");
        break;
    }
}

static void judge_firecracker(const struct judgement *judgement, const struct config *config)
{
    judgement->findings->tells_hypervisor |= config->resize.firecracker;
    if (config->resize.firecracker)
        say(judgement, FINDING_OK, NULL, "Firecracker is told by its own API");
    else
        say(judgement, FINDING_ERROR, "Set resize.firecracker = on in crustd's configuration",
            "Firecracker is told only where resize.firecracker allows it");
}

static void judge_table(const struct judgement *judgement, const struct config *config)
{
    const char *name = judgement->table->name;

    judgement->findings->configurations += !judgement->table->no_block_devices;
    if (judgement->table->no_block_devices)
        say(judgement, FINDING_ERROR,
            "Set disable_block_device_use = false, unless containers' root file systems are block "
            "devices that the node has mounted: those would be plugged into the VM as well",
            "with disable_block_device_use no volume reaches a guest as a device");
    else if (strcmp(name, "qemu") == 0)
        judge_qemu(judgement, config);
    else if (strcmp(name, "clh") == 0)
        say(judgement, FINDING_WARNING,
            "See that Kata uses Cloud Hypervisor 52 or later; Kata 4.1.0 comes with 51.1",
            "Cloud Hypervisor cannot grow a block device before version 52; which one this is "
            "shows once crustd has talked to it");
    else if (strcmp(name, "firecracker") == 0)
        judge_firecracker(judgement, config);
    else
        say(judgement, FINDING_ERROR, "Use QEMU, Cloud Hypervisor 52 or Firecracker",
            "crustd has no way to tell this hypervisor: a volume grows when its pod is restarted");
}

void kata_judge(const struct kata_settings *settings, const char *file, const char *runtimes,
                const struct config *config, struct findings *findings)
{
    struct judgement judgement = {settings, kata_settings_table(settings), file, runtimes,
                                  findings};

    if (judgement.table)
        judge_table(&judgement, config);
    else
        findings_add(findings, FINDING_WARNING, "kata_configuration", file, NULL,
                     "%s: which hypervisor it uses does not stand there", runtimes);
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
    cleanup(host_names_done) struct host_names names = {0};
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

static void examine_one(int root, const struct configuration *configuration,
                        const struct config *config, struct findings *findings)
{
    struct kata_settings settings = {0};
    struct error error = {0};
    int r = read_settings(root, configuration->path, &settings, &error);

    if (r == 0)
        r = read_drop_ins(root, configuration->path, &settings, &error);
    if (r < 0)
        findings_add(findings, FINDING_WARNING, "kata_unreadable", configuration->path,
                     "See whether Kata can read it: kata-runtime env, or kata-ctl env",
                     "%s: its configuration can't be judged: %s", configuration->runtimes,
                     error.text);
    else
        kata_judge(&settings, configuration->path, configuration->runtimes, config, findings);
}

/* ---- which ones ---------------------------------------------------------------------------- */

/* HOST_READ if it is there and in the list now. */
static int use(int root, const char *path, const char *runtime,
               struct configurations *configurations)
{
    struct configuration *configuration = configurations->configuration;
    char real[PATH_MAX];
    size_t length;
    unsigned i = 0;
    int r = host_file_resolve(root, path, real);

    if (r != HOST_READ)
        return r;
    while (i < configurations->count && strcmp(configuration[i].path, real) != 0)
        i++;
    if (i == CONFIGURATIONS)
        return -E2BIG;
    if (i == configurations->count) {
        configurations->count++;
        (void)snprintf(configuration[i].path, sizeof(configuration[i].path), "%s", real);
    }
    length = strlen(configuration[i].runtimes);
    (void)snprintf(configuration[i].runtimes + length, NAMES_BYTES - length, "%s%s",
                   length ? ", " : "", runtime);
    return HOST_READ;
}

/* The first that exists. */
static bool use_default(int root, const char *const *paths, size_t count, const char *runtime,
                        struct configurations *configurations)
{
    for (size_t i = 0; i < count; i++)
        if (use(root, paths[i], runtime, configurations) == HOST_READ)
            return true;
    return false;
}

static void use_runtime(int root, const struct engine_runtime *runtime,
                        struct configurations *configurations, struct findings *findings)
{
    if (!runtime->is_kata)
        return;
    if (!runtime->config_path[0]) {
        if (runtime->is_rust)
            (void)use_default(root, rust_defaults, array_length(rust_defaults), runtime->name,
                              configurations);
        else
            (void)use_default(root, go_defaults, array_length(go_defaults), runtime->name,
                              configurations);
    } else if (use(root, runtime->config_path, runtime->name, configurations) != HOST_READ) {
        findings_add(findings, FINDING_WARNING, "kata_unreadable", runtime->config_path, NULL,
                     "%s: the configuration that the container engine names can't be looked at",
                     runtime->name);
    }
}

static void read_engine_file(int root, const char *path, struct engine_runtimes *runtimes,
                             struct findings *findings)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct error error = {0};
    int r = host_file_read(root, path, &text, &error);

    if (r == HOST_READ)
        r = engine_runtimes_read(runtimes, path, buffer_text(&text), text.length, &error);
    if (r < 0)
        findings_add(findings, FINDING_WARNING, "engine_unreadable", path, NULL,
                     "which configurations of Kata's are in use may be incomplete: %s", error.text);
}

static void read_engines(int root, struct engine_runtimes *runtimes, struct findings *findings)
{
    for (size_t i = 0; i < array_length(engine_files); i++)
        read_engine_file(root, engine_files[i], runtimes, findings);
    for (size_t i = 0; i < array_length(engine_directories); i++) {
        cleanup(host_names_done) struct host_names names = {0};
        const int r = host_names_read(root, engine_directories[i], &names);
        char path[PATH_MAX];

        if (r < 0)
            findings_add(findings, FINDING_WARNING, "engine_unreadable", engine_directories[i],
                         NULL, "which configurations of Kata's are in use may be incomplete: %s",
                         strerror(-r));
        for (unsigned j = 0; j < names.count; j++) {
            (void)snprintf(path, sizeof(path), "%s/%s", engine_directories[i], names.name[j]);
            read_engine_file(root, path, runtimes, findings);
        }
    }
}

void kata_examine(int root, const struct config *config, struct findings *findings)
{
    struct configurations configurations = {0};
    struct engine_runtimes runtimes = {0};

    read_engines(root, &runtimes, findings);
    for (unsigned i = 0; i < runtimes.count; i++)
        use_runtime(root, &runtimes.runtime[i], &configurations, findings);
    if (configurations.count == 0) {
        (void)use_default(root, go_defaults, array_length(go_defaults), "Kata", &configurations);
        (void)use_default(root, rust_defaults, array_length(rust_defaults), "Kata",
                          &configurations);
    }
    if (configurations.count == 0)
        findings_add(findings, FINDING_WARNING, "kata_absent", go_defaults[0],
                     "Install Kata Containers, or see that --root and the pod's mounts show its "
                     "configuration",
                     "no configuration of Kata's is here, so nothing can be said about the "
                     "sandboxes to come");
    for (unsigned i = 0; i < configurations.count; i++)
        examine_one(root, &configurations.configuration[i], config, findings);
}
