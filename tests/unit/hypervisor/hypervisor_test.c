/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor_test.c - what is known without asking a VMM comes from the loop, too. */
#include "tests/unit/test.h"

#include <stdio.h>

#include "hypervisor/hypervisor.h"
#include "lib/clock.h"

struct seen {
    struct loop *loop;
    unsigned count;
    struct hypervisor_reply reply;
};

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct seen *seen = userdata;

    seen->count++;
    seen->reply = *reply;
    (void)hypervisor_call_free(call);
    loop_stop(seen->loop);
}

static char error_text[ERROR_TEXT_BYTES]; /* of the last outcome */

static enum hypervisor_outcome outcome_of(enum hypervisor_kind kind, const char *control_socket)
{
    struct hypervisor_request request = {.control_socket = control_socket,
                                         .deadline_ns = NSEC_PER_SEC};
    struct hypervisor_call *call;
    struct loop loop;
    struct seen seen = {.loop = &loop};

    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(hypervisor_call_new(&loop, kind, &request, on_done, &seen, &call), 0);
    assert_int_equal(seen.count, 0);
    loop_run(&loop);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.reply.error.code, (int)seen.reply.outcome);
    assert_true(seen.reply.error.text[0]);
    (void)snprintf(error_text, sizeof(error_text), "%s", seen.reply.error.text);
    loop_done(&loop);
    return seen.reply.outcome;
}

static void answers_from_the_loop(void **state)
{
    (void)state;
    assert_int_equal(outcome_of(HYPERVISOR_QEMU, NULL), HYPERVISOR_MONITOR_MISSING);
    assert_int_equal(outcome_of(HYPERVISOR_CLOUD_HYPERVISOR, NULL), HYPERVISOR_MONITOR_MISSING);
    assert_int_equal(outcome_of(HYPERVISOR_FIRECRACKER, NULL), HYPERVISOR_MONITOR_MISSING);
    assert_int_equal(outcome_of(HYPERVISOR_UNKNOWN, "/run/x.sock"), HYPERVISOR_UNSUPPORTED);
    for (int kind = HYPERVISOR_DRAGONBALL; kind < HYPERVISOR_KINDS; kind++)
        assert_int_equal(outcome_of((enum hypervisor_kind)kind, "/run/x.sock"),
                         HYPERVISOR_UNSUPPORTED);
}

/* outcome_of() wants a sentence as well. */
static void every_kind_has_a_client_or_an_obstacle(void **state)
{
    (void)state;
    for (int i = 0; i < HYPERVISOR_KINDS; i++) {
        const enum hypervisor_kind kind = (enum hypervisor_kind)i;
        const bool can = hypervisor_has_client(kind);

        assert_int_equal(outcome_of(kind, NULL),
                         can ? HYPERVISOR_MONITOR_MISSING : HYPERVISOR_UNSUPPORTED);
        if (!can) {
            assert_int_equal(outcome_of(kind, "/run/x.sock"), HYPERVISOR_UNSUPPORTED);
            assert_null(strstr(error_text, "has no client")); /* each says why */
        }
    }
}

static void is_silent_once_freed(void **state)
{
    struct hypervisor_request request = {.deadline_ns = NSEC_PER_SEC};
    struct hypervisor_call *freed, *other;
    struct loop loop;
    struct seen never = {.loop = &loop}, seen = {.loop = &loop};

    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(hypervisor_call_new(&loop, HYPERVISOR_QEMU, &request, on_done, &never, &freed),
                     0);
    assert_int_equal(hypervisor_call_new(&loop, HYPERVISOR_QEMU, &request, on_done, &seen, &other),
                     0);
    assert_null(hypervisor_call_free(freed));
    loop_run(&loop);
    assert_int_equal(never.count, 0);
    assert_int_equal(seen.count, 1);
    assert_null(hypervisor_call_free(NULL));
    loop_done(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_from_the_loop),
        cmocka_unit_test(every_kind_has_a_client_or_an_obstacle),
        cmocka_unit_test(is_silent_once_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
