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
 *
 * With sandboxer = "shim" containerd hands the sandbox itself to the shim, without the class's
 * options: runtime-rs then takes the first on its list, too. Go's shim serves no sandboxes.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/path.h"

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

static const char *const default_directories[] = {
    "/etc/kata-containers",
    "/usr/share/defaults/kata-containers",
    "/opt/kata/share/defaults/kata-containers",
};

/* Adds a configuration that exists to the list. 0 or -errno. */
static int use(int root, const char *path, const char *runtime, struct kata_in_use *in_use)
{
    struct kata_configuration *configuration = in_use->configuration;
    char real[PATH_MAX];
    size_t length;
    unsigned i = 0;
    int r = host_file_resolve(root, path, real);

    if (r < 0)
        return r;
    while (i < in_use->count && strcmp(configuration[i].path, real) != 0)
        i++;
    if (i == array_length(in_use->configuration))
        return -E2BIG;
    if (i == in_use->count) {
        in_use->count++;
        (void)snprintf(configuration[i].path, sizeof(configuration[i].path), "%s", real);
    }
    length = strlen(configuration[i].runtimes);
    (void)snprintf(configuration[i].runtimes + length, sizeof(configuration->runtimes) - length,
                   "%s%s", length ? ", " : "", runtime);
    return 0;
}

/* Adds the first one of the runtime's own places that exists; whether one does. */
static bool use_default(int root, bool is_rust, const char *runtime, struct kata_in_use *in_use)
{
    char path[128];

    for (size_t i = 0; i < array_length(default_directories); i++) {
        (void)snprintf(path, sizeof(path), "%s%s/configuration.toml", default_directories[i],
                       is_rust ? "/runtime-rs" : "");
        if (use(root, path, runtime, in_use) == 0)
            return true;
    }
    return false;
}

static void use_runtime(const struct engine_runtime *runtime, struct kata_in_use *in_use,
                        struct findings *findings)
{
    const char *path = runtime->config_path;
    const bool is_ignored = *path && runtime->is_rust && runtime->is_sandboxer;

    if (!runtime->is_kata)
        return;
    if (!*path || is_ignored) {
        if (!use_default(findings->root, runtime->is_rust, runtime->name, in_use) && is_ignored)
            findings_add(findings, FINDING_WARNING, "kata_unreadable", path,
                         "Put it into /etc/kata-containers/runtime-rs/configuration.toml",
                         "%s: with sandboxer = \"shim\" Kata's Rust runtime does not read the "
                         "configuration that the container engine names, and it finds no other",
                         runtime->name);
    } else if (use(findings->root, path, runtime->name, in_use) < 0) {
        findings_add(findings, FINDING_WARNING, "kata_unreadable", path, NULL,
                     "%s: the configuration that the container engine names cannot be examined",
                     runtime->name);
    }
}

static void read_engine_file(const char *path, struct engine_runtimes *runtimes,
                             struct findings *findings)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct error error = {0};
    int r = path_read_in_root(findings->root, path, &text, &error);

    if (r == PATH_ABSENT)
        return;
    if (r == PATH_OK)
        r = engine_runtimes_read(runtimes, path, buffer_text(&text), text.length, &error);
    if (r != 0)
        findings_add(findings, FINDING_WARNING, "engine_unreadable", path, NULL,
                     "which configurations of Kata's are in use may be incomplete: %s", error.text);
}

void kata_in_use_find(struct kata_in_use *ret_in_use, struct findings *findings)
{
    struct engine_runtimes runtimes = {0};

    *ret_in_use = (struct kata_in_use){0};
    for (size_t i = 0; i < array_length(engine_files); i++)
        read_engine_file(engine_files[i], &runtimes, findings);
    for (size_t i = 0; i < array_length(engine_directories); i++) {
        cleanup(directory_names_done) struct directory_names names = {0};
        const int r = host_names_read(findings->root, engine_directories[i], &names);
        char path[PATH_MAX];

        if (r < 0)
            findings_add(findings, FINDING_WARNING, "engine_unreadable", engine_directories[i],
                         NULL, "which configurations of Kata's are in use may be incomplete: %s",
                         strerror(-r));
        for (unsigned j = 0; j < names.count; j++) {
            (void)snprintf(path, sizeof(path), "%s/%s", engine_directories[i], names.name[j]);
            read_engine_file(path, &runtimes, findings);
        }
    }
    for (unsigned i = 0; i < runtimes.count; i++)
        use_runtime(&runtimes.runtime[i], ret_in_use, findings);
    if (ret_in_use->count > 0)
        return;
    (void)use_default(findings->root, false, "Kata", ret_in_use);
    (void)use_default(findings->root, true, "Kata", ret_in_use);
}

/* ---- who needs crust-qemu ------------------------------------------------------------------ */

/* If the answer is that nothing needs crust-qemu, somebody removes it, and if that was wrong no pod
 * starts any more. So the files are read as text, that one counts even if no parser understands it:
 * a line that mentions it counts wherever it is, unless the whole line is a comment; and so does a
 * path under another name that leads to it. */

enum { DEPTH = 6, FILES = 8192 };

struct search {
    struct findings *findings;
    unsigned files;
};

static const char *const trees[] = {
    "/etc/kata-containers",
    "/usr/share/defaults/kata-containers",
    "/usr/local/share/defaults/kata-containers",
};

static const char opt[] = "/opt", below_opt[] = "share/defaults/kata-containers";

static void say_unknown(const struct search *search, const char *path, const char *why)
{
    findings_add(search->findings, FINDING_ERROR, "crust_qemu", path,
                 "See to it that this can be read, or look into it yourself",
                 "whether it names crust-qemu cannot be told: %s", why);
}

/* The first line that mentions it; 0: none. */
static unsigned find_line(const char *text, size_t length)
{
    const char *end = text + length;
    unsigned number = 1;

    for (const char *line = text; line < end; number++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline ? newline + 1 : end;

        while (line < next && (*line == ' ' || *line == '\t'))
            line++;
        if (line < next && *line != '#' && memmem(line, (size_t)(next - line), "/crust-", 7))
            return number;
        line = next;
    }
    return 0;
}

static void search_file(struct search *search, const char *path)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    const int root = search->findings->root;
    struct kata_settings settings = {0};
    struct program program = {0};
    struct error error = {0};
    char what[64] = "its path leads to crust-qemu";
    int r = path_read_in_root(root, path, &text, &error);
    unsigned line = 0;

    if (r == PATH_ABSENT)
        return;
    if (r != PATH_OK) {
        say_unknown(search, path, error.text);
        return;
    }
    line = find_line(buffer_text(&text), text.length);
    if (line)
        (void)snprintf(what, sizeof(what), "line %u names crust-qemu", line);
    else
        (void)kata_settings_read(&settings, path, buffer_text(&text), text.length, &error);
    for (unsigned i = 0; i < settings.tables && !program.is_crust; i++)
        program_find(root, settings.table[i].path, &program);
    if (line || program.is_crust)
        findings_add(search->findings, FINDING_ERROR, "crust_qemu", path,
                     "Take it out of there, and see that a new pod starts; pods that run already "
                     "keep the QEMU that they have. Only then remove crust-qemu",
                     "%s", what);
}

static void search_tree(struct search *search, const char *directory, unsigned depth)
{
    cleanup(dir_closep) DIR *names = NULL;
    const int root = search->findings->root;
    const char *name;
    int r = directory_list_in_root(root, directory, &names);

    if (path_is_missing(r))
        return;
    if (depth > DEPTH || r < 0) {
        say_unknown(search, directory, r < 0 ? strerror(-r) : "directories are nested too deep");
        return;
    }
    while ((name = directory_next(names)) && search->files < FILES) {
        char path[PATH_MAX];
        struct stat status;

        if (name[0] == '.')
            continue;
        search->files++;
        if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
            say_unknown(search, directory, "a path in it is too long");
        else if (path_stat_in_root(root, path, &status) < 0)
            continue; /* a dangling link is no configuration */
        else if (S_ISDIR(status.st_mode))
            search_tree(search, path, depth + 1);
        else if (S_ISREG(status.st_mode))
            search_file(search, path);
    }
    if (search->files == FILES)
        say_unknown(search, directory, "there are too many files");
}

static bool is_in(const char *path, const char *directory)
{
    const size_t length = strlen(directory);

    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

void crust_users_find(struct findings *findings)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    struct search search = {findings, 0};
    struct kata_in_use in_use;
    char directory[PATH_MAX];
    int r = host_names_read(findings->root, opt, &names);

    for (size_t i = 0; i < array_length(trees); i++)
        search_tree(&search, trees[i], 0);
    if (r < 0)
        say_unknown(&search, opt, strerror(-r));
    for (unsigned i = 0; i < names.count; i++) { /* kata-deploy may have another prefix there */
        (void)snprintf(directory, sizeof(directory), "%s/%s/%s", opt, names.name[i], below_opt);
        search_tree(&search, directory, 0);
    }
    kata_in_use_find(&in_use, findings);
    for (unsigned i = 0; i < in_use.count; i++) { /* elsewhere, with the files beside them */
        const char *path = in_use.configuration[i].path, *slash = strrchr(path, '/');
        bool is_searched = is_in(path, opt) && strstr(path, below_opt);

        for (size_t j = 0; j < array_length(trees); j++)
            is_searched |= is_in(path, trees[j]);
        if (is_searched)
            continue;
        search_file(&search, path);
        if (slash && snprintf(directory, sizeof(directory), "%.*s/config.d", (int)(slash - path),
                              path) < (int)sizeof(directory))
            search_tree(&search, directory, 0);
    }
}
