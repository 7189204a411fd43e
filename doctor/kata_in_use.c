/* SPDX-License-Identifier: Apache-2.0 */
/* kata_in_use.c - reads the engine's configuration, and knows the lists that Kata's runtimes are
 * built with.
 *
 * kata-deploy installs a configuration for each of some thirty runtimes, of which a node uses one
 * or two; only those are examined. A runtime class names a handler, the engine's configuration
 * gives it a file, and where it gives none the runtime takes the first that it finds on its own
 * list. That list is built into the runtime; these are the ones that Kata 4.1.0 is built with
 * (src/runtime/Makefile, src/libs/kata-types/src/config/default.rs). An environment variable
 * KATA_CONF_FILE of the engine would change it, and is not seen.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"

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

/* HOST_READ if it is there and in the list now. */
static int use(int root, const char *path, const char *runtime, struct kata_in_use *in_use)
{
    struct kata_configuration *configuration = in_use->configuration;
    char real[PATH_MAX];
    size_t length;
    unsigned i = 0;
    int r = host_file_resolve(root, path, real);

    if (r != HOST_READ)
        return r;
    while (i < in_use->count && strcmp(configuration[i].path, real) != 0)
        i++;
    if (i == KATA_IN_USE)
        return -E2BIG;
    if (i == in_use->count) {
        in_use->count++;
        (void)snprintf(configuration[i].path, sizeof(configuration[i].path), "%s", real);
    }
    length = strlen(configuration[i].runtimes);
    (void)snprintf(configuration[i].runtimes + length, KATA_RUNTIMES_BYTES - length, "%s%s",
                   length ? ", " : "", runtime);
    return HOST_READ;
}

/* The first that exists. */
static bool use_default(int root, const char *const *paths, size_t count, const char *runtime,
                        struct kata_in_use *in_use)
{
    for (size_t i = 0; i < count; i++)
        if (use(root, paths[i], runtime, in_use) == HOST_READ)
            return true;
    return false;
}

static void use_runtime(int root, const struct engine_runtime *runtime, struct kata_in_use *in_use,
                        struct findings *findings)
{
    if (!runtime->is_kata)
        return;
    if (!runtime->config_path[0]) {
        if (runtime->is_rust)
            (void)use_default(root, rust_defaults, array_length(rust_defaults), runtime->name,
                              in_use);
        else
            (void)use_default(root, go_defaults, array_length(go_defaults), runtime->name, in_use);
    } else if (use(root, runtime->config_path, runtime->name, in_use) != HOST_READ) {
        findings_add(findings, FINDING_WARNING, "kata_unreadable", runtime->config_path, NULL,
                     "%s: the configuration that the container engine names cannot be examined",
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
        cleanup(directory_names_done) struct directory_names names = {0};
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

void kata_in_use_find(int root, struct kata_in_use *ret_in_use, struct findings *findings)
{
    struct engine_runtimes runtimes = {0};

    *ret_in_use = (struct kata_in_use){0};
    read_engines(root, &runtimes, findings);
    for (unsigned i = 0; i < runtimes.count; i++)
        use_runtime(root, &runtimes.runtime[i], ret_in_use, findings);
    if (ret_in_use->count > 0)
        return;
    (void)use_default(root, go_defaults, array_length(go_defaults), "Kata", ret_in_use);
    (void)use_default(root, rust_defaults, array_length(rust_defaults), "Kata", ret_in_use);
}

/* ---- kata version --------------------------------------------------------------------------- */

/* Kata's release, as its static tarball and kata-deploy leave it.
 *
 * A distribution's package has no such file; then there is no finding.
 */

static const char version_file[] = "/opt/kata/VERSION";

enum { VERSION_MAX = 9999 };

static bool parse_number(const char **text, unsigned *ret_number)
{
    char *end;
    unsigned long number;

    if (!isdigit((unsigned char)**text))
        return false;
    number = strtoul(*text, &end, 10);
    if (number > VERSION_MAX)
        return false;
    *text = end;
    *ret_number = (unsigned)number;
    return true;
}

bool kata_version_parse(const char *text, struct kata_version *ret_version)
{
    unsigned patch;

    if (!parse_number(&text, &ret_version->major) || *text++ != '.' ||
        !parse_number(&text, &ret_version->minor) || *text++ != '.' || !parse_number(&text, &patch))
        return false;
    return strchr("-+\n\r ", *text) != NULL;
}

bool kata_version_has_direct_volumes(const struct kata_version *version)
{
    return version->major > 2 || (version->major == 2 && version->minor >= 4);
}

void kata_version_examine(int root, struct findings *findings)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct kata_version version;
    struct error error = {0};
    int r = host_file_read(root, version_file, &text, &error);

    if (r == HOST_ABSENT)
        return;
    if (r < 0 || !kata_version_parse(buffer_text(&text), &version)) {
        findings_add(findings, FINDING_WARNING, "kata_version", version_file, NULL,
                     "which release of Kata is installed can't be told: %s",
                     r < 0 ? error.text : "the file holds no version");
        return;
    }
    if (kata_version_has_direct_volumes(&version)) {
        findings_add(findings, FINDING_OK, "kata_version", version_file, NULL,
                     "Kata %u.%u knows direct-assigned volumes", version.major, version.minor);
        return;
    }
    findings->lacks_direct_volumes = true;
    findings_add(findings, FINDING_ERROR, "kata_version", version_file,
                 "Install Kata 2.4 or later (3.2 for the Rust runtime)",
                 "Kata %u.%u ignores the metadata of direct-assigned volumes, so no volume "
                 "reaches a guest",
                 version.major, version.minor);
}

/* ---- kata program --------------------------------------------------------------------------- */

/* Judges the path of the VMM's program: with a wrong one, no pod of the
 * configuration starts. */

#define INSTALL_CRUST                                                                              \
    "Install it (make install; in a cluster the component config/deploy/crust-qemu), or take the " \
    "path out of "

static const char *what_is_wrong(enum program_state state)
{
    return state == PROGRAM_NOT_EXECUTABLE ? "is no program that can be run" : "leads nowhere";
}

static void say_unseen(const struct kata_table *table, const char *runtimes, const char *what,
                       struct findings *findings)
{
    findings_add(findings, FINDING_WARNING, "kata_program", table->path_file,
                 "Give crustd CAP_SYS_PTRACE and the node's processes (hostPID), or mount it",
                 "%s: whether %s is there cannot be told from here; if it is not, no pod of these "
                 "starts",
                 runtimes, what);
}

static void judge_path(const struct kata_table *table, const struct program *program,
                       const char *runtimes, struct findings *findings)
{
    char remedy[2 * KATA_FILE_BYTES];

    (void)snprintf(remedy, sizeof(remedy), "%s%s",
                   program->is_crust ? INSTALL_CRUST : "Install it, or correct the path in ",
                   table->path_file);
    if (program->state == PROGRAM_UNSEEN)
        say_unseen(table, runtimes, table->path, findings);
    else
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file, remedy,
                     "%s: path = %s %s: no pod of these starts", runtimes, table->path,
                     what_is_wrong(program->state));
}

static void judge_crust(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings)
{
    if (program->qemu == PROGRAM_UNSEEN) {
        say_unseen(table, runtimes, program->qemu_name, findings);
    } else if (program->qemu != PROGRAM_THERE) {
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "Put a copy of crust-qemu beside that QEMU, named crust- and QEMU's name, and "
                     "name the copy",
                     "%s: %s finds no %s beside itself, in /opt/kata/bin or in /usr/bin: no pod of "
                     "these starts",
                     runtimes, table->path, program->qemu_name);
    } else if (!program->has_directory) {
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "systemd-tmpfiles --create crustd.conf, which makes it root's with mode 0700; "
                     "in a cluster the component config/deploy/crust-qemu does",
                     "%s: crust-qemu adds no monitor, for /run/crustd/qemu is not there or not "
                     "root's alone",
                     runtimes);
    }
    if (program->has_other_label)
        findings_add(findings, FINDING_WARNING, "kata_program", table->path,
                     "chcon --reference=QEMU CRUST-QEMU, and semanage fcontext, so that it lasts",
                     "%s: it and %s have different SELinux types; where SELinux is enforced Kata "
                     "may not be allowed to start it, and then no pod of these starts",
                     runtimes, program->qemu_name);
}

void kata_program_judge(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings)
{
    if (program->state == PROGRAM_THERE && program->is_crust)
        judge_crust(table, program, runtimes, findings);
    else if (program->state != PROGRAM_THERE && program->state != PROGRAM_UNNAMED)
        judge_path(table, program, runtimes, findings);
}

void kata_program_examine_valid(int root, const struct kata_table *table, const char *runtimes,
                                struct findings *findings)
{
    for (unsigned i = 0; i < table->valid_paths; i++) {
        const char *path = table->valid_path[i];

        if (path[0] == '/' && !strpbrk(path, "*?[{\\") && strcmp(path, table->path) != 0 &&
            program_examine(root, path) == PROGRAM_ABSENT)
            findings_add(findings, FINDING_NOTE, "kata_program", table->path_file,
                         "Correct valid_hypervisor_paths",
                         "%s: valid_hypervisor_paths names %s, which is not there: a pod whose "
                         "annotation asks for it does not start",
                         runtimes, path);
    }
}
