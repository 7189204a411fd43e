/* SPDX-License-Identifier: Apache-2.0 */
/* process_scan.h - finds out which sandboxes still have a process, by checking every process of the
 * node.
 *
 * A process belongs to a sandbox if its arguments or its cgroup's name contain the sandbox's id, or
 * the first 32 characters of it (Firecracker gets no more). That finds VMMs, shims, virtiofsd, and
 * anything else that names the sandbox: a false match is safe, a missed process is not.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct process_scan;

int process_scan_new(struct process_scan **ret_scan);
struct process_scan *process_scan_free(struct process_scan *process_scan);

/* Adds a sandbox to the question; before the first step. */
int process_scan_ask(struct process_scan *process_scan, const char *sandbox_id);

/* Checks some more processes. An enum progress_outcome; -errno: the result is unknown, begin
 * anew. */
int process_scan_step(struct process_scan *process_scan);

/* After the last step. true also for a sandbox that was not asked for, as its state is unknown. */
bool process_scan_has_process(const struct process_scan *process_scan, const char *sandbox_id);
/* One of its processes, for messages; 0: none is known by its arguments. */
pid_t process_scan_get_process(const struct process_scan *process_scan, const char *sandbox_id);
bool process_scan_has_cgroup(const struct process_scan *process_scan, const char *sandbox_id);

/* When the running kubelet was started, CLOCK_BOOTTIME; 0: none was found. */
uint64_t process_scan_kubelet_start(const struct process_scan *process_scan);

/* ---- added monitors ------------------------------------------------------------------------- */

/* Finds sockets of monitors that crust-qemu added, and whose VM is gone.
 *
 * QEMU leaves its socket behind when it is killed. The VM is certainly gone if no process of the
 * node names the socket in its arguments, or names the sandbox as `-name sandbox-ID`: crust-qemu
 * carries that name before QEMU has the socket. The caller must see every process of the node
 * (namespaces_show_all_processes()).
 *
 * A file named .PID was left by the crust-qemu with that pid, which was killed while it tested
 * whether a socket can be made.
 */

/* crust-qemu/monitor_option.h */
#define ADDED_MONITORS "/run/crustd/qemu"

struct added_monitors;

struct added_monitor {
    const char *name; /* of the socket, in the directory */
    dev_t device;     /* identify the socket as it was when the directory was read */
    ino_t inode;
    struct timespec modified;
};

/* The failures that callers distinguish. */
enum added_monitors_failure {
    ADDED_MONITORS_ABSENT = -ENOENT, /* the directory does not exist */
    ADDED_MONITORS_EXPOSED = -EPERM, /* users other than root have access to it */
};

/* Reads the directory as it is now. 0, an enum added_monitors_failure or another -errno. */
int added_monitors_read(int root, struct added_monitors **ret_monitors);
struct added_monitors *added_monitors_free(struct added_monitors *monitors);

/* The sandbox is known to be alive: its socket is kept without a check. */
void added_monitors_keep(struct added_monitors *monitors, const char *sandbox_id);

/* Whether there is a socket whose VM may be gone. */
bool added_monitors_are_doubtful(const struct added_monitors *monitors);

/* Checks some more processes. An enum progress_outcome; -errno: the result is unknown. */
int added_monitors_step(struct added_monitors *monitors);

/* After the last step: the next socket whose VM is gone; false: no more. */
bool added_monitors_next(struct added_monitors *monitors, struct added_monitor *ret_monitor);

/* The directory that was read; borrowed. */
int added_monitors_directory(const struct added_monitors *monitors);
