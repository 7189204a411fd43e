/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once_test.c - a call about a drive as a text, and its answer. What the calls do to a disk
 * is in the tests of their functions. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent-client/drive_client.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/oneshot.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"

#define SERIAL "crust-abcdefghijk237"

static char line[4096];

static int run(const char *text)
{
    struct error error = {0};
    int ends[2], r;
    ssize_t count;

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    r = drive_once_run(text, NSEC_PER_SEC, ends[1], &error);
    count = read(ends[0], line, sizeof(line) - 1);
    line[count > 0 ? count : 0] = '\0';
    fd_close(ends[0]);
    fd_close(ends[1]);
    return r;
}

static void answer(const struct drive_client_request *request, int outcome,
                   struct drive_client_reply *ret_reply)
{
    cleanup(freep) char *text = NULL;

    assert_int_equal(drive_client_make_text(request, &text), 0);
    assert_int_equal(run(text), outcome);
    assert_null(strchr(line, '\n')); /* the program ends */
    drive_client_read_text(request->act, SERIAL, line, strlen(line), ret_reply);
}

static void calls_of_others_print_nothing(void **state)
{
    struct buffer frame = BUFFER_INIT(0);
    const struct ttrpc_request foreign[] = {{"grpc.AgentService", "MountDrive", 0},
                                            {DRIVE_SERVICE, "FreezeDrive", 0}};
    char text[512];

    assert_int_equal(run(""), DRIVE_ONCE_USAGE);
    assert_int_equal(run("hold"), DRIVE_ONCE_USAGE);
    assert_int_equal(run("AAAA"), DRIVE_ONCE_USAGE);
    for (size_t i = 0; i < array_length(foreign); i++) {
        buffer_clear(&frame);
        assert_int_equal(ttrpc_append_request(&frame, 1, &foreign[i], "", 0), 0);
        base64url_encode(frame.data, frame.length, text);
        assert_int_equal(run(text), DRIVE_ONCE_USAGE);
        assert_string_equal(line, "");
    }
    buffer_done(&frame);
}

static void a_malformed_request_is_refused(void **state)
{
    const struct ttrpc_request request = {DRIVE_SERVICE, DRIVE_METHOD_MOUNT, 0};
    struct drive_client_reply reply = {0};
    struct buffer frame = BUFFER_INIT(0);
    char text[512];

    assert_int_equal(ttrpc_append_request(&frame, 1, &request, "\x0a\x01x", 3), 0);
    base64url_encode(frame.data, frame.length, text);
    assert_int_equal(run(text), DRIVE_ONCE_REFUSED);
    drive_client_read_text(DRIVE_CLIENT_MOUNT, SERIAL, line, strlen(line), &reply);
    assert_int_equal(reply.status, STATUS_INVALID_ARGUMENT);
    assert_string_equal(reply.error.text, "serial is malformed");
    buffer_done(&frame);
}

static void a_disk_that_does_not_come_is_unavailable(void **state)
{
    const struct drive_mount_request mount = {.drive_id = "d1",
                                              .serial = SERIAL,
                                              .bytes = 4096,
                                              .vm_path = "/run/crust-never",
                                              .filesystem_type = "ext4",
                                              .timeout_ms = 1};
    struct drive_client_reply reply = {0};

    answer(&(struct drive_client_request){.act = DRIVE_CLIENT_MOUNT, .drive = &mount},
           DRIVE_ONCE_REFUSED, &reply);
    assert_int_equal(reply.outcome, DRIVE_CLIENT_ANSWERED);
    assert_int_equal(reply.status, STATUS_UNAVAILABLE);
    assert_string_equal(reply.error.text, "no disk with the serial " SERIAL " is there");
}

static void nobody_has_a_disk_that_does_not_exist(void **state)
{
    const struct drive_mount_request drive = {.drive_id = "d1", .serial = SERIAL};
    struct drive_client_reply reply = {0};

    answer(&(struct drive_client_request){.act = DRIVE_CLIENT_UNMOUNT, .drive = &drive},
           DRIVE_ONCE_DONE, &reply);
    assert_int_equal(reply.status, STATUS_OK);
    assert_true(reply.unmount.disk_removed);
}

static void drives_are_listed(void **state)
{
    struct drive_client_reply reply = {0};

    for (int without_disks = 0; without_disks < 2; without_disks++) {
        answer(&(struct drive_client_request){.act = DRIVE_CLIENT_LIST,
                                              .without_disks = without_disks},
               DRIVE_ONCE_DONE, &reply);
        assert_int_equal(reply.status, STATUS_OK);
        if (without_disks)
            assert_string_equal(reply.entry.serial, "");
    }
}

static void an_answer_that_is_none_is_not_understood(void **state)
{
    static const char *const texts[] = {"", "\n", "AAAA", "half an answer\n"};
    struct drive_client_reply reply;

    for (size_t i = 0; i < array_length(texts); i++) {
        drive_client_read_text(DRIVE_CLIENT_LIST, SERIAL, texts[i], strlen(texts[i]), &reply);
        assert_int_equal(reply.outcome, DRIVE_CLIENT_UNREACHABLE);
        assert_int_equal(reply.status, STATUS_UNAVAILABLE);
        assert_string_equal(reply.error.text, "the helper's answer cannot be understood");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_others_print_nothing),
        cmocka_unit_test(a_malformed_request_is_refused),
        cmocka_unit_test(a_disk_that_does_not_come_is_unavailable),
        cmocka_unit_test(nobody_has_a_disk_that_does_not_exist),
        cmocka_unit_test(drives_are_listed),
        cmocka_unit_test(an_answer_that_is_none_is_not_understood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
