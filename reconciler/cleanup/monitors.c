/* SPDX-License-Identifier: Apache-2.0 */
/* monitors.c - a socket is renamed, checked again, and only then unlinked.
 *
 * Between the walk through /proc and the removal, another VM of the same name may start and put its
 * socket in this place; then the socket gets its name back. Only crustd connects by path, so no
 * client misses it meanwhile.
 */
#include "reconciler/cleanup/cleaner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/process.h"
#include "observe/process_scan.h"
#include "reconciler/core/context.h"
#include "store/store.h"

#define ASIDE ".gone"

static const uint64_t SLICE_NS = 500 * 1000;

int monitors_remove_socket(int directory, const struct added_monitor *monitor)
{
    struct stat status;

    if (renameat(directory, monitor->name, directory, ASIDE) < 0)
        return errno == ENOENT ? MONITORS_NOT_THAT_ONE : -errno;
    if (fstatat(directory, ASIDE, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_dev == monitor->device && status.st_ino == monitor->inode &&
        status.st_mtim.tv_sec == monitor->modified.tv_sec &&
        status.st_mtim.tv_nsec == monitor->modified.tv_nsec)
        return unlinkat(directory, ASIDE, 0) < 0 ? -errno : MONITORS_REMOVED;
    return renameat2(directory, ASIDE, directory, monitor->name, RENAME_NOREPLACE) < 0
               ? -errno
               : MONITORS_NOT_THAT_ONE;
}

static int keep(void *userdata, const struct store_helper_run *sandbox)
{
    added_monitors_keep(userdata, sandbox->sandbox_id);
    return 0;
}

void monitors_done(struct monitors *monitors)
{
    monitors->pass = added_monitors_free(monitors->pass);
}

/* Processes are only checked if some socket does not belong to a known VM. */
static void begin_pass(struct monitors *monitors)
{
    int r;

    monitors->wanted = false;
    if (!namespaces_show_all_processes())
        return;
    r = added_monitors_read(monitors->context->root, &monitors->pass);
    if (r == ADDED_MONITORS_EXPOSED)
        log_warning(NULL,
                    "%s is not root's alone, so nothing in it is used or removed: chown root, "
                    "chmod 700",
                    ADDED_MONITORS);
    else if (r < 0 && r != ADDED_MONITORS_ABSENT)
        log_warning(NULL, "cannot read " ADDED_MONITORS ": %s", strerror(-r));
    if (r == 0)
        r = store_each_sandbox(monitors->context->store, false, keep, monitors->pass);
    if (r < 0 || !added_monitors_are_doubtful(monitors->pass))
        monitors_done(monitors);
}

bool monitors_work(struct monitors *monitors)
{
    const uint64_t until = clock_boottime() + SLICE_NS;
    struct added_monitor monitor;
    int r;

    if (!monitors->pass) {
        if (monitors->wanted)
            begin_pass(monitors);
        return monitors_are_busy(monitors);
    }
    do
        r = added_monitors_step(monitors->pass);
    while (r > 0 && clock_boottime() < until);
    if (r > 0)
        return true;
    if (r < 0)
        log_warning(NULL, "cannot tell which VMs have the sockets in " ADDED_MONITORS ": %s",
                    strerror(-r));
    while (r >= 0 && added_monitors_next(monitors->pass, &monitor)) {
        r = monitors_remove_socket(added_monitors_directory(monitors->pass), &monitor);
        if (r < 0)
            log_warning(NULL, "cannot remove " ADDED_MONITORS "/%s, whose VM is gone: %s",
                        monitor.name, strerror(-r));
        else if (r == MONITORS_REMOVED)
            log_info(NULL,
                     "removed the monitor's socket of a VM that is gone: " ADDED_MONITORS "/%s",
                     monitor.name);
        r = 0;
    }
    monitors_done(monitors);
    return monitors_are_busy(monitors);
}

void monitors_want(struct monitors *monitors)
{
    monitors->wanted = true;
}

bool monitors_are_busy(const struct monitors *monitors)
{
    return monitors->pass || monitors->wanted;
}
