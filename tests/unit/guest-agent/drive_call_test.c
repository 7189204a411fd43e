/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call_test.c - MountDrive, UnmountDrive and ListDrives as the host calls them, over a
 * connection to the whole agent; and the periodic sync of the mounted drives. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "guest-agent/guest_drive.h"
#include "lib/log.h"
#include "tests/unit/guest-agent/client_fixture.h"

#define SERIAL_OF_VMM "65024649381234"
#define INTERVAL_NS   (NSEC_PER_SEC / 20)

static struct connection *connection;
static int client = -1;

static bool serials_hang;

/* In place of the C library's: a disk whose device does not answer. */
ssize_t read(int fd, void *bytes, size_t size)
{
    char link[32], path[PATH_MAX] = "";

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    while (serials_hang && readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/serial"))
        (void)pause();
    return syscall(SYS_read, fd, bytes, size);
}

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
    if (!strstr(path, "/good") && !strstr(path, "/bad"))
        return (int)syscall(SYS_syncfs, fd);
    while (syncs->hanging[0] && strstr(path, syncs->hanging))
        (void)usleep(1000);
    return 0;
}

static void on_ended(struct connection *one, void *userdata)
{
}

static int group_start(void **state)
{
    log_set_descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
    syncs = mmap(NULL, sizeof(*syncs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return syncs == MAP_FAILED ? -1 : private_mounts(state);
}

/* The made-up sysfs takes the place of the real one: in here, and in the agent's processes. */
static int start(void **state)
{
    int ends[2];

    memset(syncs, 0, sizeof(*syncs));
    if (tree_start(state) < 0)
        return -1;
    tree_make("/sys/block");
    if (has_mounts && mount(tree_path("/sys"), "/sys", NULL, MS_BIND, NULL) < 0)
        return -1;
    if (loop_init(&loop) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return -1;
    client = ends[0];
    buffer_init(&received, 0);
    return connection_new(&loop, ends[1], false, 3600 * NSEC_PER_SEC, on_ended, NULL, &connection);
}

static int stop(void **state)
{
    connection = connection_free(connection);
    drive_flush_end();
    tasks_free();
    fd_close(client);
    buffer_done(&received);
    loop_done(&loop);
    if (has_mounts) {
        (void)umount2("/sys", MNT_DETACH);
        (void)umount2(tree_path("/vm/bad"), MNT_DETACH);
        (void)umount2(tree_path("/vm/good"), MNT_DETACH);
    }
    return disk_stop(state);
}

/* ---- the host's side ---- */

static void post_drives(uint32_t stream, const char *method, const struct buffer *payload)
{
    post_request(client, stream, DRIVE_SERVICE, method, 0, payload);
}

static struct drive_mount_request wanted(void)
{
    struct drive_mount_request request = {.drive_id = "data",
                                          .serial = SERIAL,
                                          .bytes = (uint64_t)SMALL << 20,
                                          .filesystem_type = "ext4",
                                          .timeout_ms = 20000};

    strcpy(request.vm_path, target());
    return request;
}

static void post_mount(uint32_t stream, const struct drive_mount_request *request)
{
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, request), 0);
    post_drives(stream, DRIVE_METHOD_MOUNT, &payload);
    buffer_done(&payload);
}

static void post_unmount(uint32_t stream)
{
    const struct drive_unmount_request request = {
        .drive_id = "data", .serial = SERIAL, .timeout_ms = 20000};
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(drive_append(&payload, DRIVE_UNMOUNT_REQUEST, &request), 0);
    post_drives(stream, DRIVE_METHOD_UNMOUNT, &payload);
    buffer_done(&payload);
}

static void check_status(uint32_t stream, enum status_code code, const char *text)
{
    struct ttrpc_status status = await_status(client, stream);

    assert_string_equal(status.message, text);
    assert_int_equal(status.code, code);
}

/* The answer, which is good. */
static struct buffer await_answer(uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status = {0};

    assert_true(await(client, stream, &status, &payload));
    assert_string_equal(status.message, "");
    assert_int_equal(status.code, STATUS_OK);
    return payload;
}

static struct drive_mount_answer await_mounted(uint32_t stream)
{
    cleanup(buffer_done) struct buffer payload = await_answer(stream);
    struct drive_mount_answer answer = {0};

    assert_int_equal(
        drive_parse(buffer_text(&payload), payload.length, DRIVE_MOUNT_ANSWER, &answer, NULL), 0);
    return answer;
}

static struct drive_guest_list ask_list(uint32_t stream, bool without_disks)
{
    cleanup(buffer_done) struct buffer question = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(0);
    struct drive_guest_list list = {0};

    assert_int_equal(drive_append(&question, DRIVE_LIST_REQUEST, &(bool){without_disks}), 0);
    post_drives(stream, DRIVE_METHOD_LIST, &question);
    payload = await_answer(stream);
    assert_int_equal(drive_parse_list(buffer_text(&payload), payload.length, &list), 0);
    assert_false(list.incomplete);
    return list;
}

/* How many drives the agent has in hand; no disk is read. */
static size_t ask_tasks(uint32_t stream)
{
    cleanup(drive_guest_list_done) struct drive_guest_list list = ask_list(stream, true);

    return list.count;
}

static struct drive_guest_entry ask_entry(uint32_t stream)
{
    cleanup(drive_guest_list_done) struct drive_guest_list list = ask_list(stream, false);

    assert_int_equal(list.count, 1);
    return list.entries[0];
}

/* ---- */

static void mounted_listed_and_unmounted(void **state)
{
    struct drive_mount_request request = wanted();
    struct drive_mount_answer answer;

    attach_disk("ext4");
    tree_make("/vm/data");
    post_mount(1, &request);
    answer = await_mounted(1);
    assert_false(answer.was_mounted);
    assert_string_equal(answer.device, volume.device + strlen("/dev/"));
    assert_true(is_mounted(target()));
    assert_int_equal(ask_entry(3).state, DRIVE_GUEST_MOUNTED);
    assert_int_equal(ask_tasks(13), 0);
    post_mount(5, &request);
    assert_true(await_mounted(5).was_mounted);
    /* The test has the disk open itself. */
    post_unmount(7);
    assert_int_equal(await_status(client, 7).code, STATUS_FAILED_PRECONDITION);
    fd_close(volume.loop);
    post_unmount(9);
    check_status(9, STATUS_OK, "");
    volume.loop = open(volume.device, O_RDWR | O_CLOEXEC);
    assert_false(is_mounted(target()));
    assert_int_equal(ask_entry(11).state, DRIVE_GUEST_PRESENT);
}

/* The call that comes before the disk waits for it; an equal one waits with it; another is told. */
static void calls_meet_while_the_disk_is_missing(void **state)
{
    struct drive_mount_request request = wanted();
    struct drive_guest_entry entry;

    if (!has_mounts)
        skip();
    tree_make("/vm/data");
    post_mount(1, &request);
    post_mount(3, &request);
    assert_int_equal(ask_tasks(9), 1);
    entry = ask_entry(5);
    assert_int_equal(entry.state, DRIVE_GUEST_MOUNTING);
    assert_string_equal(entry.drive_id, "data");
    assert_string_equal(entry.vm_path, target());
    assert_string_equal(entry.device, "");
    request.read_only = true;
    post_mount(7, &request);
    check_status(7, STATUS_ALREADY_EXISTS, "the drive is being mounted otherwise");
    attach_disk("ext4");
    assert_false(await_mounted(1).was_mounted);
    assert_false(await_mounted(3).was_mounted);
}

static void an_unmount_cancels_the_mount(void **state)
{
    struct drive_mount_request request = wanted();

    if (!has_mounts)
        skip();
    tree_make("/vm/data");
    post_mount(1, &request);
    post_unmount(3);
    check_status(1, STATUS_UNAVAILABLE, "an UnmountDrive has cancelled it");
    check_status(3, STATUS_OK, "");
    attach_disk("ext4");
    assert_int_equal(ask_entry(5).state, DRIVE_GUEST_PRESENT);
}

/* A machine that stands still for 100 ms lets the call's own deadline come before this answer. */
static void a_disk_that_never_comes(void **state)
{
    struct drive_mount_request request = wanted();
    uint32_t stream = 1;
    int code;

    if (!has_mounts)
        skip();
    request.timeout_ms = 300;
    do {
        post_mount(stream, &request);
        code = await_status(client, stream).code;
        stream += 2;
    } while (code == STATUS_DEADLINE_EXCEEDED && stream < 20);
    assert_int_equal(code, STATUS_UNAVAILABLE);
}

/* More at once than there may be processes: the rest is told, and nothing else happens. */
static void a_crowd_is_bounded(void **state)
{
    struct drive_mount_request request = wanted();

    if (!has_mounts)
        skip();
    for (uint32_t i = 0; i <= DRIVE_TASK_LIMIT; i++) {
        (void)snprintf(request.drive_id, sizeof(request.drive_id), "data-%u", i);
        request.serial[DRIVE_SERIAL_CHARS - 1] = (char)('a' + i);
        post_mount(2 * i + 1, &request);
    }
    assert_int_equal(await_status(client, 2 * DRIVE_TASK_LIMIT + 1).code,
                     STATUS_RESOURCE_EXHAUSTED);
}

static void malformed_requests_name_the_field(void **state)
{
    struct drive_mount_request request = wanted();

    strcpy(request.vm_path, "relative");
    post_mount(1, &request);
    check_status(1, STATUS_INVALID_ARGUMENT, "vm_path is malformed");
    post_drives(3, DRIVE_METHOD_UNMOUNT, NULL);
    check_status(3, STATUS_INVALID_ARGUMENT, "drive_id is malformed");
    post_drives(5, "FormatDrive", NULL);
    check_status(5, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
}

static void a_disk_that_hangs_does_not_stop_the_agent(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/sys/block/vda");
    tree_write("/sys/block/vda/serial", SERIAL);
    serials_hang = true;
    post_request(client, 1, DRIVE_SERVICE, DRIVE_METHOD_LIST, NSEC_PER_SEC / 5, NULL);
    post_drives(3, "FormatDrive", NULL);
    check_status(3, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
    check_status(1, STATUS_UNAVAILABLE, "a disk of the guest does not say which serial it has");
    serials_hang = false;
}

/* ---- the sync ---- */

static void run_for(uint64_t time_ns)
{
    struct loop_timer timer = {0};

    out_of_patience = false;
    loop_timer_start(&loop, &timer, time_ns, give_up);
    while (!out_of_patience)
        loop_run_once(&loop);
}

static void write_and_await(const char *path, const char *text)
{
    struct loop_timer patience = {0};

    tree_write(path, text);
    out_of_patience = false;
    loop_timer_start(&loop, &patience, 20 * NSEC_PER_SEC, give_up);
    while (!run_command("grep -q %s '%s'", text, volume.image)) {
        loop_run_once(&loop);
        assert_false(out_of_patience);
    }
    loop_timer_stop(&patience);
}

static void mount_and_flush(void)
{
    struct drive_mount_request request = wanted();

    attach_disk("ext4");
    tree_make("/vm/data");
    drive_flush_start(&loop, INTERVAL_NS);
    post_mount(1, &request);
    (void)await_mounted(1);
}

/* What is written is on the disk soon, with nobody having asked for it. */
static void writes_reach_the_disk(void **state)
{
    mount_and_flush();
    write_and_await("/vm/data/note", "written-by-a-tenant");
}

/* The rounds that knew nothing of it are over when the second note is written. */
static void a_serial_that_hangs_keeps_no_write_from_its_disk(void **state)
{
    mount_and_flush();
    write_and_await("/vm/data/note", "written-by-a-tenant");
    serials_hang = true;
    run_for(NSEC_PER_SEC / 2);
    write_and_await("/vm/data/second", "written-meanwhile");
    serials_hang = false;
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
    tree_make("/vm/bad");
    tree_make("/vm/good");
    mount_drive("vda", SERIAL, "/vm/bad", read_only);
    mount_drive("vdb", "crust-bcdefghijklmno", "/vm/good", false);
    drive_flush_start(&loop, INTERVAL_NS);
}

static void await_syncs(const unsigned *count, unsigned more)
{
    struct loop_timer patience = {0};
    unsigned wanted = *count + more;

    out_of_patience = false;
    loop_timer_start(&loop, &patience, 20 * NSEC_PER_SEC, give_up);
    while (*(const volatile unsigned *)count < wanted) {
        loop_run_once(&loop);
        assert_false(out_of_patience);
    }
    loop_timer_stop(&patience);
}

static void each_writable_drive_is_synced_again_and_again(void **state)
{
    mount_two(false);
    await_syncs(&syncs->good, 3);
    await_syncs(&syncs->bad, 3);
}

static void a_read_only_drive_is_not_synced(void **state)
{
    mount_two(true);
    await_syncs(&syncs->good, 3);
    assert_int_equal(syncs->bad, 0);
}

static void a_sync_that_hangs_keeps_no_other_drive_from_being_synced(void **state)
{
    strcpy(syncs->hanging, "/bad");
    mount_two(false);
    await_syncs(&syncs->good, 3);
    assert_int_equal(syncs->bad, 1); /* one process waits for that disk, however long */
    syncs->hanging[0] = '\0';
    await_syncs(&syncs->bad, 2);
}

static void nothing_is_synced_once_no_drive_is_mounted(void **state)
{
    unsigned last, rounds = 20;

    mount_two(false);
    await_syncs(&syncs->good, 1);
    assert_int_equal(umount2(tree_path("/vm/good"), MNT_DETACH), 0);
    assert_int_equal(umount2(tree_path("/vm/bad"), MNT_DETACH), 0);
    do { /* a round that had listed them before may be late; one that goes on has no end */
        last = syncs->good;
        run_for(8 * INTERVAL_NS);
        assert_true(--rounds > 0);
    } while (syncs->good != last);

    mount_drive("vdb", "crust-bcdefghijklmno", "/vm/good", false);
    drive_flush_wake("crust-bcdefghijklmno");
    await_syncs(&syncs->good, 2);
}

/* A disk of a guest whose VMM chooses the serials is a drive only once it was mounted as one. */
static void a_disk_with_a_serial_of_its_vmm_is_synced_once_it_is_known_as_a_drive(void **state)
{
    if (!has_mounts)
        skip();
    tree_make("/vm/bad");
    tree_make("/vm/good");
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
        TEST(mounted_listed_and_unmounted),
        TEST(calls_meet_while_the_disk_is_missing),
        TEST(an_unmount_cancels_the_mount),
        TEST(a_disk_that_never_comes),
        TEST(a_crowd_is_bounded),
        TEST(malformed_requests_name_the_field),
        TEST(a_disk_that_hangs_does_not_stop_the_agent),
        TEST(writes_reach_the_disk),
        TEST(a_serial_that_hangs_keeps_no_write_from_its_disk),
        TEST(each_writable_drive_is_synced_again_and_again),
        TEST(a_read_only_drive_is_not_synced),
        TEST(a_sync_that_hangs_keeps_no_other_drive_from_being_synced),
        TEST(nothing_is_synced_once_no_drive_is_mounted),
        TEST(a_disk_with_a_serial_of_its_vmm_is_synced_once_it_is_known_as_a_drive),
    };

    return cmocka_run_group_tests(tests, group_start, NULL);
}
