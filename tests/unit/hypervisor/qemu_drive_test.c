/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_drive_test.c - every way in which a drive is, or is not, the device that has grown. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "hypervisor/qemu_report.h"
#include "lib/cleanup.h"

#define CHAIN_OFFSET                                                                               \
    "json:{\"offset\": 1048576, \"driver\": \"raw\", \"file\": {\"driver\": \"host_device\", "     \
    "\"filename\": \"/dev/loop7\"}}"
#define CHAIN_SIZE                                                                                 \
    "json:{\"size\": 4096, \"driver\": \"raw\", \"file\": {\"driver\": \"host_device\", "          \
    "\"filename\": \"/dev/loop7\"}}"
#define CHAIN_THROTTLE                                                                             \
    "json:{\"throttle-group\": \"tg0\", \"driver\": \"throttle\", \"file\": {\"driver\": "         \
    "\"raw\", \"file\": {\"driver\": \"host_device\", \"filename\": \"/dev/loop7\"}}}"
#define CHAIN_QCOW2                                                                                \
    "json:{\"driver\": \"throttle\", \"file\": {\"driver\": \"qcow2\", \"file\": {\"driver\": "    \
    "\"host_device\", \"filename\": \"/dev/loop7\"}}}"
#define CHAIN_FILE                                                                                 \
    "json:{\"driver\": \"throttle\", \"file\": {\"driver\": \"file\", \"filename\": "              \
    "\"/dev/loop7\"}}"
#define CHAIN_SET                                                                                  \
    "json:{\"driver\": \"throttle\", \"file\": {\"driver\": \"host_device\", \"filename\": "       \
    "\"/dev/fdset/2\"}}"

enum { MOST = 4, MANY = 1000 };

struct node {
    const char *name, *driver, *file;
    bool read_only;
};

/* What a row leaves out is nothing, or HYPERVISOR_DONE. */
struct test_case {
    const char *what;
    struct node roots[MOST];
    struct node nodes[MOST]; /* besides the roots */
    const char *sets;        /* pairs of digits, set and descriptor */
    const char *recorded;
    bool regular_file;
    enum hypervisor_outcome query, resize;
    const char *drive; /* NULL: none */
};

#define HOST(path)                                                                                 \
    {                                                                                              \
        "p", "host_device", path, false                                                            \
    }
#define RAW(name, file)                                                                            \
    {                                                                                              \
        name, "raw", file, false                                                                   \
    }
#define BOTH(outcome) .query = outcome, .resize = outcome

static const struct test_case cases[] = {
    {"a plain path", {RAW("drive-1", "/dev/loop7")}, {HOST("/dev/loop7")}, .drive = "drive-1"},
    {"a symlink",
     {RAW("drive-0", "/dev/loop6"), RAW("drive-1", "/link7")},
     {HOST("/link7")},
     .drive = "drive-1"},
    {"no raw layer", {{"drive-1", "host_device", "/dev/loop7", false}}, .drive = "drive-1"},
    {"a filter",
     {{"drive-1", "throttle", CHAIN_THROTTLE, false}},
     {HOST("/dev/loop7")},
     .drive = "drive-1"},
    {"a descriptor set",
     {RAW("drive-0", "/dev/fdset/1"), RAW("drive-1", "/dev/fdset/2")},
     {HOST("/dev/fdset/2")},
     .sets = "162728",
     .drive = "drive-1"},
    {"a filter over a descriptor set",
     {{"drive-1", "throttle", CHAIN_SET, false}},
     {HOST("/dev/fdset/2")},
     .sets = "27",
     .drive = "drive-1"},
    {"a set that is two things",
     {RAW("drive-1", "/dev/fdset/2")},
     {HOST("/dev/fdset/2")},
     .sets = "2726",
     BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"a set that is not there",
     {RAW("drive-1", "/dev/fdset/2")},
     {HOST("/dev/fdset/2")},
     .sets = "17",
     BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"no set, though it looks like one",
     {RAW("drive-1", "/dev/fdset/2x")},
     {HOST("/dev/fdset/2x")},
     .sets = "27",
     BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"read-only",
     {{"drive-1", "raw", "/dev/loop7", true}},
     {HOST("/dev/loop7")},
     .resize = HYPERVISOR_READ_ONLY,
     .drive = "drive-1"},
    {"a regular file",
     {RAW("drive-1", "/file7")},
     {{"p", "file", "/file7", false}},
     .regular_file = true,
     .resize = HYPERVISOR_UNSUPPORTED,
     .drive = "drive-1"},
    {"a device by the file driver",
     {RAW("drive-1", "/dev/loop7")},
     {{"p", "file", "/dev/loop7", false}},
     .resize = HYPERVISOR_UNSUPPORTED,
     .drive = "drive-1"},
    {"two protocol drivers of one name",
     {RAW("drive-1", "/dev/loop7")},
     {HOST("/dev/loop7"), {"q", "file", "/dev/loop7", false}},
     .resize = HYPERVISOR_UNSUPPORTED,
     .drive = "drive-1"},
    {"the protocol node is not reported",
     {RAW("drive-1", "/dev/loop7")},
     {HOST("/dev/loop6")},
     .resize = HYPERVISOR_UNSUPPORTED,
     .drive = "drive-1"},
    {"a regular file over the file driver in a chain",
     {{"drive-1", "throttle", CHAIN_FILE, false}},
     .resize = HYPERVISOR_UNSUPPORTED,
     .drive = "drive-1"},
    {"qcow2",
     {{"drive-1", "qcow2", "/dev/loop7", false}},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_UNSUPPORTED),
     .drive = "drive-1"},
    {"qcow2 in a chain",
     {{"drive-1", "throttle", CHAIN_QCOW2, false}},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_UNSUPPORTED),
     .drive = "drive-1"},
    {"raw with an offset",
     {RAW("drive-1", CHAIN_OFFSET)},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_UNSUPPORTED),
     .drive = "drive-1"},
    {"raw with a size",
     {RAW("drive-1", CHAIN_SIZE)},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_UNSUPPORTED),
     .drive = "drive-1"},
    {"a name that can't be sent",
     {RAW("drive 1\"", "/dev/loop7")},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_UNSUPPORTED),
     .drive = "drive 1\""},
    {"chains that make no sense",
     {RAW("a", "json:"), RAW("b", "json:{\"driver\": \"raw\"}"),
      RAW("c", "json:{\"file\": {\"driver\": \"host_device\", \"filename\": \"/dev/loop7\"}}"),
      RAW("d", "json:{\"driver\": \"raw\", \"file\": \"p\"}")},
     {HOST("/dev/loop7")},
     BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"no drives at all", .recorded = "drive-1", BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"the recorded drive is another device",
     {RAW("drive-1", "/dev/loop6")},
     {HOST("/dev/loop6")},
     .recorded = "drive-1",
     BOTH(HYPERVISOR_MISMATCH)},
    {"the recorded drive can't be resolved",
     {RAW("drive-1", "/gone")},
     {HOST("/gone")},
     .recorded = "drive-1",
     BOTH(HYPERVISOR_DRIVE_NOT_FOUND)},
    {"the record is stale, another drive is the device",
     {RAW("drive-1", "/dev/loop6"), RAW("drive-2", "/dev/loop7")},
     {HOST("/dev/loop7")},
     .recorded = "drive-1",
     .drive = "drive-2"},
    {"two drives on the device: the first",
     {RAW("drive-1", "/dev/loop7"), RAW("drive-2", "/dev/loop7")},
     {HOST("/dev/loop7")},
     .drive = "drive-1"},
    {"two drives on the device: the recorded one",
     {RAW("drive-1", "/dev/loop7"), RAW("drive-2", "/dev/loop7")},
     {HOST("/dev/loop7")},
     .recorded = "drive-2",
     .drive = "drive-2"},
    {"two drives on the device: the one that can be resized",
     {RAW("drive-1", CHAIN_OFFSET), RAW("drive-2", "/dev/loop7")},
     {HOST("/dev/loop7")},
     .drive = "drive-2"},
};

static struct hypervisor_disk loop_device(char digit)
{
    return (struct hypervisor_disk){.device = makedev(7, digit - '0')};
}

static unsigned resolved; /* paths and descriptors */

/* In the place of the product's own: "/dev/loopN" and "/linkN" are devices, "/fileN" are files, all
 * else does not exist. */
int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk)
{
    char digit;

    resolved++;
    if (sscanf(path, "/dev/loop%c", &digit) == 1 || sscanf(path, "/link%c", &digit) == 1)
        *ret_disk = loop_device(digit);
    else if (sscanf(path, "/file%c", &digit) == 1)
        *ret_disk = (struct hypervisor_disk){true, 1, (ino_t)(digit - '0')};
    else
        return -ENOENT;
    return 0;
}

/* Descriptor N is loop device N. */
int vmm_process_descriptor(struct vmm_process *process, int fd, struct hypervisor_disk *ret_disk)
{
    *ret_disk = loop_device((char)('0' + (fd > 7 ? 7 : fd)));
    return 0;
}

static void add_nodes(struct qemu_nodes *nodes, const struct node *added)
{
    for (size_t i = 0; i < MOST && added[i].name; i++) {
        struct qemu_node node = {.read_only = added[i].read_only};

        (void)snprintf(node.name, sizeof(node.name), "%s", added[i].name);
        (void)snprintf(node.driver, sizeof(node.driver), "%s", added[i].driver);
        assert_int_equal(qemu_nodes_add(nodes, &node, added[i].file, NULL), 0);
    }
}

static void check(const struct test_case *test, enum hypervisor_act act,
                  enum hypervisor_outcome expected)
{
    struct vmm_process process = {.pid = 0};
    struct qemu_descriptor descriptors[MOST];
    struct qemu_report report = {.descriptors = descriptors};
    struct hypervisor_request wanted = {.act = act, .recorded_drive = test->recorded};
    const struct qemu_node *drive = NULL;
    struct error error = {.text = ""};
    enum hypervisor_outcome outcome;

    (void)vmm_process_path(&process, test->regular_file ? "/file7" : "/dev/loop7", &wanted.disk);
    add_nodes(&report.roots, test->roots);
    add_nodes(&report.nodes, test->roots);
    add_nodes(&report.nodes, test->nodes);
    for (const char *pair = test->sets; pair && *pair; pair += 2)
        descriptors[report.descriptor_count++] =
            (struct qemu_descriptor){(uint64_t)(pair[0] - '0'), pair[1] - '0'};
    outcome = qemu_drive_find(&report, &wanted, &process, &drive, &error);
    if (outcome != expected || (drive != NULL) != (test->drive != NULL))
        print_error("%s (act %d): outcome %d, \"%s\"\n", test->what, (int)act, (int)outcome,
                    error.text);
    assert_int_equal(outcome, expected);
    if (test->drive)
        assert_string_equal(drive->name, test->drive);
    else
        assert_null(drive);
    if (outcome != HYPERVISOR_DONE)
        assert_true(error.text[0]);
    qemu_nodes_done(&report.roots);
    qemu_nodes_done(&report.nodes);
}

static void finds_by_identity(void **state)
{
    for (size_t i = 0; i < array_length(cases); i++) {
        check(&cases[i], HYPERVISOR_QUERY, cases[i].query);
        check(&cases[i], HYPERVISOR_RESIZE, cases[i].resize);
    }
}

static void recorded_drive_is_examined_first(void **state)
{
    const struct hypervisor_request wanted = {.disk = loop_device('7'),
                                              .recorded_drive = "drive-999"};
    struct qemu_node node = {.driver = "host_device"};
    struct qemu_report report = {.descriptor_count = 0};
    struct vmm_process process = {.pid = 0};
    const struct qemu_node *drive = NULL;
    struct error error;

    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(node.name, sizeof(node.name), "drive-%u", i);
        assert_int_equal(qemu_nodes_add(&report.roots, &node, "/dev/loop7", NULL), 0);
        assert_int_equal(qemu_nodes_add(&report.nodes, &node, "/dev/loop7", NULL), 0);
    }
    resolved = 0;
    assert_int_equal(qemu_drive_find(&report, &wanted, &process, &drive, &error), HYPERVISOR_DONE);
    assert_int_equal(resolved, 1);
    qemu_nodes_done(&report.roots);
    qemu_nodes_done(&report.nodes);
}

static void understands_refusals(void **state)
{
    static const struct {
        const char *error_class, *text;
        enum hypervisor_outcome outcome;
    } refusals[] = {
        {"GenericError", "Image is read-only", HYPERVISOR_READ_ONLY},
        {"", "Block node is read-only\n", HYPERVISOR_READ_ONLY},
        {"GenericError", "Cannot grow device files", HYPERVISOR_REFUSED},
        {"GenericError", "Cannot resize fixed-size raw disks", HYPERVISOR_UNSUPPORTED},
        {"GenericError",
         "Permission conflict on node 'n0': permissions 'resize' are both required by an unnamed "
         "block device (uses node 'n0' as 'root' child) and unshared by block device 'v0' (uses "
         "node 'n0' as 'root' child).",
         HYPERVISOR_UNSUPPORTED},
        {"",
         "Permission conflict on node 'm0': permissions 'resize' are both required by an unnamed "
         "block device (uses node 'm0' as 'root' child) and unshared by mirror job 'j' (uses node "
         "'m0' as 'source' child).\n",
         HYPERVISOR_BUSY},
        {"GenericError", "Device '(null)' is in use", HYPERVISOR_BUSY},
        {"GenericError", "Cannot find device='' nor node-name='nope'", HYPERVISOR_DRIVE_NOT_FOUND},
        {"", "Error: Cannot find device='' nor node-name='nope'\n", HYPERVISOR_DRIVE_NOT_FOUND},
        {"CommandNotFound", "The command block_resize has not been found", HYPERVISOR_UNSUPPORTED},
        {"GenericError", "Failed to get \"resize\" lock", HYPERVISOR_REFUSED},
        {"", "", HYPERVISOR_REFUSED},
    };

    for (size_t i = 0; i < array_length(refusals); i++)
        assert_int_equal(qemu_refusal(refusals[i].error_class, refusals[i].text),
                         refusals[i].outcome);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_identity),
        cmocka_unit_test(recorded_drive_is_examined_first),
        cmocka_unit_test(understands_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
