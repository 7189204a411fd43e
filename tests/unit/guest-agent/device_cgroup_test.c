/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup_test.c - disks that a device cgroup of version 1 forbids. Skipped where this
 * machine has none, or no loop devices.
 */
#include "guest-agent/drive_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static int hierarchy = -1;
static char group[64];

static int open_hierarchy(void)
{
    int context = fsopen("cgroup", FSOPEN_CLOEXEC), fd = -1;

    if (context >= 0 && fsconfig(context, FSCONFIG_SET_FLAG, "devices", NULL, 0) == 0 &&
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = fsmount(context, FSMOUNT_CLOEXEC, 0);
    fd_close(context);
    return fd;
}

static int set_up(void **state)
{
    (void)state;
    hierarchy = open_hierarchy();
    (void)snprintf(group, sizeof(group), "crust-unit-%d", (int)getpid());
    return hierarchy >= 0 ? mkdirat(hierarchy, group, 0700) : 0;
}

static int tear_down(void **state)
{
    int r = hierarchy >= 0 ? unlinkat(hierarchy, group, AT_REMOVEDIR) : 0;

    (void)state;
    fd_close(hierarchy);
    return r;
}

static void write_to_group(const char *file, const char *text)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", group, file);
    fd = openat(hierarchy, path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    fd_close(fd);
}

static int open_disk(const char *path, int access)
{
    int fd = open(path, access | O_CLOEXEC), r = fd < 0 ? -errno : 0;

    fd_close(fd);
    return r;
}

/* In the group. Which check failed; 0: none. */
static int check_in_group(const char *path, dev_t device)
{
    if (open_disk(path, O_RDONLY) != -EPERM)
        return 1;
    if (device_cgroup_allow(device) < 0)
        return 2;
    if (open_disk(path, O_RDONLY) < 0)
        return 3;
    if (open_disk(path, O_RDWR) != -EPERM) /* it asked to read */
        return 4;
    return open_disk("/dev/null", O_RDONLY) == -EPERM ? 0 : 5; /* nothing else is allowed */
}

static void make_disk(struct loop_volume *volume, const char *directory)
{
    (void)snprintf(volume->image, sizeof(volume->image), "%.60s/image", directory);
    fd_close(open(volume->image, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(truncate(volume->image, MIB), 0);
    loop_volume_attach(volume);
}

static void the_disk_alone_may_be_read(void **state)
{
    struct loop_volume volume = {.loop = -1};
    char directory[SCRATCH_BYTES];
    struct stat disk = {0};
    pid_t child;
    int status;

    (void)state;
    if (hierarchy < 0)
        skip();
    assert_int_equal(scratch_directory_make(directory), 0);
    make_disk(&volume, directory);
    if (volume.loop < 0 || fstat(volume.loop, &disk) < 0) {
        (void)scratch_directory_remove(directory);
        skip();
    }
    write_to_group("devices.deny", "a");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_to_group("cgroup.procs", "0");
        _exit(check_in_group(volume.device, disk.st_rdev));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    (void)ioctl(volume.loop, LOOP_CLR_FD);
    fd_close(volume.loop);
    assert_int_equal(scratch_directory_remove(directory), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_disk_alone_may_be_read)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
