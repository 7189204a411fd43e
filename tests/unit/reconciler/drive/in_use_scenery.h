/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_scenery.h - one search for the users of a disk, over a store and this machine's processes.
 */
#pragma once

#include <signal.h>
#include <sys/prctl.h>

#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/process_trust.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/in_use.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/store/fixture.h"

struct search_fixture {
    char directory[SCRATCH_BYTES];
    struct loop loop;
    struct loop_timer watchdog;
    struct context context;
    struct loop_volume volume;
    pid_t holder;
    unsigned done;
    struct drive_in_use_reply reply;
};

static void on_watchdog(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("the search does not end");
}

static int set_up(void **state)
{
    struct search_fixture *fixture = calloc(1, sizeof(*fixture));
    int root;

    assert_non_null(fixture);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(loop_init(&fixture->loop), 0);
    fixture->context.loop = &fixture->loop;
    fixture->context.store = fixture_open(NULL, "boot-1");
    assert_int_equal(path_open_root("/", &root), 0);
    assert_int_equal(observe_open_sysfs(root, "/sys", &fixture->context.sysfs), 0);
    fd_close(root);
    fixture->volume.loop = -1;
    loop_timer_start(&fixture->loop, &fixture->watchdog, 120 * NSEC_PER_SEC, on_watchdog);
    assert_int_equal(store_begin(fixture->context.store), 0);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct search_fixture *fixture = *state;
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

static void on_done(struct drive_in_use_call *call, const struct drive_in_use_reply *reply,
                    void *userdata)
{
    struct search_fixture *fixture = userdata;

    fixture->done++;
    fixture->reply = *reply;
    (void)drive_in_use_call_free(call);
    loop_stop(&fixture->loop);
}

static void search(struct search_fixture *fixture, const struct drive_in_use_request *request)
{
    struct drive_in_use_call *call;

    if (!namespaces_show_all_processes())
        skip();
    fixture->done = 0;
    assert_int_equal(drive_in_use_call_new(&fixture->context, request, on_done, fixture, &call), 0);
    assert_int_equal(fixture->done, 0);
    loop_run(&fixture->loop);
    assert_int_equal(fixture->done, 1);
}

static void expect_free(struct search_fixture *fixture, const struct drive_in_use_request *request)
{
    search(fixture, request);
    if (fixture->reply.outcome != DRIVE_IN_USE_NOT)
        fail_msg("in use: %s", fixture->reply.error.text);
}

static void expect_used(struct search_fixture *fixture, const struct drive_in_use_request *request,
                        const char *who, const char *access)
{
    search(fixture, request);
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_OTHERS);
    if (!strstr(fixture->reply.error.text, who) || !strstr(fixture->reply.error.text, access))
        fail_msg("\"%s\" says nothing of \"%s\", %s", fixture->reply.error.text, who, access);
}

#define SEARCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
