/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once_test.c - what crustd's own containers find out about a drive. Binds and mounts are in
 * a namespace of this process alone; without root, what needs them is skipped. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "guest-agent/drive_once.h"

enum { ARGUMENTS = 9 };

static struct error error;
static char line[2048];
static char texts[ARGUMENTS][256];

/* The arguments that begin with '/' lie below the scratch tree, other than /dev and /proc. */
static int run(const char *act, const char *const *arguments)
{
    const char *given[ARGUMENTS];
    struct drive_once_request request = {
        .act = act,
        .arguments = given,
        .timeout_ns = 50 * NSEC_PER_MSEC,
        .sysfs = tree_path("/sys"),
    };
    char sysfs[256];
    int ends[2], r;
    ssize_t count;

    (void)snprintf(sysfs, sizeof(sysfs), "%s", request.sysfs);
    request.sysfs = sysfs;
    for (; arguments[request.count]; request.count++) {
        const char *argument = arguments[request.count];
        bool is_ours = argument[0] == '/' && strncmp(argument, "/dev/loop", 9) != 0;

        (void)snprintf(texts[request.count], sizeof(texts[0]), "%s%s", is_ours ? scratch : "",
                       argument);
        given[request.count] = texts[request.count];
    }
    error = (struct error){0};
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    r = drive_once_run(&request, ends[1], &error);
    count = read(ends[0], line, sizeof(line) - 1);
    line[count > 0 ? count : 0] = '\0';
    fd_close(ends[0]);
    fd_close(ends[1]);
    return r;
}

#define RUN(act, ...) run(act, (const char *const[]){__VA_ARGS__, NULL})

static void expect(const char *text)
{
    if (!strstr(line, text))
        fail_msg("\"%s\" does not have \"%s\"", line, text);
}

static const char *size_of_disk(void)
{
    static char text[32];
    uint64_t bytes = 0;

    assert_int_equal(ioctl(volume.loop, BLKGETSIZE64, &bytes), 0);
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    return text;
}

static void bad_arguments_print_nothing(void **state)
{
    (void)state;
    tree_make("/sys/block");
    assert_int_equal(RUN("check", "crust-short", "1", "rw"), DRIVE_ONCE_USAGE);
    assert_int_equal(RUN("check", SERIAL, "1", "both"), DRIVE_ONCE_USAGE);
    assert_int_equal(RUN("check", SERIAL, "-1", "rw"), DRIVE_ONCE_USAGE);
    assert_int_equal(RUN("check", SERIAL, "1", "rw", "/place"), DRIVE_ONCE_USAGE);
    assert_int_equal(RUN("destroy", SERIAL), DRIVE_ONCE_USAGE);
    assert_int_equal(RUN("hold", SERIAL), DRIVE_ONCE_USAGE);
    assert_string_equal(line, "");
}

static void a_disk_is_checked_by_serial_size_and_access(void **state)
{
    (void)state;
    attach_disk("");
    assert_int_equal(RUN("check", SERIAL, size_of_disk(), "rw"), DRIVE_ONCE_DONE);
    expect("{\"version\":1,\"drive\":{\"status\":\"OK\",\"text\":\"\",\"device\":\"loop");
    assert_int_equal(RUN("check", SERIAL, "4096", "rw"), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"FAILED_PRECONDITION\"");
    assert_int_equal(RUN("check", SERIAL, size_of_disk(), "ro"), DRIVE_ONCE_REFUSED);
    expect("is writable");
    assert_int_equal(RUN("check", "crust-aaaaaaaaaaaaaa", size_of_disk(), "rw"),
                     DRIVE_ONCE_REFUSED);
    expect("\"status\":\"UNAVAILABLE\"");
}

/* ---- the place ---- */

static void bind(const char *from, const char *to)
{
    char target_path[256];

    (void)snprintf(target_path, sizeof(target_path), "%s%s", scratch, to);
    tree_make(to);
    assert_int_equal(mount(from, target_path, NULL, MS_BIND, NULL), 0);
}

static void unbind_all(void)
{
    static const char *const places[] = {"/vol/0", "/vol/1", "/vol/2", "/vol/3"};

    for (size_t i = 0; i < array_length(places); i++)
        (void)umount2(tree_path(places[i]), MNT_DETACH);
}

/* What a container has where the agent has bound these. */
static int check_place(const char *place, const char *parent, const char *name)
{
    char agents[256];
    int r;

    (void)snprintf(agents, sizeof(agents), "%s/run/kata-containers", scratch);
    bind(place, "/vol/0");
    bind(parent, "/vol/1");
    bind("/dev", "/vol/2");
    bind(agents, "/vol/3");
    r = run("check", (const char *const[]){SERIAL, size_of_disk(), "rw", "/vol/0", "/vol/1",
                                           "/vol/2", "/vol/3", name, NULL});
    unbind_all();
    return r;
}

static void attach_with_guest(void)
{
    attach_disk("");
    tree_make("/run/kata-containers/x");
    tree_make("/run/data");
}

static const char *in_guest(const char *path)
{
    static char whole[2][256];
    static unsigned at;

    at = !at;
    (void)snprintf(whole[at], sizeof(whole[at]), "%s%s", scratch, path);
    return whole[at];
}

static void an_ordinary_place_is_fine(void **state)
{
    (void)state;
    attach_with_guest();
    assert_int_equal(check_place(in_guest("/run/data"), in_guest("/run"), "data"), DRIVE_ONCE_DONE);
    assert_int_equal(check_place(in_guest("/run"), in_guest("/"), NULL), DRIVE_ONCE_DONE);
}

static void protected_places_are_refused_for_what_they_are(void **state)
{
    (void)state;
    attach_with_guest();
    assert_int_equal(check_place("/proc/sys", "/proc", NULL), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"INVALID_ARGUMENT\"");
    expect("protected place");
    assert_int_equal(check_place("/dev", "/", "dev"), DRIVE_ONCE_REFUSED);
    expect("protected place");
    assert_int_equal(
        check_place(in_guest("/run/kata-containers/x"), in_guest("/run/kata-containers"), NULL),
        DRIVE_ONCE_REFUSED);
    expect("protected place");
    assert_int_equal(
        check_place(in_guest("/run/kata-containers"), in_guest("/run"), "kata-containers"),
        DRIVE_ONCE_REFUSED);
    expect("protected place");
}

static void links_and_mount_points_are_refused(void **state)
{
    (void)state;
    attach_with_guest();
    assert_int_equal(symlink("data", tree_path("/run/link")), 0);
    assert_int_equal(check_place(in_guest("/run/data"), in_guest("/run"), "link"),
                     DRIVE_ONCE_REFUSED);
    expect("\"status\":\"FAILED_PRECONDITION\"");
    expect("vm_path is a link");
    tree_make("/other");
    assert_int_equal(check_place(in_guest("/other"), in_guest("/run"), "data"), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"ALREADY_EXISTS\"");
}

/* ---- mounted and gone ---- */

static void mount_disk(void)
{
    attach_disk("ext4");
    tree_make("/vm/data");
    if (mount(volume.device, target(), "ext4", 0, NULL) < 0)
        skip();
}

static void check_reports_whether_the_disk_is_mounted_there(void **state)
{
    (void)state;
    mount_disk();
    assert_int_equal(RUN("look", SERIAL, "/vm/data"), DRIVE_ONCE_DONE);
    expect("\"mounted\":true");
    assert_int_equal(RUN("look", SERIAL, "/vm"), DRIVE_ONCE_DONE);
    expect("\"mounted\":false");
    assert_int_equal(RUN("look", SERIAL), DRIVE_ONCE_DONE);
    expect("\"mounted\":false");
    assert_int_equal(RUN("look", "crust-aaaaaaaaaaaaaa", "/vm/data"), DRIVE_ONCE_DONE);
    expect("\"device\":\"\"");
}

static void a_place_that_has_the_disk_already_is_fine(void **state)
{
    (void)state;
    mount_disk();
    tree_make("/run/kata-containers");
    assert_int_equal(check_place(target(), in_guest("/vm"), "data"), DRIVE_ONCE_DONE);
    expect("\"status\":\"OK\"");
    if (mount("none", target(), "tmpfs", 0, NULL) < 0)
        fail();
    assert_int_equal(check_place(target(), in_guest("/vm"), "data"), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"ALREADY_EXISTS\"");
    assert_int_equal(umount2(target(), 0), 0);
}

static void a_disk_is_proved_free_by_its_node(void **state)
{
    (void)state;
    mount_disk();
    assert_int_equal(RUN("prove", SERIAL, volume.device), DRIVE_ONCE_REFUSED);
    expect("somebody in the guest still has the disk");
    assert_int_equal(RUN("prove", SERIAL), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"UNAVAILABLE\"");
    expect("\"device\":\"loop");
    assert_int_equal(umount2(target(), 0), 0);
    assert_int_equal(RUN("prove", SERIAL, volume.device), DRIVE_ONCE_DONE);
    assert_int_equal(RUN("prove", SERIAL, "/vm"), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"INTERNAL\"");
    assert_int_equal(RUN("prove", "crust-aaaaaaaaaaaaaa"), DRIVE_ONCE_DONE);
}

#define RELEASE() RUN("release", SERIAL, "/vm/data")

static void expect_not_released(void)
{
    assert_int_equal(RELEASE(), DRIVE_ONCE_REFUSED);
    expect("\"status\":\"FAILED_PRECONDITION\"");
    expect("somebody in the guest still has the disk");
}

static void a_disk_is_released_where_it_was_mounted(void **state)
{
    (void)state;
    mount_disk();
    assert_int_equal(RUN("release", SERIAL, "/vm"), DRIVE_ONCE_REFUSED);
    assert_true(is_mounted(target()));
    assert_int_equal(RUN("release", SERIAL), DRIVE_ONCE_USAGE);
    assert_int_equal(RELEASE(), DRIVE_ONCE_DONE);
    expect("\"status\":\"OK\"");
    assert_false(is_mounted(target()));
    assert_int_equal(RELEASE(), DRIVE_ONCE_DONE);
}

static void a_disk_in_use_is_not_released(void **state)
{
    int user;

    (void)state;
    mount_disk();
    user = open(target(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(user >= 0);
    expect_not_released();
    assert_true(is_mounted(target()));
    fd_close(user);
    assert_int_equal(mount("none", target(), "tmpfs", 0, NULL), 0);
    expect_not_released();
    assert_int_equal(umount2(target(), 0), 0); /* what lies over it is not the drive's */
    assert_true(is_mounted(target()));
    assert_int_equal(RELEASE(), DRIVE_ONCE_DONE);
}

/* An agent that makes a mount namespace all the same. */
static void a_release_in_a_copy_of_the_mounts_is_none(void **state)
{
    pid_t child;
    int status;

    (void)state;
    mount_disk();
    child = fork();
    if (child == 0) {
        bool is_refused = unshare(CLONE_NEWNS) == 0 && RELEASE() == DRIVE_ONCE_REFUSED;

        _exit(is_refused && !is_mounted(target()) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_mounted(target()));
}

static void a_holder_refuses_another_disk(void **state)
{
    (void)state;
    attach_disk("");
    tree_make("/vm/data");
    assert_int_equal(RUN("hold", SERIAL, "/vm/data"), DRIVE_ONCE_REFUSED);
    expect("another disk than the drive's");
}

/* Runs it until its line is there; the line is kept. Whether it stays. */
static bool hold(const struct drive_once_request *group)
{
    int ends[2], status;
    bool stays;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *arguments[] = {SERIAL, target()};
        struct drive_once_request request = *group;

        request.act = "hold";
        request.arguments = arguments;
        request.count = 2;
        request.sysfs = tree_path("/sys");
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)drive_once_run(&request, ends[1], &error);
        _exit(1);
    }
    fd_close(ends[1]);
    memset(line, 0, sizeof(line));
    assert_true(read(ends[0], line, sizeof(line) - 1) > 0);
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    stays = WIFSIGNALED(status);
    fd_close(ends[0]);
    return stays;
}

static void a_holder_prints_its_line_and_stays(void **state)
{
    (void)state;
    mount_disk();
    assert_true(hold(&(struct drive_once_request){0}));
    expect("\"status\":\"OK\"");
    expect("\"mounted\":true");
    expect("\"changed\":0,\"skipped\":0,\"failed\":0}}");
}

/* Before its line; and what a tenant's link leads to is not the drive's. */
static void a_holder_gives_the_group_and_follows_no_link(void **state)
{
    const struct drive_once_request group = {
        .has_fs_group = true, .fs_group = 2000, .fs_group_policy = DRIVE_GROUP_ALWAYS};
    struct stat status;

    (void)state;
    mount_disk();
    tree_make("/guests");
    assert_int_equal(symlink(tree_path("/guests"), tree_path("/vm/data/link")), 0);
    assert_true(hold(&group));
    expect("\"status\":\"OK\"");
    expect("\"failed\":0}}");
    assert_int_equal(stat(target(), &status), 0);
    assert_int_equal(status.st_gid, 2000);
    assert_int_equal(status.st_mode & 07777, 02775);
    assert_int_equal(lstat(tree_path("/vm/data/link"), &status), 0);
    assert_int_equal(status.st_gid, 2000);
    assert_int_equal(stat(tree_path("/guests"), &status), 0);
    assert_int_equal(status.st_gid, getegid());
    assert_true(hold(&group)); /* nothing is left to do */
    expect("\"changed\":0,");
}

static void a_read_only_mount_keeps_its_groups(void **state)
{
    struct stat status;

    (void)state;
    mount_disk();
    assert_int_equal(mount(NULL, target(), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_true(hold(&(struct drive_once_request){.has_fs_group = true, .fs_group = 2000}));
    expect("\"status\":\"OK\"");
    assert_int_equal(stat(target(), &status), 0);
    assert_int_equal(status.st_gid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_arguments_print_nothing),
        TEST(a_disk_is_checked_by_serial_size_and_access),
        TEST(an_ordinary_place_is_fine),
        TEST(protected_places_are_refused_for_what_they_are),
        TEST(links_and_mount_points_are_refused),
        TEST(check_reports_whether_the_disk_is_mounted_there),
        TEST(a_place_that_has_the_disk_already_is_fine),
        TEST(a_disk_is_proved_free_by_its_node),
        TEST(a_disk_is_released_where_it_was_mounted),
        TEST(a_disk_in_use_is_not_released),
        TEST(a_release_in_a_copy_of_the_mounts_is_none),
        TEST(a_holder_refuses_another_disk),
        TEST(a_holder_prints_its_line_and_stays),
        TEST(a_holder_gives_the_group_and_follows_no_link),
        TEST(a_read_only_mount_keeps_its_groups),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
