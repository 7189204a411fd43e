/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_stay_test.c - an attach in the conversation in which a real QEMU was looked at. */
#define _GNU_SOURCE 1
#include "tests/unit/hypervisor/qemu_hotplug_live.h"

static void on_done_once(struct hypervisor_drive_call *call,
                         const struct hypervisor_drive_reply *reply, void *userdata)
{
    (void)call;
    (void)userdata;
    live.reply = *reply;
    loop_stop(&live.loop);
}

/* The conversation stays. */
static struct hypervisor_drive_call *look_and_stay(void)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_LOOK, "new");
    struct hypervisor_drive_call *call;
    struct error error;

    request.stays = true;
    assert_int_equal(hypervisor_drive_call_new(&live.loop, HYPERVISOR_QEMU, &request, on_done_once,
                                               NULL, &call, &error),
                     0);
    loop_run(&live.loop);
    assert_int_equal(live.reply.outcome, HYPERVISOR_DRIVE_DONE);
    return call;
}

static int attach_on(struct hypervisor_drive_call *call)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, "new");
    struct error error;
    int r;

    request.descriptor = claim(O_RDWR);
    assert_true(request.descriptor >= 0);
    r = hypervisor_drive_call_go_on(call, &request, &error);
    fd_close(request.descriptor);
    return r;
}

/* The disk is claimed by QEMU. */
static int attach_on_again(struct hypervisor_drive_call *call)
{
    struct hypervisor_drive_request request = request_for(HYPERVISOR_DRIVE_ATTACH, "new");
    struct error error;

    return hypervisor_drive_call_go_on(call, &request, &error);
}

static void an_attach_goes_on_where_nothing_was_found(void **state)
{
    struct hypervisor_drive_call *call;

    (void)state;
    if (!live.qemu)
        skip();
    call = look_and_stay();
    assert_int_equal(live.reply.state, HYPERVISOR_DRIVE_ABSENT);
    assert_int_equal(attach_on(call), 0);
    loop_run(&live.loop);
    assert_int_equal(live.reply.outcome, HYPERVISOR_DRIVE_DONE);
    assert_int_equal(live.reply.state, HYPERVISOR_DRIVE_PRESENT);
    assert_string_equal(live.reply.address, "scsi:255:0");
    assert_string_equal(live.reply.serial, "crust-abcdefghijklmn");
    assert_int_equal(attach_on_again(call), -ENOTCONN);
    (void)hypervisor_drive_call_free(call);
    assert_claimed();
    call = look_and_stay(); /* what is there is read in full, and nothing stays */
    assert_int_equal(live.reply.state, HYPERVISOR_DRIVE_PRESENT);
    assert_string_equal(live.reply.address, "scsi:255:0");
    assert_int_equal(attach_on_again(call), -ENOTCONN);
    (void)hypervisor_drive_call_free(call);
    detach("new");
    assert_nothing_left();
}

/* A node that was left keeps its disk open. */
static void a_node_alone_is_not_nothing(void **state)
{
    struct qemu_hotplug_names names;
    char command[256];

    (void)state;
    if (!live.qemu)
        skip();
    qemu_hotplug_names_init(&names, "new");
    (void)snprintf(command, sizeof(command),
                   "\"execute\": \"blockdev-add\", \"arguments\": {\"driver\": \"null-co\", "
                   "\"node-name\": \"%s\"}",
                   names.part[QEMU_PART_FILE]);
    assert_non_null(strstr(by_hand(command), "return"));
    (void)hypervisor_drive_call_free(look_and_stay());
    assert_int_equal(live.reply.state, HYPERVISOR_DRIVE_PARTIAL);
    detach("new");
    assert_nothing_left();
}

/* Another client gets the monitor, which serves one at a time. */
static void a_conversation_does_not_stay_for_long(void **state)
{
    struct hypervisor_drive_call *call;

    (void)state;
    if (!live.qemu)
        skip();
    call = look_and_stay();
    attach("new");
    assert_int_equal(attach_on_again(call), -ENOTCONN);
    (void)hypervisor_drive_call_free(call);
    detach("new");
}

static void a_conversation_ends_with_qemu(void **state)
{
    struct hypervisor_drive_call *call;

    (void)state;
    if (!live.qemu)
        skip();
    call = look_and_stay();
    end_qemu();
    if (attach_on(call) == 0) { /* the loop has not noticed: then the attach fails */
        loop_run(&live.loop);
        assert_int_equal(live.reply.outcome, HYPERVISOR_DRIVE_UNREACHABLE);
    }
    assert_int_equal(attach_on_again(call), -ENOTCONN);
    (void)hypervisor_drive_call_free(call);
    assert_free();
    start_qemu();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attach_goes_on_where_nothing_was_found),
        cmocka_unit_test(a_node_alone_is_not_nothing),
        cmocka_unit_test(a_conversation_does_not_stay_for_long),
        cmocka_unit_test(a_conversation_ends_with_qemu),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
