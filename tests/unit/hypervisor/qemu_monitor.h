/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_monitor.h - a scripted QEMU monitor in the same loop, and the conversations it is asked for.
 *
 * The monitor expects commands in an order and answers from the script: whole or byte by byte, late
 * or never, or by hanging up. It never holds a device: paths are resolved through this process.
 */
#pragma once

#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

enum { NEVER = 99 };

/* What is expected to be in a command, and the answer: $ID is the command's id, $DEVICE and $FILE
 * are paths. The first entry is the greeting. */
struct exchange {
    const char *expect;
    const char *answer;
};

#define STATUS(status, running)                                                                    \
    "{\"return\": {\"status\": \"" status "\", \"running\": " running "}, \"id\": \"$ID\"}\r\n"

struct monitor {
    struct loop loop;
    char directory[SCRATCH_BYTES];
    char path[96], file[96];
    char device[280];
    dev_t device_number;
    int root;
    int listener, client;
    struct loop_io accepting, reading;
    struct loop_timer writer;
    struct buffer input, output;
    const struct exchange *script;
    size_t script_length, position;
    const char *status; /* the answer to query-status, which no script has; NULL: running */
    bool bytewise;      /* one byte in each turn of the loop */
    size_t silent_at;   /* says nothing from this exchange on */
    size_t close_at;    /* hangs up instead of this answer */
    unsigned done;
    struct hypervisor_reply reply;
};

static inline void send_some(struct monitor *monitor)
{
    size_t length = monitor->bytewise ? 1 : monitor->output.length;

    if (monitor->client >= 0 && monitor->output.length) {
        ssize_t sent = send(monitor->client, monitor->output.data, length, MSG_NOSIGNAL);

        if (sent < 0 && errno == EAGAIN)
            return; /* the other side reads in the next turn of the loop */
        buffer_consume(&monitor->output, sent < 0 ? length : (size_t)sent);
    }
}

static inline void on_writer(struct loop_timer *timer)
{
    struct monitor *monitor = container_of(timer, struct monitor, writer);

    send_some(monitor);
    if (monitor->output.length)
        loop_timer_start(&monitor->loop, timer, 0, on_writer);
}

static inline void hang_up(struct monitor *monitor)
{
    loop_io_stop(&monitor->reading);
    loop_timer_stop(&monitor->writer);
    buffer_clear(&monitor->output);
    fd_close(take_fd(&monitor->client));
}

static inline void append_expanded(struct monitor *monitor, const char *answer, const char *id)
{
    while (*answer) {
        size_t plain = strcspn(answer, "$");

        assert_int_equal(buffer_append(&monitor->output, answer, plain), 0);
        answer += plain;
        if (strncmp(answer, "$ID", 3) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, id), 0);
            answer += 3;
        } else if (strncmp(answer, "$DEVICE", 7) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, monitor->device), 0);
            answer += 7;
        } else if (strncmp(answer, "$FILE", 5) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, monitor->file), 0);
            answer += 5;
        }
    }
}

static inline void answer(struct monitor *monitor, const char *command)
{
    const char *start = strstr(command, "\"id\":\"");
    char id[32] = "";
    const struct exchange *exchange = &monitor->script[monitor->position];

    if (start)
        (void)snprintf(id, sizeof(id), "%.*s", (int)strcspn(start + 6, "\""), start + 6);
    if (monitor->position == monitor->close_at) {
        hang_up(monitor);
        return;
    }
    if (monitor->position >= monitor->silent_at)
        return;
    if (strstr(command, "\"query-status\"")) {
        append_expanded(monitor, monitor->status ? monitor->status : STATUS("running", "true"), id);
        loop_timer_start(&monitor->loop, &monitor->writer, 0, on_writer);
        return;
    }
    assert_true(monitor->position < monitor->script_length);
    if (!strstr(command, exchange->expect))
        print_error("expected %s in %s\n", exchange->expect, command);
    assert_non_null(strstr(command, exchange->expect));
    append_expanded(monitor, exchange->answer, id);
    monitor->position++;
    loop_timer_start(&monitor->loop, &monitor->writer, 0, on_writer);
}

static inline void on_reading(struct loop_io *io, int events)
{
    struct monitor *monitor = container_of(io, struct monitor, reading);
    char bytes[4096];
    ssize_t count = read(monitor->client, bytes, sizeof(bytes));

    (void)events;
    if (count <= 0) {
        hang_up(monitor);
        return;
    }
    assert_true(monitor->position > 0); /* not a byte before the greeting */
    assert_int_equal(buffer_append(&monitor->input, bytes, (size_t)count), 0);
    if (monitor->input.data[monitor->input.length - 1] != '\n')
        return;
    while (monitor->input.length && monitor->client >= 0) {
        size_t length = strcspn(buffer_text(&monitor->input), "\n") + 1;
        char command[1024];

        assert_true(length < sizeof(command));
        memcpy(command, monitor->input.data, length);
        command[length] = '\0';
        buffer_consume(&monitor->input, length);
        answer(monitor, command);
    }
    buffer_clear(&monitor->input);
}

static inline void on_accepting(struct loop_io *io, int events)
{
    struct monitor *monitor = container_of(io, struct monitor, accepting);

    (void)events;
    monitor->client = accept4(monitor->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(monitor->client >= 0);
    loop_io_start(&monitor->loop, &monitor->reading, monitor->client, LOOP_READ, on_reading);
    answer(monitor, "");
}

static inline struct sockaddr_un address_of(const struct monitor *monitor)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", monitor->path);
    return address;
}

/* Any block device will do: only its number is ever looked at. */
static inline void find_device(struct monitor *monitor)
{
    cleanup(dir_closep) DIR *directory = opendir("/dev");
    struct dirent *entry;
    struct stat st;

    monitor->device[0] = '\0';
    while (directory && (entry = readdir(directory))) {
        (void)snprintf(monitor->device, sizeof(monitor->device), "/dev/%s", entry->d_name);
        if (stat(monitor->device, &st) == 0 && S_ISBLK(st.st_mode)) {
            monitor->device_number = st.st_rdev;
            return;
        }
    }
    monitor->device[0] = '\0';
}

static inline int set_up(void **state)
{
    static struct monitor monitor;
    struct sockaddr_un address;
    int fd;

    monitor = (struct monitor){.listener = -1, .client = -1, .silent_at = NEVER, .close_at = NEVER};
    assert_int_equal(loop_init(&monitor.loop), 0);
    assert_int_equal(scratch_directory_make(monitor.directory), 0);
    (void)snprintf(monitor.path, sizeof(monitor.path), "%s/monitor.sock", monitor.directory);
    (void)snprintf(monitor.file, sizeof(monitor.file), "%s/disk.img", monitor.directory);
    fd = open(monitor.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    fd_close(fd);
    find_device(&monitor);
    assert_int_equal(path_open_root("/", &monitor.root), 0);
    monitor.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address = address_of(&monitor);
    assert_int_equal(bind(monitor.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    *state = &monitor;
    return 0;
}

static inline int tear_down(void **state)
{
    struct monitor *monitor = *state;

    hang_up(monitor);
    loop_io_stop(&monitor->accepting);
    fd_close(monitor->listener);
    fd_close(monitor->root);
    buffer_done(&monitor->input);
    buffer_done(&monitor->output);
    loop_done(&monitor->loop);
    return scratch_directory_remove(monitor->directory);
}

static inline void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                           void *userdata)
{
    struct monitor *monitor = userdata;

    monitor->done++;
    monitor->reply = *reply;
    (void)hypervisor_call_free(call);
    loop_stop(&monitor->loop);
}

static inline struct hypervisor_request request_for(const struct monitor *monitor,
                                                    enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = monitor->root,
        .control_socket = monitor->path,
        .vmm_pid = getpid(),
        .device = monitor->device_number,
        .bytes = 2048,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static const struct hypervisor_reply *call(struct monitor *monitor,
                                           const struct hypervisor_request *request)
{
    struct hypervisor_call *made;

    monitor->done = 0;
    monitor->position = 0;
    assert_int_equal(
        hypervisor_call_new(&monitor->loop, HYPERVISOR_QEMU, request, on_done, monitor, &made), 0);
    assert_int_equal(monitor->done, 0);
    loop_run(&monitor->loop);
    assert_int_equal(monitor->done, 1);
    hang_up(monitor);
    buffer_clear(&monitor->input);
    return &monitor->reply;
}

static inline void serve(struct monitor *monitor, const struct exchange *script, size_t length)
{
    monitor->script = script;
    monitor->script_length = length;
    assert_int_equal(listen(monitor->listener, 1), 0);
    loop_io_start(&monitor->loop, &monitor->accepting, monitor->listener, LOOP_READ, on_accepting);
}

/* Scripts */

#define GREETING                                                                                   \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}}}}\r\n"
#define OK         "{\"return\": {}, \"id\": \"$ID\"}\r\n"
#define LIST(list) "{\"id\": \"$ID\", \"return\": [" list "]}\r\n"
#define NODE(name, driver, file, size)                                                             \
    "{\"image\": {\"virtual-size\": " size "}, \"ro\": false, \"node-name\": \"" name              \
    "\", \"drv\": \"" driver "\", \"file\": \"" file "\"}"
#define ROOT(size)      NODE("drive-1", "raw", "$DEVICE", size)
#define PROTOCOL(size)  NODE("#block046", "host_device", "$DEVICE", size)
#define FRONTENDS(size) LIST("{\"device\": \"\", \"inserted\": " ROOT(size) "}")
#define NODES(size)     LIST(ROOT(size) ", " PROTOCOL(size))

static const struct exchange qmp_resize[] = {
    {"", GREETING},
    {"\"qmp_capabilities\"", OK},
    {"\"query-block\"", FRONTENDS("1024")},
    {"\"query-named-block-nodes\",\"arguments\":{\"flat\":true}", NODES("1024")},
    {"\"query-fdsets\"", LIST("")},
    {"\"block_resize\",\"arguments\":{\"node-name\":\"drive-1\",\"size\":2048}", OK},
    {"\"query-block\"", FRONTENDS("2048")},
};

#define HMP_GREETING "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) "

static inline bool without_device(const struct monitor *monitor)
{
    return !monitor->device[0];
}

#define scripted(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
