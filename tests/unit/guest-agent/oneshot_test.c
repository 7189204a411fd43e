/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot_test.c - the one-shot mode on real file systems on loop devices that grow.
 *
 * The mounts live in a mount namespace of this process alone. What needs root, a loop device or a
 * file system that this machine lacks is skipped. ext4 needs CAP_SYS_RESOURCE: without it the test
 * is that the report says so.
 */
#include "tests/unit/test.h"

#include <linux/fs.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "guest-agent/oneshot.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"

enum { VOLUMES = 2, LIMIT_SECONDS = 1 };

static char scratch[SCRATCH_BYTES];
static struct loop_volume volumes[VOLUMES];
static cJSON *report;

/* ---- asking */

static void parse_report(int fd)
{
    struct buffer text = BUFFER_INIT(0);
    struct error error = {0};

    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(buffer_read_all(&text, fd), 0);
    cJSON_Delete(report);
    report = NULL;
    assert_int_equal(text.data[text.length - 1], '\n');
    assert_ptr_equal(memchr(text.data, '\n', text.length), text.data + text.length - 1);
    assert_int_equal(
        json_parse(text.data, text.length, (struct json_limits){1 << 20, 4, 0}, &report, &error),
        0);
    buffer_done(&text);
}

static int ask(const struct oneshot_request *request)
{
    cleanup(fd_closep) int fd = memfd_create("report", MFD_CLOEXEC);
    struct error error = {0};
    int outcome = oneshot_run(request, fd, &error);

    assert_string_equal(error.text, "");
    parse_report(fd);
    return outcome;
}

static int grow(const char *path)
{
    return ask(&(struct oneshot_request){.paths = &path, .count = 1});
}

static int look(const char *path)
{
    return ask(&(struct oneshot_request){.paths = &path, .count = 1, .report_only = true});
}

static const cJSON *entry(int index)
{
    const cJSON *item = cJSON_GetArrayItem(json_member(report, "volumes"), index);

    assert_non_null(item);
    return item;
}

static const char *text_of(int index, const char *name)
{
    const char *text = json_string(entry(index), name);

    assert_non_null(text);
    return text;
}

static uint64_t number_of(int index, const char *name)
{
    uint64_t number = 0;

    assert_int_equal(json_number(entry(index), name, &number), 0);
    return number;
}

static bool is_true(int index, const char *name)
{
    const cJSON *member = json_member(entry(index), name);

    assert_true(cJSON_IsBool(member));
    return cJSON_IsTrue(member);
}

static void assert_error(int index, const char *code)
{
    assert_string_equal(text_of(index, "error"), code);
    assert_int_equal(text_of(index, "error_text")[0] == '\0', *code == '\0');
}

/* ---- the volumes */

static const char *make_volume(int index, const char *file_system)
{
    static const char *const names[VOLUMES] = {"a mount", "another \"mount\""};

    loop_volume_make(&volumes[index], scratch, names[index], file_system);
    return volumes[index].mount_point;
}

static int set_up(void **state)
{
    for (int i = 0; i < VOLUMES; i++)
        volumes[i].loop = -1;
    return scratch_directory_make(scratch);
}

static int tear_down(void **state)
{
    for (int i = 0; i < VOLUMES; i++)
        loop_volume_remove(&volumes[i]);
    cJSON_Delete(report);
    report = NULL;
    return scratch_directory_remove(scratch);
}

static int private_mounts(void **state)
{
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

/* ---- growing */

static void a_file_system_grows(void **state)
{
    const char *path = make_volume(0, *state);
    uint64_t before;

    assert_int_equal(look(path), ONESHOT_DONE);
    before = number_of(0, "total");
    assert_int_equal(number_of(0, "device_bytes"), SMALL * MIB);
    loop_volume_resize(&volumes[0], LARGE);
    assert_int_equal(look(path), ONESHOT_DONE);
    assert_int_equal(number_of(0, "device_bytes"), LARGE * MIB);
    assert_int_equal(number_of(0, "total"), before); /* a report changes nothing */
    for (int again = 0; again < 2; again++) {
        assert_int_equal(grow(path), ONESHOT_DONE);
        assert_error(0, "");
        assert_int_equal(number_of(0, "total"), before + (LARGE - SMALL) * MIB);
    }
}

static void ext4_grows_or_its_capability_is_named(void **state)
{
    const char *path = make_volume(0, "ext4");
    uint64_t before;

    assert_int_equal(look(path), ONESHOT_DONE);
    before = number_of(0, "total");
    loop_volume_resize(&volumes[0], LARGE);
    if (grow(path) == ONESHOT_DONE) {
        assert_true(number_of(0, "total") > before + (LARGE - SMALL) / 2 * MIB);
        return;
    }
    assert_error(0, "no_capability");
    assert_non_null(strstr(text_of(0, "error_text"), "CAP_SYS_RESOURCE"));
    assert_int_equal(number_of(0, "total"), before);
    skip();
}

static void the_report_describes_the_volume(void **state)
{
    const char *path = make_volume(0, "xfs");
    struct stat status;
    char device[32];

    assert_int_equal(stat(path, &status), 0);
    (void)snprintf(device, sizeof(device), "%u:%u", major(status.st_dev), minor(status.st_dev));
    assert_int_equal(look(path), ONESHOT_DONE);
    assert_int_equal(number_of(0, "device_count"), 1);
    assert_string_equal(text_of(0, "path"), path);
    assert_string_equal(text_of(0, "file_system"), "xfs");
    assert_string_equal(text_of(0, "device"), device);
    assert_string_equal(text_of(0, "device_name"), volumes[0].device + strlen("/dev/"));
    assert_string_equal(text_of(0, "layer"), "");
    assert_false(is_true(0, "read_only"));
    assert_string_equal(text_of(0, "condition"), "normal");
    assert_string_equal(text_of(0, "message"), "");
    assert_int_equal(number_of(0, "used") + number_of(0, "available"), number_of(0, "total"));
    assert_true(number_of(0, "used_inodes") > 0);
    assert_int_equal(number_of(0, "used_inodes") + number_of(0, "available_inodes"),
                     number_of(0, "total_inodes"));
}

static void only_the_paths_given_are_touched(void **state)
{
    const char *wanted = make_volume(0, "xfs"), *other = make_volume(1, "xfs");
    uint64_t before;

    assert_int_equal(look(other), ONESHOT_DONE);
    before = number_of(0, "total");
    loop_volume_resize(&volumes[0], LARGE);
    loop_volume_resize(&volumes[1], LARGE);
    assert_int_equal(grow(wanted), ONESHOT_DONE);
    assert_int_equal(look(other), ONESHOT_DONE);
    assert_string_equal(text_of(0, "path"), other);
    assert_int_equal(number_of(0, "device_bytes"), LARGE * MIB);
    assert_int_equal(number_of(0, "total"), before);
}

static void all_takes_every_writable_volume(void **state)
{
    const char *path = make_volume(0, "xfs");
    int count, found = 0;

    (void)ask(&(struct oneshot_request){.all = true, .report_only = true});
    count = cJSON_GetArraySize(json_member(report, "volumes"));
    for (int i = 0; i < count; i++)
        found += strcmp(text_of(i, "path"), path) == 0;
    assert_int_equal(found, 1);
}

static void each_path_has_an_entry_in_its_place(void **state)
{
    const char *path = make_volume(0, "btrfs");
    char inside[128], slash[128];
    const char *paths[] = {"/nope", path, inside, path, slash, scratch};

    (void)snprintf(inside, sizeof(inside), "%s/directory", path);
    (void)snprintf(slash, sizeof(slash), "%s/", path);
    assert_int_equal(mkdir(inside, 0700), 0);
    loop_volume_resize(&volumes[0], LARGE);
    assert_int_equal(ask(&(struct oneshot_request){.paths = paths, .count = array_length(paths)}),
                     ONESHOT_INCOMPLETE);
    assert_int_equal(cJSON_GetArraySize(json_member(report, "volumes")), array_length(paths));
    for (int i = 0; i < (int)array_length(paths); i++) {
        assert_string_equal(text_of(i, "path"), paths[i]);
        assert_error(i, paths[i] == path ? "" : "not_mounted");
        assert_int_equal(number_of(i, "total"), paths[i] == path ? LARGE * MIB : 0);
    }
}

static void more_paths_than_grow_at_once_are_all_served(void **state)
{
    const char *paths[ONESHOT_PATHS];

    paths[0] = make_volume(0, "xfs");
    for (size_t i = 1; i < array_length(paths); i++)
        paths[i] = paths[0];
    loop_volume_resize(&volumes[0], LARGE);
    assert_int_equal(ask(&(struct oneshot_request){.paths = paths, .count = ONESHOT_PATHS}),
                     ONESHOT_DONE);
    for (int i = 0; i < ONESHOT_PATHS; i++)
        assert_error(i, "");
    assert_true(number_of(ONESHOT_PATHS - 1, "total") > SMALL * MIB);
}

/* ---- what cannot be grown */

static void a_mount_without_a_device_is_not_asked_for_its_size(void **state)
{
    assert_int_equal(grow("/proc"), ONESHOT_INCOMPLETE);
    assert_error(0, "not_a_block_device");
    assert_int_equal(look("/proc"), ONESHOT_INCOMPLETE);
    assert_error(0, "not_a_block_device");
    assert_string_equal(text_of(0, "file_system"), "proc");
    assert_string_equal(text_of(0, "device"), "");
    assert_int_equal(number_of(0, "device_count"), 0);
    assert_int_equal(number_of(0, "total"), 0);
}

static void a_read_only_mount_is_not_exchanged_for_a_writable_one(void **state)
{
    const char *path = make_volume(0, "xfs");
    char other[128];
    uint64_t before;

    (void)snprintf(other, sizeof(other), "%s/other", scratch);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mount(path, other, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, other, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    loop_volume_resize(&volumes[0], LARGE);
    assert_int_equal(look(other), ONESHOT_DONE);
    assert_true(is_true(0, "read_only"));
    before = number_of(0, "total");
    assert_int_equal(grow(other), ONESHOT_INCOMPLETE);
    assert_error(0, "read_only");
    assert_int_equal(number_of(0, "total"), before);
    assert_int_equal(umount(other), 0);
}

/* The smallest erofs: a super block, an inode, an empty directory, a block of 4096 bytes each. */
static void write_erofs(const char *path)
{
    static unsigned char image[3 * 4096];
    unsigned char *super = image + 1024, *inode = image + 4096 + 32, *directory = image + 2 * 4096;
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    memcpy(super, "\xe2\xe1\xf5\xe0", 4);
    super[12] = 12;  /* bits of a block's size */
    super[14] = 1;   /* the root's number */
    super[16] = 1;   /* inodes */
    super[36] = 3;   /* blocks */
    super[40] = 1;   /* where inodes begin */
    inode[4] = 0xed; /* 040755 */
    inode[5] = 0x41;
    inode[6] = 2;      /* links */
    inode[8] = 27;     /* bytes */
    inode[16] = 2;     /* where they are */
    directory[0] = 1;  /* "." is 1 */
    directory[8] = 24; /* at this offset */
    directory[10] = 2; /* a directory */
    directory[12] = 1; /* ".." */
    directory[12 + 8] = 25;
    directory[12 + 10] = 2;
    memcpy(directory + 24, "...", 3);
    assert_int_equal(write(fd, image, sizeof(image)), sizeof(image));
}

static void another_file_system_is_reported_and_not_grown(void **state)
{
    struct loop_volume *volume = &volumes[0];

    (void)snprintf(volume->image, sizeof(volume->image), "%s/erofs.img", scratch);
    (void)snprintf(volume->mount_point, sizeof(volume->mount_point), "%s/erofs", scratch);
    assert_int_equal(mkdir(volume->mount_point, 0700), 0);
    write_erofs(volume->image);
    if (geteuid() != 0 || !loop_volume_mount(volume, "erofs", MS_RDONLY))
        skip();
    assert_int_equal(look(volume->mount_point), ONESHOT_DONE);
    assert_string_equal(text_of(0, "file_system"), "erofs");
    assert_int_equal(number_of(0, "device_bytes"), 3 * 4096);
    assert_int_equal(number_of(0, "total"), 3 * 4096);
    assert_int_equal(grow(volume->mount_point), ONESHOT_INCOMPLETE);
    assert_error(0, "unsupported");
}

static void a_shut_down_file_system_is_reported_and_not_forced(void **state)
{
    const char *path = make_volume(0, "xfs");

    loop_volume_resize(&volumes[0], LARGE);
    loop_volume_shut_down(&volumes[0], "xfs");
    assert_int_equal(look(path), ONESHOT_DONE);
    assert_string_equal(text_of(0, "condition"), "abnormal");
    assert_non_null(strstr(text_of(0, "message"), "shut down"));
    assert_int_equal(number_of(0, "device_bytes"), LARGE * MIB);
    assert_int_equal(grow(path), ONESHOT_INCOMPLETE);
    assert_error(0, "shut_down");
}

static void recorded_errors_are_reported_and_not_forced(void **state)
{
    const char *path = make_volume(0, "ext4");
    uint64_t before;

    loop_volume_resize(&volumes[0], LARGE);
    if (!run_command("echo 1 >/sys/fs/ext4/%s/trigger_fs_error",
                     volumes[0].device + strlen("/dev/")))
        skip();
    /* The kernel counts it a moment later. */
    assert_true(run_command("for i in $(seq 1000); do grep -q '^[1-9]' /sys/fs/ext4/%s/errors_count"
                            " && exit 0; sleep 0.01; done; exit 1",
                            volumes[0].device + strlen("/dev/")));
    assert_int_equal(look(path), ONESHOT_DONE);
    before = number_of(0, "total");
    assert_string_equal(text_of(0, "condition"), "abnormal");
    assert_non_null(strstr(text_of(0, "message"), "recorded errors"));
    assert_int_equal(grow(path), ONESHOT_INCOMPLETE);
    assert_error(0, "errors");
    assert_int_equal(number_of(0, "total"), before);
}

static void a_device_that_shrank_is_refused(void **state)
{
    const char *path = make_volume(0, "ext4");

    loop_volume_resize(&volumes[0], SMALL / 2);
    assert_int_equal(grow(path), ONESHOT_INCOMPLETE);
    assert_int_equal(number_of(0, "device_bytes"), SMALL / 2 * MIB);
    if (strcmp(text_of(0, "error"), "no_capability") == 0)
        skip();
    assert_error(0, "refused");
}

/* A frozen file system lets nobody write, the one who grows it included. */
static void a_resize_that_hangs_delays_no_other(void **state)
{
    const char *paths[] = {make_volume(0, "xfs"), make_volume(1, "xfs")};
    cleanup(fd_closep) int fd = open(paths[0], O_RDONLY | O_CLOEXEC);
    int outcome;

    loop_volume_resize(&volumes[0], LARGE);
    loop_volume_resize(&volumes[1], LARGE);
    assert_int_equal(ioctl(fd, FIFREEZE, 0), 0);
    outcome = ask(&(struct oneshot_request){
        .paths = paths, .count = 2, .timeout_ns = LIMIT_SECONDS * NSEC_PER_SEC});
    assert_int_equal(ioctl(fd, FITHAW, 0), 0);
    (void)wait(NULL);
    assert_int_equal(outcome, ONESHOT_INCOMPLETE);
    assert_error(0, "timed_out");
    assert_error(1, "");
    assert_true(number_of(1, "total") > SMALL * MIB);
}

/* ---- where it runs */

static bool cover(const char *path)
{
    return mount("none", path, "tmpfs", 0, NULL) == 0;
}

static void no_device_node_is_needed(void **state)
{
    const char *paths[] = {make_volume(0, "xfs"), make_volume(1, "btrfs")};
    int outcome;

    loop_volume_resize(&volumes[0], LARGE);
    loop_volume_resize(&volumes[1], LARGE);
    if (!cover("/dev"))
        skip();
    outcome = ask(&(struct oneshot_request){.paths = paths, .count = 2});
    assert_int_equal(umount("/dev"), 0);
    assert_int_equal(outcome, ONESHOT_DONE);
    assert_true(number_of(0, "total") > SMALL * MIB);
    assert_int_equal(number_of(1, "total"), LARGE * MIB);
    assert_string_equal(text_of(1, "device_name"), volumes[1].device + strlen("/dev/"));
}

static void without_sysfs_there_is_no_report(void **state)
{
    const char *path = "/proc";
    cleanup(fd_closep) int fd = memfd_create("report", MFD_CLOEXEC);
    struct error error = {0};
    int outcome;

    if (!cover("/sys"))
        skip();
    outcome = oneshot_run(&(struct oneshot_request){.paths = &path, .count = 1}, fd, &error);
    assert_int_equal(umount("/sys"), 0);
    assert_int_equal(outcome, -ENOENT);
    assert_non_null(strstr(error.text, "/sys is not mounted"));
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
}

static void a_report_that_cannot_be_written_is_an_error(void **state)
{
    const char *path = "/proc";
    struct error error = {0};

    assert_int_equal(oneshot_run(&(struct oneshot_request){.paths = &path, .count = 1}, -1, &error),
                     -EBADF);
    assert_non_null(strstr(error.text, "cannot write the report"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_WITH(name, argument)                                                                  \
    cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, (void *)(uintptr_t)(argument))

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH(a_file_system_grows, "xfs"),
        TEST_WITH(a_file_system_grows, "btrfs"),
        TEST(ext4_grows_or_its_capability_is_named),
        TEST(the_report_describes_the_volume),
        TEST(only_the_paths_given_are_touched),
        TEST(all_takes_every_writable_volume),
        TEST(each_path_has_an_entry_in_its_place),
        TEST(more_paths_than_grow_at_once_are_all_served),
        TEST(a_mount_without_a_device_is_not_asked_for_its_size),
        TEST(a_read_only_mount_is_not_exchanged_for_a_writable_one),
        TEST(another_file_system_is_reported_and_not_grown),
        TEST(a_shut_down_file_system_is_reported_and_not_forced),
        TEST(recorded_errors_are_reported_and_not_forced),
        TEST(a_device_that_shrank_is_refused),
        TEST(a_resize_that_hangs_delays_no_other),
        TEST(no_device_node_is_needed),
        TEST(without_sysfs_there_is_no_report),
        TEST(a_report_that_cannot_be_written_is_an_error),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
