/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call_test.c - MountDrive, UnmountDrive and ListDrives as the host calls them, over a
 * connection to the whole agent. */
#include "tests/unit/guest-agent/drive_fixture.h"

#include <limits.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "agent-client/ttrpc_codec.h"
#include "guest-agent/connection.h"
#include "guest-agent/drive_flush.h"
#include "guest-agent/drive_task.h"
#include "lib/log.h"

static struct loop loop;
static struct connection *connection;
static int client = -1;
static struct buffer received;
static bool out_of_patience;

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

static void on_ended(struct connection *one, void *userdata)
{
    (void)one;
    (void)userdata;
}

static int group_start(void **state)
{
    log_set_descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
    return private_mounts(state);
}

/* The made-up sysfs takes the place of the real one: in here, and in the agent's processes. */
static int start(void **state)
{
    int ends[2];

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
    drive_tasks_end();
    drive_flush_end();
    fd_close(client);
    buffer_done(&received);
    loop_done(&loop);
    if (has_mounts)
        (void)umount2("/sys", MNT_DETACH);
    return disk_stop(state);
}

/* ---- the host's side ---- */

static void post(uint32_t stream, const char *method, const struct buffer *payload)
{
    struct ttrpc_request request = {.service = DRIVE_SERVICE};
    struct buffer frame = BUFFER_INIT(0);

    strcpy(request.method, method);
    assert_int_equal(
        ttrpc_append_request(&frame, stream, &request, buffer_text(payload), payload->length), 0);
    assert_int_equal(write(client, frame.data, frame.length), (ssize_t)frame.length);
    buffer_done(&frame);
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

    assert_int_equal(drive_append_mount_request(&payload, request), 0);
    post(stream, DRIVE_METHOD_MOUNT, &payload);
    buffer_done(&payload);
}

static void post_unmount(uint32_t stream)
{
    const struct drive_unmount_request request = {
        .drive_id = "data", .serial = SERIAL, .timeout_ms = 20000};
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(drive_append_unmount_request(&payload, &request), 0);
    post(stream, DRIVE_METHOD_UNMOUNT, &payload);
    buffer_done(&payload);
}

static void give_up(struct loop_timer *timer)
{
    (void)timer;
    out_of_patience = true;
}

static void nothing(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
}

/* Runs the agent until it has answered the stream. */
static struct ttrpc_status await(uint32_t stream, struct buffer *payload)
{
    struct loop_io readable = {0};
    struct loop_timer patience = {0};
    struct ttrpc_status status = {0};
    struct ttrpc_frame frame;
    size_t skipped;
    char bytes[4096];
    ssize_t count;

    out_of_patience = false;
    loop_io_start(&loop, &readable, client, LOOP_READ, nothing);
    loop_timer_start(&loop, &patience, 40 * NSEC_PER_SEC, give_up);
    while (ttrpc_find_response(buffer_text(&received), received.length, stream, 65536, &skipped,
                               &frame) != TTRPC_FRAME) {
        loop_run_once(&loop);
        assert_false(out_of_patience);
        while ((count = read(client, bytes, sizeof(bytes))) > 0)
            assert_int_equal(buffer_append(&received, bytes, (size_t)count), 0);
    }
    loop_io_stop(&readable);
    loop_timer_stop(&patience);
    assert_int_equal(ttrpc_parse_response(&frame, &status, payload), 0);
    /* What was said to other streams stays. */
    (void)memmove(received.data + skipped, received.data + skipped + frame.size,
                  received.length - skipped - frame.size);
    received.length -= frame.size;
    return status;
}

static struct ttrpc_status await_status(uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct ttrpc_status status = await(stream, &payload);

    buffer_done(&payload);
    return status;
}

static void check_status(uint32_t stream, enum status_code code, const char *text)
{
    struct ttrpc_status status = await_status(stream);

    assert_string_equal(status.message, text);
    assert_int_equal(status.code, code);
}

static struct drive_mount_answer await_mounted(uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct drive_mount_answer answer = {0};
    struct ttrpc_status status = await(stream, &payload);

    assert_string_equal(status.message, "");
    assert_int_equal(status.code, STATUS_OK);
    assert_int_equal(drive_parse_mount_answer(buffer_text(&payload), payload.length, &answer), 0);
    buffer_done(&payload);
    return answer;
}

/* How many drives the agent has in hand; no disk is read. */
static size_t ask_tasks(uint32_t stream)
{
    struct buffer question = BUFFER_INIT(0), payload = BUFFER_INIT(0);
    struct drive_guest_list list = {0};
    size_t count;

    assert_int_equal(drive_append_list_request(&question, true), 0);
    post(stream, DRIVE_METHOD_LIST, &question);
    assert_int_equal(await(stream, &payload).code, STATUS_OK);
    assert_int_equal(drive_parse_list(buffer_text(&payload), payload.length, &list), 0);
    assert_false(list.incomplete);
    count = list.count;
    drive_guest_list_done(&list);
    buffer_done(&payload);
    buffer_done(&question);
    return count;
}

static struct drive_guest_entry ask_entry(uint32_t stream)
{
    struct buffer payload = BUFFER_INIT(0);
    struct drive_guest_list list = {0};
    struct drive_guest_entry entry;

    post(stream, DRIVE_METHOD_LIST, &payload);
    assert_int_equal(await(stream, &payload).code, STATUS_OK);
    assert_int_equal(drive_parse_list(buffer_text(&payload), payload.length, &list), 0);
    assert_int_equal(list.count, 1);
    entry = list.entries[0];
    drive_guest_list_done(&list);
    buffer_done(&payload);
    return entry;
}

/* ---- */

static void mounted_listed_and_unmounted(void **state)
{
    struct drive_mount_request request = wanted();
    struct drive_mount_answer answer;

    (void)state;
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
    assert_int_equal(await_status(7).code, STATUS_FAILED_PRECONDITION);
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

    (void)state;
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

    (void)state;
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

static void a_disk_that_never_comes(void **state)
{
    struct drive_mount_request request = wanted();

    (void)state;
    if (!has_mounts)
        skip();
    request.timeout_ms = 300;
    post_mount(1, &request);
    assert_int_equal(await_status(1).code, STATUS_UNAVAILABLE);
}

/* More at once than there may be processes: the rest is told, and nothing else happens. */
static void a_crowd_is_bounded(void **state)
{
    struct drive_mount_request request = wanted();

    (void)state;
    if (!has_mounts)
        skip();
    for (uint32_t i = 0; i <= DRIVE_TASK_LIMIT; i++) {
        (void)snprintf(request.drive_id, sizeof(request.drive_id), "data-%u", i);
        request.serial[DRIVE_SERIAL_CHARS - 1] = (char)('a' + i);
        post_mount(2 * i + 1, &request);
    }
    assert_int_equal(await_status(2 * DRIVE_TASK_LIMIT + 1).code, STATUS_RESOURCE_EXHAUSTED);
}

static void malformed_requests_name_the_field(void **state)
{
    struct drive_mount_request request = wanted();
    struct buffer none = BUFFER_INIT(0);

    (void)state;
    strcpy(request.vm_path, "relative");
    post_mount(1, &request);
    check_status(1, STATUS_INVALID_ARGUMENT, "vm_path is malformed");
    post(3, DRIVE_METHOD_UNMOUNT, &none);
    check_status(3, STATUS_INVALID_ARGUMENT, "drive_id is malformed");
    post(5, "FormatDrive", &none);
    check_status(5, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
}

static void a_disk_that_hangs_does_not_stop_the_agent(void **state)
{
    const struct ttrpc_request request = {
        .service = DRIVE_SERVICE, .method = DRIVE_METHOD_LIST, .timeout_ns = NSEC_PER_SEC / 5};
    struct buffer frame = BUFFER_INIT(0), none = BUFFER_INIT(0);

    (void)state;
    if (!has_mounts)
        skip();
    tree_make("/sys/block/vda");
    tree_write("/sys/block/vda/serial", SERIAL);
    serials_hang = true;
    assert_int_equal(ttrpc_append_request(&frame, 1, &request, NULL, 0), 0);
    assert_int_equal(write(client, frame.data, frame.length), (ssize_t)frame.length);
    buffer_done(&frame);
    post(3, "FormatDrive", &none);
    check_status(3, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
    check_status(1, STATUS_UNAVAILABLE, "a disk of the guest does not say which serial it has");
    serials_hang = false;
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
    drive_flush_start(&loop, NSEC_PER_SEC / 20);
    post_mount(1, &request);
    (void)await_mounted(1);
}

/* What is written is on the disk soon, with nobody having asked for it. */
static void writes_reach_the_disk(void **state)
{
    (void)state;
    mount_and_flush();
    write_and_await("/vm/data/note", "written-by-a-tenant");
}

/* The rounds that knew nothing of it are over when the second note is written. */
static void a_serial_that_hangs_keeps_no_write_from_its_disk(void **state)
{
    struct loop_timer rounds = {0};

    (void)state;
    mount_and_flush();
    write_and_await("/vm/data/note", "written-by-a-tenant");
    serials_hang = true;
    out_of_patience = false;
    loop_timer_start(&loop, &rounds, NSEC_PER_SEC / 2, give_up);
    while (!out_of_patience)
        loop_run_once(&loop);
    write_and_await("/vm/data/second", "written-meanwhile");
    serials_hang = false;
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
    };

    return cmocka_run_group_tests(tests, group_start, NULL);
}
