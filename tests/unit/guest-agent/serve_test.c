/* SPDX-License-Identifier: Apache-2.0 */
/* serve_test.c - the agent grows file systems, over a socket and over a serial line. */
#include <sys/statvfs.h>

#include "lib/encode.h"
#include "tests/unit/guest-agent/serve_fixture.h"

/* ---- growing */

static void a_file_system_grows(void **state)
{
    const char *file_system = *state;
    cleanup(fd_closep) int fd = dial();
    uint64_t before;
    struct ttrpc_status status;

    make_volume(file_system);
    before = ask_stats(fd, volume.mount_point).total;
    assert_true(before < SMALL * MIB + 1);
    assert_int_equal(ask_resize(fd, volume.mount_point, SMALL * MIB).code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before);
    grow_volume();
    status = ask_resize(fd, volume.mount_point, LARGE * MIB);
    assert_string_equal(status.message, "");
    assert_int_equal(status.code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before + (LARGE - SMALL) * MIB);
    assert_int_equal(ask_resize(fd, volume.mount_point, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(ask_resize(fd, volume.mount_point, 0).code, STATUS_OK);
    assert_int_equal(ask_resize(fd, volume.mount_point, MIB).code, STATUS_OK); /* never shrinks */
    assert_int_equal(ask_stats(fd, volume.mount_point).total, before + (LARGE - SMALL) * MIB);
}

static void ext4_grows_or_names_the_missing_right(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;
    uint64_t before;

    make_volume("ext4");
    before = ask_stats(fd, volume.mount_point).total;
    grow_volume();
    status = ask_resize(fd, volume.mount_point, LARGE * MIB);
    if (status.code == STATUS_OK) {
        assert_true(ask_stats(fd, volume.mount_point).total > before + (LARGE - SMALL) / 2 * MIB);
        return;
    }
    assert_int_equal(status.code, STATUS_PERMISSION_DENIED);
    assert_non_null(strstr(status.message, "CAP_SYS_RESOURCE"));
    skip();
}

static void the_device_names_the_volume_too(void **state)
{
    cleanup(fd_closep) int fd = dial();

    make_volume("btrfs");
    grow_volume();
    assert_int_equal(ask_resize(fd, volume.device, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(ask_stats(fd, volume.device).total, LARGE * MIB);
}

/* As in a sidecar: kata-agent has mounted the disk elsewhere, under this name. */
static void the_agents_mount_point_names_the_disk_where_it_is_not_mounted(void **state)
{
    cleanup(fd_closep) int fd = dial();
    char name[BASE64URL_ENCODED_LENGTH(sizeof(volume.device)) + 1], path[160];

    make_volume("btrfs");
    base64url_encode(volume.device, strlen(volume.device), name);
    (void)snprintf(path, sizeof(path), "/run/kata-containers/sandbox/storage/%s", name);
    grow_volume();
    assert_int_equal(ask_resize(fd, path, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(ask_stats(fd, path).total, LARGE * MIB);
}

static void a_request_waits_for_its_device_and_nobody_waits_for_it(void **state)
{
    cleanup(fd_closep) int fd = dial();

    make_volume("xfs");
    post_call(fd, 1001, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB, 60 * NSEC_PER_SEC);
    (void)ask_stats(fd, volume.mount_point);
    assert_int_equal(ask_resize(fd, volume.mount_point, SMALL * MIB).code, STATUS_OK);
    grow_volume();
    assert_int_equal(await_status(fd, 1001).code, STATUS_OK);
    assert_true(ask_stats(fd, volume.mount_point).total > SMALL * MIB);
}

static void a_device_that_does_not_grow_is_waited_for_until_the_deadline(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;

    make_volume("xfs");
    post_call(fd, 5, AGENT_METHOD_RESIZE, volume.mount_point, LARGE * MIB, NSEC_PER_SEC / 20);
    status = await_status(fd, 5);
    assert_int_equal(status.code, STATUS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(status.message, "not yet"));
}

static void a_read_only_mount_is_left_for_a_writable_one(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status;
    char other[128];

    make_volume("xfs");
    (void)snprintf(other, sizeof(other), "%s/other", scratch);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mount(volume.mount_point, other, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, other, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    grow_volume();
    assert_int_equal(ask_resize(fd, other, LARGE * MIB).code, STATUS_OK);
    assert_int_equal(mount(NULL, volume.mount_point, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    loop_volume_resize(&volume, 2 * LARGE);
    status = ask_resize(fd, other, 2 * LARGE * MIB);
    assert_int_equal(status.code, STATUS_UNAVAILABLE);
    assert_string_equal(status.message, AGENT_READ_ONLY_TEXT);
    assert_false(ask_stats(fd, other).abnormal);
    assert_int_equal(mount(NULL, volume.mount_point, NULL, MS_REMOUNT, NULL), 0);
    assert_int_equal(ask_resize(fd, other, 2 * LARGE * MIB).code, STATUS_OK);
    assert_int_equal(umount(other), 0);
}

/* ---- after an error */

static void check_shut_down(const char *path)
{
    cleanup(fd_closep) int fd = dial();
    struct ttrpc_status status = ask_resize(fd, path, LARGE * MIB);
    struct agent_stats stats = ask_stats(fd, path);

    assert_int_equal(status.code, STATUS_FAILED_PRECONDITION);
    assert_ptr_equal(strstr(status.message, AGENT_NOT_GROWABLE_TEXT AGENT_SHUT_DOWN_TEXT),
                     status.message);
    assert_true(stats.abnormal && stats.has_bytes);
    assert_ptr_equal(strstr(stats.condition, AGENT_SHUT_DOWN_TEXT), stats.condition);
}

/* An xfs that was shut down, an ext4 that an error made read-only: by its mount point, and by its
 * disk, as in a sidecar. */
static void a_shut_down_file_system_is_said_to_be(void **state)
{
    const char *file_system = *state;

    make_volume(file_system);
    loop_volume_shut_down(&volume, file_system);
    grow_volume();
    check_shut_down(volume.mount_point);
    check_shut_down(volume.device);
}

/* Its disk's storage is full. */
static void a_btrfs_that_an_error_made_read_only_was_shut_down(void **state)
{
    cleanup(fd_closep) int fd = dial();
    char full[SCRATCH_BYTES + 8];

    (void)snprintf(full, sizeof(full), "%s/full", scratch);
    assert_int_equal(mkdir(full, 0700), 0);
    if (geteuid() != 0 || mount("none", full, "tmpfs", 0, "size=64m") < 0)
        skip();
    loop_volume_make(&volume, full, "volume", "btrfs");
    assert_int_equal(mount(NULL, volume.mount_point, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_false(ask_stats(fd, volume.device).abnormal);
    assert_int_equal(mount(NULL, volume.mount_point, NULL, MS_REMOUNT, NULL), 0);
    (void)run_command("head -c 100m /dev/urandom >'%s/file' 2>/dev/null", volume.mount_point);
    (void)run_command("sync -f '%s' 2>/dev/null; sync -f '%s' 2>/dev/null", volume.mount_point,
                      volume.mount_point);
    check_shut_down(volume.mount_point);
    check_shut_down(volume.device);
    loop_volume_remove(&volume);
    (void)umount2(full, MNT_DETACH);
}

/* ---- figures */

/* As statvfs(3) has it for a user who is not root: less than what is free. */
static void available_is_what_anybody_can_write(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct agent_stats stats;
    struct statvfs status;

    make_volume("ext4");
    assert_int_equal(statvfs(volume.mount_point, &status), 0);
    assert_true(status.f_bavail < status.f_bfree);
    stats = ask_stats(fd, volume.mount_point);
    assert_int_equal(stats.total, status.f_blocks * status.f_frsize);
    assert_int_equal(stats.available, status.f_bavail * status.f_frsize);
    assert_int_equal(stats.used, (status.f_blocks - status.f_bfree) * status.f_frsize);
    assert_int_equal(stats.total_inodes, status.f_files);
    assert_int_equal(stats.used_inodes, status.f_files - status.f_ffree);
}

static void a_file_system_without_inodes_has_no_number_of_them(void **state)
{
    cleanup(fd_closep) int fd = dial();
    struct agent_stats stats;

    make_volume("btrfs");
    stats = ask_stats(fd, volume.mount_point);
    assert_true(stats.has_bytes);
    assert_false(stats.has_inodes);
}

/* ---- a serial line */

/* A request that comes on the heels of nonsense goes with it, so the client asks again. */
static void ask_until_answered(int line)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status = {0};
    uint32_t stream = 201;

    do {
        stream += 2;
        post_call(line, stream, AGENT_METHOD_RESIZE, "/nope", 1, 0);
    } while (!await_for(3 * NSEC_PER_SEC / 2, line, stream, &status, &payload) && stream < 241);
    assert_int_equal(status.code, STATUS_INVALID_ARGUMENT);
    assert_true(stream < 241);
    buffer_done(&payload);
}

static void a_serial_line_carries_one_client_after_another(void **state)
{
    char name[64], address[96];
    struct buffer half = BUFFER_INIT(0);
    struct server *serial;
    int line, port;

    if (openpty(&line, &port, name, NULL, NULL) < 0)
        skip();
    assert_int_equal(fcntl(line, F_SETFL, O_NONBLOCK), 0);
    (void)snprintf(address, sizeof(address), "serial://%s", name);
    assert_int_equal(server_new(&loop, address, IDLE_NS, &serial, NULL), 0);
    loop_run_once(&loop); /* opens the port, which makes it raw */
    ask_until_answered(line);
    post(line, "garbage", 7);
    ask_until_answered(line);
    append_call(&half, 31, AGENT_METHOD_RESIZE, "/nope", 1, 0);
    post(line, half.data, half.length / 2);
    ask_until_answered(line);
    buffer_done(&half);
    (void)server_free(serial);
    fd_close(line);
    fd_close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH(a_file_system_grows, "xfs"),
        TEST_WITH(a_file_system_grows, "btrfs"),
        TEST(ext4_grows_or_names_the_missing_right),
        TEST(the_device_names_the_volume_too),
        TEST(the_agents_mount_point_names_the_disk_where_it_is_not_mounted),
        TEST(a_request_waits_for_its_device_and_nobody_waits_for_it),
        TEST(a_device_that_does_not_grow_is_waited_for_until_the_deadline),
        TEST(a_read_only_mount_is_left_for_a_writable_one),
        TEST_WITH(a_shut_down_file_system_is_said_to_be, "xfs"),
        TEST_WITH(a_shut_down_file_system_is_said_to_be, "ext4"),
        TEST(a_btrfs_that_an_error_made_read_only_was_shut_down),
        TEST(available_is_what_anybody_can_write),
        TEST(a_file_system_without_inodes_has_no_number_of_them),
        TEST(a_serial_line_carries_one_client_after_another),
    };

    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
