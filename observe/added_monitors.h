/* SPDX-License-Identifier: Apache-2.0 */
/* added_monitors.h - the sockets of the monitors that crust-qemu adds, and whose VM is gone.
 *
 * QEMU leaves its socket behind when it is killed. The VM is gone for certain if no process of the
 * node names the socket among its arguments, nor itself `-name sandbox-ID`: crust-qemu has that
 * name before QEMU has the socket. Whoever asks must see every process of the node
 * (namespaces_show_all_processes()).
 *
 * A file named .PID was left by a crust-qemu of that pid that was killed while it tried whether a
 * socket can be made.
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
    dev_t device;     /* which socket it was when the directory was read */
    ino_t inode;
    struct timespec modified;
};

/* What the functions here fail with and is told apart. */
enum added_monitors_failure {
    ADDED_MONITORS_ABSENT = -ENOENT, /* no such directory */
    ADDED_MONITORS_EXPOSED = -EPERM, /* others than root may use it */
};

/* What is there now. 0, an enum added_monitors_failure or another -errno. */
int added_monitors_read(int root, struct added_monitors **ret_monitors);
struct added_monitors *added_monitors_free(struct added_monitors *monitors);

/* The sandbox is known to live: its socket is not asked about. */
void added_monitors_keep(struct added_monitors *monitors, const char *sandbox_id);

/* Whether there is one whose VM may be gone. */
bool added_monitors_are_doubtful(const struct added_monitors *monitors);

/* Looks at some processes more. An enum progress_outcome; -errno: nothing is known. */
int added_monitors_step(struct added_monitors *monitors);

/* After the last step: the next one whose VM is gone; false: no more. */
bool added_monitors_next(struct added_monitors *monitors, struct added_monitor *ret_monitor);

/* The directory that was read; borrowed. */
int added_monitors_directory(const struct added_monitors *monitors);
