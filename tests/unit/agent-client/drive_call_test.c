/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call_test.c - the payloads of Drives there and back, malformed ones, and their bounds; also
 * while memory runs out. */
#include "tests/unit/without_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_call.h"
#include "lib/cleanup.h"

static const char serial[] = "crust-abcdefghijk237";

static struct drive_mount_request good_request(void)
{
    struct drive_mount_request request = {
        .drive_id = "data_1-A",
        .bytes = UINT64_C(5) << 30,
        .read_only = true,
        .vm_path = "/run/data",
        .filesystem_type = "ext4",
        .option_count = 2,
        .options = {"noatime", "data=ordered"},
        .fsck = DRIVE_FSCK_PREEN,
        .has_fs_group = true,
        .fs_group = 2000,
        .fs_group_policy = DRIVE_GROUP_ON_ROOT_MISMATCH,
        .timeout_ms = 30000,
    };

    strcpy(request.serial, serial);
    return request;
}

/* Which field the parser calls malformed; "" for none. */
static const char *wrong_field(const struct drive_mount_request *request)
{
    struct buffer payload = BUFFER_INIT(0);
    struct drive_mount_request parsed;
    const char *wrong = NULL;
    int r;

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, request), 0);
    r = drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &parsed, &wrong);
    buffer_done(&payload);
    assert_int_equal(r, wrong ? -EINVAL : 0);
    return wrong ? wrong : "";
}

/* The request there and back. */
static struct drive_mount_request pass_mount(const struct drive_mount_request *sent)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(0);
    struct drive_mount_request parsed;
    const char *wrong;

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, sent), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &parsed, &wrong), 0);
    return parsed;
}

/* What is wrong with it; "": nothing, and ret_parsed is filled. */
static const char *pass_unmount(const struct drive_unmount_request *sent,
                                struct drive_unmount_request *ret_parsed)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(0);
    const char *wrong = "";
    int r;

    assert_int_equal(drive_append(&payload, DRIVE_UNMOUNT_REQUEST, sent), 0);
    r = drive_parse(payload.data, payload.length, DRIVE_UNMOUNT_REQUEST, ret_parsed, &wrong);
    assert_int_equal(r, wrong ? -EINVAL : 0);
    return wrong ? wrong : "";
}

static void a_mount_request_comes_back(void **state)
{
    struct drive_mount_request sent = good_request(), parsed = pass_mount(&sent);

    assert_string_equal(parsed.drive_id, sent.drive_id);
    assert_string_equal(parsed.serial, serial);
    assert_int_equal(parsed.bytes, sent.bytes);
    assert_true(parsed.read_only);
    assert_string_equal(parsed.vm_path, "/run/data");
    assert_string_equal(parsed.filesystem_type, "ext4");
    assert_int_equal(parsed.option_count, 2);
    assert_string_equal(parsed.options[1], "data=ordered");
    assert_int_equal(parsed.fsck, DRIVE_FSCK_PREEN);
    assert_true(parsed.has_fs_group);
    assert_int_equal(parsed.fs_group, 2000);
    assert_int_equal(parsed.fs_group_policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    assert_int_equal(parsed.timeout_ms, 30000);
}

static void identifiers_have_their_form(void **state)
{
    assert_true(drive_serial_is_valid(serial));
    assert_false(drive_serial_is_valid("crust-abcdefghijk23"));
    assert_false(drive_serial_is_valid("crust-abcdefghijk2377"));
    assert_false(drive_serial_is_valid("crust-abcdefghijk231"));
    assert_false(drive_serial_is_valid("crust-ABCDEFGHIJK237"));
    assert_false(drive_serial_is_valid("chaff-abcdefghijk237"));
    assert_false(drive_serial_is_of_vmm(serial));
    assert_true(drive_serial_is_valid("617951234"));
    assert_true(drive_serial_is_of_vmm("617951234"));
    assert_true(drive_serial_is_of_vmm("65024649381234567890"));
    assert_false(drive_serial_is_valid("650246493812345678901"));
    assert_false(drive_serial_is_valid("61"));
    assert_false(drive_serial_is_valid(""));
    assert_false(drive_serial_is_valid("6179512x4"));
    assert_true(drive_id_is_valid("A-b_9"));
    assert_false(drive_id_is_valid(""));
    assert_false(drive_id_is_valid("a/b"));
    assert_true(drive_id_is_valid("123456789012345678901234567890123456"));
    assert_false(drive_id_is_valid("1234567890123456789012345678901234567"));
}

static void malformed_fields_are_named(void **state)
{
    static const char *const paths[] = {"", "run/data", "/run/../data", "/run/.", "/.."};
    struct drive_mount_request request = good_request();

    assert_string_equal(wrong_field(&request), "");
    for (size_t i = 0; i < array_length(paths); i++) {
        strcpy(request.vm_path, paths[i]);
        assert_string_equal(wrong_field(&request), "vm_path");
    }
    strcpy(request.vm_path, "/run/..data/.x"); /* names that begin with dots are names */
    assert_string_equal(wrong_field(&request), "");
    request.drive_id[0] = '/';
    assert_string_equal(wrong_field(&request), "drive_id");
    request = good_request();
    request.serial[19] = '1';
    assert_string_equal(wrong_field(&request), "serial");
    request = good_request();
    request.bytes = 0;
    assert_string_equal(wrong_field(&request), "size");
    request = good_request();
    request.filesystem_type[0] = '\0';
    assert_string_equal(wrong_field(&request), "filesystem_type");
    request = good_request();
    request.options[1][0] = '\0';
    assert_string_equal(wrong_field(&request), "options");
    request = good_request();
    request.fsck = (enum drive_fsck)2;
    assert_string_equal(wrong_field(&request), "fsck");
    request = good_request();
    request.fs_group = UINT32_MAX;
    assert_string_equal(wrong_field(&request), "fs_group");
    request = good_request();
    request.fs_group_policy = (enum drive_group_policy)7;
    assert_string_equal(wrong_field(&request), "fs_group_change_policy");
}

static const struct drive_containers two_containers = {
    2, {{"c1", "/data", "", false}, {"A_b.c-2", "/a/b", "x/y", true}}};

static void containers_come_back(void **state)
{
    struct drive_mount_request sent = good_request();
    struct drive_unmount_request unmount = {.drive_id = "d", .containers = two_containers}, parsed;
    struct buffer payload = BUFFER_INIT(0);

    sent.containers = two_containers;
    sent = pass_mount(&sent);
    assert_memory_equal(&sent.containers, &two_containers, sizeof(two_containers));
    strcpy(unmount.serial, serial);
    assert_string_equal(pass_unmount(&unmount, &parsed), "");
    assert_memory_equal(&parsed.containers, &two_containers, sizeof(two_containers));
    strcpy(unmount.containers.each[1].path, "b");
    assert_string_equal(pass_unmount(&unmount, &parsed), "containers");
    unmount.containers.count = DRIVE_CONTAINERS + 1;
    assert_int_equal(drive_append(&payload, DRIVE_UNMOUNT_REQUEST, &unmount), -EMSGSIZE);
}

static void malformed_containers_are_refused(void **state)
{
    static const struct drive_container wrong[] = {
        {"", "/data", "", false},     {"a/b", "/data", "", false},
        {"..", "/data", "", false},   {"c1", "", "", false},
        {"c1", "/", "", false},       {"c1", "data", "", false},
        {"c1", "/a/../b", "", false}, {"c1", "//a", "", false},
        {"c1", "/a/", "", false},     {"c1", "/data", "/a", false},
        {"c1", "/data", "..", false}, {"c1", "/data", "a/../b", false},
    };
    struct drive_mount_request request = good_request();
    struct buffer payload = BUFFER_INIT(0);
    const char *field = NULL;

    request.containers.count = 1;
    for (size_t i = 0; i < array_length(wrong); i++) {
        request.containers.each[0] = wrong[i];
        assert_string_equal(wrong_field(&request), "containers");
    }
    request.containers.count = DRIVE_CONTAINERS + 1;
    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, &request), -EMSGSIZE);
    request.containers.count = DRIVE_CONTAINERS;
    for (size_t i = 0; i < DRIVE_CONTAINERS; i++)
        request.containers.each[i] = (struct drive_container){"c1", "/data", "", false};
    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, &request), 0);
    assert_int_equal(buffer_append(&payload, "\x6a\x00", 2), 0); /* one more container */
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &field), -EINVAL);
    assert_string_equal(field, "containers");
    buffer_done(&payload);
}

static void too_many_options_are_refused(void **state)
{
    struct drive_mount_request request = good_request();
    struct buffer payload = BUFFER_INIT(0);
    const char *wrong = NULL;

    request.option_count = DRIVE_OPTIONS + 1;
    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, &request), -EMSGSIZE);
    for (request.option_count = 0; request.option_count < DRIVE_OPTIONS; request.option_count++)
        strcpy(request.options[request.option_count], "x");
    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, &request), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &wrong), 0);
    assert_int_equal(buffer_append(&payload, "\x3a\x01y", 3), 0); /* one more option */
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &wrong), -EINVAL);
    assert_string_equal(wrong, "options");
    buffer_done(&payload);
}

static void a_nul_or_foreign_bytes_are_refused(void **state)
{
    struct drive_mount_request request = good_request();
    struct buffer payload = BUFFER_INIT(0);
    const char *wrong = NULL;

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_REQUEST, &request), 0);
    /* The last vm_path of a message counts. */
    assert_int_equal(buffer_append(&payload, "\x2a\x04/a\0b", 6), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &wrong), -EINVAL);
    assert_string_equal(wrong, "vm_path");
    assert_int_equal(buffer_append(&payload, "\x2a\x02/\xff", 4), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &wrong), -EINVAL);
    assert_int_equal(buffer_append(&payload, "\x2a\x7f", 2), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_MOUNT_REQUEST, &request, &wrong), -EBADMSG);
    buffer_done(&payload);
}

static void answers_come_back(void **state)
{
    const struct drive_mount_answer sent = {
        "sda", 10, 9, {3, 2, 1}, DRIVE_FSCK_REPAIRED, true, 2, "container c3: it does not run"};
    const struct drive_unmount_answer unmounted = {true, true};
    struct drive_unmount_request request = {.drive_id = "d", .timeout_ms = 7}, its_copy;
    struct drive_unmount_answer unmounted_copy;
    struct drive_mount_answer copy;
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_ANSWER, &sent), 0);
    assert_int_equal(drive_parse(payload.data, payload.length, DRIVE_MOUNT_ANSWER, &copy, NULL), 0);
    assert_string_equal(copy.device, "sda");
    assert_int_equal(copy.bytes, 10);
    assert_int_equal(copy.filesystem_bytes, 9);
    assert_int_equal(copy.walk.changed, 3);
    assert_int_equal(copy.walk.skipped, 2);
    assert_int_equal(copy.walk.failed, 1);
    assert_int_equal(copy.fsck, DRIVE_FSCK_REPAIRED);
    assert_true(copy.was_mounted);
    assert_int_equal(copy.containers, 2);
    assert_string_equal(copy.container_error, "container c3: it does not run");
    assert_int_equal(drive_parse("\x38\x09", 2, DRIVE_MOUNT_ANSWER, &copy, NULL),
                     -EINVAL); /* fsck 9 */

    strcpy(request.serial, serial);
    assert_string_equal(pass_unmount(&request, &its_copy), "");
    assert_string_equal(its_copy.serial, serial);
    assert_int_equal(its_copy.timeout_ms, 7);
    strcpy(request.serial, "crust-0");
    assert_string_equal(pass_unmount(&request, &its_copy), "serial");
    strcpy(request.drive_id, "/");
    assert_string_equal(pass_unmount(&request, &its_copy), "drive_id");
    assert_true(drive_parse("\x0a", 1, DRIVE_UNMOUNT_ANSWER, &unmounted_copy, NULL) < 0);

    buffer_clear(&payload);
    assert_int_equal(drive_append(&payload, DRIVE_UNMOUNT_ANSWER, &unmounted), 0);
    assert_int_equal(
        drive_parse(payload.data, payload.length, DRIVE_UNMOUNT_ANSWER, &unmounted_copy, NULL), 0);
    assert_true(unmounted_copy.was_mounted && unmounted_copy.disk_removed);
    buffer_done(&payload);
}

static void fill_list(struct drive_guest_list *list, size_t count, size_t path_length)
{
    list->count = count;
    list->entries = calloc(count, sizeof(*list->entries));
    assert_non_null(list->entries);
    for (size_t i = 0; i < count; i++) {
        struct drive_guest_entry *entry = &list->entries[i];

        strcpy(entry->serial, serial);
        strcpy(entry->drive_id, "d");
        strcpy(entry->device, "sda");
        strcpy(entry->filesystem_type, "xfs");
        entry->state = DRIVE_GUEST_MOUNTING;
        entry->bytes = i;
        entry->read_only = true;
        entry->walk.changed = 5;
        memset(entry->vm_path, 'p', path_length);
    }
}

static void the_question_for_a_list_comes_back(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct buffer payload = BUFFER_INIT(0);
        bool without_disks = i == 0;

        assert_int_equal(drive_append(&payload, DRIVE_LIST_REQUEST, &(bool){i == 1}), 0);
        assert_int_equal(drive_parse(buffer_text(&payload), payload.length, DRIVE_LIST_REQUEST,
                                     &without_disks, NULL),
                         0);
        assert_int_equal(without_disks, i == 1);
        assert_int_equal(payload.length > 0, i == 1); /* as before there was such a field */
        buffer_done(&payload);
    }
}

static void a_list_comes_back(void **state)
{
    struct drive_guest_list sent = {0}, received = {0};
    struct buffer payload = BUFFER_INIT(0);

    fill_list(&sent, DRIVE_LIST, 10);
    assert_int_equal(drive_append_list(&payload, &sent), 0);
    assert_int_equal(drive_parse_list(payload.data, payload.length, &received), 0);
    assert_int_equal(received.count, DRIVE_LIST);
    assert_false(received.incomplete);
    assert_string_equal(received.entries[255].serial, serial);
    assert_string_equal(received.entries[255].drive_id, "d");
    assert_string_equal(received.entries[255].vm_path, "pppppppppp");
    assert_int_equal(received.entries[255].state, DRIVE_GUEST_MOUNTING);
    assert_int_equal(received.entries[255].bytes, 255);
    assert_int_equal(received.entries[255].walk.changed, 5);
    assert_true(received.entries[255].read_only);
    drive_guest_list_done(&received);
    drive_guest_list_done(&sent);
    buffer_done(&payload);
}

/* What the reader would refuse as a whole is cut by the writer, which says so. */
static void long_list_is_cut_and_marked(void **state)
{
    struct drive_guest_list sent = {0}, received = {0};
    struct buffer payload = BUFFER_INIT(0);

    fill_list(&sent, 40, DRIVE_PATH_BYTES - 1);
    assert_int_equal(drive_append_list(&payload, &sent), 0);
    assert_true(payload.length <= AGENT_REPLY_BYTES);
    assert_int_equal(drive_parse_list(payload.data, payload.length, &received), 0);
    assert_true(received.incomplete);
    assert_true(received.count > 0 && received.count < 40);
    drive_guest_list_done(&received);
    drive_guest_list_done(&sent);
    buffer_done(&payload);
}

static void too_long_a_list_is_refused(void **state)
{
    enum { PAIR = 24 };
    struct drive_guest_list list = {0};
    struct buffer payload = BUFFER_INIT(0);

    for (size_t i = 0; i <= DRIVE_LIST; i++) {
        assert_int_equal(buffer_append(&payload, "\x0a\x16\x0a\x14", 4), 0);
        assert_int_equal(buffer_append_text(&payload, serial), 0);
    }
    assert_int_equal(drive_parse_list(payload.data, payload.length, &list), -EBADMSG);
    assert_int_equal(drive_parse_list(payload.data, payload.length - PAIR, &list), 0);
    assert_int_equal(list.count, DRIVE_LIST);
    drive_guest_list_done(&list);
    payload.data[5] = 'X'; /* one malformed drive makes the list malformed */
    assert_int_equal(drive_parse_list(payload.data, payload.length - PAIR, &list), -EBADMSG);
    buffer_done(&payload);
}

static int pass_list(const char *text, size_t length)
{
    static struct drive_guest_entry entry = {.serial = DRIVE_SERIAL_PREFIX "aaaaaaaaaaaaaa",
                                             .state = DRIVE_GUEST_PRESENT};
    const struct drive_guest_list list = {.count = 1, .entries = &entry};
    cleanup(drive_guest_list_done) struct drive_guest_list read = {.count = 0};
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(64 * 1024);
    int r = drive_append_list(&payload, &list);

    if (r == 0)
        r = drive_parse_list(buffer_text(&payload), payload.length, &read);
    if (r == 0)
        assert_int_equal(read.count, 1);
    return r;
}

static void failed_allocation_is_reported_and_leaks_nothing(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    assert_true(fail_all(pass_list, "", 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mount_request_comes_back),
        cmocka_unit_test(identifiers_have_their_form),
        cmocka_unit_test(malformed_fields_are_named),
        cmocka_unit_test(containers_come_back),
        cmocka_unit_test(malformed_containers_are_refused),
        cmocka_unit_test(too_many_options_are_refused),
        cmocka_unit_test(a_nul_or_foreign_bytes_are_refused),
        cmocka_unit_test(answers_come_back),
        cmocka_unit_test(the_question_for_a_list_comes_back),
        cmocka_unit_test(a_list_comes_back),
        cmocka_unit_test(long_list_is_cut_and_marked),
        cmocka_unit_test(too_long_a_list_is_refused),
        cmocka_unit_test(failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
