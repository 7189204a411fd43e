/* SPDX-License-Identifier: Apache-2.0 */
/* claim_call_test.c - the disk is opened in another process, whatever becomes of that. In place of
 * claim.c stands an open that does as it is asked. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path_guard.h"
#include "reconciler/drive/claim_call.h"
#include "tests/unit/scratch.h"

struct made {
    struct loop loop;
    struct loop_timer watchdog;
    int root, sysfs, file;
    char directory[SCRATCH_BYTES], name[SCRATCH_BYTES + 8];
    unsigned answers;
    struct drive_claim_reply reply;
};

/* While it is deaf, the kernel holds every process that is killed. */
static bool deaf;
static pid_t held;

/* In place of the C library's. */
int kill(pid_t pid, int number)
{
    if (!deaf)
        return (int)syscall(SYS_kill, pid, number);
    held = -pid;
    return 0;
}

/* A writer of the FIFO, once the file is there no more. */
static int claim_late(const struct drive_claim_request *request)
{
    char fifo[64];

    (void)snprintf(fifo, sizeof(fifo), "%s.fifo", request->prefixes[0]);
    while (faccessat(request->root, request->prefixes[0], F_OK, 0) == 0)
        (void)usleep(1000);
    return openat(request->root, fifo, O_WRONLY | O_CLOEXEC);
}

/* The path says what happens. */
int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error)
{
    struct stat root, sysfs;

    if (strstr(request->host_path, "dead"))
        for (;;)
            (void)pause();
    if (strcmp(request->host_path, "/dev/crash") == 0)
        abort();
    if (strcmp(request->host_path, "/dev/taken") == 0) {
        ret_disk->minor = 9;
        return error_set(error, DRIVE_CLAIM_TAKEN, "%s is taken", request->host_path);
    }
    if (strcmp(request->host_path, "/dev/on-a-mount") == 0 &&
        path_guard_check(request->sysfs, "/proc/self") < 0)
        return error_set(error, DRIVE_CLAIM_MISSING, "/proc may hang");
    if (fstat(request->root, &root) < 0 || fstat(request->sysfs, &sysfs) < 0)
        return error_set_errno(error, -errno, "the directories");
    if (strcmp(request->host_path, "/dev/late") == 0) {
        *ret_fd = claim_late(request);
        return DRIVE_CLAIM_OPEN;
    }
    *ret_fd = openat(request->root, request->prefixes[0], O_RDONLY | O_CLOEXEC);
    ret_disk->inode = root.st_ino;
    ret_disk->file_device = sysfs.st_ino;
    if (ret_backing)
        ret_backing->inode = root.st_ino + 1;
    return DRIVE_CLAIM_OPEN;
}

static void on_watchdog(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("the loop hangs");
}

static int set_up(void **state)
{
    struct made *made = calloc(1, sizeof(*made));

    assert_non_null(made);
    assert_int_equal(loop_init(&made->loop), 0);
    loop_timer_start(&made->loop, &made->watchdog, 60 * NSEC_PER_SEC, on_watchdog);
    assert_int_equal(scratch_directory_make(made->directory), 0);
    made->root = open(made->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    made->sysfs = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(made->name, sizeof(made->name), "%s/disk", made->directory);
    made->file = open(made->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(made->root >= 0 && made->sysfs >= 0 && made->file >= 0);
    *state = made;
    return 0;
}

/* A process that has answered ends soon; then nobody is left, not even a zombie. */
static void wait_for_children(struct loop *loop)
{
    siginfo_t child;

    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0)
        loop_run_once(loop);
}

static int tear_down(void **state)
{
    struct made *made = *state;

    wait_for_children(&made->loop);
    assert_int_equal(scratch_directory_remove(made->directory), 0);
    fd_close(made->root);
    fd_close(made->sysfs);
    fd_close(made->file);
    loop_timer_stop(&made->watchdog);
    loop_done(&made->loop);
    free(made);
    return 0;
}

static void on_done(struct drive_claim_call *call, struct drive_claim_reply *reply, void *userdata)
{
    struct made *made = userdata;

    (void)call;
    made->answers++;
    made->reply = *reply;
    reply->fd = -1;
    loop_stop(&made->loop);
}

static struct drive_claim_call *begin(struct made *made, const char *path, bool keep,
                                      uint64_t patience_ns)
{
    const char *const prefixes[] = {"disk"};
    const struct drive_claim_request request = {.root = made->root,
                                                .sysfs = made->sysfs,
                                                .host_path = path,
                                                .prefixes = prefixes,
                                                .prefix_count = 1};
    struct drive_claim_call *call;

    assert_int_equal(
        drive_claim_call_new(&made->loop, &request, keep, patience_ns, on_done, made, &call), 0);
    assert_int_equal(made->answers, 0);
    return call;
}

static struct drive_claim_call *call(struct made *made, const char *path, bool keep)
{
    struct drive_claim_call *begun = begin(made, path, keep, 60 * NSEC_PER_SEC);

    loop_run(&made->loop);
    assert_int_equal(made->answers, 1);
    return begun;
}

static void the_descriptor_comes_back(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = call(made, "/dev/disk", true);
    struct stat file, opened, directory;

    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_OPEN);
    assert_int_equal(fstat(made->file, &file), 0);
    assert_int_equal(fstat(made->reply.fd, &opened), 0);
    assert_int_equal(opened.st_ino, file.st_ino);
    assert_int_equal(fcntl(made->reply.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fstat(made->root, &directory), 0);
    assert_int_equal(made->reply.disk.inode, directory.st_ino);
    assert_int_equal(made->reply.backing.inode, directory.st_ino + 1);
    assert_int_equal(fstat(made->sysfs, &directory), 0);
    assert_int_equal(made->reply.disk.file_device, directory.st_ino);
    fd_close(made->reply.fd);
    assert_null(drive_claim_call_free(begun));
}

/* The guard's descriptor stays behind in crustd. */
static void paths_on_a_mount_are_not_refused(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun;

    assert_int_equal(path_guard_start(made->sysfs, NULL, 0), 0);
    begun = call(made, "/dev/on-a-mount", false);
    path_guard_stop();
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_OPEN);
    (void)drive_claim_call_free(begun);
}

static void a_disk_that_is_only_looked_at_is_closed(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = call(made, "/dev/disk", false);

    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_OPEN);
    assert_int_equal(made->reply.fd, -1);
    (void)drive_claim_call_free(begun);
}

static void a_refusal_comes_with_its_text_and_disk(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = call(made, "/dev/taken", true);

    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_TAKEN);
    assert_int_equal(made->reply.disk.minor, 9);
    assert_string_equal(made->reply.error.text, "/dev/taken is taken");
    assert_int_equal(made->reply.fd, -1);
    (void)drive_claim_call_free(begun);
}

static void a_process_that_crashes_is_a_failure(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = call(made, "/dev/crash", true);

    assert_int_equal(made->reply.outcome, -EIO);
    assert_non_null(strstr(made->reply.error.text, "/dev/crash"));
    (void)drive_claim_call_free(begun);
}

/* The loop goes on, or its timer would not end this. */
static void an_open_that_hangs_is_waited_for_no_longer(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = begin(made, "/dev/dead", true, 50 * NSEC_PER_MSEC);

    loop_run(&made->loop);
    assert_int_equal(made->answers, 1);
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_HANGS);
    assert_non_null(strstr(made->reply.error.text, "/dev/dead cannot be opened"));
    assert_int_equal(made->reply.fd, -1);
    (void)drive_claim_call_free(begun);
}

/* It has hung for too long, and then the storage answers. */
static void a_claim_that_succeeds_too_late_is_given_up(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun;
    struct pollfd fifo = {.events = POLLIN};
    char name[SCRATCH_BYTES + 16];

    (void)snprintf(name, sizeof(name), "%s.fifo", made->name);
    assert_int_equal(mkfifo(name, 0600), 0);
    fifo.fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fifo.fd >= 0);
    deaf = true;
    begun = begin(made, "/dev/late", true, 50 * NSEC_PER_MSEC);
    loop_run(&made->loop);
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_HANGS);
    deaf = false;
    (void)unlink(made->name);
    assert_int_equal(waitpid(held, NULL, 0), held); /* it has opened it, and is over */
    assert_int_equal(poll(&fifo, 1, 0), 1);
    assert_int_equal(fifo.revents, POLLHUP); /* there was a writer, and there is none */
    (void)drive_claim_call_free(begun);
    fd_close(fifo.fd);
    (void)unlink(name);
}

static int try_to_begin(struct made *made, const char *path, struct drive_claim_call **ret_call)
{
    const struct drive_claim_request request = {
        .root = made->root, .sysfs = made->sysfs, .host_path = path};

    return drive_claim_call_new(&made->loop, &request, true, 50 * NSEC_PER_MSEC, on_done, made,
                                ret_call);
}

static void let_it_hang(struct made *made, const char *path)
{
    struct drive_claim_call *begun;

    deaf = true;
    assert_int_equal(try_to_begin(made, path, &begun), 0);
    loop_run(&made->loop);
    deaf = false;
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_HANGS);
    (void)drive_claim_call_free(begun);
}

static void end_held(void)
{
    assert_int_equal(syscall(SYS_kill, held, SIGKILL), 0);
    assert_int_equal(waitpid(held, NULL, 0), held);
}

/* The next attempt is answered at once; one for another disk begins. */
static void a_disk_is_not_opened_while_another_open_of_it_hangs(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *second;

    let_it_hang(made, "/dev/dead");
    assert_int_equal(try_to_begin(made, "/dev/dead", &second), CHILD_STILL_HANGS);
    assert_int_equal(try_to_begin(made, "/dev/crash", &second), 0);
    loop_run(&made->loop);
    (void)drive_claim_call_free(second);
    end_held();
}

/* Two nodes of one device. */
static void a_disk_that_hangs_is_known_by_its_number(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *second = NULL;
    char one[SCRATCH_BYTES + 16], other[SCRATCH_BYTES + 16];
    int r;

    (void)snprintf(one, sizeof(one), "%s.dead", made->name);
    (void)snprintf(other, sizeof(other), "%s.other", made->name);
    if (mknod(one, S_IFBLK | 0600, makedev(7, 4095)) < 0 ||
        mknod(other, S_IFBLK | 0600, makedev(7, 4095)) < 0)
        skip(); /* not root */
    let_it_hang(made, one + strlen(made->directory));
    r = try_to_begin(made, other + strlen(made->directory), &second);
    end_held();
    assert_int_equal(r, CHILD_STILL_HANGS);
}

/* crustd has as many files open as it may. */
static void a_descriptor_that_cannot_be_taken_is_a_failure(void **state)
{
    struct made *made = *state;
    struct drive_claim_call *begun = begin(made, "/dev/disk", true, 60 * NSEC_PER_SEC);
    struct rlimit before, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    loop_run(&made->loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(made->reply.outcome, -EMFILE);
    assert_int_equal(made->reply.fd, -1);
    assert_non_null(strstr(made->reply.error.text, "crustd cannot take it"));
    (void)drive_claim_call_free(begun);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_descriptor_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(paths_on_a_mount_are_not_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_is_only_looked_at_is_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_comes_with_its_text_and_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_process_that_crashes_is_a_failure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_open_that_hangs_is_waited_for_no_longer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_claim_that_succeeds_too_late_is_given_up, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_disk_is_not_opened_while_another_open_of_it_hangs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs_is_known_by_its_number, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_that_cannot_be_taken_is_a_failure, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
