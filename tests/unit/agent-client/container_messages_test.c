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

#include "agent-client/container_messages.h"
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

static const struct container_spec ordinary = {
    .container_id = "crust-1",
    .directory = "/run/kata-containers/shared/containers/crust-1",
    .program = "agent",
    .arguments = (const char *const[]){"--once", "/vol/0", NULL},
    .volume_paths = (const char *const[]){"/run/x", "/run/y", NULL},
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
    MOUNT_DESTINATION = 1,
    MOUNT_SOURCE = 2,
    MOUNT_TYPE = 3,
    MOUNT_OPTIONS = 4,
    LINUX_CGROUPS_PATH = 5,
    LINUX_NAMESPACES = 6,
    NAMESPACE_TYPE = 1,
    STORAGE_DRIVER = 1,
    STORAGE_SOURCE = 3,
    STORAGE_FSTYPE = 4,
    STORAGE_OPTIONS = 5,
    STORAGE_MOUNT_POINT = 6,
    STORAGE_FS_GROUP = 7,
    FS_GROUP_ID = 2,
    FS_GROUP_POLICY = 3,
};

static struct slice spec_of(struct buffer *payload)
{
    assert_int_equal(container_append_create(payload, &ordinary), 0);
    return part(whole(payload), CREATE_SPEC, 0);
}

static void container_is_named_twice(void **state)
{
    struct buffer payload = BUFFER_INIT(0);

    (void)state;
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

    (void)state;
    assert_int_equal(count(process, PROCESS_ARGS), 3);
    assert_text(process, PROCESS_ARGS, 0, "/agent");
    assert_text(process, PROCESS_ARGS, 1, "--once");
    assert_text(process, PROCESS_ARGS, 2, "/vol/0");
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

static void files_of_others_need_more_capabilities(void **state)
{
    static const char *const names[] = {"CAP_SYS_RESOURCE", "CAP_SYS_ADMIN", "CAP_CHOWN",
                                        "CAP_FOWNER",       "CAP_FSETID",    "CAP_DAC_READ_SEARCH"};
    struct container_spec spec = ordinary;
    struct buffer payload = BUFFER_INIT(0);
    struct slice capabilities;

    (void)state;
    spec.files_of_others = true;
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

    (void)state;
    assert_text(container_root, ROOT_PATH, 0, ordinary.directory);
    assert_int_equal(number_of(container_root, ROOT_READONLY), 1);
    buffer_done(&payload);
}

static void assert_mount(struct slice spec, size_t occurrence, const char *destination,
                         const char *type, const char *source)
{
    struct slice mount = part(spec, SPEC_MOUNTS, occurrence);

    assert_text(mount, MOUNT_DESTINATION, 0, destination);
    assert_text(mount, MOUNT_TYPE, 0, type);
    assert_text(mount, MOUNT_SOURCE, 0, source);
}

/* The tmpfs on /vol comes before what is mounted in it. */
static void mounts_come_in_order(void **state)
{
    struct buffer payload = BUFFER_INIT(0);
    struct slice spec = spec_of(&payload);

    (void)state;
    assert_int_equal(count(spec, SPEC_MOUNTS), 6);
    assert_mount(spec, 0, "/proc", "proc", "proc");
    assert_mount(spec, 1, "/sys", "sysfs", "sysfs");
    assert_text(part(spec, SPEC_MOUNTS, 1), MOUNT_OPTIONS, 3, "ro");
    assert_mount(spec, 2, "/dev", "tmpfs", "tmpfs");
    assert_mount(spec, 3, "/vol", "tmpfs", "tmpfs");
    assert_mount(spec, 4, "/vol/0", "bind", "/run/x");
    assert_mount(spec, 5, "/vol/1", "bind", "/run/y");
    assert_text(part(spec, SPEC_MOUNTS, 5), MOUNT_OPTIONS, 0, "bind");
    assert_text(part(spec, SPEC_MOUNTS, 5), MOUNT_OPTIONS, 1, "rw");
    buffer_done(&payload);
}

static void namespaces_and_cgroup_are_its_own(void **state)
{
    static const char *const types[] = {"mount", "ipc", "uts", "pid"};
    struct buffer payload = BUFFER_INIT(0);
    struct slice linux_part = part(spec_of(&payload), SPEC_LINUX, 0);

    (void)state;
    assert_text(linux_part, LINUX_CGROUPS_PATH, 0, "/crust-1");
    assert_int_equal(count(linux_part, LINUX_NAMESPACES), array_length(types));
    for (size_t i = 0; i < array_length(types); i++)
        assert_text(part(linux_part, LINUX_NAMESPACES, i), NAMESPACE_TYPE, 0, types[i]);
    buffer_done(&payload);
}

static void container_in_the_mounts_of_the_agent_has_none_of_its_own(void **state)
{
    struct container_spec spec = ordinary;
    struct buffer payload = BUFFER_INIT(0);
    struct slice whole_spec, linux_part;

    (void)state;
    spec.in_mounts_of_agent = true;
    assert_int_equal(container_append_create(&payload, &spec), 0);
    whole_spec = part(whole(&payload), CREATE_SPEC, 0);
    linux_part = part(whole_spec, SPEC_LINUX, 0);
    assert_int_equal(count(whole_spec, SPEC_MOUNTS), 0);
    assert_int_equal(count(linux_part, LINUX_NAMESPACES), 3);
    assert_text(part(linux_part, LINUX_NAMESPACES, 0), NAMESPACE_TYPE, 0, "ipc");
    assert_text(part(whole_spec, SPEC_PROCESS, 0), PROCESS_ARGS, 0,
                "/run/kata-containers/shared/containers/crust-1/agent");
    buffer_done(&payload);
}

static void container_without_volumes_or_arguments_can_be_made(void **state)
{
    struct container_spec spec = ordinary;
    struct buffer payload = BUFFER_INIT(0);

    (void)state;
    spec.arguments = spec.volume_paths = NULL;
    assert_int_equal(container_append_create(&payload, &spec), 0);
    assert_int_equal(count(part(whole(&payload), CREATE_SPEC, 0), SPEC_MOUNTS), 4);
    buffer_done(&payload);
}

static void lists_have_bounds(void **state)
{
    static const char *many[CONTAINER_ARGUMENTS + 2];
    struct container_spec spec = ordinary;
    struct buffer payload = BUFFER_INIT(0);

    (void)state;
    for (size_t i = 0; i <= CONTAINER_ARGUMENTS; i++)
        many[i] = "/a";
    spec.arguments = many;
    assert_int_equal(container_append_create(&payload, &spec), -EMSGSIZE);
    many[CONTAINER_ARGUMENTS] = NULL;
    assert_int_equal(container_append_create(&payload, &spec), 0);
    spec.volume_paths = many;
    assert_int_equal(container_append_create(&payload, &spec), -EMSGSIZE);
    many[CONTAINER_VOLUMES] = NULL;
    buffer_clear(&payload);
    assert_int_equal(container_append_create(&payload, &spec), 0);
    assert_mount(part(whole(&payload), CREATE_SPEC, 0), 4 + CONTAINER_VOLUMES - 1, "/vol/63",
                 "bind", "/a");
    buffer_done(&payload);
}

static const struct container_storage drive = {
    .address = "scsi:255:16383",
    .filesystem_type = "ext4",
    .options = (const char *const[]){"noatime", "ro", NULL},
    .mount_point = "/run/kata-containers/crust/d1",
};

/* What CreateContainer says of it; the buffer keeps it. */
static struct slice create_with(struct buffer *payload, const struct container_storage *storage)
{
    struct container_spec spec = ordinary;

    spec.storage = storage;
    assert_int_equal(container_append_create(payload, &spec), 0);
    assert_int_equal(count(whole(payload), CREATE_STORAGES), 1);
    assert_int_equal(count(whole(payload), CREATE_SPEC), 1);
    return part(whole(payload), CREATE_STORAGES, 0);
}

static void storage_is_a_disk_at_an_address(void **state)
{
    struct buffer payload = BUFFER_INIT(0);
    struct slice storage = create_with(&payload, &drive);

    (void)state;
    assert_text(storage, STORAGE_DRIVER, 0, "scsi");
    assert_text(storage, STORAGE_SOURCE, 0, "255:16383");
    assert_text(storage, STORAGE_FSTYPE, 0, "ext4");
    assert_int_equal(count(storage, STORAGE_OPTIONS), 2);
    assert_text(storage, STORAGE_OPTIONS, 0, "noatime");
    assert_text(storage, STORAGE_OPTIONS, 1, "ro");
    assert_text(storage, STORAGE_MOUNT_POINT, 0, "/run/kata-containers/crust/d1");
    assert_int_equal(count(storage, STORAGE_FS_GROUP), 0); /* its walk follows links */
    buffer_done(&payload);
}

static void storage_may_be_at_a_pci_address(void **state)
{
    struct container_storage at_pci = drive;
    struct buffer payload = BUFFER_INIT(0);
    struct slice storage;

    (void)state;
    at_pci.address = "pci:06";
    storage = create_with(&payload, &at_pci);
    assert_text(storage, STORAGE_DRIVER, 0, "blk");
    assert_text(storage, STORAGE_SOURCE, 0, "06");
    buffer_done(&payload);
}

static void container_without_storage_has_none(void **state)
{
    struct buffer payload = BUFFER_INIT(0);

    (void)state;
    (void)spec_of(&payload);
    assert_int_equal(count(whole(&payload), CREATE_STORAGES), 0);
    buffer_done(&payload);
}

static void storage_has_bounds(void **state)
{
    const char *options[CONTAINER_STORAGE_OPTIONS + 2] = {NULL};
    struct container_storage wrong[] = {drive, drive, drive};

    (void)state;
    for (size_t i = 0; i <= CONTAINER_STORAGE_OPTIONS; i++)
        options[i] = "noatime";
    wrong[0].address = "";
    wrong[1].address = "ccw:0.0.0001";
    wrong[2].options = options;
    for (size_t i = 0; i < 3; i++) {
        struct container_spec spec = ordinary;
        struct buffer payload = BUFFER_INIT(0);

        spec.storage = &wrong[i];
        assert_int_equal(container_append_create(&payload, &spec), -EMSGSIZE);
        assert_int_equal(payload.length, 0);
        buffer_done(&payload);
    }
    options[CONTAINER_STORAGE_OPTIONS] = NULL;
    {
        struct buffer payload = BUFFER_INIT(0);

        assert_int_equal(count(create_with(&payload, &wrong[2]), STORAGE_OPTIONS),
                         CONTAINER_STORAGE_OPTIONS);
        buffer_done(&payload);
    }
}

static void small_requests_have_these_bytes(void **state)
{
    struct buffer payload = BUFFER_INIT(0);

    (void)state;
    assert_int_equal(container_append_start(&payload, "c1"), 0);
    assert_int_equal(container_append_remove(&payload, "c2"), 0);
    assert_int_equal(container_append_wait(&payload, "c3"), 0);
    assert_int_equal(container_append_signal(&payload, "c4", 9), 0);
    assert_int_equal(container_append_read(&payload, "c5", 300), 0);
    assert_int_equal(payload.length, 4 + 4 + 8 + 10 + 11);
    assert_memory_equal(payload.data,
                        "\x0a\x02"
                        "c1",
                        4);
    assert_memory_equal(payload.data + 4,
                        "\x0a\x02"
                        "c2",
                        4);
    assert_memory_equal(payload.data + 8,
                        "\x0a\x02"
                        "c3\x12\x02"
                        "c3",
                        8);
    assert_memory_equal(payload.data + 16,
                        "\x0a\x02"
                        "c4\x12\x02"
                        "c4\x18\x09",
                        10);
    assert_memory_equal(payload.data + 26,
                        "\x0a\x02"
                        "c5\x12\x02"
                        "c5\x18\xac\x02",
                        11);
    buffer_done(&payload);
}

static void copied_piece_has_its_place(void **state)
{
    struct container_copy copy = {
        .path = "/run/f", .mode = 0755, .file_bytes = 9, .offset = 4, .data = "a\0b", .length = 3};
    struct buffer payload = BUFFER_INIT(0);
    struct slice data;

    (void)state;
    assert_int_equal(container_append_copy(&payload, &copy), 0);
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

    (void)state;
    assert_int_equal(container_parse_wait("", 0, &status), 0);
    assert_int_equal(status, 0);
    assert_int_equal(container_parse_wait("\x08\x09", 2, &status), 0);
    assert_int_equal(status, 9);
    assert_int_equal(
        container_parse_wait("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &status), 0);
    assert_int_equal(status, -1);
    assert_int_equal(container_parse_wait("\x08", 1, &status), -EBADMSG);
    assert_int_equal(container_parse_read("", 0, &bytes), 0);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab\0c",
                                          6, &bytes),
                     0);
    assert_int_equal(bytes.length, 4);
    assert_memory_equal(bytes.data, "ab\0c", 4);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab\0c",
                                          6, &bytes),
                     -EMSGSIZE);
    assert_int_equal(container_parse_read("\x0a\x04"
                                          "ab",
                                          4, &bytes),
                     -EBADMSG);
    assert_int_equal(bytes.length, 4);
    buffer_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_is_named_twice),
        cmocka_unit_test(process_has_its_arguments_and_two_capabilities),
        cmocka_unit_test(root_is_the_directory_read_only),
        cmocka_unit_test(mounts_come_in_order),
        cmocka_unit_test(files_of_others_need_more_capabilities),
        cmocka_unit_test(namespaces_and_cgroup_are_its_own),
        cmocka_unit_test(container_in_the_mounts_of_the_agent_has_none_of_its_own),
        cmocka_unit_test(container_without_volumes_or_arguments_can_be_made),
        cmocka_unit_test(lists_have_bounds),
        cmocka_unit_test(storage_is_a_disk_at_an_address),
        cmocka_unit_test(storage_may_be_at_a_pci_address),
        cmocka_unit_test(container_without_storage_has_none),
        cmocka_unit_test(storage_has_bounds),
        cmocka_unit_test(small_requests_have_these_bytes),
        cmocka_unit_test(copied_piece_has_its_place),
        cmocka_unit_test(answers_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
