/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_live.h - a real QEMU and a disk for it.
 *
 * One QEMU for all tests of a program, without an operating system, on which SCSI disks come and go
 * all the same. The disk is a loop device that the test opens with O_EXCL. Where QEMU is not
 * installed or no loop device can be made, live.qemu is 0.
 */
#pragma once

#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hypervisor/drive.h"
#include "hypervisor/qemu_hotplug_commands.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

#define QEMU "/usr/bin/qemu-system-x86_64"

enum { IMAGE_BYTES = 8 * 1024 * 1024, ATTEMPTS = 3000 };

struct live {
    char directory[SCRATCH_BYTES];
    int image, loop_device;
    char device[32], file[96], monitor[96];
    dev_t number;
    struct stat file_stat;
    int root;
    pid_t qemu;
    struct loop loop;
    struct hypervisor_drive_reply reply;
    struct hypervisor_drive_entry entries[8];
};

static struct live live;

/* ---- the disk ---- */

static int configure_loop(int control)
{
    struct loop_config config = {.fd = (unsigned)live.image,
                                 .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    struct stat st;

    for (unsigned attempt = 0; attempt < 100; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0)
            return -errno;
        (void)snprintf(live.device, sizeof(live.device), "/dev/loop%d", number);
        live.loop_device = open(live.device, O_RDWR | O_CLOEXEC);
        if (live.loop_device >= 0 && ioctl(live.loop_device, LOOP_CONFIGURE, &config) == 0)
            break;
        fd_close(take_fd(&live.loop_device)); /* somebody else was faster */
    }
    if (live.loop_device < 0 || fstat(live.loop_device, &st) < 0)
        return -EBUSY;
    live.number = st.st_rdev;
    return 0;
}

static bool make_disks(void)
{
    cleanup(fd_closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    cleanup(fd_closep) int file = -1;
    char image[96];

    if (control < 0 || scratch_directory_make(live.directory) < 0)
        return false;
    (void)snprintf(image, sizeof(image), "%s/image", live.directory);
    (void)snprintf(live.file, sizeof(live.file), "%s/file", live.directory);
    (void)snprintf(live.monitor, sizeof(live.monitor), "%s/q.sock", live.directory);
    live.image = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    file = open(live.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return ftruncate(live.image, IMAGE_BYTES) == 0 && ftruncate(file, IMAGE_BYTES) == 0 &&
           fstat(file, &live.file_stat) == 0 && configure_loop(control) == 0;
}

/* The claim that a mount, or another attach, would make. */
static int claim(int flags)
{
    int fd = open(live.device, flags | O_EXCL | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static void assert_claimed(void)
{
    assert_int_equal(claim(O_RDWR), -EBUSY);
}

static void assert_free(void)
{
    int fd = claim(O_RDWR);

    assert_true(fd >= 0);
    fd_close(fd);
}

/* ---- QEMU ---- */

static pid_t spawn(void)
{
    char chardev[160];
    char *const arguments[] = {
        (char[]){QEMU},
        (char[]){"-accel"},
        (char[]){"tcg"},
        (char[]){"-M"},
        (char[]){"q35"},
        (char[]){"-m"},
        (char[]){"64"},
        (char[]){"-nodefaults"},
        (char[]){"-display"},
        (char[]){"none"},
        (char[]){"-device"},
        (char[]){"pci-bridge,id=pci-bridge-0,chassis_nr=1"},
        (char[]){"-device"},
        (char[]){"virtio-scsi-pci,id=scsi0"},
        (char[]){"-chardev"},
        chardev,
        (char[]){"-mon"},
        (char[]){"chardev=q,mode=control"},
        NULL,
    };
    pid_t pid;

    (void)snprintf(chardev, sizeof(chardev), "socket,id=q,path=%s,server=on,wait=off",
                   live.monitor);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execv(QEMU, arguments);
        _exit(127);
    }
    return pid;
}

static int connect_to_monitor(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", live.monitor);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    fd_close(fd);
    return -1;
}

static bool wait_for_monitor(void)
{
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        int fd = connect_to_monitor();

        if (fd >= 0) {
            fd_close(fd);
            return true;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    return false;
}

static void end_qemu(void)
{
    if (live.qemu <= 0)
        return;
    (void)kill(live.qemu, SIGKILL);
    (void)waitpid(live.qemu, NULL, 0);
    live.qemu = 0;
}

static void start_qemu(void)
{
    (void)unlink(live.monitor);
    live.qemu = spawn();
    assert_true(wait_for_monitor());
}

static int set_up(void **state)
{
    (void)state;
    live.image = live.loop_device = -1;
    assert_int_equal(loop_init(&live.loop), 0);
    assert_int_equal(path_open_root("/", &live.root), 0);
    if (access(QEMU, X_OK) < 0) {
        print_message("skipped: %s is not installed\n", QEMU);
    } else if (!make_disks()) {
        print_message("skipped: no loop devices can be made here\n");
    } else {
        start_qemu();
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_qemu();
    fd_close(live.loop_device);
    fd_close(live.image);
    fd_close(live.root);
    loop_done(&live.loop);
    return live.directory[0] ? scratch_directory_remove(live.directory) : 0;
}

/* ---- a conversation by hand ---- */

/* Sends one line and returns the answer with the line's id, which is "t". */
static void say(int monitor, const char *command, char *answer, size_t size)
{
    char text[16384];
    size_t length = 0;

    assert_true(write(monitor, command, strlen(command)) == (ssize_t)strlen(command));
    for (;;) {
        char *start = text, *line_end;
        ssize_t count = read(monitor, text + length, sizeof(text) - 1 - length);

        assert_true(count > 0);
        length += (size_t)count;
        text[length] = '\0';
        for (; (line_end = strchr(start, '\n')); start = line_end + 1) {
            *line_end = '\0';
            if (strstr(start, "\"id\": \"t\"")) {
                (void)snprintf(answer, size, "%s", start);
                return;
            }
        }
        length = strlen(start);
        memmove(text, start, length + 1);
    }
}

/* What QEMU answers to a command of ours. */
static const char *by_hand(const char *command)
{
    static char answer[16384];
    cleanup(fd_closep) int monitor = connect_to_monitor();
    char line[512];

    assert_true(monitor >= 0);
    say(monitor, "{\"execute\": \"qmp_capabilities\", \"id\": \"t\"}\n", answer, sizeof(answer));
    (void)snprintf(line, sizeof(line), "{%s, \"id\": \"t\"}\n", command);
    say(monitor, line, answer, sizeof(answer));
    return answer;
}

/* Nothing of crustd's is in QEMU. */
static void assert_nothing_left(void)
{
    assert_null(strstr(by_hand("\"execute\": \"query-fdsets\""), "crust"));
    assert_null(strstr(by_hand("\"execute\": \"query-named-block-nodes\""), "crust"));
    assert_null(strstr(
        by_hand("\"execute\": \"qom-list\", \"arguments\": {\"path\": \"/objects\"}"), "crust"));
    assert_null(strstr(by_hand("\"execute\": \"qom-list\", "
                               "\"arguments\": {\"path\": \"/machine/peripheral\"}"),
                       "crust"));
}

/* ---- calls ---- */

static void on_done(struct hypervisor_drive_call *call, const struct hypervisor_drive_reply *reply,
                    void *userdata)
{
    (void)userdata;
    live.reply = *reply;
    assert_true(reply->entry_count <= array_length(live.entries));
    if (reply->entry_count)
        memcpy(live.entries, reply->entries, reply->entry_count * sizeof(*reply->entries));
    (void)hypervisor_drive_call_free(call);
    loop_stop(&live.loop);
}

static struct hypervisor_drive_request request_for(enum hypervisor_drive_act act, const char *id)
{
    return (struct hypervisor_drive_request){
        .act = act,
        .root = live.root,
        .control_socket = live.monitor,
        .vmm_pid = live.qemu,
        .drive_id = id,
        .descriptor = -1,
        .disk = {.device = live.number},
        .serial = "crust-abcdefghijklmn",
        .removal_ns = 20 * NSEC_PER_SEC,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static void ask(const struct hypervisor_drive_request *request,
                enum hypervisor_drive_outcome outcome, enum hypervisor_drive_state expected)
{
    struct hypervisor_drive_call *call;
    struct error error;

    assert_int_equal(hypervisor_drive_call_new(&live.loop, HYPERVISOR_QEMU, request, on_done, NULL,
                                               &call, &error),
                     0);
    loop_run(&live.loop);
    if (live.reply.outcome != outcome)
        print_error("%s: %s\n", request->drive_id ? request->drive_id : "list",
                    live.reply.error.text);
    assert_int_equal(live.reply.outcome, outcome);
    assert_int_equal(live.reply.state, expected);
}

static void attach(const char *id)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, id);

    request.descriptor = claim(O_RDWR);
    assert_true(request.descriptor >= 0);
    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT);
    fd_close(request.descriptor);
}

static void detach(const char *id)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_DETACH, id);

    ask(&request, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT);
}
