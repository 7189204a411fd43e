/* SPDX-License-Identifier: Apache-2.0 */
/* container_hold_test.c - a container that stays in the guest and has a disk mounted there. */
#include "tests/unit/agent-client/container_agent.h"

static const char *const options[] = {"noatime", NULL};
static const struct container_storage storage = {
    .address = "scsi:255:7",
    .filesystem_type = "ext4",
    .options = options,
    .mount_point = "/run/data",
};

static void hold(uint64_t program_ns)
{
    struct container_request request = ordinary();

    request.act = CONTAINER_HOLD;
    request.storage = &storage;
    request.program_ns = program_ns;
    run_with(&request);
}

static void the_container_stays_once_a_line_has_come(void **state)
{
    Agent__CreateContainerRequest *create;

    (void)state;
    script.output = "{\"version\":1}\n";
    script.answer_bytes = 10; /* the first answer has no whole line */
    hold(LONG_TIME);
    assert_kind(CONTAINER_DONE, CONTAINER_READ, "");
    assert_true(seen.reply.held);
    assert_false(seen.reply.left);
    assert_true(agent.exists);
    assert_string_equal(seen.output, "{\"version\":1}\n");
    assert_string_equal(agent.log, "|CreateContainer StartContainer ReadStdout ReadStdout ");
    create = agent__create_container_request__unpack(NULL, agent.created.length,
                                                     (const uint8_t *)agent.created.data);
    assert_non_null(create);
    assert_int_equal(create->n_storages, 1);
    assert_memory_equal(create->storages[0]->source.data, "255:7", 5);
    agent__create_container_request__free_unpacked(create, NULL);
}

static void a_program_that_ends_is_removed_with_its_container(void **state)
{
    (void)state;
    script.output = "no line";
    script.exit_status = 2;
    hold(LONG_TIME);
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_false(seen.reply.held);
    assert_int_equal(seen.reply.exit_status, 2);
    assert_clean();
}

static void a_disk_that_cannot_be_mounted_leaves_nothing(void **state)
{
    (void)state;
    refuse("CreateContainer", STATUS_INTERNAL, "\"EROFS: Read-only file system\"");
    hold(LONG_TIME);
    assert_kind(CONTAINER_FAILED, CONTAINER_CREATE, "EROFS");
    assert_clean();
}

static void a_silent_program_is_removed(void **state)
{
    (void)state;
    go_wrong("ReadStdout", HANG);
    hold(SHORT_TIME);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_READ, "has not ended");
    assert_clean();
}

static void a_mount_point_must_be_a_path(void **state)
{
    struct container_request request = ordinary();
    struct container_storage relative = storage;

    (void)state;
    relative.mount_point = "data";
    request.act = CONTAINER_HOLD;
    request.storage = &relative;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "no absolute path");
    assert_string_equal(agent.log, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT(the_container_stays_once_a_line_has_come),
        AGENT(a_program_that_ends_is_removed_with_its_container),
        AGENT(a_disk_that_cannot_be_mounted_leaves_nothing),
        AGENT(a_silent_program_is_removed),
        AGENT(a_mount_point_must_be_a_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
