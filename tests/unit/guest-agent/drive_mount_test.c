/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mount_test.c - where a drive may be mounted; it is mounted as it was asked for, or nothing
 * is mounted at all. Without root, what needs mounts is skipped. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include "agent-client/agent_messages.h"
#include "guest-agent/guest_drive.h"
#include "tests/unit/guest-agent/container_fixture.h"

static struct drive_walk_count walk;
static struct error error;

static struct drive_mount_request ask(const char *file_system)
{
    struct drive_mount_request request = {
        .drive_id = "data", .serial = SERIAL, .bytes = SMALL * MIB};

    (void)snprintf(request.vm_path, sizeof(request.vm_path), "%s", target());
    (void)snprintf(request.filesystem_type, sizeof(request.filesystem_type), "%s", file_system);
    return request;
}

static enum status_code mount_until(const struct drive_mount_request *request, uint64_t wait_ns,
                                    struct drive_mount_answer *answer)
{
    const struct drive_setting setting = {tree_path("/sys"), "/dev", tree_path("/proc"),
                                          clock_boottime() + wait_ns, false};

    error = (struct error){0};
    *answer = (struct drive_mount_answer){0};
    return drive_mount_run(request, &setting, &walk, answer, &error);
}

static enum status_code mount_now(const struct drive_mount_request *request,
                                  struct drive_mount_answer *answer)
{
    return mount_until(request, 0, answer);
}

static void check_refused(const struct drive_mount_request *request, enum status_code code,
                          const char *text)
{
    struct drive_mount_answer answer;

    assert_int_equal(mount_now(request, &answer), code);
    assert_non_null(strstr(error.text, text));
    assert_false(is_mounted(target()));
}

/* ---- the place ---- */

static enum status_code open_target(const char *path)
{
    int fd = -1;
    enum status_code code;

    error = (struct error){0};
    code = drive_target_open(path, &fd, &error);
    assert_true((code == STATUS_OK) == (fd >= 0));
    assert_true((code == STATUS_OK) == !error.text[0]);
    fd_close(fd);
    return code;
}

static void protected_places_are_refused(void **state)
{
    static const char *const places[] = {
        "/",       "//",   "/proc",    "/proc/self", "/sys",
        "/sys/fs", "/dev", "/dev/shm", "//dev//",    "/dev/crust-new/below"};

    for (size_t i = 0; i < array_length(places); i++)
        assert_int_equal(open_target(places[i]), STATUS_INVALID_ARGUMENT);
    assert_int_equal(access("/dev/crust-new", F_OK), -1);
}

static void missing_directories_are_made(void **state)
{
    struct stat status;

    assert_int_equal(open_target(tree_path("/a/b/c")), STATUS_OK);
    assert_int_equal(stat(tree_path("/a/b/c"), &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_int_equal(status.st_mode & 0022, 0);
    assert_int_equal(open_target(tree_path("/a/b/c/")), STATUS_OK);
}

static void links_and_files_are_not_followed(void **state)
{
    tree_make("/real");
    tree_write("/file", "x");
    assert_int_equal(symlink("real", tree_path("/link")), 0);
    assert_int_equal(symlink("/proc", tree_path("/proc")), 0);
    assert_int_equal(open_target(tree_path("/link")), STATUS_FAILED_PRECONDITION);
    assert_int_equal(open_target(tree_path("/link/new")), STATUS_FAILED_PRECONDITION);
    assert_int_equal(open_target(tree_path("/proc")), STATUS_FAILED_PRECONDITION);
    assert_int_equal(open_target(tree_path("/file")), STATUS_FAILED_PRECONDITION);
    assert_int_equal(open_target(tree_path("/file/new")), STATUS_FAILED_PRECONDITION);
    assert_false(tree_has("/real/new"));
}

static void a_mount_point_is_taken(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/point");
    assert_int_equal(mount("none", tree_path("/point"), "tmpfs", 0, NULL), 0);
    assert_int_equal(open_target(tree_path("/point")), STATUS_ALREADY_EXISTS);
    assert_int_equal(open_target(tree_path("/point/below")), STATUS_OK);
    assert_int_equal(umount(tree_path("/point")), 0);
}

static void a_bind_mount_of_a_protected_place_is_protected(void **state)
{
    static const char *const places[] = {"/proc", "/sys", "/dev"};

    if (!has_mounts)
        skip();
    tree_make("/point");
    for (size_t i = 0; i < array_length(places); i++) {
        assert_int_equal(mount(places[i], tree_path("/point"), NULL, MS_BIND, NULL), 0);
        assert_int_equal(open_target(tree_path("/point")), STATUS_INVALID_ARGUMENT);
        assert_int_equal(umount(tree_path("/point")), 0);
    }
}

static void enforcement_is_read_from_the_kernel(void **state)
{
    struct statfs status;
    unsigned long type;

    tree_make("/selinux");
    assert_int_equal(statfs(tree_path("/selinux"), &status), 0);
    type = (unsigned long)status.f_type;
    assert_false(selinux_is_enforced_at(tree_path("/none"), type));
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), type));
    tree_write("/selinux/enforce", "0");
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), type));
    tree_write("/selinux/enforce", "1");
    assert_true(selinux_is_enforced_at(tree_path("/selinux"), type));
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), SELINUX_MAGIC));
}

/* ---- mounting ---- */

static void a_drive_is_mounted(void **state)
{
    const char *file_system = *state;
    struct drive_mount_request request = ask(file_system);
    struct drive_mount_answer answer;
    struct stat status;

    attach_disk(file_system);
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_string_equal(answer.device, volume.device + strlen("/dev/"));
    assert_int_equal(answer.bytes, SMALL * MIB);
    assert_true(answer.filesystem_bytes > SMALL * MIB / 2 &&
                answer.filesystem_bytes <= SMALL * MIB);
    assert_false(answer.was_mounted);
    assert_true(is_mounted(target()));
    assert_true(run_command("echo written > '%s/file'", target()));
    assert_int_equal(mknod(tree_path("/vm/data/node"), S_IFBLK | 0600, makedev(1, 0)), 0);
    assert_int_equal(open(tree_path("/vm/data/node"), O_RDONLY | O_CLOEXEC), -1); /* nodev */
    assert_int_equal(stat(tree_path("/vm/data/file"), &status), 0);
    /* The same once more. */
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_true(answer.filesystem_bytes > SMALL * MIB / 2);
    assert_int_equal(umount(target()), 0);
    assert_false(is_mounted(target()));
}

/* Asked for again, it is not said to be covered. */
static void an_xfs_that_was_shut_down_is_said_to_be(void **state)
{
    struct drive_mount_request request = ask("xfs");
    struct drive_mount_answer answer;

    attach_disk("xfs");
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    strcpy(volume.mount_point, target());
    loop_volume_shut_down(&volume, "xfs");
    assert_int_equal(mount_now(&request, &answer), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, AGENT_SHUT_DOWN_TEXT));
    assert_int_equal(umount(target()), 0);
}

/* The drive is in its place whatever becomes of them, and equal calls bring in what is missing. */
static void containers_get_it_as_well(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_container *each = request.containers.each;
    struct drive_mount_answer answer;
    pid_t pid;

    attach_disk("ext4");
    show_agent();
    request.containers.count = 2;
    strcpy(each[0].container_id, "c0");
    strcpy(each[1].container_id, "c1");
    for (size_t i = 0; i < 2; i++)
        (void)snprintf(each[i].path, sizeof(each[i].path), "%s/inner", scratch);
    pid = start_container(NULL);
    show_process(pid, "/c1", FIRST);
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_true(is_mounted(target()));
    assert_true(is_mounted(in_container(pid, each[1].path)));
    assert_int_equal(answer.containers, 1);
    assert_string_equal(answer.container_error, "container c0: it does not run in this guest");
    stop_process(pid);
    hide_process(pid);
    pid = start_container(NULL);
    show_process(pid, "/c1", FIRST);
    request.containers.count = 1;
    each[0] = each[1];
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_true(is_mounted(in_container(pid, each[0].path)));
    assert_int_equal(answer.containers, 1);
    assert_string_equal(answer.container_error, "");
    stop_process(pid);
    assert_int_equal(umount(target()), 0);
}

/* The disk is mounted at the path, and whoever looks there finds another file system. */
static void a_covering_mount_is_not_taken_for_the_drive(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;

    attach_disk("ext4");
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_int_equal(mount("none", target(), "tmpfs", 0, NULL), 0);
    assert_int_equal(mount_now(&request, &answer), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "is covered"));
    assert_int_equal(umount(target()), 0);
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_int_equal(umount(target()), 0);
}

/* The kernel has made the node, and not yet the disk that it is of. */
static void a_node_without_its_disk_is_not_there_yet(void **state)
{
    const struct drive_setting find = {.devices = tree_path("")};
    const struct drive_disk disk = {.name = "node", .device = makedev(240, 0)};
    const struct drive_disk other = {.name = "none", .device = makedev(240, 0)};
    int fd = -1;

    assert_int_equal(mknod(tree_path("/node"), S_IFBLK | 0600, disk.device), 0);
    assert_int_equal(drive_find_open(&find, &disk, O_RDONLY, &fd), DRIVE_FIND_ABSENT);
    assert_int_equal(fd, -1);
    assert_int_equal(drive_find_open(&find, &other, O_RDONLY, &fd), DRIVE_FIND_ABSENT);
}

static void the_disk_may_come_later(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;
    pid_t pid;
    int status;

    attach_disk("ext4");
    show_disk("crust-bbbbbbbbbbbbbb", false);
    check_refused(&request, STATUS_UNAVAILABLE, SERIAL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)usleep(100000);
        show_disk(SERIAL, false);
        _exit(0);
    }
    assert_int_equal(mount_until(&request, 60 * NSEC_PER_SEC, &answer), STATUS_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Firecracker does not tell its guest of a disk, and another one may have the same serial. */
static void bus_is_scanned_for_a_vmms_own_serial(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;

    attach_disk("ext4");
    tree_make("/sys/bus/pci");
    tree_write("/sys/bus/pci/rescan", "");
    assert_int_equal(mount_until(&request, 60 * NSEC_PER_SEC, &answer), STATUS_OK);
    assert_true(run_command("test ! -s '%s'", tree_path("/sys/bus/pci/rescan")));
    assert_int_equal(umount(target()), 0);
    show_disk("617951234", false);
    strcpy(request.serial, "617951234");
    assert_int_equal(mount_until(&request, 60 * NSEC_PER_SEC, &answer), STATUS_OK);
    assert_true(run_command("grep -qx 1 '%s'", tree_path("/sys/bus/pci/rescan")));
    assert_true(is_mounted(target()));
    tree_write("/sys/bus/pci/rescan", ""); /* not for a drive that is there */
    assert_int_equal(mount_until(&request, 60 * NSEC_PER_SEC, &answer), STATUS_OK);
    assert_true(answer.was_mounted);
    assert_true(run_command("test ! -s '%s'", tree_path("/sys/bus/pci/rescan")));
}

static void another_disk_is_refused(void **state)
{
    struct drive_mount_request request = ask("ext4");

    attach_disk("ext4");
    request.bytes += 512;
    check_refused(&request, STATUS_FAILED_PRECONDITION, "bytes and not");
    request.bytes -= 512;
    request.read_only = true;
    check_refused(&request, STATUS_FAILED_PRECONDITION, "is writable");
    show_disk(SERIAL, true);
    request.read_only = false;
    check_refused(&request, STATUS_FAILED_PRECONDITION, "is read-only");
    write_attribute("sdz", "dev", "8:400\n");
    write_attribute("sdz", "size", "8\n");
    write_attribute("sdz", "ro", "0\n");
    write_attribute("sdz", "serial", SERIAL);
    check_refused(&request, STATUS_FAILED_PRECONDITION, "several disks");
}

static void the_node_is_of_another_disk(void **state)
{
    struct drive_mount_request request = ask("ext4");

    attach_disk("ext4");
    write_attribute(volume.device + strlen("/dev/"), "dev", "7:4093\n");
    check_refused(&request, STATUS_UNAVAILABLE, "is not the disk");
}

static void a_wrong_request_touches_nothing(void **state)
{
    struct drive_mount_request request = ask("ext4");

    attach_disk("ext4");
    strcpy(request.vm_path, "/proc/sys");
    check_refused(&request, STATUS_INVALID_ARGUMENT, "protected");
    request = ask("ext4");
    request.option_count = 1;
    strcpy(request.options[0], "journal_path=/dev/sda");
    check_refused(&request, STATUS_INVALID_ARGUMENT, "options[0]");
    request = ask("vfat");
    check_refused(&request, STATUS_INVALID_ARGUMENT, "filesystem_type");
    request = ask("ext4");
    tree_make("/elsewhere");
    assert_int_equal(symlink("elsewhere", tree_path("/vm")), 0);
    check_refused(&request, STATUS_FAILED_PRECONDITION, "cannot reach");
    assert_false(tree_has("/elsewhere/data"));
}

static void a_disk_without_a_file_system_is_refused(void **state)
{
    struct drive_mount_request request = ask("ext4");

    attach_disk("");
    check_refused(&request, STATUS_FAILED_PRECONDITION, "cannot mount the disk as ext4");
}

static void a_place_that_is_taken(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;

    attach_disk("ext4");
    tree_make("/vm/data");
    assert_int_equal(mount("none", target(), "tmpfs", 0, NULL), 0);
    assert_int_equal(mount_now(&request, &answer), STATUS_ALREADY_EXISTS);
    assert_int_equal(umount(target()), 0);
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    (void)snprintf(request.vm_path, sizeof(request.vm_path), "%s/elsewhere", scratch);
    assert_int_equal(mount_now(&request, &answer), STATUS_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, target()));
    assert_false(is_mounted(request.vm_path));
}

static void a_read_only_disk(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;
    int on = 1, off = 0, status;
    pid_t kernel;

    attach_disk("ext4");
    assert_int_equal(ioctl(volume.loop, BLKROSET, &on), 0);
    if ((kernel = fork()) == 0) { /* the disk seems writable for a moment */
        (void)usleep(50 * 1000);
        show_disk(SERIAL, true);
        _exit(0);
    }
    request.read_only = true;
    request.has_fs_group = true; /* is left alone */
    request.fs_group = 4711;
    request.fsck = DRIVE_FSCK_PREEN;
    assert_int_equal(mount_until(&request, 60 * NSEC_PER_SEC, &answer), STATUS_OK);
    assert_int_equal(answer.fsck, DRIVE_FSCK_CLEAN);
    assert_int_equal(answer.walk.changed, 0);
    assert_int_equal(open(tree_path("/vm/data/new"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(waitpid(kernel, &status, 0), kernel);
    assert_int_equal(umount(target()), 0);
    assert_int_equal(ioctl(volume.loop, BLKROSET, &off), 0);
}

static void the_group_is_given_before_anybody_sees_it(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;
    struct stat status;

    attach_disk("ext4");
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_true(run_command("mkdir '%s/below' && touch '%s/below/file'", target(), target()));
    assert_int_equal(umount(target()), 0);
    request.has_fs_group = true;
    request.fs_group = 4711;
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_int_equal(stat(tree_path("/vm/data/below/file"), &status), 0);
    assert_int_equal(status.st_gid, 4711);
    assert_int_equal(status.st_mode & 0660, 0660);
    assert_int_equal(answer.walk.changed, 4); /* /, lost+found, below, file */
    assert_int_equal(answer.walk.failed, 0);
}

static void a_file_system_is_repaired(void **state)
{
    struct drive_mount_request request = ask("ext4");
    struct drive_mount_answer answer;

    attach_disk("ext4");
    request.fsck = DRIVE_FSCK_PREEN;
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_int_equal(answer.fsck, DRIVE_FSCK_CLEAN);
    assert_int_equal(umount(target()), 0);
    /* A count of free blocks that is wrong is repaired without asking. */
    assert_true(
        run_command("debugfs -w -R 'ssv free_blocks_count 5' '%s' 2>/dev/null", volume.device));
    assert_true(run_command("debugfs -w -R 'ssv state 0' '%s' 2>/dev/null", volume.device));
    assert_int_equal(mount_now(&request, &answer), STATUS_OK);
    assert_int_equal(answer.fsck, DRIVE_FSCK_REPAIRED);
    assert_int_equal(umount(target()), 0);
    /* A root directory that is gone is not. */
    assert_true(run_command("debugfs -w -R 'clri <2>' '%s' 2>/dev/null", volume.device));
    assert_true(run_command("debugfs -w -R 'ssv state 2' '%s' 2>/dev/null", volume.device));
    check_refused(&request, STATUS_FAILED_PRECONDITION, "without asking");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(protected_places_are_refused),
        TEST(missing_directories_are_made),
        TEST(links_and_files_are_not_followed),
        TEST(a_mount_point_is_taken),
        TEST(a_bind_mount_of_a_protected_place_is_protected),
        TEST(enforcement_is_read_from_the_kernel),
        TEST_WITH(a_drive_is_mounted, "ext4"),
        TEST_WITH(a_drive_is_mounted, "xfs"),
        TEST_WITH(a_drive_is_mounted, "btrfs"),
        TEST(an_xfs_that_was_shut_down_is_said_to_be),
        TEST(a_covering_mount_is_not_taken_for_the_drive),
        TEST(containers_get_it_as_well),
        TEST(the_disk_may_come_later),
        TEST(bus_is_scanned_for_a_vmms_own_serial),
        TEST(a_node_without_its_disk_is_not_there_yet),
        TEST(another_disk_is_refused),
        TEST(the_node_is_of_another_disk),
        TEST(a_wrong_request_touches_nothing),
        TEST(a_disk_without_a_file_system_is_refused),
        TEST(a_place_that_is_taken),
        TEST(a_read_only_disk),
        TEST(the_group_is_given_before_anybody_sees_it),
        TEST(a_file_system_is_repaired),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
