/* SPDX-License-Identifier: Apache-2.0 */
/* added_monitors.h - finds sockets of monitors that crust-qemu added, and whose VM is gone.
 *
 * QEMU leaves its socket behind when it is killed. The VM is certainly gone if no process of the
 * node names the socket in its arguments, or names the sandbox as `-name sandbox-ID`: crust-qemu
 * carries that name before QEMU has the socket. The caller must see every process of the node
 * (namespaces_show_all_processes()).
 *
 * A file named .PID was left by the crust-qemu with that pid, which was killed while it tested
 * whether a socket can be made.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

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
