/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup_test.c - disks that a device cgroup of version 1 forbids. Skipped where this
 * machine has none, or no loop devices.
 */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <signal.h>
#include <sys/prctl.h>

#include "guest-agent/guest_drive.h"

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

static int start(void **state)
{
    hierarchy = open_hierarchy();
    (void)snprintf(group, sizeof(group), "crust-unit-%d", (int)getpid());
    return hierarchy >= 0 && mkdirat(hierarchy, group, 0700) < 0 ? -1 : tree_start(state);
}

static int stop(void **state)
{
    if (hierarchy >= 0 && unlinkat(hierarchy, group, AT_REMOVEDIR) < 0)
        return -1;
    fd_close(hierarchy);
    return disk_stop(state);
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
    if (open_disk(path, O_RDWR) < 0)
        return 4;
    return open_disk("/dev/null", O_RDONLY) == -EPERM ? 0 : 5; /* nothing else is allowed */
}

static void the_disk_alone_may_be_used(void **state)
{
    struct stat disk;
    pid_t child;
    int status;

    if (hierarchy < 0)
        skip();
    attach_disk("");
    assert_int_equal(fstat(volume.loop, &disk), 0);
    write_to_group("devices.deny", "a");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_to_group("cgroup.procs", "0");
        _exit(check_in_group(volume.device, disk.st_rdev));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_disk_alone_may_be_used, start, stop)};

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
