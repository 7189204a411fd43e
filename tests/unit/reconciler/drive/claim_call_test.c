/* SPDX-License-Identifier: Apache-2.0 */
/* claim_call_test.c - the disk is opened in a worker, whatever becomes of that. In place of
 * claim.c stands an open that does as it is asked. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/workers.h"
#include "reconciler/drive/claim.h"
#include "tests/unit/scratch.h"

static struct made {
    struct loop loop;
    struct loop_timer watchdog;
    int root, sysfs, file;
    char directory[SCRATCH_BYTES], name[SCRATCH_BYTES + 8];
    unsigned answers;
    struct drive_claim_reply reply;
    struct drive_claim_call call;
} * made;

/* The path says what happens. */
int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error)
{
    struct stat root, sysfs, disk;

    if (strstr(request->host_path, "dead"))
        for (;;)
            (void)pause();
    if (strcmp(request->host_path, "/dev/crash") == 0)
        abort();
    if (strcmp(request->host_path, "/dev/taken") == 0) {
        ret_disk->minor = 9;
        return error_set(error, DRIVE_CLAIM_TAKEN, "%s is taken", request->host_path);
    }
    if (fstat(request->root, &root) < 0 || fstat(request->sysfs, &sysfs) < 0)
        return error_set_errno(error, -errno, "the directories");
    if (strcmp(request->host_path, "/dev/another") == 0)
        ret_disk->minor = 1;
    *ret_fd = openat(request->root, request->prefixes[0], O_RDONLY | O_CLOEXEC);
    if (fstat(*ret_fd, &disk) < 0)
        return error_set_errno(error, -errno, "the disk");
    ret_disk->kind = DEVICE_KIND_FILE;
    ret_disk->file_device = disk.st_dev;
    ret_disk->inode = disk.st_ino + ret_disk->minor;
    ret_disk->size_bytes = sysfs.st_ino;
    if (ret_backing)
        ret_backing->inode = root.st_ino + 1;
    return DRIVE_CLAIM_OPEN;
}

static void on_watchdog(struct loop_timer *timer)
{
    fail_msg("the loop hangs");
}

static int set_up(void **state)
{
    struct workers_status workers;

    made = calloc(1, sizeof(*made));
    assert_non_null(made);
    assert_int_equal(workers_fork_nursery(), 0);
    assert_int_equal(loop_init(&made->loop), 0);
    workers_start(&made->loop, NULL, NULL);
    for (workers.ready = 0; workers.ready == 0; workers_get_status(&workers))
        loop_run_once(&made->loop);
    loop_timer_start(&made->loop, &made->watchdog, 60 * NSEC_PER_SEC, on_watchdog);
    assert_int_equal(scratch_directory_make(made->directory), 0);
    made->root = open(made->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    made->sysfs = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(made->name, sizeof(made->name), "%s/disk", made->directory);
    made->file = open(made->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(made->root >= 0 && made->sysfs >= 0 && made->file >= 0);
    return 0;
}

static int tear_down(void **state)
{
    workers_stop();
    assert_int_equal(scratch_directory_remove(made->directory), 0);
    fd_close(made->root);
    fd_close(made->sysfs);
    fd_close(made->file);
    loop_timer_stop(&made->watchdog);
    loop_done(&made->loop);
    free(made);
    return 0;
}

static void on_done(struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    made->answers++;
    made->reply = *reply;
    reply->fd = -1;
    loop_stop(&made->loop);
}

static void begin(const char *path, bool keep, uint64_t patience_ns)
{
    const struct drive_claim_request request = {.root = made->root,
                                                .sysfs = made->sysfs,
                                                .host_path = path,
                                                .prefixes = {"disk"},
                                                .prefix_count = 1,
                                                .keep = keep};

    assert_int_equal(drive_claim_start(&made->call, &request, path, patience_ns, on_done), 0);
    assert_int_equal(made->answers, 0);
}

static void call(const char *path, bool keep)
{
    begin(path, keep, 60 * NSEC_PER_SEC);
    loop_run(&made->loop);
    assert_int_equal(made->answers, 1);
}

static void the_descriptor_comes_back(void **state)
{
    struct stat file, opened, directory;

    call("/dev/disk", true);
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_OPEN);
    assert_int_equal(fstat(made->file, &file), 0);
    assert_int_equal(fstat(made->reply.fd, &opened), 0);
    assert_int_equal(opened.st_ino, file.st_ino);
    assert_int_equal(fcntl(made->reply.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fstat(made->root, &directory), 0);
    assert_int_equal(made->reply.disk.inode, file.st_ino);
    assert_int_equal(made->reply.backing.inode, directory.st_ino + 1);
    assert_int_equal(fstat(made->sysfs, &directory), 0);
    assert_int_equal(made->reply.disk.size_bytes, directory.st_ino);
    fd_close(made->reply.fd);
}

/* A refusal comes with its text and disk, a crash is a failure, a disk that is only looked at is
 * closed, and a descriptor of another file than the reply names is refused. */
static void what_becomes_of_the_process_is_reported(void **state)
{
    static const struct {
        const char *path;
        bool keep;
        int outcome;
        const char *text;
    } cases[] = {
        {"/dev/disk", false, DRIVE_CLAIM_OPEN, ""},
        {"/dev/taken", true, DRIVE_CLAIM_TAKEN, "/dev/taken is taken"},
        {"/dev/crash", true, -EIO, "/dev/crash"},
        {"/dev/another", true, -EIO, "what is no reply"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        made->answers = 0;
        call(cases[i].path, cases[i].keep);
        assert_int_equal(made->reply.outcome, cases[i].outcome);
        assert_int_equal(made->reply.fd, -1);
        assert_non_null(strstr(made->reply.error.text, cases[i].text));
        assert_int_equal(made->reply.disk.minor == 9, cases[i].outcome == DRIVE_CLAIM_TAKEN);
    }
}

static int try_to_begin(const char *path)
{
    const struct drive_claim_request request = {
        .root = made->root, .sysfs = made->sysfs, .host_path = path, .keep = true};

    return drive_claim_start(&made->call, &request, path, 50 * NSEC_PER_MSEC, on_done);
}

static void let_it_hang(const char *path)
{
    assert_int_equal(try_to_begin(path), 0);
    loop_run(&made->loop);
    assert_int_equal(made->reply.outcome, DRIVE_CLAIM_HANGS);
    assert_non_null(strstr(made->reply.error.text, "cannot be opened"));
    assert_int_equal(made->reply.fd, -1);
    (void)usleep(1100000); /* without the loop, which would learn that it is dead */
}

/* The loop goes on, or its timer would not end the first. The next attempt is answered at once; one
 * for another disk begins. */
static void a_disk_is_not_opened_while_another_open_of_it_hangs(void **state)
{
    let_it_hang("/dev/dead");
    assert_int_equal(try_to_begin("/dev/dead"), CHILD_STILL_HANGS);
    assert_int_equal(try_to_begin("/dev/crash"), 0);
    loop_run(&made->loop);
    let_it_hang("/dev/dead"); /* it was dead by then */
}

/* Two nodes of one device. */
static void a_disk_that_hangs_is_known_by_its_number(void **state)
{
    char one[SCRATCH_BYTES + 16], other[SCRATCH_BYTES + 16];
    int r;

    (void)snprintf(one, sizeof(one), "%s.dead", made->name);
    (void)snprintf(other, sizeof(other), "%s.other", made->name);
    if (mknod(one, S_IFBLK | 0600, makedev(7, 4095)) < 0 ||
        mknod(other, S_IFBLK | 0600, makedev(7, 4095)) < 0)
        skip(); /* not root */
    let_it_hang(one + strlen(made->directory));
    r = try_to_begin(other + strlen(made->directory));
    assert_int_equal(r, CHILD_STILL_HANGS);
}

/* crustd has as many files open as it may. */
static void a_descriptor_that_cannot_be_taken_is_a_failure(void **state)
{
    struct rlimit before, none;

    begin("/dev/disk", true, 60 * NSEC_PER_SEC);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    loop_run(&made->loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(made->reply.outcome, -EIO);
    assert_int_equal(made->reply.fd, -1);
    assert_non_null(strstr(made->reply.error.text, "cannot be opened"));
}

#define CALL(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CALL(the_descriptor_comes_back),
        CALL(what_becomes_of_the_process_is_reported),
        CALL(a_disk_is_not_opened_while_another_open_of_it_hangs),
        CALL(a_disk_that_hangs_is_known_by_its_number),
        CALL(a_descriptor_that_cannot_be_taken_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
