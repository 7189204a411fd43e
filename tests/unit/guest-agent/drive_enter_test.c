/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter_test.c - containers that run, in mount namespaces that are real: how one is found,
 * among others that would like to be taken for it, and a drive in it, which is a tmpfs here. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include "guest-agent/guest_drive.h"
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

static struct drive_setting setting(void)
{
    return (struct drive_setting){.proc = tree_path("/proc"),
                                  .deadline_ns = clock_boottime() + 60 * NSEC_PER_SEC};
}

static enum status_code enter(const struct drive_container *container)
{
    const struct drive_setting here = setting();

    error = (struct error){0};
    return drive_enter(&here, volume_fd, container, &error);
}

static enum status_code leave(const struct drive_container *container)
{
    const struct drive_setting here = setting();
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

/* ---- finding ---- */

static pid_t one, other; /* containers that run */

static int find_start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    one = other = 0;
    if (!has_mounts)
        return 0;
    show_agent();
    one = start_container(NULL);
    other = start_container(NULL);
    return 0;
}

static int find_stop(void **state)
{
    if (one)
        stop_process(one);
    if (other)
        stop_process(other);
    return tree_stop(state);
}

static void expect(const char *id, enum container_outcome outcome, pid_t wanted)
{
    struct container_place place = {.process = -1};
    struct stat mounts;
    char path[64];

    assert_int_equal(container_find(tree_path("/proc"), id, &place), outcome);
    assert_int_equal(place.process >= 0, outcome == CONTAINER_FOUND);
    if (outcome != CONTAINER_FOUND)
        return;
    fd_close(place.process);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", wanted);
    assert_int_equal(stat(path, &mounts), 0);
    assert_int_equal(place.mounts, mounts.st_ino);
}

static void a_container_is_found_by_its_cgroup(void **state)
{
    if (!has_mounts)
        skip();
    show_process(one, "/kubepods/besteffort/pod7/c1", FIRST);
    show_process(other, "/c2", FIRST);
    expect("c1", CONTAINER_FOUND, one);
    expect("c2", CONTAINER_FOUND, other);
    expect("c", CONTAINER_ABSENT, 0);
    expect("c11", CONTAINER_ABSENT, 0);
    hide_process(one);
    expect("c1", CONTAINER_ABSENT, 0);
}

/* Of a container whose containers share a pid namespace, and one that a client ran in it. */
static void any_child_of_the_agents_is_better_than_none(void **state)
{
    if (!has_mounts)
        skip();
    show_process(other, "/c1", "1\nNSpid:\t101\t7");
    expect("c1", CONTAINER_FOUND, other);
    show_process(one, "/c1", FIRST);
    expect("c1", CONTAINER_FOUND, one);
}

static void names_of_other_cgroups_are_no_container(void **state)
{
    static const struct {
        const char *path;
        bool is_it;
    } paths[] = {
        {"/c-1", true},
        {"c-1", true},
        {"/x/c-1/below", true},
        {"/system.slice/cri-containerd-c-1.scope", true},
        {"/kubepods/besteffort/pod1/crio-c-1", true}, /* CRI-O with cgroup_manager = "cgroupfs" */
        {"/c-1.scope", true},
        {"/", false},
        {"", false},
        {"/c-11", false},
        {"/xc-1", false},
        {"/a-c-1.scope", false},
        {"/c-1.slice", false},
        {"/cri-containerd-c-1", false},
    };

    for (size_t i = 0; i < array_length(paths); i++) {
        if (container_has_cgroup(paths[i].path, strlen(paths[i].path), "c-1") != paths[i].is_it)
            fail_msg("%s", paths[i].path);
    }
}

/* A container's own child, in a cgroup that the container has called after another one. */
static void a_containers_child_is_not_taken_for_another_container(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/proc/77/ns"); /* in a pid namespace that is not the agent's */
    tree_write("/proc/77/ns/pid", "");
    show_process(one, "/c1/c2", "77\nNSpid:\t102\t1");
    expect("c2", CONTAINER_ABSENT, 0);
    show_process(other, "/c2", FIRST);
    expect("c2", CONTAINER_FOUND, other);
}

static void two_that_claim_one_name_are_refused(void **state)
{
    if (!has_mounts)
        skip();
    show_process(one, "/c1/c2", FIRST);
    show_process(other, "/c2", FIRST);
    expect("c2", CONTAINER_AMBIGUOUS, 0);
    expect("c1", CONTAINER_FOUND, one);
}

/* The guest's own processes have the agent's mounts. */
static void a_process_with_the_agents_mounts_is_no_container(void **state)
{
    if (!has_mounts)
        skip();
    show_process(getpid(), "/c3", FIRST);
    expect("c3", CONTAINER_ABSENT, 0);
}

#define FIND(name)  cmocka_unit_test_setup_teardown(name, find_start, find_stop)
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
        FIND(a_container_is_found_by_its_cgroup),
        FIND(any_child_of_the_agents_is_better_than_none),
        FIND(names_of_other_cgroups_are_no_container),
        FIND(a_containers_child_is_not_taken_for_another_container),
        FIND(two_that_claim_one_name_are_refused),
        FIND(a_process_with_the_agents_mounts_is_no_container),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
