/* SPDX-License-Identifier: Apache-2.0 */
/* kata_program.c - looks for programs as Kata and crust-qemu do (crust-qemu/qemu_program.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/process.h"

/* crust-qemu/monitor_option.h */
#define MONITOR_PARENT    "/run/crustd"
#define MONITOR_DIRECTORY MONITOR_PARENT "/qemu"

enum { LABEL_BYTES = 256, HOST_NAMES = 64 };

/* The node, as far as it can be seen. */
struct view {
    int root;
    int first; /* the first process's root; -1: out of reach */
};

struct found {
    enum program_state state;
    char real[PATH_MAX];
    struct stat status;
    char label[LABEL_BYTES]; /* SELinux's; "" none */
};

static void find(const struct view *view, const char *path, struct found *ret_found)
{
    const char *slash = strrchr(path, '/');
    cleanup(fd_closep) int fd = -1;
    char link[32], directory[PATH_MAX], real[PATH_MAX];
    struct stat its, own;
    ssize_t length;
    int root = view->root;
    bool sees_all;

    *ret_found = (struct found){.state = PROGRAM_UNNAMED};
    if (!*path)
        return;
    if (host_file_resolve(root, path, ret_found->real) < 0)
        root = view->first >= 0 && host_file_resolve(view->first, path, ret_found->real) == 0
                   ? view->first
                   : -1;
    if (root < 0 || path_open_in_root(root, path, &fd) < 0 || fstat(fd, &ret_found->status) < 0) {
        /* A file that is not found does not exist if the whole node can be seen, or at least the
         * directory. */
        (void)snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 0,
                       path);
        sees_all = view->first >= 0 || (fstat(view->root, &its) == 0 && stat("/", &own) == 0 &&
                                        its.st_dev == own.st_dev && its.st_ino == own.st_ino);
        ret_found->state = sees_all || host_file_resolve(view->root, directory, real) == 0
                               ? PROGRAM_ABSENT
                               : PROGRAM_UNSEEN;
        return;
    }
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = getxattr(link, "security.selinux", ret_found->label, LABEL_BYTES - 1);
    ret_found->label[length > 0 ? length : 0] = '\0';
    ret_found->state = S_ISREG(ret_found->status.st_mode) && (ret_found->status.st_mode & 0111)
                           ? PROGRAM_THERE
                           : PROGRAM_NOT_EXECUTABLE;
}

/* ---- crust-qemu ---------------------------------------------------------------------------- */

/* Beside itself, where kata-deploy puts it, and where distributions do. A link back to crust-qemu
 * is passed over, as it does itself. If one of the directories cannot be seen, it may be there. */
static enum program_state find_qemu(const struct view *view, const struct found *self,
                                    const char *name, struct found *ret_qemu)
{
    const char *slash = strrchr(self->real, '/');
    char path[3][PATH_MAX];
    enum program_state state = PROGRAM_ABSENT;

    (void)snprintf(path[0], PATH_MAX, "%.*s/%s", slash ? (int)(slash - self->real) : 0, self->real,
                   name);
    (void)snprintf(path[1], PATH_MAX, "/opt/kata/bin/%s", name);
    (void)snprintf(path[2], PATH_MAX, "/usr/bin/%s", name);
    for (size_t i = 0; i < array_length(path) && state != PROGRAM_THERE; i++) {
        find(view, path[i], ret_qemu);
        if (ret_qemu->state == PROGRAM_UNSEEN ||
            (ret_qemu->state == PROGRAM_THERE && (ret_qemu->status.st_dev != self->status.st_dev ||
                                                  ret_qemu->status.st_ino != self->status.st_ino)))
            state = ret_qemu->state;
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

void program_find(int root, const char *path, struct program *ret_program)
{
    struct view view = {root, -1};
    struct found self, qemu;
    const char *base;

    *ret_program = (struct program){0};
    if (!namespaces_show_all_processes() || path_open_root("/proc/1/root", &view.first) < 0)
        view.first = -1;
    find(&view, path, &self);
    ret_program->state = self.state;
    base = basename(*self.real ? self.real : path);
    ret_program->is_crust = strncmp(base, "crust-", 6) == 0 && base[6];
    if (ret_program->is_crust)
        (void)snprintf(ret_program->qemu_name, sizeof(ret_program->qemu_name), "%s", base + 6);
    if (ret_program->is_crust && self.state == PROGRAM_THERE) {
        ret_program->qemu = find_qemu(&view, &self, ret_program->qemu_name, &qemu);
        ret_program->has_other_label =
            ret_program->qemu == PROGRAM_THERE && have_other_types(self.label, qemu.label);
        ret_program->has_directory = is_roots(root, MONITOR_PARENT, S_IWGRP | S_IWOTH) &&
                                     is_roots(root, MONITOR_DIRECTORY, S_IRWXG | S_IRWXO);
    }
    fd_close(view.first);
}

/* ---- files of the node --------------------------------------------------------------------- */

/* They belong to root and are trusted: links are followed inside the root. */

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

int host_names_read(int root, const char *directory, struct directory_names *ret_names)
{
    cleanup(dir_closep) DIR *listing = NULL;
    int r = directory_list_in_root(root, directory, &listing);

    if (r < 0)
        return path_is_missing(r) ? 0 : r;
    r = directory_read_names(listing, HOST_NAMES, is_visible, ret_names);
    if (r == DIRECTORY_TOO_MANY)
        directory_names_done(ret_names);
    return r == DIRECTORY_TOO_MANY ? -E2BIG : r;
}

int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX])
{
    int r = path_real_in_root(root, path, ret_path);

    if (r != PATH_LEADS_OUT)
        return r;
    return snprintf(ret_path, PATH_MAX, "%s", path) < PATH_MAX ? 0 : -ENAMETOOLONG;
}
