/* SPDX-License-Identifier: Apache-2.0 */
/* container_answer_test.c - what kata-agent's statuses and words are taken for. */
#include "tests/unit/test.h"

#include <stdio.h>

#include "agent-client/container_request.h"
#include "lib/cleanup.h"
#include "lib/result.h"

static struct ttrpc_status say(int code, const char *message)
{
    struct ttrpc_status status = {.code = code};

    (void)snprintf(status.message, sizeof(status.message), "%s", message);
    return status;
}

/* As agents of 2.5.0 to 4.1.0 say it. */
static void unknown_containers_are_recognised(void **state)
{
    struct ttrpc_status old = say(STATUS_INTERNAL, "Invalid container id");
    struct ttrpc_status new = say(STATUS_INVALID_ARGUMENT, "InvalidContainerId");
    struct ttrpc_status other = say(STATUS_INTERNAL, "destroy cgroups");
    struct ttrpc_status fine = say(STATUS_OK, "Invalid container id");
    struct ttrpc_status missing = say(STATUS_NOT_FOUND, "");

    (void)state;
    assert_true(container_is_absent(&old));
    assert_true(container_is_absent(&new));
    assert_true(container_is_absent(&missing));
    assert_false(container_is_absent(&other));
    assert_false(container_is_absent(&fine));
}

static void end_of_output_is_recognised(void **state)
{
    struct ttrpc_status read_all = say(STATUS_INTERNAL, "read meet eof");
    struct ttrpc_status ended = say(STATUS_INTERNAL, "eof");
    struct ttrpc_status denied = say(STATUS_PERMISSION_DENIED, "blocked: eof");
    struct ttrpc_status other = say(STATUS_INTERNAL, "cannot get stream reader");

    (void)state;
    assert_true(container_is_end_of_output(&read_all));
    assert_true(container_is_end_of_output(&ended));
    assert_false(container_is_end_of_output(&denied));
    assert_false(container_is_end_of_output(&other));
}

static void failures_have_kinds(void **state)
{
    static const struct {
        enum container_step step;
        int code;
        const char *message;
        enum container_kind kind;
    } rows[] = {
        {CONTAINER_CREATE, STATUS_OK, "", CONTAINER_DONE},
        {CONTAINER_CREATE, STATUS_PERMISSION_DENIED, "", CONTAINER_DENIED},
        {CONTAINER_CREATE, STATUS_INTERNAL, "internal error policy check: x", CONTAINER_DENIED},
        {CONTAINER_CREATE, STATUS_UNIMPLEMENTED, "", CONTAINER_UNSUPPORTED},
        {CONTAINER_CREATE, STATUS_NOT_FOUND, "", CONTAINER_UNSUPPORTED},
        {CONTAINER_COPY, STATUS_NOT_FOUND, "", CONTAINER_UNSUPPORTED},
        {CONTAINER_READ, STATUS_NOT_FOUND, "InvalidExecId", CONTAINER_FAILED},
        {CONTAINER_READ, STATUS_UNIMPLEMENTED, "", CONTAINER_UNSUPPORTED},
        {CONTAINER_CREATE, STATUS_INTERNAL, "Create cgroupfs manager", CONTAINER_NO_CGROUPS},
        {CONTAINER_START, STATUS_INTERNAL, "no Cgroup", CONTAINER_NO_CGROUPS},
        {CONTAINER_REMOVE, STATUS_INTERNAL, "destroy cgroups", CONTAINER_FAILED},
        {CONTAINER_CREATE, STATUS_INTERNAL, "ENOENT", CONTAINER_FAILED},
        {CONTAINER_CREATE, STATUS_FAILED_PRECONDITION, "", CONTAINER_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < array_length(rows); i++) {
        struct ttrpc_status status = say(rows[i].code, rows[i].message);

        if (container_kind_of(rows[i].step, &status) != rows[i].kind)
            fail_msg("row %zu: %d, not %d", i, container_kind_of(rows[i].step, &status),
                     rows[i].kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_containers_are_recognised),
        cmocka_unit_test(end_of_output_is_recognised),
        cmocka_unit_test(failures_have_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
