/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process.c - a live process' view of its files, through /proc/PID.
 *
 * Absolute paths, and absolute links in them, are resolved inside the process' own root. A relative
 * path would depend on an earlier working directory, so it is not resolved at all. Descriptors are
 * followed through /proc/PID/fd, whose links are magic: stat(2) yields the open file itself.
 */
#include "hypervisor/vmm_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/result.h"

/* Records r in process->shortage if it is a lack of descriptors or memory, and returns it. */
static int note(struct vmm_process *process, int r)
{
    if (result_is_shortage(r))
        process->shortage = r;
    return r;
}

static struct hypervisor_disk disk_of(const struct stat *st)
{
    if (S_ISBLK(st->st_mode))
        return (struct hypervisor_disk){.device = st->st_rdev};
    return (struct hypervisor_disk){true, st->st_dev, st->st_ino};
}

int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk)
{
    struct stat st = {0};
    int r = path[0] == '/' ? path_guard_check_process(process->pid, process->root, path) : -EINVAL;

    if (r == 0)
        r = path_stat_in_root(process->root, path, &st);
    if (r == 0)
        *ret_disk = disk_of(&st);
    return note(process, r);
}

int vmm_process_stat(const struct vmm_process *process, const char *name, struct stat *ret_stat)
{
    struct statx x;

    if (statx(process->descriptors, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &x) < 0)
        return -errno;
    *ret_stat = (struct stat){
        .st_mode = x.stx_mode,
        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
        .st_ino = x.stx_ino,
    };
    return 0;
}

static int stat_disk(struct vmm_process *process, const char *name,
                     struct hypervisor_disk *ret_disk)
{
    struct stat st = {0};
    int r = vmm_process_stat(process, name, &st);

    if (r == 0 && !S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
        r = -ENODEV;
    if (r == 0)
        *ret_disk = disk_of(&st);
    return note(process, r);
}

int vmm_process_descriptor(struct vmm_process *process, int fd, struct hypervisor_disk *ret_disk)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%d", fd);
    return stat_disk(process, name, ret_disk);
}

enum vmm_holding vmm_process_holds(struct vmm_process *process, const struct hypervisor_disk *disk)
{
    cleanup(dir_closep) DIR *names = NULL;
    struct hypervisor_disk held;
    const char *name;

    if (note(process, directory_list(process->descriptors, &names)) < 0)
        return process->shortage ? VMM_MAY_HOLD : VMM_HOLDS_NOT;
    for (unsigned seen = 0; (name = directory_next(names)); seen++) {
        process->exhausted |= seen == VMM_DESCRIPTORS;
        if (process->exhausted)
            return VMM_MAY_HOLD;
        if (stat_disk(process, name, &held) == 0 && vmm_disk_equal(&held, disk))
            return VMM_HOLDS;
    }
    return VMM_HOLDS_NOT;
}

static int open_directory(pid_t pid, const char *name, int *ret_fd)
{
    char path[48];
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error)
{
    int r;

    *process = (struct vmm_process){.pid = pid, .root = -1, .descriptors = -1};
    r = open_directory(pid, "root", &process->root);
    if (r == 0)
        r = open_directory(pid, "fd", &process->descriptors);
    if (r == 0)
        return 0;
    vmm_process_done(process);
    return error_set_errno(error, r, "cannot inspect the VMM, process %d", (int)pid);
}

void vmm_process_done(struct vmm_process *process)
{
    fd_close(take_fd(&process->root));
    fd_close(take_fd(&process->descriptors));
}

enum hypervisor_list vmm_process_judge(struct vmm_process *process,
                                       const struct hypervisor_request *request, bool found,
                                       enum hypervisor_outcome *outcome, struct error *error)
{
    const bool lacks = *outcome == HYPERVISOR_DRIVE_NOT_FOUND &&
                       vmm_process_holds(process, &request->disk) == VMM_HOLDS_NOT;

    if (process->exhausted)
        (void)error_set(error, 0,
                        "the VMM has more drives and files, or longer paths to them, than crustd "
                        "examines");
    else if (process->shortage && !found)
        (void)error_set_errno(error, process->shortage, "cannot read all of the VMM's files");
    else if (found)
        return HYPERVISOR_LIST_HAS;
    else
        return lacks ? HYPERVISOR_LIST_LACKS : HYPERVISOR_LIST_UNREAD;
    *outcome = HYPERVISOR_UNREACHABLE;
    return HYPERVISOR_LIST_UNREAD;
}

bool hypervisor_may_hold(pid_t vmm_pid, const struct hypervisor_disk *disk)
{
    cleanup(vmm_process_done) struct vmm_process process;

    return vmm_process_init(&process, vmm_pid, NULL) < 0 ||
           vmm_process_holds(&process, disk) != VMM_HOLDS_NOT;
}
