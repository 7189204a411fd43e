/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_monitor.h - calls of the acts upon QEMU, against a scripted monitor in a child.
 *
 * The monitor expects commands in an order and answers from the script, whole or byte by byte. It
 * never holds a device: paths and descriptors are resolved through this process.
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
#include <sys/wait.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

/* MISMATCH: the child's exit code; otherwise that is the number of entries that were met. */
enum { NEVER = 99, MISMATCH = 100, PATIENCE_MS = 10000 };

/* What is expected to be in a command, and the answer: $ID is the command's id, $DEVICE a path, $FD
 * a descriptor. The first entry is the greeting; an answer of NULL hangs up, of "" is none. */
struct exchange {
    const char *expect;
    const char *answer;
};

#define STATUS(status, running)                                                                    \
    "{\"return\": {\"status\": \"" status "\", \"running\": " running "}, \"id\": \"$ID\"}\r\n"

struct monitor {
    char directory[SCRATCH_BYTES];
    char path[96];
    char device[280];
    dev_t device_number;
    int root, listener;
    int disk; /* a regular file */
    struct stat disk_status;
    const struct exchange *script;
    size_t length;
    const char *status; /* the answer to query-status, which no script has; NULL: running */
    bool bytewise;
    unsigned deadline_ms;
    unsigned met; /* entries of the script */
    pid_t child;
    struct hypervisor_reply reply;
};

/* ---- the child ---- */

static inline void say(const struct monitor *monitor, int client, const char *answer,
                       const char *id)
{
    cleanup(buffer_done) struct buffer output = BUFFER_INIT(0);
    size_t step;

    while (*answer) {
        size_t plain = strcspn(answer, "$");

        (void)buffer_append(&output, answer, plain);
        answer += plain;
        if (strncmp(answer, "$ID", 3) == 0)
            (void)buffer_append_text(&output, id);
        else if (strncmp(answer, "$FD", 3) == 0)
            (void)buffer_append_format(&output, "%d", monitor->disk);
        else if (strncmp(answer, "$DEVICE", 7) == 0)
            (void)buffer_append_text(&output, monitor->device);
        answer += *answer ? strspn(answer + 1, "IDEVCF") + 1 : 0;
    }
    step = monitor->bytewise ? 1 : output.length;
    for (size_t at = 0; at < output.length; at += step)
        if (send(client, output.data + at, step, MSG_NOSIGNAL) < 0)
            return;
}

/* Whether a command is as the script's entry expects; a disk comes with the one that adds it. */
static inline void check(const struct monitor *monitor, size_t position, const char *command,
                         int passed)
{
    struct stat status;

    if (position >= monitor->length || !strstr(command, monitor->script[position].expect)) {
        print_error("not expected at %zu: %s\n", position, command);
        _exit(MISMATCH);
    }
    if (strstr(command, "\"add-fd\"") &&
        (fstat(passed, &status) < 0 || status.st_ino != monitor->disk_status.st_ino)) {
        print_error("the disk was not passed\n");
        _exit(MISMATCH);
    }
}

static inline void answer(const struct monitor *monitor, int client, const char *command,
                          int passed, size_t *position)
{
    const char *start = command;
    char id[32] = "";

    for (const char *next = command; (next = strstr(next, "\"id\":\"")); next++)
        start = next; /* the last one is the command's */
    if (*start)
        (void)snprintf(id, sizeof(id), "%.*s", (int)strcspn(start + 6, "\""), start + 6);
    if (strstr(command, "\"query-status\"")) {
        say(monitor, client, monitor->status ? monitor->status : STATUS("running", "true"), id);
        return;
    }
    check(monitor, *position, command, passed);
    if (!monitor->script[*position].answer)
        _exit((int)*position);
    say(monitor, client, monitor->script[(*position)++].answer, id);
}

static inline _Noreturn void play(const struct monitor *monitor)
{
    int client = accept(monitor->listener, NULL, NULL), passed = -1;
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(0);
    size_t position = 0;

    (void)alarm(PATIENCE_MS / 1000);
    answer(monitor, client, "", -1, &position);
    for (;;) {
        char bytes[4096], control[CMSG_SPACE(sizeof(int))];
        struct iovec piece = {bytes, sizeof(bytes)};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        ssize_t count = recvmsg(client, &message, 0);

        if (count <= 0)
            _exit((int)position);
        if (CMSG_FIRSTHDR(&message))
            memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(passed));
        (void)buffer_append(&input, bytes, (size_t)count);
        for (char *end; input.length && (end = strchr(input.data, '\n'));) {
            *end = '\0';
            answer(monitor, client, input.data, passed, &position);
            buffer_consume(&input, (size_t)(end + 1 - input.data));
        }
    }
}

/* ---- the calls ---- */

static inline void begin(struct monitor *monitor, const struct exchange *script, size_t length)
{
    monitor->script = script;
    monitor->length = length;
    assert_int_equal(listen(monitor->listener, 1), 0);
    monitor->child = fork();
    assert_true(monitor->child >= 0);
    if (monitor->child == 0)
        play(monitor);
}

static inline void end(struct monitor *monitor)
{
    int status;

    assert_int_equal(waitpid(monitor->child, &status, 0), monitor->child);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), MISMATCH);
    monitor->met = (unsigned)WEXITSTATUS(status);
}

static inline uint64_t deadline_of(const struct monitor *monitor)
{
    return clock_boottime() + monitor->deadline_ms * NSEC_PER_MSEC;
}

static inline struct hypervisor_request request_for(const struct monitor *monitor,
                                                    enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = monitor->root,
        .control_socket = monitor->path,
        .vmm_pid = getpid(),
        .disk = {.device = monitor->device_number},
        .bytes = 2048,
    };
}

static inline const struct hypervisor_reply *call(struct monitor *monitor,
                                                  const struct hypervisor_request *request,
                                                  const struct exchange *script, size_t length)
{
    monitor->reply = (struct hypervisor_reply){.bytes = 0};
    begin(monitor, script, length);
    qemu_act(request, deadline_of(monitor), &monitor->reply);
    end(monitor);
    assert_true((monitor->reply.outcome == HYPERVISOR_DONE) == !monitor->reply.error.text[0]);
    return &monitor->reply;
}

static inline struct hypervisor_request drive_request_for(const struct monitor *monitor,
                                                          enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = monitor->root,
        .control_socket = monitor->path,
        .vmm_pid = getpid(),
        .drive_id = "data-1",
        .disk = {.regular_file = true,
                 .device = monitor->disk_status.st_dev,
                 .inode = monitor->disk_status.st_ino},
        .bytes = 2048,
        .descriptor = monitor->disk,
        .serial = "serial-1",
        .removal_ns = 30 * NSEC_PER_MSEC,
    };
}

/* ---- scenery ---- */

/* Any block device will do: only its number is ever looked at. */
static inline void find_device(struct monitor *monitor)
{
    cleanup(dir_closep) DIR *directory = opendir("/dev");
    struct dirent *entry;
    struct stat st;

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
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char disk[96];

    monitor = (struct monitor){.deadline_ms = PATIENCE_MS};
    assert_int_equal(scratch_directory_make(monitor.directory), 0);
    (void)snprintf(monitor.path, sizeof(monitor.path), "%s/monitor.sock", monitor.directory);
    (void)snprintf(disk, sizeof(disk), "%s/disk", monitor.directory);
    find_device(&monitor);
    assert_int_equal(path_open_root("/", &monitor.root), 0);
    monitor.disk = open(disk, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(fstat(monitor.disk, &monitor.disk_status), 0);
    monitor.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", monitor.path);
    assert_int_equal(bind(monitor.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    *state = &monitor;
    return 0;
}

static inline int tear_down(void **state)
{
    struct monitor *monitor = *state;

    fd_close(monitor->listener);
    fd_close(monitor->disk);
    fd_close(monitor->root);
    return scratch_directory_remove(monitor->directory);
}

#define GREETING                                                                                   \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}}}}\r\n"
#define OK    "{\"return\": {}, \"id\": \"$ID\"}\r\n"
#define EVENT "{\"event\": \"DEVICE_DELETED\"}\r\n"
#define REFUSE(why)                                                                                \
    "{\"error\": {\"class\": \"GenericError\", \"desc\": \"" why "\"}, \"id\": \"$ID\"}\r\n"
#define LIST(list) "{\"id\": \"$ID\", \"return\": [" list "]}\r\n"
#define NODE(name, driver, file, size)                                                             \
    "{\"image\": {\"virtual-size\": " size "}, \"ro\": false, \"node-name\": \"" name              \
    "\", \"drv\": \"" driver "\", \"file\": \"" file "\"}"
#define ANY                                                                                        \
    {                                                                                              \
        "", ""                                                                                     \
    } /* and no answer */
#define NEGOTIATED                                                                                 \
    {"", GREETING},                                                                                \
    {                                                                                              \
        "\"qmp_capabilities\"", OK                                                                 \
    }
#define CALL(request, script) call(monitor, request, script, array_length(script))

#define scripted(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
