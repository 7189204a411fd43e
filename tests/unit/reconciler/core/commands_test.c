/* SPDX-License-Identifier: Apache-2.0 */
/* commands_test.c - the servers' calls on a whole reconciler: what is asked, done by its passes. */
#include "tests/unit/reconciler/fake_node.h"

#include "reconciler/command/answers.h"
#include "reconciler/command/drives.h"

static struct {
    unsigned answers;
    enum status_code code;
    char error[ERROR_TEXT_BYTES];
    struct reconciler_capacity capacity;
} answer;

static void note(enum status_code code, const struct error *error)
{
    answer.answers++;
    answer.code = code;
    (void)snprintf(answer.error, sizeof(answer.error), "%s", error ? error->text : "");
    loop_stop(&loop);
}

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    (void)userdata;
    note(code, error);
}

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    (void)userdata;
    answer.capacity = *capacity;
    note(code, error);
}

static void on_stats(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                     const struct error *error)
{
    (void)userdata;
    (void)stats;
    note(code, error);
}

static void wait_for_answer(unsigned number)
{
    fake_goes_on = true;
    while (answer.answers < number)
        loop_run(&loop);
    fake_goes_on = false;
    assert_int_equal(answer.answers, number);
}

static void begin(void)
{
    memset(&answer, 0, sizeof(answer));
    put_disk(0, DISK, 1, GIB);
    run_node();
}

static void stage_by_call(const char *device, enum status_code code)
{
    const struct reconciler_stage asked = {
        .target_path = TARGET, .device = device, .fs_type = "ext4"};
    struct staging *staging;
    struct error error;

    assert_int_equal(reconciler_stage(reconciler, &asked, on_staged, NULL, &staging, &error), code);
}

static void unstage_by_call(void)
{
    struct staging *staging;
    struct error error;

    assert_int_equal(reconciler_unstage(reconciler, TARGET, on_staged, NULL, &staging, &error),
                     STATUS_OK);
}

static void a_volume_is_staged_and_taken_away(void **state)
{
    static const enum config_stage_layout layouts[] = {STAGE_KATA, STAGE_CRUST, STAGE_BOTH};
    unsigned calls = 0;
    int64_t volume_id;

    (void)state;
    begin();
    for (size_t i = 0; i < array_length(layouts); i++) {
        config.crust.stage_layout = layouts[i];
        reconciler_configure(reconciler, &config);
        stage_by_call(DISK, STATUS_OK);
        wait_for_answer(++calls);
        assert_int_equal(answer.code, STATUS_OK);
        volume_id = last_volume();
        assert_string_equal(volume_of(volume_id).target_path, TARGET);
        assert_int_equal(volume_of(volume_id).device_bytes, GIB);
        assert_is(volume_id, STATE_UNBOUND, REASON_NONE);
        unstage_by_call();
        wait_for_answer(++calls);
        assert_int_equal(answer.code, STATUS_OK);
        assert_int_equal(volume_of(volume_id).status, STORE_REMOVED);
    }
}

static void a_device_that_a_sandbox_has_is_not_staged_again(void **state)
{
    (void)state;
    stage(OTHER_TARGET, DISK, "sandbox-1");
    start_sandbox(0, "sandbox-1");
    begin();
    stage_by_call(DISK, answer_code(ANSWER_DEVICE_HELD));
    assert_int_equal(answer.answers, 0);
}

static void before_a_sandbox_a_resize_is_promised(void **state)
{
    const struct reconciler_expand asked = {.target = {.target_path = TARGET},
                                            .required_bytes = 2 * GIB};
    struct expansion *expansion;
    struct error error;

    (void)state;
    stage(TARGET, DISK, NULL);
    begin();
    put_disk(0, DISK, 1, 2 * GIB); /* no event has come */
    assert_int_equal(reconciler_expand(reconciler, &asked, on_expanded, NULL, &expansion, &error),
                     STATUS_OK);
    wait_for_answer(1);
    assert_int_equal(answer.code, STATUS_OK);
    assert_int_equal(answer.capacity.bytes, 2 * GIB);
    assert_true(answer.capacity.is_owed);
    assert_int_equal(volume_of(last_volume()).resize_to_bytes, 2 * GIB);
}

static void without_a_monitor_a_resize_is_refused(void **state)
{
    const struct reconciler_expand asked = {.target = {.target_path = TARGET}};
    struct expansion *expansion;
    struct error error;

    (void)state;
    stage(TARGET, DISK, "sandbox-1");
    start_sandbox(0, "sandbox-1");
    begin();
    put_disk(0, DISK, 1, 2 * GIB);
    reconciler_queue_device(reconciler, 7, 1);
    settle();
    assert_int_equal(reconciler_expand(reconciler, &asked, on_expanded, NULL, &expansion, &error),
                     STATUS_OK);
    wait_for_answer(1);
    assert_int_equal(answer.code, reason_code(REASON_MONITOR_MISSING, STATE_BLOCKED));
    assert_non_null(strstr(answer.error, "monitor_missing"));
}

static void stats_are_asked_of_a_sandbox(void **state)
{
    const struct reconciler_target target = {.target_path = TARGET};
    struct stats_call *call;
    struct error error;

    (void)state;
    stage(TARGET, DISK, NULL);
    begin();
    assert_int_equal(reconciler_ask_stats(reconciler, &target, on_stats, NULL, &call, &error),
                     answer_code(ANSWER_NO_SANDBOX));
    assert_int_equal(answer.answers, 0);
}

static void the_node_is_examined(void **state)
{
    struct reconciler_names names;
    struct buffer json = BUFFER_INIT(0);
    struct error error;

    (void)state;
    begin();
    assert_int_equal(reconciler_examine(reconciler, &json, &error), 0);
    assert_memory_equal(buffer_text(&json), "[{\"id\":", 7);
    assert_int_equal(reconciler_find_capabilities(reconciler, &names, &error), 0);
    assert_int_equal(names.count, 0); /* there are no guests */
    assert_int_equal(reconciler_find_file_systems(reconciler, &names), 0);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.name[0], "ext4");
    buffer_done(&json);
}

/* ---- drives ---- */

static void on_drive(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                     const struct error *error)
{
    (void)userdata;
    (void)drive;
    note(code, error);
}

static int count_drive(void *userdata, const struct reconciler_drive *drive)
{
    (void)drive;
    ++*(unsigned *)userdata;
    return 0;
}

static void drives_that_are_off_are_not_attached(void **state)
{
    const struct reconciler_drive_attach asked = {.drive_id = "data-1",
                                                  .sandbox_id = "sandbox-1",
                                                  .host_path = DISK,
                                                  .vm_path = "/run/data",
                                                  .fs_type = "ext4"};
    struct drive_wait *wait;
    struct error error;

    (void)state;
    begin();
    assert_int_equal(reconciler_attach_drive(reconciler, &asked, on_drive, NULL, &wait, &error),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "drives.enabled"));
}

/* Nobody has it: a detach is done, everything else finds nothing. */
static void a_drive_that_nobody_has(void **state)
{
    const struct drive_limits limits = {0};
    struct drive_wait *wait;
    struct error error;
    unsigned count = 0;

    (void)state;
    begin();
    assert_int_equal(reconciler_get_drive(reconciler, "data-1", count_drive, &count, &error),
                     STATUS_NOT_FOUND);
    assert_int_equal(
        reconciler_limit_drive(reconciler, "data-1", &limits, on_drive, NULL, &wait, &error),
        STATUS_NOT_FOUND);
    assert_int_equal(reconciler_each_drive(reconciler, NULL, count_drive, &count, &error),
                     STATUS_OK);
    assert_int_equal(count, 0);
    assert_int_equal(reconciler_detach_drive(reconciler, "data-1", on_drive, NULL, &wait, &error),
                     STATUS_OK);
    wait_for_answer(1);
    assert_int_equal(answer.code, STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(a_volume_is_staged_and_taken_away),
        NODE(a_device_that_a_sandbox_has_is_not_staged_again),
        NODE(before_a_sandbox_a_resize_is_promised),
        NODE(without_a_monitor_a_resize_is_refused),
        NODE(stats_are_asked_of_a_sandbox),
        NODE(the_node_is_examined),
        NODE(drives_that_are_off_are_not_attached),
        NODE(a_drive_that_nobody_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
