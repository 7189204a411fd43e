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
#include "doctor/kata_in_use.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/engine.h"
#include "doctor/host_file.h"
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
