/* namespaces.h - whether this process sees the node, or only a part of it.
 *
 * The kernel's first namespaces have fixed inodes (include/linux/proc_ns.h).
 */
#pragma once

#include <stdbool.h>

/* The processes below /proc are all of the node's: its pid namespace, shown by a /proc of it. */
bool namespaces_show_all_processes(void);

/* The user namespace that the kernel's events come to, and whose root may look at every process. */
bool namespaces_user_is_first(void);

/* Mounts are the node's own: paths mean here what they mean to its first process. */
bool namespaces_mounts_are_first(void);
