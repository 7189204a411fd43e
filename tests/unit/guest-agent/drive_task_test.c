/* SPDX-License-Identifier: Apache-2.0 */
/* drive_task_test.c - which processes are begun for a drive, and which calls wait for them. The
 * processes are stand-ins. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "guest-agent/guest_drive.h"
#include "lib/child.h"

enum { PROCESSES = 4, CALLS = 8 };

/* One that was begun and not freed. */
struct child {
    child_done *done;
    void *userdata;
    uint64_t subject;
    bool is_killed;
};

static struct {
    struct loop loop;
    struct child processes[PROCESSES];
    unsigned begun;
    uint64_t hanging; /* the subject of a process that was killed and does not end */
    unsigned answers;
    struct ttrpc_status status; /* of the last answer */
    struct task_waiter waiters[CALLS];
    unsigned waiting;
} scene;

int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child)
{
    if (request->subject && request->subject == scene.hanging)
        return CHILD_STILL_HANGS;
    assert_true(scene.begun < PROCESSES);
    *ret_child = &scene.processes[scene.begun++];
    **ret_child = (struct child){done, userdata, request->subject, false};
    return 0;
}

void child_kill(struct child *child)
{
    child->is_killed = true;
}

struct child *child_free(struct child *child)
{
    return NULL;
}

const char *child_explain(int failure)
{
    assert_int_equal(failure, CHILD_STILL_HANGS);
    return "it hangs";
}

uint64_t child_subject(const char *name)
{
    return 1 + (uint64_t)name[strlen(name) - 1];
}

static void on_answer(struct task_waiter *waiter, const struct task_result *result)
{
    scene.answers++;
    scene.status.code = (int)drive_status(result->outcome);
    (void)snprintf(scene.status.message, sizeof(scene.status.message), "%s", result->text);
}

/* A call that is refused at once counts as answered. */
static void start(enum drive_call_kind kind, const char *serial)
{
    struct drive_call call = {.kind = kind};
    struct error error = {0};
    enum status_code code;

    if (kind == DRIVE_CALL_MOUNT)
        call.mount = (struct drive_mount_request){.bytes = 4096, .vm_path = "/data"};
    (void)strcpy(call.mount.drive_id, serial);
    (void)strcpy(call.mount.serial, serial);
    code = drive_serve(&scene.loop, &call, 0, &scene.waiters[scene.waiting++], on_answer, &error);
    if (code == STATUS_OK)
        return;
    scene.answers++;
    scene.status.code = (int)code;
}

static void mount(const char *serial)
{
    start(DRIVE_CALL_MOUNT, serial);
}

static void unmount(const char *serial)
{
    start(DRIVE_CALL_UNMOUNT, serial);
}

static void end(struct child *process)
{
    struct buffer nothing = BUFFER_INIT(0);

    process->done(process, CHILD_TIMEOUT, 0, &nothing, process->userdata);
}

static void expect_answers(unsigned count, enum status_code code)
{
    while (scene.answers < count)
        loop_run_once(&scene.loop);
    assert_int_equal(scene.answers, count);
    assert_int_equal(scene.status.code, code);
}

/* It may still mount the drive, so the answer cannot be that nobody has it. */
static void nothing_is_unmounted_while_the_mounts_process_hangs(void **state)
{
    mount("a");
    mount("b");
    assert_int_not_equal(scene.processes[0].subject, scene.processes[1].subject);
    unmount("a");
    expect_answers(1, STATUS_UNAVAILABLE);
    assert_true(scene.processes[0].is_killed);
    assert_int_equal(scene.begun, 2); /* not before that process has ended */
    scene.hanging = scene.processes[0].subject;
    end(&scene.processes[0]);
    expect_answers(2, STATUS_UNAVAILABLE);
    assert_string_equal(scene.status.message, "it hangs");
    unmount("a");
    expect_answers(3, STATUS_UNAVAILABLE);
    mount("c");
    assert_int_equal(scene.begun, 3);
    scene.hanging = 0;
    unmount("a");
    assert_int_equal(scene.begun, 4);
    assert_int_equal(scene.processes[0].subject, scene.processes[3].subject);
}

static int set_up(void **state)
{
    memset(&scene, 0, sizeof(scene));
    return loop_init(&scene.loop);
}

static int tear_down(void **state)
{
    tasks_free();
    loop_done(&scene.loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_unmounted_while_the_mounts_process_hangs, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests_name("drive_task", tests, NULL, NULL);
}
