/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_report_test.c - QMP's lists, as recorded from QEMU 7.2 and cut to what matters, and broken.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/qemu_report.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"

#define INFO(name, drv, file, ro, size)                                                            \
    "{\"iops_rd\": 0, \"image\": {\"virtual-size\": " size ", \"filename\": \"" file "\"}, "       \
    "\"ro\": " ro ", \"node-name\": \"" name "\", \"drv\": \"" drv "\", \"file\": \"" file "\"}"

static cJSON *parse(const char *text)
{
    const struct json_limits limits = {1 << 20, 16, 0};
    struct error error;
    cJSON *value = NULL;

    assert_int_equal(json_parse(text, strlen(text), limits, &value, &error), 0);
    return value;
}

#define OLD     INFO("#block655", "raw", "/dev/loop0", "false", "67108864")
#define DRIVE_2 INFO("drive-2", "raw", "/x/lnk", "true", "512")

static void reads_frontends(void **state)
{
    cleanup(json_deletep) cJSON *value = parse("[{\"device\": \"old\", \"inserted\": " OLD "},"
                                               " {\"device\": \"\", \"inserted\": " DRIVE_2 "},"
                                               " {\"device\": \"\", \"inserted\": " DRIVE_2 "},"
                                               " {\"device\": \"\", \"qdev\": \"cd\"}]");
    struct qemu_nodes roots = {0};
    struct error error;

    assert_int_equal(qemu_report_read_nodes(&roots, value, true, &error), 0);
    assert_int_equal(roots.count, 2);
    assert_string_equal(roots.entries[0].name, "#block655");
    assert_int_equal(roots.entries[0].bytes, 67108864);
    assert_true(roots.entries[1].read_only);
    assert_string_equal(roots.entries[1].file, "/x/lnk");
    assert_ptr_equal(qemu_nodes_find(&roots, "drive-2"), &roots.entries[1]);
    assert_null(qemu_nodes_find(&roots, "drive-3"));
    qemu_nodes_done(&roots);
}

static void refuses_broken_nodes(void **state)
{
    static const char *const cases[] = {
        "{}",
        "[1]",
        "[{}]",
        "[" DRIVE_2 ", " DRIVE_2 "]",
        "[" INFO("", "raw", "/x", "false", "1") "]",
        "[" INFO("a", "raw", "/x", "false", "-1") "]",
        "[" INFO("a", "raw", "/x", "false", "1.5") "]",
        "[" INFO("a", "raw", "/x", "false", "\"1\"") "]",
        "[" INFO("0123456789012345678901234567890123456789012345678901234567890123", "raw", "/x",
                 "false", "1") "]",
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(json_deletep) cJSON *value = parse(cases[i]);
        struct qemu_nodes nodes = {0};
        struct error error;

        assert_int_equal(qemu_report_read_nodes(&nodes, value, false, &error), -EBADMSG);
        qemu_nodes_done(&nodes);
    }
}

static void bounds_the_number_of_nodes(void **state)
{
    struct qemu_nodes nodes = {0};
    struct qemu_node node = {.driver = "raw"};
    struct error error;
    int r = 0;

    for (unsigned i = 0; r == 0 && i <= QEMU_REPORT_ENTRIES; i++) {
        (void)snprintf(node.name, sizeof(node.name), "n%u", i);
        r = qemu_nodes_add(&nodes, &node, "/x", &error);
    }
    assert_int_equal(r, -EMSGSIZE);
    assert_int_equal(nodes.count, QEMU_REPORT_ENTRIES);
    qemu_nodes_done(&nodes);
}

static void bounds_file_names(void **state)
{
    char file[QEMU_FILE_BYTES + 1];
    struct qemu_nodes nodes = {0};
    struct qemu_node node = {.name = "a", .driver = "raw"};
    struct error error;

    memset(file, 'x', sizeof(file));
    file[QEMU_FILE_BYTES] = '\0';
    assert_int_equal(qemu_nodes_add(&nodes, &node, file, &error), -EBADMSG);
    file[QEMU_FILE_BYTES - 1] = '\0';
    assert_int_equal(qemu_nodes_add(&nodes, &node, file, &error), 0);
    qemu_nodes_done(&nodes);
}

static void reads_sets(void **state)
{
    cleanup(json_deletep) cJSON *value =
        parse("[{\"fds\": [{\"fd\": 6, \"opaque\": \"kata-block:drive-0:block-source\"}, "
              "{\"fd\": 9}], \"fdset-id\": 2}, {\"fds\": [], \"fdset-id\": 3}]");
    cleanup(json_deletep) cJSON *broken =
        parse("[{\"fds\": [{\"fd\": 4294967296}], \"fdset-id\": 2}]");
    struct qemu_report report = {.descriptor_count = 0};
    struct error error;

    assert_int_equal(qemu_report_read_sets(&report, value, &error), 0);
    assert_int_equal(report.descriptor_count, 2);
    assert_int_equal(report.descriptors[1].set, 2);
    assert_int_equal(report.descriptors[1].fd, 9);
    assert_int_equal(qemu_report_read_sets(&report, broken, &error), -EBADMSG);
    qemu_report_done(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_frontends),
        cmocka_unit_test(refuses_broken_nodes),
        cmocka_unit_test(bounds_the_number_of_nodes),
        cmocka_unit_test(bounds_file_names),
        cmocka_unit_test(reads_sets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
