/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - looks for programs as Kata and crust-qemu do (crust-qemu/program.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/process_trust.h"

/* crust-qemu/monitor_option.h */
#define MONITOR_PARENT    "/run/crustd"
#define MONITOR_DIRECTORY MONITOR_PARENT "/qemu"

enum { LABEL_BYTES = 256 };

/* The node, as far as it can be seen. */
struct view {
    int root;
    int first; /* the first process's root; -1: out of reach */
};

static void open_view(int root, struct view *ret_view)
{
    *ret_view = (struct view){root, -1};
    if (!namespaces_show_all_processes() || path_open_root("/proc/1/root", &ret_view->first) < 0)
        ret_view->first = -1;
}

/* The root that has it, and its path there without links; -1: neither. */
static int find_root(const struct view *view, const char *path, char ret_real[static PATH_MAX])
{
    if (host_file_resolve(view->root, path, ret_real) == HOST_READ)
        return view->root;
    return view->first >= 0 && host_file_resolve(view->first, path, ret_real) == HOST_READ
               ? view->first
               : -1;
}

static bool is_own_root(int root)
{
    struct stat status, own;

    return fstat(root, &status) == 0 && stat("/", &own) == 0 && status.st_dev == own.st_dev &&
           status.st_ino == own.st_ino;
}

/* A file that is not found does not exist: the whole node can be seen, or at least the directory.
 */
static enum program_state judge_absence(const struct view *view, const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX], real[PATH_MAX];
    int length = slash ? (int)(slash - path) + 1 : 0;

    if (view->first >= 0 || is_own_root(view->root))
        return PROGRAM_ABSENT;
    (void)snprintf(directory, sizeof(directory), "%.*s", length, path);
    return host_file_resolve(view->root, directory, real) == HOST_READ ? PROGRAM_ABSENT
                                                                       : PROGRAM_UNSEEN;
}

struct found {
    enum program_state state;
    char real[PATH_MAX];
    struct stat status;
    char label[LABEL_BYTES]; /* SELinux's; "" none */
};

static void read_label(int fd, char ret_label[static LABEL_BYTES])
{
    char path[32];
    ssize_t length;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    length = getxattr(path, "security.selinux", ret_label, LABEL_BYTES - 1);
    ret_label[length > 0 ? length : 0] = '\0';
}

static void find(const struct view *view, const char *path, struct found *ret_found)
{
    cleanup(fd_closep) int fd = -1;
    int root;

    *ret_found = (struct found){.state = PROGRAM_UNNAMED};
    if (!*path)
        return;
    root = find_root(view, path, ret_found->real);
    if (root < 0 || path_open_in_root(root, path, &fd) < 0 || fstat(fd, &ret_found->status) < 0) {
        ret_found->state = judge_absence(view, path);
        return;
    }
    read_label(fd, ret_found->label);
    ret_found->state = S_ISREG(ret_found->status.st_mode) && (ret_found->status.st_mode & 0111)
                           ? PROGRAM_THERE
                           : PROGRAM_NOT_EXECUTABLE;
}

/* ---- crust-qemu ---------------------------------------------------------------------------- */

static const char kata_deploy[] = "/opt/kata/bin", distribution[] = "/usr/bin";

static const char *name_of_qemu(const char *path)
{
    static const char prefix[] = "crust-";
    const char *base = basename(path);

    return strncmp(base, prefix, strlen(prefix)) == 0 && base[strlen(prefix)]
               ? base + strlen(prefix)
               : NULL;
}

/* A link back to crust-qemu is passed over, as it does itself. */
static enum program_state find_in(const struct view *view, const struct found *self,
                                  const char *directory, int length, const char *name,
                                  struct found *ret_qemu)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%.*s/%s", length, directory, name) >= (int)sizeof(path))
        return PROGRAM_ABSENT;
    find(view, path, ret_qemu);
    if (ret_qemu->state == PROGRAM_THERE && ret_qemu->status.st_dev == self->status.st_dev &&
        ret_qemu->status.st_ino == self->status.st_ino)
        return PROGRAM_ABSENT;
    return ret_qemu->state == PROGRAM_NOT_EXECUTABLE ? PROGRAM_ABSENT : ret_qemu->state;
}

/* If one of the directories cannot be seen, it may be there. */
static enum program_state find_qemu(const struct view *view, const struct found *self,
                                    const char *name, struct found *ret_qemu)
{
    const char *slash = strrchr(self->real, '/');
    const struct {
        const char *path;
        int length;
    } directories[] = {
        {self->real, slash ? (int)(slash - self->real) : 0},
        {kata_deploy, (int)strlen(kata_deploy)},
        {distribution, (int)strlen(distribution)},
    };
    enum program_state state = PROGRAM_ABSENT;

    for (size_t i = 0; i < array_length(directories) && state != PROGRAM_THERE; i++) {
        enum program_state here =
            find_in(view, self, directories[i].path, directories[i].length, name, ret_qemu);

        state = here == PROGRAM_ABSENT ? state : here;
    }
    return state;
}

static bool is_roots(int root, const char *directory, mode_t foreign)
{
    struct stat status;

    return path_stat_in_root(root, directory, &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == 0 && (status.st_mode & foreign) == 0;
}

/* USER:ROLE:TYPE:LEVEL; what a domain may start goes by the type. */
static bool have_other_types(const char *a, const char *b)
{
    for (int i = 0; a && b && i < 2; i++) {
        a = strchr(a, ':');
        b = strchr(b, ':');
        a = a ? a + 1 : NULL;
        b = b ? b + 1 : NULL;
    }
    return a && b && (strcspn(a, ":") != strcspn(b, ":") || strncmp(a, b, strcspn(a, ":")) != 0);
}

static void find_crust(const struct view *view, const struct found *self,
                       struct program *ret_program)
{
    struct found qemu;

    ret_program->qemu = find_qemu(view, self, ret_program->qemu_name, &qemu);
    ret_program->has_other_label =
        ret_program->qemu == PROGRAM_THERE && have_other_types(self->label, qemu.label);
    ret_program->has_directory = is_roots(view->root, MONITOR_PARENT, S_IWGRP | S_IWOTH) &&
                                 is_roots(view->root, MONITOR_DIRECTORY, S_IRWXG | S_IRWXO);
}

void program_find(int root, const char *path, struct program *ret_program)
{
    struct view view;
    struct found self;
    const char *name;

    *ret_program = (struct program){0};
    open_view(root, &view);
    find(&view, path, &self);
    ret_program->state = self.state;
    name = name_of_qemu(*self.real ? self.real : path);
    ret_program->is_crust = name != NULL;
    (void)snprintf(ret_program->qemu_name, sizeof(ret_program->qemu_name), "%s", name ? name : "");
    if (name && self.state == PROGRAM_THERE)
        find_crust(&view, &self, ret_program);
    fd_close(view.first);
}

enum program_state program_examine(int root, const char *path)
{
    struct view view;
    struct found found;

    open_view(root, &view);
    find(&view, path, &found);
    fd_close(view.first);
    return found.state;
}

/* ---- host file ------------------------------------------------------------------------------ */

/* The files belong to root and are trusted: links are followed inside the root, and
 * only regular files are read.
 */

int host_file_read(int root, const char *path, struct buffer *ret_text, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    int r = path_read_in_root(root, path, &text, error);

    if (r == PATH_ABSENT)
        return HOST_ABSENT;
    if (r > 0)
        return -EINVAL;
    if (r == 0) {
        buffer_done(ret_text);
        *ret_text = text;
        text.data = NULL;
    }
    return r;
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

int host_names_read(int root, const char *directory, struct directory_names *ret_names)
{
    cleanup(dir_closep) DIR *listing = NULL;
    int r = directory_list_in_root(root, directory, &listing);

    if (r < 0)
        return path_is_missing(r) ? HOST_ABSENT : r;
    r = directory_read_names(listing, HOST_NAMES, is_visible, ret_names);
    if (r == DIRECTORY_TOO_MANY) {
        directory_names_done(ret_names);
        return -E2BIG;
    }
    return r < 0 ? r : HOST_READ;
}

/* The path as given if this cannot be determined. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX])
{
    int r = path_real_in_root(root, path, ret_path);

    if (r == 0)
        return HOST_READ;
    if (r != PATH_LEADS_OUT)
        return path_is_missing(r) ? HOST_ABSENT : r;
    return snprintf(ret_path, PATH_MAX, "%s", path) < PATH_MAX ? HOST_READ : -ENAMETOOLONG;
}
