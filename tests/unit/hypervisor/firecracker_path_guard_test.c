/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_path_guard_test.c - a Firecracker that names a path in a file system of its own.
 *
 * The VMM is a child with a mount namespace of its own, in which nobody serves a FUSE file system:
 * whoever looks up a name there waits for ever, so the test would be ended by its alarm. */
#include "tests/unit/hypervisor/http_call.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

enum { SECONDS = 60 };

static char serial[2][HYPERVISOR_DRIVE_SERIAL_BYTES];

static void be_vmm(const char *directory, int ready)
{
    const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char path[128], options[96];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(path, sizeof(path), "%s/plain", directory);
    if (open(path, O_RDONLY | O_CLOEXEC) < 0)
        _exit(1);
    (void)snprintf(path, sizeof(path), "%s/hung", directory);
    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("hung", path, "fuse", 0, options) < 0)
        _exit(1);
    (void)!write(ready, "", 1);
    for (;;)
        pause();
}

static pid_t start_vmm(const struct http_server *server)
{
    int ends[2];
    pid_t child;
    char byte;
    ssize_t count;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_vmm(server->directory, ends[1]);
    fd_close(ends[1]);
    count = read(ends[0], &byte, 1);
    fd_close(ends[0]);
    if (count == 1)
        return child;
    assert_int_equal(waitpid(child, NULL, 0), child);
    skip(); /* mounting is not allowed here */
    return -1;
}

static void list(struct http_server *server, pid_t vmm)
{
    char answer[512];
    const struct http_script script = {"GET /vm/config HTTP/1.1\r\n", answer};
    const struct hypervisor_request request = {
        .act = HYPERVISOR_LIST,
        .root = server->root,
        .control_socket = server->path,
        .vmm_pid = vmm, /* whose parent listens */
        .descriptor = -1,
        .allowed_ns = SECONDS * NSEC_PER_SEC,
    };
    struct hypervisor_reply reply = {.entry_count = 0};
    struct http_play *play;

    (void)snprintf(answer, sizeof(answer),
                   "HTTP/1.1 200 \r\nConnection: close\r\n\r\n{\"drives\":["
                   "{\"drive_id\":\"crust_a\",\"path_on_host\":\"%s/plain\"},"
                   "{\"drive_id\":\"crust_b\",\"path_on_host\":\"%s/hung/disk\"}]}",
                   server->directory, server->directory);
    play = http_play_start(server, &script, 1);
    firecracker_act(&request, clock_boottime() + request.allowed_ns, &reply);
    assert_int_equal(http_play_end(play), 1);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.entry_count, array_length(serial));
    for (size_t i = 0; i < array_length(serial); i++)
        memcpy(serial[i], reply.entries[i].serial, sizeof(serial[i]));
    free((void *)(uintptr_t)reply.entries);
}

static void make_places(const struct http_server *server)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/hung", server->directory);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s/plain", server->directory);
    fd_close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void a_serial_is_not_looked_for_in_a_mount_that_may_hang(void **state)
{
    struct http_server *server = *state;
    pid_t vmm;

    make_places(server);
    vmm = start_vmm(server);
    (void)alarm(SECONDS);
    list(server, vmm);
    (void)alarm(0);
    assert_string_not_equal(serial[0], "");
    assert_string_equal(serial[1], "");
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_serial_is_not_looked_for_in_a_mount_that_may_hang,
                                        http_server_set_up, http_server_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
