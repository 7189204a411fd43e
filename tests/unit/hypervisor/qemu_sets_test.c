/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_sets_test.c - which of several drives over fd sets a device is, and when they may be read
 * again. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "hypervisor/qemu_sets.h"
#include "lib/cleanup.h"

enum { MOST = 6, MINE = 7 };

/* The process: which loop devices it holds, and their sizes; which regular files. */
static struct process {
    struct vmm_resolver resolver;
    int device[MOST]; /* minor numbers */
    uint64_t bytes[MOST];
    size_t devices;
    struct vmm_file file[MOST];
    size_t files;
    int files_result, bytes_result;
    unsigned paths, sizes; /* how many were asked for */
} process;

static struct vmm_identity loop_device(int number)
{
    return (struct vmm_identity){.block_device = true, .device = makedev(7, (unsigned)number)};
}

static int fake_path(struct vmm_resolver *resolver, const char *path,
                     struct vmm_identity *ret_identity)
{
    int number;

    (void)resolver;
    process.paths++;
    if (sscanf(path, "/dev/loop%d", &number) == 1)
        *ret_identity = loop_device(number);
    else if (sscanf(path, "/file%d", &number) == 1)
        *ret_identity = (struct vmm_identity){.device = 1, .inode = (ino_t)number};
    else
        return -ENOENT;
    return 0;
}

static size_t fake_held(struct vmm_resolver *resolver, struct vmm_identity *ret_identities,
                        size_t size)
{
    size_t count = 0;

    (void)resolver;
    assert_true(size >= 2 * MOST);
    for (size_t i = 0; i < process.devices; i++) {
        ret_identities[count++] = loop_device(process.device[i]);
        ret_identities[count++] = loop_device(process.device[i]); /* a set's, and the node's */
    }
    for (size_t i = 0; i < process.files; i++)
        ret_identities[count++] = process.file[i].identity;
    return count;
}

static int fake_files(struct vmm_resolver *resolver, struct vmm_file *ret_files, size_t size,
                      size_t *ret_count)
{
    (void)resolver;
    assert_true(size >= process.files);
    memcpy(ret_files, process.file, process.files * sizeof(*ret_files));
    *ret_count = process.files;
    return process.files_result;
}

static int fake_bytes(struct vmm_resolver *resolver, const struct vmm_identity *identity,
                      uint64_t *ret_bytes)
{
    (void)resolver;
    process.sizes++;
    for (size_t i = 0; i < process.devices; i++)
        if (identity->device == makedev(7, (unsigned)process.device[i])) {
            *ret_bytes = process.bytes[i];
            return process.bytes_result;
        }
    return -ENOENT;
}

static int set_up(void **state)
{
    (void)state;
    process = (struct process){
        .resolver = {
            .path = fake_path, .held = fake_held, .files = fake_files, .bytes = fake_bytes}};
    return 0;
}

static void hold(int number, uint64_t bytes)
{
    process.device[process.devices] = number;
    process.bytes[process.devices++] = bytes;
}

static void open_file(int inode, int fd)
{
    process.file[process.files++] =
        (struct vmm_file){.identity = {.device = 1, .inode = (ino_t)inode}, .fd = fd};
}

static void add_node(struct qemu_nodes *nodes, const char *name, const char *driver,
                     const char *file, uint64_t bytes, bool read_only)
{
    struct qemu_node node = {.bytes = bytes, .read_only = read_only};

    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.driver, sizeof(node.driver), "%s", driver);
    assert_int_equal(qemu_nodes_add(nodes, &node, file, NULL), 0);
}

/* A frontend's root, with its protocol node. */
static void add_drive(struct qemu_report *report, const char *name, const char *protocol,
                      const char *file, uint64_t bytes, bool read_only)
{
    char protocol_name[QEMU_NAME_BYTES];

    (void)snprintf(protocol_name, sizeof(protocol_name), "#%s", name);
    add_node(&report->roots, name, "raw", file, bytes, read_only);
    add_node(&report->nodes, name, "raw", file, bytes, read_only);
    add_node(&report->nodes, protocol_name, protocol, file, bytes, read_only);
}

static void add_set(struct qemu_report *report, const char *name, uint64_t bytes)
{
    char file[32];

    (void)snprintf(file, sizeof(file), "/dev/fdset/%zu", report->roots.count);
    add_drive(report, name, "host_device", file, bytes, false);
}

/* Matches loop device 7 by size; ret_drive: its drive's name, "" for none. */
static enum qemu_match_result match_loop7(const struct qemu_sets *sets,
                                          const struct qemu_report *report, const char **ret_drive,
                                          uint64_t *ret_bytes)
{
    static struct qemu_match result;
    struct vmm_wanted wanted = {.identity = loop_device(MINE)};
    enum qemu_match_result answer =
        qemu_sets_match(sets, report, &wanted, &process.resolver, &result);

    *ret_drive = result.drive ? result.drive->name : "";
    *ret_bytes = result.bytes;
    assert_int_equal(result.doubt.text[0] != '\0', answer != QEMU_MATCH_UNIQUE);
    return answer;
}

static size_t read_sets(struct qemu_sets *sets, const struct qemu_report *report)
{
    struct vmm_wanted wanted = {.identity = loop_device(MINE)};

    assert_int_equal(qemu_sets_read(sets, report, &wanted, &process.resolver), 0);
    return sets->count;
}

/* All are read again; these are the sizes then. */
static void refresh(struct qemu_sets *sets, struct qemu_report *report, const uint64_t *bytes)
{
    struct qemu_set_drive *drive;

    while ((drive = qemu_sets_next(sets)))
        drive->refreshed = true;
    for (size_t i = 0; i < report->roots.count; i++)
        report->roots.entries[i].bytes = bytes[i];
    qemu_sets_update(sets, &report->roots);
}

#define CHECK(sets, report, expected, name, size)                                                  \
    do {                                                                                           \
        const char *drive;                                                                         \
        uint64_t bytes;                                                                            \
        assert_int_equal(match_loop7(sets, report, &drive, &bytes), expected);                     \
        assert_string_equal(drive, name);                                                          \
        assert_int_equal(bytes, size);                                                             \
    } while (0)

static void listed_sizes_count_if_they_are_those_of_the_devices(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_set(&report, "a", 100);
    add_set(&report, "b", 200);
    hold(6, 200);
    hold(MINE, 100);
    assert_int_equal(read_sets(&sets, &report), 2);
    CHECK(&sets, &report, QEMU_MATCH_UNIQUE, "a", 100);
}

/* One device has grown, to the very size of the other: its old size must not be taken for it. */
static void outdated_sizes_are_not_conclusive(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_set(&report, "a", 100);
    add_set(&report, "b", 200);
    hold(6, 400);
    hold(MINE, 200);
    assert_int_equal(read_sets(&sets, &report), 2);
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
    refresh(&sets, &report, (const uint64_t[]){200, 400});
    CHECK(&sets, &report, QEMU_MATCH_UNIQUE, "a", 200);
}

static void equal_sizes_are_a_tie(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        add_set(&report, (const char *[]){"a", "b", "c"}[i], 100);
        hold(5 + i, 100);
    }
    assert_int_equal(read_sets(&sets, &report), 3);
    CHECK(&sets, &report, QEMU_MATCH_TIED, "", 100);
    process.bytes[2] = 200; /* loop 7 */
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
    refresh(&sets, &report, (const uint64_t[]){100, 200, 100});
    CHECK(&sets, &report, QEMU_MATCH_UNIQUE, "b", 200);
    process.bytes[1] = 200;
    refresh(&sets, &report, (const uint64_t[]){100, 200, 200});
    CHECK(&sets, &report, QEMU_MATCH_TIED, "", 200);
}

static void a_set_that_was_not_read_again_does_not_count(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_drive(&report, "ro", "host_device", "/dev/fdset/0", 200, true);
    add_set(&report, "a", 100);
    hold(6, 300); /* of "ro", which goes on having 200 */
    hold(MINE, 200);
    assert_int_equal(read_sets(&sets, &report), 2);
    refresh(&sets, &report, (const uint64_t[]){200, 200});
    CHECK(&sets, &report, QEMU_MATCH_UNIQUE, "a", 200);
    refresh(&sets, &report, (const uint64_t[]){200, 100}); /* it grew once more meanwhile */
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
}

/* Another device of that size is held, and no drive is it: then the drive may be that one's. */
static void a_device_without_a_drive_counts(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_set(&report, "a", 100);
    hold(6, 100);
    hold(MINE, 100);
    assert_int_equal(read_sets(&sets, &report), 1);
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
    refresh(&sets, &report, (const uint64_t[]){100});
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
    process.bytes[0] = 50;
    CHECK(&sets, &report, QEMU_MATCH_UNIQUE, "a", 100);
}

static void a_drive_that_is_gone_is_not_reported(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};
    struct qemu_nodes none = {0};

    (void)state;
    add_set(&report, "a", 100);
    add_set(&report, "b", 100);
    hold(6, 100);
    hold(MINE, 100);
    assert_int_equal(read_sets(&sets, &report), 2);
    qemu_sets_update(&sets, &none);
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
}

static void unreadable_sizes_are_not_conclusive(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_set(&report, "a", 100);
    add_set(&report, "b", 200);
    hold(6, 200);
    hold(MINE, 100);
    process.bytes_result = -ENOENT;
    assert_int_equal(read_sets(&sets, &report), 2);
    CHECK(&sets, &report, QEMU_MATCH_UNCLEAR, "", 0);
}

/* The device is not held, or by a path, or the monitor reports its sets: no sizes are compared. */
static void sets_are_asked_for_only_when_needed(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_set(&report, "a", 100);
    assert_int_equal(read_sets(&sets, &report), 0);
    hold(MINE, 100);
    report.sets_known = true;
    assert_int_equal(read_sets(&sets, &report), 0);
    report.sets_known = false;
    assert_int_equal(read_sets(&sets, &report), 1);
    qemu_sets_done(&sets);
    add_drive(&report, "b", "host_device", "/dev/loop7", 100, false);
    assert_int_equal(read_sets(&sets, &report), 0);
}

/* Only what is raw over host_device and can be named is ever read again. */
static void odd_drives_are_left_alone(void **state)
{
    static const char chain[] =
        "json:{\"driver\": \"raw\", \"offset\": 512, \"file\": {\"driver\": "
        "\"host_device\", \"filename\": \"/dev/fdset/8\"}}";
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};

    (void)state;
    add_drive(&report, "file", "file", "/dev/fdset/1", 100, false);
    add_drive(&report, "na me", "host_device", "/dev/fdset/2", 100, false);
    add_drive(&report, "ro", "host_device", "/dev/fdset/3", 100, true);
    add_drive(&report, "loop", "host_device", "/dev/loop3", 100, false);
    add_node(&report.roots, "qcow2", "qcow2", "/dev/fdset/4", 100, false);
    add_node(&report.roots, "offset", "raw", chain, 100, false);
    hold(MINE, 100);
    assert_int_equal(read_sets(&sets, &report), 1); /* "ro", for its size */
    assert_string_equal(sets.drives[0].name, "ro");
    assert_null(qemu_sets_next(&sets));
}

static void may(const struct qemu_report *report, const char *refused)
{
    struct error error = {.text = ""};

    assert_int_equal(qemu_sets_may_refresh(report, &process.resolver, &error),
                     refused ? HYPERVISOR_DRIVE_NOT_FOUND : HYPERVISOR_DONE);
    if (refused && !strstr(error.text, refused))
        print_error("\"%s\" is not in \"%s\"\n", refused, error.text);
    assert_true(!refused || strstr(error.text, refused));
}

static void a_regular_file_keeps_all_as_they_are(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};

    (void)state;
    add_set(&report, "a", 100);
    may(&report, NULL);
    open_file(3, 16);
    may(&report, "its descriptor 16 is a regular file");
    add_drive(&report, "image", "file", "/file3", 100, false); /* a drive names it */
    may(&report, NULL);
    open_file(4, 17);
    may(&report, "descriptor 17");
    process.files = 1;
    process.files_result = -EACCES;
    may(&report, "cannot be listed");
}

/* However many files there are, each node's path is resolved once. */
static void files_are_compared_in_one_go(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};

    (void)state;
    for (int i = 0; i < MOST; i++)
        open_file(i, 16 + i);
    add_node(&report.nodes, "a", "file", "/file0", 100, false);
    add_node(&report.nodes, "b", "file", "/file2", 100, false);
    may(&report, "its descriptor 17 is a regular file");
    assert_int_equal(process.paths, 2);
    process.files = 1;
    may(&report, NULL);
}

static void nothing_is_read_again_without_time_to_examine_it(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};
    struct vmm_wanted wanted = {.identity = loop_device(MINE)};
    struct qemu_match match;
    struct error error;

    (void)state;
    add_set(&report, "a", 100);
    add_node(&report.nodes, "b", "file", "/file0", 100, false);
    hold(MINE, 100);
    process.resolver.until_ns = 1;
    assert_int_equal(qemu_sets_may_refresh(&report, &process.resolver, &error),
                     HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(error.text, "than crustd examines"));
    assert_int_equal(qemu_sets_read(&sets, &report, &wanted, &process.resolver), -ETIME);
    assert_int_equal(qemu_sets_match(&sets, &report, &wanted, &process.resolver, &match),
                     QEMU_MATCH_UNCLEAR);
    assert_int_equal(process.paths + process.sizes, 0);
}

static void a_node_that_may_be_a_file_keeps_all_as_they_are(void **state)
{
    static const char *const odd[][2] = {
        {"file", "/dev/fdset/9"},
        {"qcow2", "/dev/fdset/9"},
        {"throttle", "json:{\"driver\": \"throttle\", \"file\": {\"driver\": \"file\", "
                     "\"filename\": \"/dev/fdset/9\"}}"},
        {"throttle", "json:{\"driver\": \"throttle\", \"file\": \"x\"}"},
    };

    (void)state;
    for (size_t i = 0; i < array_length(odd); i++) {
        cleanup(qemu_report_done) struct qemu_report report = {0};

        add_set(&report, "a", 100);
        add_node(&report.nodes, "odd", odd[i][0], odd[i][1], 100, true);
        may(&report, "node odd");
    }
}

static void a_job_is_waited_for(void **state)
{
    cleanup(qemu_report_done) struct qemu_report report = {0};
    struct error error;

    (void)state;
    add_set(&report, "a", 100);
    add_node(&report.nodes, "#filter", "mirror_top", "/dev/fdset/0", 100, false);
    assert_int_equal(qemu_sets_may_refresh(&report, &process.resolver, &error), HYPERVISOR_BUSY);
    assert_non_null(strstr(error.text, "a block job works on QEMU's drives (node #filter"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(listed_sizes_count_if_they_are_those_of_the_devices, set_up),
        cmocka_unit_test_setup(outdated_sizes_are_not_conclusive, set_up),
        cmocka_unit_test_setup(equal_sizes_are_a_tie, set_up),
        cmocka_unit_test_setup(a_set_that_was_not_read_again_does_not_count, set_up),
        cmocka_unit_test_setup(a_device_without_a_drive_counts, set_up),
        cmocka_unit_test_setup(a_drive_that_is_gone_is_not_reported, set_up),
        cmocka_unit_test_setup(unreadable_sizes_are_not_conclusive, set_up),
        cmocka_unit_test_setup(sets_are_asked_for_only_when_needed, set_up),
        cmocka_unit_test_setup(odd_drives_are_left_alone, set_up),
        cmocka_unit_test_setup(a_regular_file_keeps_all_as_they_are, set_up),
        cmocka_unit_test_setup(a_job_is_waited_for, set_up),
        cmocka_unit_test_setup(files_are_compared_in_one_go, set_up),
        cmocka_unit_test_setup(nothing_is_read_again_without_time_to_examine_it, set_up),
        cmocka_unit_test_setup(a_node_that_may_be_a_file_keeps_all_as_they_are, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
