/* SPDX-License-Identifier: Apache-2.0 */
/* container_messages_test.c - the requests on the wire, by Kata's own field numbers.
 *
 * They are read by a walker that knows nothing of agent.proto: a number that is wrong there would
 * be wrong on both sides of a test that used it. Source: kata-containers
 * src/libs/protocols/protos/{agent,oci}.proto, 2.5.0 to 4.1.0.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_run.h"
#include "lib/cleanup.h"

struct slice {
    const uint8_t *bytes;
    size_t length;
};

static uint64_t take_varint(struct slice *slice)
{
    uint64_t value = 0;
    unsigned shift = 0;

    for (;;) {
        uint8_t byte;

        assert_true(slice->length > 0 && shift < 64);
        byte = *slice->bytes++;
        slice->length--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
        shift += 7;
    }
}

/* The occurrence of a field that is so many occurrences further on; its value, or its bytes. */
static bool find(struct slice message, unsigned number, size_t occurrence, uint64_t *ret_value,
                 struct slice *ret_bytes)
{
    while (message.length) {
        uint64_t key = take_varint(&message);
        uint64_t value = take_varint(&message);
        struct slice bytes = {message.bytes, 0};

        assert_true((key & 7) == 0 || (key & 7) == 2);
        if ((key & 7) == 2) {
            assert_true(value <= message.length);
            bytes.length = (size_t)value;
            message.bytes += value;
            message.length -= (size_t)value;
        }
        if (key >> 3 == number && occurrence-- == 0) {
            *ret_value = value;
            *ret_bytes = bytes;
            return true;
        }
    }
    return false;
}

static struct slice whole(const struct buffer *payload)
{
    return (struct slice){(const uint8_t *)payload->data, payload->length};
}

static struct slice part(struct slice message, unsigned number, size_t occurrence)
{
    struct slice bytes = {0};
    uint64_t value;

    if (!find(message, number, occurrence, &value, &bytes))
        fail_msg("there is no field %u, occurrence %zu", number, occurrence);
    return bytes;
}

static uint64_t number_of(struct slice message, unsigned number)
{
    struct slice bytes;
    uint64_t value = 0;

    (void)find(message, number, 0, &value, &bytes);
    return value;
}

static size_t count(struct slice message, unsigned number)
{
    struct slice bytes;
    uint64_t value;
    size_t occurrence = 0;

    while (find(message, number, occurrence, &value, &bytes))
        occurrence++;
    return occurrence;
}

static void assert_text(struct slice message, unsigned number, size_t occurrence, const char *text)
{
    struct slice bytes = part(message, number, occurrence);

    if (bytes.length != strlen(text) || memcmp(bytes.bytes, text, bytes.length) != 0)
        fail_msg("field %u is \"%.*s\", not \"%s\"", number, (int)bytes.length,
                 (const char *)bytes.bytes, text);
}

static const struct container_request ordinary = {
    .container_id = "crust-1",
    .directory = "/run/kata-containers/shared/containers/crust-1",
    .program = "agent",
    .arguments = {"--once", "/run/x"},
};

/* Kata's numbers. */
enum {
    CREATE_CONTAINER_ID = 1,
    CREATE_EXEC_ID = 2,
    CREATE_STORAGES = 5,
    CREATE_SPEC = 6,
    SPEC_PROCESS = 2,
    SPEC_ROOT = 3,
    SPEC_MOUNTS = 5,
    SPEC_LINUX = 8,
    PROCESS_USER = 3,
    PROCESS_ARGS = 4,
    PROCESS_CWD = 6,
    PROCESS_CAPABILITIES = 7,
    PROCESS_NO_NEW_PRIVILEGES = 9,
    ROOT_PATH = 1,
    ROOT_READONLY = 2,
    LINUX_CGROUPS_PATH = 5,
    LINUX_NAMESPACES = 6,
    NAMESPACE_TYPE = 1,
    NAMESPACE_PATH = 2,
};

static struct slice spec_of(struct buffer *payload)
{
    assert_int_equal(container_append_create(payload, &ordinary), 0);
    return part(whole(payload), CREATE_SPEC, 0);
}

static void container_is_named_twice(void **state)
{
    struct buffer payload = BUFFER_INIT(0);

    (void)spec_of(&payload);
    assert_text(whole(&payload), CREATE_CONTAINER_ID, 0, "crust-1");
    assert_text(whole(&payload), CREATE_EXEC_ID, 0, "crust-1");
    buffer_done(&payload);
}

static void process_has_its_arguments_and_two_capabilities(void **state)
{
    struct buffer payload = BUFFER_INIT(0);
    struct slice process = part(spec_of(&payload), SPEC_PROCESS, 0);
    struct slice capabilities = part(process, PROCESS_CAPABILITIES, 0);

    assert_int_equal(count(process, PROCESS_ARGS), 3);
    assert_text(process, PROCESS_ARGS, 0, "/run/kata-containers/shared/containers/crust-1/agent");
    assert_text(process, PROCESS_ARGS, 1, "--once");
    assert_text(process, PROCESS_ARGS, 2, "/run/x");
    assert_text(process, PROCESS_CWD, 0, "/");
    assert_int_equal(number_of(process, PROCESS_NO_NEW_PRIVILEGES), 1);
    assert_int_equal(part(process, PROCESS_USER, 0).length, 0); /* there, and root */
    for (unsigned set = 1; set <= 4; set++) { /* bounding, effective, inheritable, permitted */
        assert_int_equal(count(capabilities, set), 2);
        assert_text(capabilities, set, 0, "CAP_SYS_RESOURCE");
        assert_text(capabilities, set, 1, "CAP_SYS_ADMIN");
    }
    assert_int_equal(count(capabilities, 5), 0); /* ambient */
    buffer_done(&payload);
}

static void drives_need_more_capabilities(void **state)
{
    static const char *const names[] = {"CAP_SYS_RESOURCE", "CAP_SYS_ADMIN", "CAP_CHOWN",
                                        "CAP_DAC_OVERRIDE", "CAP_FOWNER",    "CAP_FSETID",
                                        "CAP_SYS_CHROOT",   "CAP_SYS_PTRACE"};
    struct container_request spec = ordinary;
    struct buffer payload = BUFFER_INIT(0);
    struct slice capabilities;

    spec.for_drives = true;
    assert_int_equal(container_append_create(&payload, &spec), 0);
    capabilities =
        part(part(part(whole(&payload), CREATE_SPEC, 0), SPEC_PROCESS, 0), PROCESS_CAPABILITIES, 0);
    for (unsigned set = 1; set <= 4; set++) {
        assert_int_equal(count(capabilities, set), array_length(names));
        for (unsigned i = 0; i < array_length(names); i++)
            assert_text(capabilities, set, i, names[i]);
    }
    buffer_done(&payload);
}

static void root_is_the_directory_read_only(void **state)
{
    struct buffer payload = BUFFER_INIT(0);
    struct slice container_root = part(spec_of(&payload), SPEC_ROOT, 0);

    assert_text(container_root, ROOT_PATH, 0, ordinary.directory);
    assert_int_equal(number_of(container_root, ROOT_READONLY), 1);
    buffer_done(&payload);
}

/* It has no mount namespace, so it is in that of the agent. */
static void it_is_in_the_mounts_and_pids_of_the_agent(void **state)
{
    static const char *const types[] = {"ipc", "uts", "pid"};
    struct buffer payload = BUFFER_INIT(0);
    struct slice spec = spec_of(&payload), linux_part = part(spec, SPEC_LINUX, 0);

    assert_text(linux_part, LINUX_CGROUPS_PATH, 0, "/crust-1");
    assert_int_equal(count(linux_part, LINUX_NAMESPACES), array_length(types));
    for (size_t i = 0; i < array_length(types); i++)
        assert_text(part(linux_part, LINUX_NAMESPACES, i), NAMESPACE_TYPE, 0, types[i]);
    assert_int_equal(count(part(linux_part, LINUX_NAMESPACES, 1), NAMESPACE_PATH), 0);
    assert_text(part(linux_part, LINUX_NAMESPACES, 2), NAMESPACE_PATH, 0, "/proc/1/ns/pid");
    assert_int_equal(count(spec, SPEC_MOUNTS), 0);
    assert_int_equal(count(whole(&payload), CREATE_STORAGES), 0);
    buffer_done(&payload);
}

static void small_requests_have_these_bytes(void **state)
{
    static const struct {
        enum container_step step;
        uint32_t number;
        size_t length;
        const char *bytes;
    } rows[] = {
        {CONTAINER_START, 0, 4, "\x0a\x02\x63\x31"},
        {CONTAINER_REMOVE, 0, 4, "\x0a\x02\x63\x31"},
        {CONTAINER_WAIT, 0, 8, "\x0a\x02\x63\x31\x12\x02\x63\x31"},
        {CONTAINER_KILL, 9, 10, "\x0a\x02\x63\x31\x12\x02\x63\x31\x18\x09"},
        {CONTAINER_READ, 300, 11, "\x0a\x02\x63\x31\x12\x02\x63\x31\x18\xac\x02"},
    };

    for (size_t i = 0; i < array_length(rows); i++) {
        struct buffer payload = BUFFER_INIT(0);

        assert_int_equal(container_append_call(&payload, rows[i].step, "c1", rows[i].number), 0);
        assert_int_equal(payload.length, rows[i].length);
        assert_memory_equal(payload.data, rows[i].bytes, rows[i].length);
        buffer_done(&payload);
    }
}

static void copied_piece_has_its_place(void **state)
{
    const struct container_request request = {.directory = "/run", .program = "f"};
    const struct container_copy copy = {
        .mode = 0755, .file_bytes = 9, .offset = 4, .data = "a\0b", .length = 3};
    struct buffer payload = BUFFER_INIT(0);
    struct slice data;

    assert_int_equal(container_append_copy(&payload, &request, &copy), 0);
    assert_text(whole(&payload), 1, 0, "/run/f");
    assert_int_equal(number_of(whole(&payload), 2), 9);
    assert_int_equal(number_of(whole(&payload), 3), 0100755);
    assert_int_equal(number_of(whole(&payload), 4), 040755);
    assert_int_equal(number_of(whole(&payload), 7), 4);
    data = part(whole(&payload), 8, 0);
    assert_int_equal(data.length, 3);
    assert_memory_equal(data.bytes, "a\0b", 3);
    buffer_done(&payload);
}

static void answers_are_read(void **state)
{
    struct buffer bytes = BUFFER_INIT(6);
    int status = -1;
    bool end;

    assert_int_equal(container_parse_wait("", 0, &status), 0);
    assert_int_equal(status, 0);
    assert_int_equal(container_parse_wait("\x08\x09", 2, &status), 0);
    assert_int_equal(status, 9);
    assert_int_equal(
        container_parse_wait("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &status), 0);
    assert_int_equal(status, -1);
    assert_int_equal(container_parse_wait("\x08", 1, &status), -EBADMSG);
    assert_int_equal(container_parse_read("", 0, false, &bytes, &end), 0);
    assert_true(end);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab\0c",
                                          6, false, &bytes, &end),
                     0);
    assert_false(end);
    assert_int_equal(bytes.length, 4);
    assert_memory_equal(bytes.data, "ab\0c", 4);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab\0c",
                                          6, false, &bytes, &end),
                     -EMSGSIZE);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab",
                                          4, false, &bytes, &end),
                     -EBADMSG);
    assert_int_equal(bytes.length, 4);
    buffer_clear(&bytes);
    bytes.limit = 2;
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab\0c",
                                          6, true, &bytes, &end),
                     0);
    assert_int_equal(bytes.length, 2);
    buffer_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_is_named_twice),
        cmocka_unit_test(process_has_its_arguments_and_two_capabilities),
        cmocka_unit_test(root_is_the_directory_read_only),
        cmocka_unit_test(drives_need_more_capabilities),
        cmocka_unit_test(it_is_in_the_mounts_and_pids_of_the_agent),
        cmocka_unit_test(small_requests_have_these_bytes),
        cmocka_unit_test(copied_piece_has_its_place),
        cmocka_unit_test(answers_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
