/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush_test.c - the periodic sync of the mounted drives. The disks are made up; where they
 * are mounted there are tmpfs, whose device numbers the made-up sysfs has. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "guest-agent/drive_flush.h"
#include "lib/log.h"

#define SERIAL_OF_VMM "65024649381234"
#define INTERVAL_NS   (NSEC_PER_SEC / 20)

static struct loop loop;
static bool is_over;

/* Shared with the agent's processes. */
static struct {
    char hanging[32]; /* the drive whose sync does not end */
    unsigned good, bad;
} * syncs;

/* In place of the C library's. Counts the syncs of the two drives. */
int syncfs(int fd)
{
    char link[32], path[PATH_MAX] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) <= 0)
        return -1;
    if (strstr(path, "/good"))
        syncs->good++;
    if (strstr(path, "/bad"))
        syncs->bad++;
    while (syncs->hanging[0] && strstr(path, syncs->hanging))
        (void)usleep(1000);
    return 0;
}

static int group_start(void **state)
{
    log_set_descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
    syncs = mmap(NULL, sizeof(*syncs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return syncs == MAP_FAILED ? -1 : private_mounts(state);
}

static int start(void **state)
{
    memset(syncs, 0, sizeof(*syncs));
    if (tree_start(state) < 0)
        return -1;
    tree_make("/sys/block");
    tree_make("/vm/bad");
    tree_make("/vm/good");
    if (has_mounts && mount(tree_path("/sys"), "/sys", NULL, MS_BIND, NULL) < 0)
        return -1;
    return loop_init(&loop);
}

static int stop(void **state)
{
    drive_flush_end();
    loop_done(&loop);
    if (has_mounts) {
        (void)umount2("/sys", MNT_DETACH);
        (void)umount2(tree_path("/vm/bad"), MNT_DETACH);
        (void)umount2(tree_path("/vm/good"), MNT_DETACH);
    }
    return tree_stop(state);
}

static void mount_drive(const char *disk, const char *serial, const char *path, bool read_only)
{
    struct stat status;
    char device[64];

    assert_int_equal(mount("none", tree_path(path), "tmpfs", 0, NULL), 0);
    assert_int_equal(stat(tree_path(path), &status), 0);
    (void)snprintf(device, sizeof(device), "%u:%u\n", major(status.st_dev), minor(status.st_dev));
    write_attribute(disk, "dev", device);
    write_attribute(disk, "size", "2048\n");
    write_attribute(disk, "ro", read_only ? "1\n" : "0\n");
    write_attribute(disk, "serial", serial);
}

/* The one that may hang comes first in each list. */
static void mount_two(bool read_only)
{
    if (!has_mounts)
        skip();
    mount_drive("vda", SERIAL, "/vm/bad", read_only);
    mount_drive("vdb", "crust-bcdefghijklmno", "/vm/good", false);
    drive_flush_start(&loop, INTERVAL_NS);
}

static void end_wait(struct loop_timer *timer)
{
    (void)timer;
    is_over = true;
}

static void run_for(uint64_t time_ns)
{
    struct loop_timer timer = {0};

    is_over = false;
    loop_timer_start(&loop, &timer, time_ns, end_wait);
    while (!is_over)
        loop_run_once(&loop);
}

static void await_syncs(const unsigned *count, unsigned more)
{
    struct loop_timer patience = {0};
    unsigned wanted = *count + more;

    is_over = false;
    loop_timer_start(&loop, &patience, 20 * NSEC_PER_SEC, end_wait);
    while (*(const volatile unsigned *)count < wanted) {
        loop_run_once(&loop);
        assert_false(is_over);
    }
    loop_timer_stop(&patience);
}

static void each_writable_drive_is_synced_again_and_again(void **state)
{
    (void)state;
    mount_two(false);
    await_syncs(&syncs->good, 3);
    await_syncs(&syncs->bad, 3);
}

static void a_read_only_drive_is_not_synced(void **state)
{
    (void)state;
    mount_two(true);
    await_syncs(&syncs->good, 3);
    assert_int_equal(syncs->bad, 0);
}

static void a_sync_that_hangs_keeps_no_other_drive_from_being_synced(void **state)
{
    (void)state;
    strcpy(syncs->hanging, "/bad");
    mount_two(false);
    await_syncs(&syncs->good, 3);
    assert_int_equal(syncs->bad, 1); /* one process waits for that disk, however long */
    syncs->hanging[0] = '\0';
    await_syncs(&syncs->bad, 2);
}

static void nothing_is_synced_once_no_drive_is_mounted(void **state)
{
    unsigned last;

    (void)state;
    mount_two(false);
    await_syncs(&syncs->good, 1);
    assert_int_equal(umount2(tree_path("/vm/good"), MNT_DETACH), 0);
    assert_int_equal(umount2(tree_path("/vm/bad"), MNT_DETACH), 0);
    run_for(4 * INTERVAL_NS); /* a round that had listed them before */
    last = syncs->good;
    run_for(4 * INTERVAL_NS);
    assert_int_equal(syncs->good, last);

    mount_drive("vdb", "crust-bcdefghijklmno", "/vm/good", false);
    drive_flush_wake("crust-bcdefghijklmno");
    await_syncs(&syncs->good, 2);
}

/* A disk of a guest whose VMM chooses the serials is a drive only once it was mounted as one. */
static void a_disk_with_a_serial_of_its_vmm_is_synced_once_it_is_known_as_a_drive(void **state)
{
    (void)state;
    if (!has_mounts)
        skip();
    mount_drive("vda", SERIAL_OF_VMM, "/vm/bad", false);
    mount_drive("vdb", SERIAL, "/vm/good", false);
    drive_flush_start(&loop, INTERVAL_NS);
    await_syncs(&syncs->good, 2);
    assert_int_equal(syncs->bad, 0);
    drive_flush_wake(SERIAL_OF_VMM);
    await_syncs(&syncs->bad, 2);
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_writable_drive_is_synced_again_and_again),
        TEST(a_read_only_drive_is_not_synced),
        TEST(a_sync_that_hangs_keeps_no_other_drive_from_being_synced),
        TEST(nothing_is_synced_once_no_drive_is_mounted),
        TEST(a_disk_with_a_serial_of_its_vmm_is_synced_once_it_is_known_as_a_drive),
    };

    return cmocka_run_group_tests(tests, group_start, NULL);
}
