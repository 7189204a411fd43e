/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unmount_test.c - a drive is given back by everybody, or it stays where it is. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include "guest-agent/guest_drive.h"
#include "tests/unit/guest-agent/container_fixture.h"

static struct drive_unmount_answer answer;
static struct error error;

static const char *serial = SERIAL;

static enum status_code unmount_asked(const struct drive_unmount_request *request, const char *proc,
                                      uint64_t wait_ns)
{
    const struct drive_setting setting = {tree_path("/sys"), "/dev", proc,
                                          clock_boottime() + wait_ns, false};

    error = (struct error){0};
    answer = (struct drive_unmount_answer){0};
    return drive_unmount_run(request, &setting, &answer, &error);
}

static enum status_code unmount_within(uint64_t wait_ns)
{
    struct drive_unmount_request request = {.drive_id = "data"};

    strcpy(request.serial, serial);
    return unmount_asked(&request, "/proc", wait_ns);
}

static enum status_code unmount_now(void)
{
    return unmount_within(NSEC_PER_SEC / 5);
}

static void mount_disk(const char *file_system)
{
    attach_disk(file_system);
    tree_make("/vm/data");
    if (mount(volume.device, target(), file_system, 0, NULL) < 0)
        skip();
}

/* Refused, with this text, and everything is as before. */
static void check_refused(const char *text)
{
    assert_int_equal(unmount_now(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, text));
    assert_true(is_mounted(target()));
}

/* It keeps the disk's loop device from nobody. */
static bool hold(const void *userdata)
{
    void (*const *begin)(void) = userdata;

    (void)close(volume.loop);
    (*begin)();
    return true;
}

static pid_t start_holder(void (*begin)(void))
{
    return start_process(hold, &begin);
}

static void a_drive_is_unmounted(void **state)
{
    const char *file_system = *state;

    mount_disk(file_system);
    assert_true(run_command("echo written > '%s/file'", target()));
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_false(answer.disk_removed);
    assert_false(is_mounted(target()));
    /* What was written is on the disk. */
    assert_int_equal(mount(volume.device, target(), file_system, MS_RDONLY, NULL), 0);
    assert_true(run_command("grep -qx written '%s/file'", target()));
    assert_int_equal(umount(target()), 0);
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_false(answer.was_mounted);
}

static void an_xfs_that_was_shut_down_is_unmounted(void **state)
{
    mount_disk("xfs");
    strcpy(volume.mount_point, target());
    loop_volume_shut_down(&volume, "xfs");
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_false(is_mounted(target()));
}

static void a_scsi_disk_is_removed(void **state)
{
    char path[256];

    mount_disk("ext4");
    (void)snprintf(path, sizeof(path), "/sys/block/%.32s/device", volume.device + strlen("/dev/"));
    tree_make(path);
    (void)strcat(path, "/delete");
    tree_write(path, "");
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_true(answer.disk_removed);
    assert_true(run_command("grep -qx 1 '%s%s'", scratch, path));
}

/* Firecracker asks nobody to let go of the function. */
static void pci_function_of_a_firecracker_is_removed(void **state)
{
    char disk[256];

    mount_disk("ext4");
    tree_make("/sys/devices/0000:00:03.0/virtio1");
    (void)snprintf(disk, sizeof(disk), "/sys/block/%.32s/device", volume.device + strlen("/dev/"));
    assert_int_equal(symlink("../../devices/0000:00:03.0/virtio1", tree_path(disk)), 0);
    tree_write("/sys/devices/0000:00:03.0/remove", "");
    assert_int_equal(unmount_now(), STATUS_OK); /* another VMM asks for it itself */
    assert_false(answer.disk_removed);
    assert_true(run_command("test ! -s '%s'", tree_path("/sys/devices/0000:00:03.0/remove")));
    show_disk("617951234", false);
    serial = "617951234";
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_true(answer.disk_removed);
    assert_true(run_command("grep -qx 1 '%s'", tree_path("/sys/devices/0000:00:03.0/remove")));
    assert_int_equal(unlink(tree_path("/sys/devices/0000:00:03.0/remove")), 0);
    assert_int_equal(unmount_now(), STATUS_INTERNAL);
    assert_non_null(strstr(error.text, "PCI function"));
    serial = SERIAL;
}

static void a_disk_that_is_not_there(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/sys/block");
    assert_int_equal(unmount_now(), STATUS_OK);
    assert_false(answer.was_mounted);
    assert_true(answer.disk_removed);
}

static void open_a_file(void)
{
    if (open(tree_path("/vm/data/file"), O_CREAT | O_RDWR, 0600) < 0)
        _exit(1);
}

static void enter_it(void)
{
    if (chdir(target()) < 0)
        _exit(1);
}

static void open_the_disk(void)
{
    if (open(volume.device, O_RDONLY) < 0)
        _exit(1);
}

static void leave_with_the_mount(void)
{
    if (unshare(CLONE_NEWNS) < 0)
        _exit(1);
}

/* Each of them is named, and when it has gone nothing is in the way. */
static void holders_are_named(void **state)
{
    void (*const ways[])(void) = {open_a_file, enter_it, open_the_disk, leave_with_the_mount};
    char name[32];

    mount_disk("ext4");
    for (size_t i = 0; i < array_length(ways); i++) {
        pid_t pid = start_holder(ways[i]);

        (void)snprintf(name, sizeof(name), "%d (drive_unmount_t)", pid);
        check_refused(name);
        stop_process(pid);
    }
    assert_int_equal(unmount_now(), STATUS_OK);
}

/* As the agent's own sync of the drives. */
static void brief_holders_are_waited_for(void **state)
{
    pid_t holder, killer;
    int status;

    mount_disk("ext4");
    holder = start_holder(enter_it);
    killer = fork();
    assert_true(killer >= 0);
    if (killer == 0) {
        (void)usleep(20000);
        (void)kill(holder, SIGKILL);
        _exit(0);
    }
    assert_int_equal(unmount_within(60 * NSEC_PER_SEC), STATUS_OK);
    assert_false(is_mounted(target()));
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_int_equal(waitpid(holder, &status, 0), holder);
}

/* A namespace that follows this one gives it back together with us. */
static void a_slave_mount_does_not_hold_the_drive(void **state)
{
    pid_t pid;

    attach_disk("ext4");
    tree_make("/vm");
    assert_int_equal(mount("none", tree_path("/vm"), "tmpfs", 0, NULL), 0);
    assert_int_equal(mount(NULL, tree_path("/vm"), NULL, MS_SHARED, NULL), 0);
    tree_make("/vm/data");
    assert_int_equal(mount(volume.device, target(), "ext4", 0, NULL), 0);
    pid = start_holder(leave_with_the_mount);
    assert_int_equal(unmount_now(), STATUS_OK);
    stop_process(pid);
    assert_int_equal(umount(tree_path("/vm")), 0);
}

static void two_mounts_are_one_too_many(void **state)
{
    mount_disk("ext4");
    tree_make("/second");
    assert_int_equal(mount(target(), tree_path("/second"), NULL, MS_BIND, NULL), 0);
    check_refused("/second");
    assert_int_equal(umount(tree_path("/second")), 0);
    assert_int_equal(unmount_now(), STATUS_OK);
}

static void a_mount_below_keeps_it(void **state)
{
    mount_disk("ext4");
    tree_make("/vm/data/below");
    assert_int_equal(mount("none", tree_path("/vm/data/below"), "tmpfs", 0, NULL), 0);
    check_refused("/vm/data/below is mounted below");
    assert_int_equal(umount(tree_path("/vm/data/below")), 0);
    assert_int_equal(unmount_now(), STATUS_OK);
}

/* umount(2) takes the mount that is seen at a path, and that is somebody else's. */
static void a_covering_mount_is_left_alone(void **state)
{
    mount_disk("ext4");
    assert_int_equal(mount("none", target(), "tmpfs", 0, NULL), 0);
    tree_make("/vm/data/theirs");
    check_refused("is covered");
    assert_true(run_command("test -d '%s/theirs'", target()));
    assert_int_equal(umount(target()), 0);
    assert_int_equal(mount("none", tree_path("/vm"), "tmpfs", 0, NULL), 0);
    assert_int_equal(unmount_now(), STATUS_FAILED_PRECONDITION);
    tree_make("/vm/data");
    assert_int_equal(mount("none", target(), "tmpfs", 0, NULL), 0);
    check_refused("is covered");
    assert_int_equal(umount(target()), 0);
    assert_int_equal(umount(tree_path("/vm")), 0);
    assert_int_equal(unmount_now(), STATUS_OK);
}

/* As a container's root of its own has none of the guest's. */
static void leave_all_mounts(void)
{
    (void)umount2(target(), MNT_DETACH);
}

static const struct drive_container *in_c1(void)
{
    static struct drive_container container = {.container_id = "c1"};

    (void)snprintf(container.path, sizeof(container.path), "%s/inner", scratch);
    return &container;
}

/* With the containers on record, and a /proc that shows them. */
static enum status_code unmount_with_container(void)
{
    struct drive_unmount_request request = {.drive_id = "data", .serial = SERIAL};

    request.containers = (struct drive_containers){1, {*in_c1()}};
    return unmount_asked(&request, tree_path("/proc"), NSEC_PER_SEC / 5);
}

static bool is_in_container(pid_t pid)
{
    return is_mounted(in_container(pid, tree_path("/inner")));
}

/* The drive is mounted, and a container that runs has it. */
static pid_t start_c1(const char *file_system)
{
    struct drive_setting setting = {.deadline_ns = clock_boottime() + 60 * NSEC_PER_SEC};
    cleanup(fd_closep) int volume_fd = -1;
    pid_t pid;

    mount_disk(file_system);
    tree_make("/inner");
    show_agent();
    pid = start_container(leave_all_mounts);
    show_process(pid, "/c1", FIRST);
    volume_fd = open(target(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(volume_fd >= 0);
    setting.proc = tree_path("/proc");
    assert_int_equal(drive_enter(&setting, volume_fd, in_c1(), &error), STATUS_OK);
    return pid;
}

/* What the container has open would show that it was visited. */
static void what_is_in_the_way_is_found_before_containers_are_visited(void **state)
{
    pid_t pid;
    int file;

    pid = start_c1("ext4");
    tree_make("/second");
    tree_make("/vm/data/below");
    file = open(in_container(pid, tree_path("/inner")), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(mount("none", tree_path("/vm/data/below"), "tmpfs", 0, NULL), 0);
    assert_int_equal(unmount_with_container(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "/vm/data/below is mounted below"));
    assert_int_equal(umount(tree_path("/vm/data/below")), 0);
    assert_int_equal(mount(target(), tree_path("/second"), NULL, MS_BIND, NULL), 0);
    assert_int_equal(unmount_with_container(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "/second"));
    assert_int_equal(umount(tree_path("/second")), 0);
    assert_true(is_mounted(target()) && is_in_container(pid));
    assert_int_equal(unmount_with_container(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "container c1"));
    fd_close(file);
    assert_int_equal(umount(target()), 0); /* one that is there alone is taken as well */
    assert_int_equal(unmount_with_container(), STATUS_OK);
    assert_false(is_in_container(pid));
    stop_process(pid);
}

/* A mount that it was given is taken from it first; one that it uses is not, and it is named. */
static void a_container_gives_the_drive_back_first(void **state)
{
    cleanup(fd_closep) int file = -1;
    pid_t pid, other;
    char name[32];

    pid = start_c1("ext4");

    other = start_holder(enter_it);
    show_process(other, "/c2", FIRST);
    (void)snprintf(name, sizeof(name), "%d (drive_unmount_t)", other);
    assert_int_equal(unmount_with_container(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, name));
    assert_true(is_mounted(target()) && is_in_container(pid));
    hide_process(other);
    stop_process(other);

    /* By a descriptor that the search does not see: it gets back what it gave. */
    file = open(target(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(unmount_with_container(), STATUS_FAILED_PRECONDITION);
    assert_true(is_mounted(target()) && is_in_container(pid));
    fd_close(file);
    file = -1;

    assert_int_equal(unmount_with_container(), STATUS_OK);
    assert_false(is_mounted(target()) || is_in_container(pid));
    stop_process(pid);
}

/* Nothing in it can be opened or looked at any more, in the container either. */
static void a_container_gives_back_what_was_shut_down(void **state)
{
    pid_t pid;

    pid = start_c1("xfs");
    strcpy(volume.mount_point, target());
    loop_volume_shut_down(&volume, "xfs");
    assert_int_equal(unmount_with_container(), STATUS_OK);
    stop_process(pid);
}

static void somebody_claims_the_disk(void **state)
{
    int fd;

    attach_disk("ext4");
    fd = open(volume.device, O_RDONLY | O_EXCL | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(unmount_now(), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "still has it"));
    fd_close(fd);
    assert_int_equal(unmount_now(), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH(a_drive_is_unmounted, "ext4"),
        TEST_WITH(a_drive_is_unmounted, "xfs"),
        TEST_WITH(a_drive_is_unmounted, "btrfs"),
        TEST(an_xfs_that_was_shut_down_is_unmounted),
        TEST(a_scsi_disk_is_removed),
        TEST(a_disk_that_is_not_there),
        TEST(pci_function_of_a_firecracker_is_removed),
        TEST(holders_are_named),
        TEST(brief_holders_are_waited_for),
        TEST(a_slave_mount_does_not_hold_the_drive),
        TEST(two_mounts_are_one_too_many),
        TEST(a_mount_below_keeps_it),
        TEST(a_covering_mount_is_left_alone),
        TEST(what_is_in_the_way_is_found_before_containers_are_visited),
        TEST(a_container_gives_the_drive_back_first),
        TEST(a_container_gives_back_what_was_shut_down),
        TEST(somebody_claims_the_disk),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
