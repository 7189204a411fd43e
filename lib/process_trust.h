/* SPDX-License-Identifier: Apache-2.0 */
/* process_trust.h - whether the arguments of a process can be trusted.
 *
 * Any user may start a program with any arguments, in any directory. So they are trusted only if
 * root of the node started the process.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/process.h"

enum process_trust {
    PROCESS_ROOTS,        /* root's, on the node itself */
    PROCESS_USERS,        /* not root's, or with different user ids */
    PROCESS_CONTAINED,    /* in a container: a pid namespace of its own */
    PROCESS_PRIVILEGED,   /* a set-user-id program, whose caller chose arguments and directory */
    PROCESS_ROOTED_APART, /* with another root directory than the node's first process */
};

/* An enum process_trust, PROCESS_GONE or another -errno. The daemon's own user counts as root: it
 * runs as root, tests need not. ret_user: the real user; may be NULL. */
int process_judge(pid_t pid, uid_t *ret_user);

/* The same for a process that never leaves the node's root directory, such as a shim. */
int process_judge_unjailed(pid_t pid, uid_t *ret_user);

/* Reads the part of the arguments of `pid`, the list's process, that can prevent a removal: root's
 * up to the buffer's limit, other users' only the beginning, so that no user can make them too long
 * to read. 0, BUFFER_FULL, PROCESS_GONE, PROCESS_HANGS or another -errno. */
int process_read_counted_arguments(const struct process_list *list, pid_t pid,
                                   struct buffer *ret_arguments);

/* Why it is not trusted, such as "it belongs to another user than root". */
const char *process_trust_text(enum process_trust trust);

/* ---- namespaces ----------------------------------------------------------------------------- */

/* Whether this process sees the node, or only a part of it.
 *
 * The kernel's first namespaces have fixed inodes (include/linux/proc_ns.h).
 */

/* /proc shows all processes of the node: this is its pid namespace, and /proc belongs to it. */
bool namespaces_show_all_processes(void);

/* Whether this is the first user namespace: it receives the kernel's events, and its root may
 * inspect every process. */
bool namespaces_user_is_first(void);

/* Whether process 1 has this very file at the path, whatever mounts this process has. False also if
 * the root of process 1 cannot be reached (CAP_SYS_PTRACE). */
bool namespaces_first_has(const char *path, const struct stat *file);
