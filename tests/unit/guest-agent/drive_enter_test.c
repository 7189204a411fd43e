/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter_test.c - a drive in containers that run: a tmpfs here, in mount namespaces that are
 * real. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include "guest-agent/drive_enter.h"
#include "tests/unit/guest-agent/container_fixture.h"

static pid_t pid;
static int volume_fd = -1;
static struct error error;
static char path_there[512];

static int start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    pid = 0;
    volume_fd = -1;
    if (!has_mounts)
        return 0;
    show_agent();
    tree_make("/vm/data");
    tree_make("/inner");
    (void)snprintf(path_there, sizeof(path_there), "%s/inner/data", scratch);
    if (mount("none", target(), "tmpfs", 0, NULL) < 0)
        return -1;
    tree_make("/vm/data/sub/deep");
    tree_write("/vm/data/file", "whole\n");
    tree_write("/vm/data/sub/file", "part\n");
    assert_int_equal(symlink("sub", tree_path("/vm/data/link")), 0);
    assert_int_equal(symlink("/etc", tree_path("/vm/data/evil")), 0);
    volume_fd = open(target(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return volume_fd >= 0 ? 0 : -1;
}

static int stop(void **state)
{
    if (pid)
        stop_process(pid);
    fd_close(volume_fd);
    return disk_stop(state);
}

static void run_container(void (*begin)(void))
{
    if (!has_mounts)
        skip();
    pid = start_container(begin);
    show_process(pid, "/pod/c1", FIRST);
}

static struct drive_container asked(const char *path, const char *sub_path)
{
    struct drive_container container = {.container_id = "c1"};

    (void)snprintf(container.path, sizeof(container.path), "%s", path);
    (void)snprintf(container.sub_path, sizeof(container.sub_path), "%s", sub_path);
    return container;
}

static struct drive_visits visits(void)
{
    return (struct drive_visits){tree_path("/proc"), clock_boottime() + 60 * NSEC_PER_SEC};
}

static enum status_code enter(const struct drive_container *container)
{
    const struct drive_visits here = visits();

    error = (struct error){0};
    return drive_enter(&here, volume_fd, container, &error);
}

static enum status_code leave(const struct drive_container *container)
{
    const struct drive_visits here = visits();
    struct stat status;

    error = (struct error){0};
    assert_int_equal(fstat(volume_fd, &status), 0);
    return drive_leave(&here, status.st_dev, status.st_dev, container, &error);
}

static bool is_there(void)
{
    return is_mounted(in_container(pid, path_there));
}

static void refused(const char *path, const char *sub_path, const char *text)
{
    const struct drive_container container = asked(path, sub_path);

    if (enter(&container) != STATUS_FAILED_PRECONDITION || !strstr(error.text, text) ||
        strncmp(error.text, "container c1: ", strlen("container c1: ")) != 0)
        fail_msg("%s in %s: \"%s\"", sub_path, path, error.text);
    assert_false(is_there());
}

static void a_container_gets_the_drive_and_gives_it_back(void **state)
{
    struct drive_container container = asked(path_there, "");

    (void)state;
    run_container(NULL);
    assert_int_equal(enter(&container), STATUS_OK);
    assert_true(is_there());
    assert_false(is_mounted(path_there)); /* not here */
    assert_true(run_command("grep -qx whole '%s/file'", in_container(pid, path_there)));
    assert_true(run_command("touch '%s/new'", in_container(pid, path_there)));
    assert_int_equal(access(tree_path("/vm/data/new"), F_OK), 0);
    assert_int_equal(enter(&container), STATUS_OK); /* once is enough */
    assert_int_equal(leave(&container), STATUS_OK);
    assert_false(is_there());
    assert_int_equal(leave(&container), STATUS_OK);
}

static void a_part_of_the_drive_read_only(void **state)
{
    struct drive_container container = asked(path_there, "sub");

    (void)state;
    container.read_only = true;
    run_container(NULL);
    assert_int_equal(enter(&container), STATUS_OK);
    assert_true(run_command("grep -qx part '%s/file'", in_container(pid, path_there)));
    assert_false(run_command("touch '%s/new' 2>/dev/null", in_container(pid, path_there)));
    assert_int_equal(enter(&container), STATUS_OK);
    /* Another part of the same drive is not what is there. */
    container = asked(path_there, "sub/deep");
    assert_int_equal(enter(&container), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "mount point already"));
    assert_int_equal(leave(&container), STATUS_OK);
    assert_false(is_there());
}

/* As somebody has remounted it in the container. */
static void a_mount_that_is_there_is_made_read_only(void **state)
{
    struct drive_container container = asked(path_there, "");
    char file[1300];
    int fd;

    (void)state;
    run_container(NULL);
    assert_int_equal(enter(&container), STATUS_OK);
    (void)snprintf(file, sizeof(file), "%s/file", in_container(pid, path_there));
    fd = open(file, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    container.read_only = true;
    assert_int_equal(enter(&container), STATUS_FAILED_PRECONDITION); /* it is being written to */
    assert_non_null(strstr(error.text, "cannot be made read-only"));
    fd_close(fd);
    assert_int_equal(enter(&container), STATUS_OK);
    assert_false(run_command("touch '%s/new' 2>/dev/null", in_container(pid, path_there)));
    container.read_only = false;
    assert_int_equal(enter(&container), STATUS_OK);
    assert_false(run_command("touch '%s/new' 2>/dev/null", in_container(pid, path_there)));
}

static void a_sub_path_stays_in_the_drive(void **state)
{
    (void)state;
    run_container(NULL);
    refused(path_there, "evil", "sub_path evil");
    refused(path_there, "link", "sub_path link");
    refused(path_there, "evil/passwd", "sub_path evil/passwd");
    refused(path_there, "missing", "sub_path missing");
    refused(path_there, "file", "no directory");
    assert_int_equal(mount("/proc", tree_path("/vm/data/sub/deep"), NULL, MS_BIND, NULL), 0);
    refused(path_there, "sub/deep/self", "sub_path sub/deep/self");
    assert_int_equal(umount(tree_path("/vm/data/sub/deep")), 0);
}

static void bind_proc(void)
{
    tree_make("/inner/bound");
    if (mount("/proc", tree_path("/inner/bound"), NULL, MS_BIND, NULL) < 0 ||
        symlink("/etc", tree_path("/inner/link")) < 0)
        _exit(1);
}

static void protected_places_of_a_container_are_refused(void **state)
{
    char path[600];

    (void)state;
    run_container(bind_proc);
    refused("/proc/sys", "", "protected");
    refused("/dev/shm/data", "", "protected");
    (void)snprintf(path, sizeof(path), "%s/inner/bound/sys", scratch);
    refused(path, "", "protected");
    (void)snprintf(path, sizeof(path), "%s/inner/link/data", scratch);
    refused(path, "", "cannot reach");
}

static void mount_something(void)
{
    tree_make("/inner/data");
    if (mount("none", path_there, "tmpfs", 0, NULL) < 0)
        _exit(1);
}

static void a_containers_own_mount_stays(void **state)
{
    struct drive_container container = asked(path_there, "");

    (void)state;
    run_container(mount_something);
    assert_int_equal(enter(&container), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "mount point already"));
    assert_int_equal(leave(&container), STATUS_OK);
    assert_true(is_there());
    assert_int_equal(access(in_container(pid, tree_path("/inner/data/file")), F_OK), -1);
}

static void a_mount_in_use_is_not_taken_away(void **state)
{
    struct drive_container container = asked(path_there, "");
    int fd;

    (void)state;
    run_container(NULL);
    assert_int_equal(enter(&container), STATUS_OK);
    fd = open(in_container(pid, tree_path("/inner/data/file")), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(leave(&container), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "container c1: cannot unmount"));
    assert_true(is_there());
    fd_close(fd);
    assert_int_equal(leave(&container), STATUS_OK);
}

/* What it had ended with it; it gets the drive again. */
static void a_container_that_was_restarted(void **state)
{
    struct drive_container container = asked(path_there, "");

    (void)state;
    run_container(NULL);
    assert_int_equal(enter(&container), STATUS_OK);
    hide_process(pid);
    stop_process(pid);
    pid = 0;
    assert_int_equal(enter(&container), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "does not run"));
    assert_int_equal(leave(&container), STATUS_OK);
    run_container(NULL);
    assert_false(is_there());
    assert_int_equal(enter(&container), STATUS_OK);
    assert_true(is_there());
}

/* kata-agent gives it its cgroup and its mounts before its root. */
static void a_container_that_is_still_being_made(void **state)
{
    struct drive_container container = asked(path_there, "");

    (void)state;
    if (!has_mounts)
        skip();
    pid = start_container_as(false, NULL);
    show_process(pid, "/pod/c1", FIRST);
    assert_int_equal(enter(&container), STATUS_UNAVAILABLE);
    assert_string_equal(error.text,
                        "container c1: it is still being made: the guest's root is its root");
    assert_false(is_there());
    assert_int_equal(leave(&container), STATUS_OK); /* it has none, so it is not visited */
}

#define ENTER(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTER(a_container_gets_the_drive_and_gives_it_back),
        ENTER(a_part_of_the_drive_read_only),
        ENTER(a_mount_that_is_there_is_made_read_only),
        ENTER(a_sub_path_stays_in_the_drive),
        ENTER(protected_places_of_a_container_are_refused),
        ENTER(a_containers_own_mount_stays),
        ENTER(a_mount_in_use_is_not_taken_away),
        ENTER(a_container_that_was_restarted),
        ENTER(a_container_that_is_still_being_made),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
