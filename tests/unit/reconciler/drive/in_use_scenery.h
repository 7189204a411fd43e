/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_scenery.h - one search for the users of a disk, over a store and this machine's processes.
 */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/claim.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/store/fixture.h"

struct search_fixture {
    char directory[SCRATCH_BYTES];
    struct loop loop;
    struct loop_timer watchdog;
    struct context context;
    struct loop_volume volume;
    char path[SCRATCH_BYTES + 16];         /* of a file that nobody has open */
    struct store_drive_mount_disk disk;    /* which it is */
    struct store_drive_mount_disk backing; /* only if a test asks for it */
    struct drive_in_use_request request;   /* of a writer, for that disk */
    pid_t holder;
    struct config config;
    struct drive_in_use_call call;
    unsigned done;
    struct drive_in_use_reply reply;
};

static struct search_fixture *fixture;

static void on_watchdog(struct loop_timer *timer)
{
    fail_msg("the search does not end");
}

static void make_file(const char *path)
{
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    fd_close(fd);
}

static struct store_drive_mount_disk disk_of(const char *path)
{
    struct store_drive_mount_disk disk = {.kind = DEVICE_KIND_FILE};
    struct stat status;

    assert_int_equal(stat(path, &status), 0);
    if (S_ISBLK(status.st_mode)) {
        disk.kind = DEVICE_KIND_BLOCK;
        disk.major = major(status.st_rdev);
        disk.minor = minor(status.st_rdev);
    } else {
        disk.file_device = status.st_dev;
        disk.inode = status.st_ino;
    }
    return disk;
}

static int set_up(void **state)
{
    int root;

    fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    (void)snprintf(fixture->path, sizeof(fixture->path), "%s/disk.img", fixture->directory);
    make_file(fixture->path);
    fixture->disk = disk_of(fixture->path);
    fixture->request = (struct drive_in_use_request){.disk = &fixture->disk, .writable = true};
    assert_int_equal(loop_init(&fixture->loop), 0);
    fixture->context.loop = &fixture->loop;
    fixture->context.config = &fixture->config;
    fixture->context.store = fixture_open(NULL, "boot-1");
    assert_int_equal(path_open_root("/", &root), 0);
    assert_int_equal(observe_open_sysfs(root, "/sys", &fixture->context.sysfs), 0);
    fd_close(root);
    fixture->volume.loop = -1;
    loop_timer_start(&fixture->loop, &fixture->watchdog, 120 * NSEC_PER_SEC, on_watchdog);
    assert_int_equal(store_begin(fixture->context.store), 0);
    return 0;
}

static int tear_down(void **state)
{
    int r;

    if (fixture->holder > 0)
        (void)kill(fixture->holder, SIGKILL);
    if (fixture->volume.loop >= 0)
        (void)ioctl(fixture->volume.loop, LOOP_CLR_FD);
    fd_close(fixture->volume.loop);
    loop_timer_stop(&fixture->watchdog);
    store_close(fixture->context.store);
    fd_close(fixture->context.sysfs);
    loop_done(&fixture->loop);
    r = scratch_directory_remove(fixture->directory);
    free(fixture);
    return r;
}

/* ---- the search ----------------------------------------------------------------------------- */

static struct job *started;

/* The search is done in this process, whose rights and readers are the test's. */
static void on_start(struct loop_timer *timer)
{
    cleanup(buffer_done) struct buffer reply = BUFFER_INIT(JOB_REPLY_BYTES);
    const struct job_input input = {.request = started->message,
                                    .length = started->request.length,
                                    .fds = {started->request.fds[0], -1}};
    struct job *job = started;

    started->request.act(&input, &reply);
    job_cancel(job);
    job->request.done(job, JOB_ANSWERED, reply.data, reply.length);
}

int job_start(struct job *job, const struct job_request *request)
{
    started = job;
    job->request = *request;
    job->message = malloc(request->length);
    assert_non_null(job->message);
    memcpy(job->message, request->data, request->length);
    loop_timer_start(&fixture->loop, &job->deadline, 0, on_start);
    return 0;
}

void job_cancel(struct job *job)
{
    loop_timer_stop(&job->deadline);
    free(take_pointer(&job->message));
}

pid_t workers_parent(void)
{
    return 0;
}

static void on_done(struct drive_in_use_call *call, const struct drive_in_use_reply *reply)
{
    fixture->done++;
    fixture->reply = *reply;
    loop_stop(&fixture->loop);
}

static void search(void)
{
    if (!namespaces_show_all_processes())
        skip();
    fixture->done = 0;
    drive_in_use_start(&fixture->call, &fixture->context, &fixture->request, on_done);
    if (!fixture->done)
        loop_run(&fixture->loop);
    assert_int_equal(fixture->done, 1);
}

static void expect_free(void)
{
    search();
    if (fixture->reply.outcome != DRIVE_IN_USE_NOT)
        fail_msg("in use: %s", fixture->reply.error.text);
}

static void expect_used(const char *who, const char *access)
{
    search();
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_OTHERS);
    if (!strstr(fixture->reply.error.text, who) || !strstr(fixture->reply.error.text, access))
        fail_msg("\"%s\" says nothing of \"%s\", %s", fixture->reply.error.text, who, access);
}

static inline void expect_outcome(enum drive_in_use_outcome outcome, const char *text)
{
    search();
    assert_int_equal(fixture->reply.outcome, outcome);
    if (!strstr(fixture->reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fixture->reply.error.text, text);
}

#define SEARCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
