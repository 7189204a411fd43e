/* SPDX-License-Identifier: Apache-2.0 */
/* crust_users.c - reads configuration files as text, so that a file counts even if no parser
 * understands it.
 *
 * If the answer is that nothing needs crust-qemu, somebody removes it, and if that was wrong no pod
 * starts any more. So a line that mentions it counts wherever it is, unless the whole line is a
 * comment; and so does a path under another name that leads to it.
 */
#include "doctor/checks.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"

#define REMEDY                                                                                     \
    "Take it out of there, and see that a new pod starts; pods that run already keep the QEMU "    \
    "that they have. Only then remove crust-qemu"

enum { DEPTH = 6, FILES = 8192 };

struct search {
    int root;
    struct findings *findings;
    unsigned files;
};

static const char *const trees[] = {
    "/etc/kata-containers",
    "/usr/share/defaults/kata-containers",
    "/usr/local/share/defaults/kata-containers",
};

static const char opt[] = "/opt", below_opt[] = "share/defaults/kata-containers";

static void say(const struct search *search, const char *path, const char *what)
{
    findings_add(search->findings, FINDING_ERROR, "crust_qemu", path, REMEDY, "%s", what);
}

static void say_unknown(const struct search *search, const char *path, const char *why)
{
    findings_add(search->findings, FINDING_ERROR, "crust_qemu", path,
                 "See to it that this can be read, or look into it yourself",
                 "whether it names crust-qemu cannot be told: %s", why);
}

/* ---- one file ------------------------------------------------------------------------------ */

/* The first line that mentions it; 0: none. */
static unsigned find_line(const char *text, size_t length)
{
    static const char mention[] = "/crust-";
    const char *end = text + length;
    unsigned number = 1;

    for (const char *line = text; line < end; number++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((newline ? newline : end) - line);
        size_t blank = 0;

        while (blank < size && (line[blank] == ' ' || line[blank] == '\t'))
            blank++;
        if (blank < size && line[blank] != '#' && memmem(line, size, mention, strlen(mention)))
            return number;
        line = newline ? newline + 1 : end;
    }
    return 0;
}

/* By links. */
static bool leads_to_it(int root, const char *path, const struct buffer *text)
{
    struct kata_settings settings = {0};
    struct error error;
    struct program program;

    (void)kata_settings_read(&settings, path, buffer_text(text), text->length, &error);
    for (unsigned i = 0; i < settings.tables; i++) {
        program_find(root, settings.table[i].path, &program);
        if (program.is_crust)
            return true;
    }
    return false;
}

static void search_file(struct search *search, const char *path)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct error error = {0};
    char what[64];
    int r = host_file_read(search->root, path, &text, &error);
    unsigned line;

    if (r == HOST_ABSENT)
        return;
    if (r < 0) {
        say_unknown(search, path, error.text);
        return;
    }
    line = find_line(buffer_text(&text), text.length);
    (void)snprintf(what, sizeof(what), "line %u names crust-qemu", line);
    if (line)
        say(search, path, what);
    else if (leads_to_it(search->root, path, &text))
        say(search, path, "its path leads to crust-qemu");
}

/* ---- all of them --------------------------------------------------------------------------- */

static void search_tree(struct search *search, const char *directory, unsigned depth);

static void search_entry(struct search *search, const char *directory, const char *name,
                         unsigned depth)
{
    char path[PATH_MAX];
    struct stat status;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
        say_unknown(search, directory, "a path in it is too long");
    else if (path_stat_in_root(search->root, path, &status) < 0)
        return; /* a link that leads nowhere is no configuration */
    else if (S_ISDIR(status.st_mode))
        search_tree(search, path, depth + 1);
    else if (S_ISREG(status.st_mode))
        search_file(search, path);
}

static void search_tree(struct search *search, const char *directory, unsigned depth)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list_in_root(search->root, directory, &names);

    if (path_is_missing(r))
        return;
    if (depth > DEPTH || r < 0) {
        say_unknown(search, directory, r < 0 ? strerror(-r) : "directories are nested too deep");
        return;
    }
    while ((name = directory_next(names)) && search->files < FILES)
        if (name[0] != '.') {
            search->files++;
            search_entry(search, directory, name, depth);
        }
    if (search->files == FILES)
        say_unknown(search, directory, "there are too many files");
}

static bool is_in(const char *path, const char *directory)
{
    const size_t length = strlen(directory);

    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

/* kata-deploy may have another prefix than /opt/kata. */
static void search_opt(struct search *search)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    char directory[PATH_MAX];
    int r = host_names_read(search->root, opt, &names);

    if (r < 0)
        say_unknown(search, opt, strerror(-r));
    for (unsigned i = 0; r == HOST_READ && i < names.count; i++) {
        (void)snprintf(directory, sizeof(directory), "%s/%s/%s", opt, names.name[i], below_opt);
        search_tree(search, directory, 0);
    }
}

/* Files that the engine names elsewhere, with the files beside them. */
static void search_configuration(struct search *search, const char *path)
{
    char beside[PATH_MAX];
    const char *slash = strrchr(path, '/');

    for (size_t i = 0; i < array_length(trees); i++)
        if (is_in(path, trees[i]))
            return;
    if (is_in(path, opt) && strstr(path, below_opt))
        return;
    search_file(search, path);
    if (slash && snprintf(beside, sizeof(beside), "%.*s/config.d", (int)(slash - path), path) <
                     (int)sizeof(beside))
        search_tree(search, beside, 0);
}

void crust_users_find(int root, struct findings *findings)
{
    struct search search = {root, findings, 0};
    struct kata_in_use in_use;

    for (size_t i = 0; i < array_length(trees); i++)
        search_tree(&search, trees[i], 0);
    search_opt(&search);
    kata_in_use_find(root, &in_use, findings);
    for (unsigned i = 0; i < in_use.count; i++)
        search_configuration(&search, in_use.configuration[i].path);
}
