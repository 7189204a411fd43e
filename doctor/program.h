/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - what Kata's `path` leads to: a hypervisor, crust-qemu, or nothing. Private to
 * doctor/.
 *
 * Kata resolves the path, links included, when a sandbox starts, and starts none where it leads
 * nowhere. A pod shows crustd a part of the node's files only, so what is not below root is looked
 * for in the root of the node's first process.
 */
#pragma once

#include <stdbool.h>

enum { PROGRAM_NAME_BYTES = 128 };

enum program_state {
    PROGRAM_UNNAMED, /* no path is set */
    PROGRAM_THERE,
    PROGRAM_ABSENT,
    PROGRAM_NOT_EXECUTABLE,
    PROGRAM_UNSEEN, /* not below root, and the rest of the node cannot be seen */
};

struct program {
    enum program_state state;
    /* crust-qemu, by its name; what follows holds where state is PROGRAM_THERE. */
    bool is_crust;
    char qemu_name[PROGRAM_NAME_BYTES]; /* what it runs */
    enum program_state qemu;
    bool has_directory;   /* /run/crustd/qemu is there, and root's alone */
    bool has_other_label; /* than QEMU, for SELinux */
};

/* path: "" none is set. */
void program_find(int root, const char *path, struct program *ret_program);

/* Only whether it is there. */
enum program_state program_examine(int root, const char *path);
