/* SPDX-License-Identifier: Apache-2.0 */
/* persist_test.c - persist.json as Kata's Go runtime writes it, per block device driver. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "observe/kata.h"

#define DEVICES(drive)                                                                             \
    "\"Devices\":[{\"ID\":\"dev1\",\"Type\":\"block\",\"DevType\":\"b\",\"Major\":7,\"Minor\":3,"  \
    "\"BlockDrive\":{\"File\":\"/dev/"                                                             \
    "loop3\",\"ID\":\"drive-0123456789abcdef\",\"PCIPath\":{}," drive                              \
    "}},{\"ID\":\"net\",\"Type\":\"network\",\"BlockDrive\":null}]"
#define DRIVER(name)                                                                               \
    "\"Config\":{\"HypervisorType\":\"qemu\",\"HypervisorConfig\":{\"BlockDeviceDriver\":\"" name  \
    "\"}}"
#define BRIDGES                                                                                    \
    "\"HypervisorState\":{\"Pid\":4242,\"Bridges\":[{\"DeviceAddr\":{\"1\":\"other\"},\"Addr\":2}" \
    ","                                                                                            \
    "{\"DeviceAddr\":{\"2\":\"x\",\"10\":\"drive-0123456789abcdef\"},\"Type\":\"pci\",\"ID\":"     \
    "\"pci-bridge-0\",\"Addr\":3"

static struct persist_sandbox sandbox;

static int parse(const char *text)
{
    struct error error;

    persist_sandbox_done(&sandbox);
    return persist_parse_sandbox(text, strlen(text), &sandbox, &error);
}

static void expect_guest_path(const char *text, const char *path)
{
    assert_int_equal(parse(text), FILE_READ);
    assert_int_equal(sandbox.devices, 1);
    if (path)
        assert_string_equal(sandbox.device[0].guest_path, path);
    else
        assert_null(sandbox.device[0].guest_path);
    persist_sandbox_done(&sandbox);
}

static void reads_a_sandbox(void **state)
{
    assert_int_equal(
        parse("{" DEVICES(
            "\"SCSIAddr\":\"0:1\"") "," BRIDGES "}]},"
                                    "\"AgentState\":{\"URL\":\"vsock://7:1024\"}," DRIVER(
                                        "virtio-scsi") "}"),
        FILE_READ);
    assert_string_equal(sandbox.hypervisor, "qemu");
    assert_string_equal(sandbox.agent_url, "vsock://7:1024");
    assert_int_equal(sandbox.pid, 4242);
    assert_int_equal(sandbox.devices, 1);
    assert_string_equal(sandbox.device[0].id, "dev1");
    assert_string_equal(sandbox.device[0].drive_id, "drive-0123456789abcdef");
    assert_string_equal(sandbox.device[0].file, "/dev/loop3");
    assert_int_equal(sandbox.device[0].major, 7);
    assert_int_equal(sandbox.device[0].minor, 3);
    assert_string_equal(sandbox.device[0].guest_path, "/run/kata-containers/sandbox/storage/MDox");
    persist_sandbox_done(&sandbox);
}

/* A bridge has 32 of them. */
static void only_so_many_slots_of_a_bridge_are_looked_at(void **state)
{
    char text[4096];
    size_t at;

    at = (size_t)snprintf(
        text, sizeof(text), "%s",
        "{" DEVICES("\"SCSIAddr\":\"\"") "," DRIVER(
            "virtio-blk") ","
                          "\"HypervisorState\":{\"Bridges\":[{\"Addr\":2,\"DeviceAddr\":{");
    for (unsigned slot = 0; slot < 64; slot++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "\"%u\":\"other\",", slot);
    (void)snprintf(text + at, sizeof(text) - at, "\"64\":\"drive-0123456789abcdef\"}}]}}");
    expect_guest_path(text, NULL);
}

static void derives_guest_paths(void **state)
{
    /* "03/0a", "02/03/0a", "0.0.0005", "/dev/vdb" */
    expect_guest_path("{" DEVICES("\"SCSIAddr\":\"\"") "," BRIDGES "}]}," DRIVER("virtio-blk") "}",
                      "/run/kata-containers/sandbox/storage/MDMvMGE=");
    expect_guest_path(
        "{" DEVICES("\"SCSIAddr\":\"\"") "," BRIDGES
                                         ",\"ParentID\":\"root\",\"ParentAddr\":2}]}," DRIVER(
                                             "virtio-blk") "}",
        "/run/kata-containers/sandbox/storage/MDIvMDMvMGE=");
    expect_guest_path("{" DEVICES("\"DevNo\":\"0.0.0005\"") "," DRIVER("virtio-blk-ccw") "}",
                      "/run/kata-containers/sandbox/storage/MC4wLjAwMDU=");
    expect_guest_path("{" DEVICES("\"VirtPath\":\"/dev/vdb\"") "," DRIVER("virtio-mmio") "}",
                      "/run/kata-containers/sandbox/storage/L2Rldi92ZGI=");
    expect_guest_path("{" DEVICES("\"VirtPath\":\"/dev/pmem0\"") "," DRIVER("nvdimm") "}", NULL);
    expect_guest_path("{" DEVICES("\"SCSIAddr\":\"\"") "," DRIVER("virtio-scsi") "}", NULL);
    expect_guest_path("{" DEVICES("\"SCSIAddr\":\"\"") "," DRIVER("virtio-blk") "}", NULL);
    expect_guest_path("{" DEVICES("\"SCSIAddr\":\"0:1\"") "}", NULL);
}

static void knows_a_regular_file(void **state)
{
    assert_int_equal(
        parse("{\"devices\":[{\"id\":\"d\",\"type\":\"block\",\"major\":-1,\"minor\":0,"
              "\"blockdrive\":{\"file\":\"/disk.img\"}}]}"),
        FILE_READ);
    assert_int_equal(sandbox.devices, 1);
    assert_int_equal(sandbox.device[0].major, -1);
    assert_string_equal(sandbox.device[0].file, "/disk.img");
    assert_null(sandbox.device[0].drive_id);
    persist_sandbox_done(&sandbox);
}

static void takes_other_types_for_unknown(void **state)
{
    assert_int_equal(parse("{\"Devices\":{\"a\":{\"ID\":\"d\",\"BlockDrive\":{}}},"
                           "\"HypervisorState\":[1],\"AgentState\":\"x\",\"Config\":null}"),
                     FILE_READ);
    assert_int_equal(sandbox.devices, 0);
    assert_int_equal(sandbox.pid, 0);
    assert_null(sandbox.agent_url);
    persist_sandbox_done(&sandbox);
    assert_int_equal(parse("[]"), FILE_WRONG);
    assert_int_equal(parse("{\"AgentState\":1,\"agentState\":2}"), FILE_WRONG);
}

static void every_prefix_is_cut(void **state)
{
    static const char text[] = "{" DEVICES("\"SCSIAddr\":\"0:1\"") "," DRIVER("virtio-scsi") "}";
    struct error error;

    for (size_t length = 0; length < sizeof(text) - 1; length++)
        assert_int_equal(persist_parse_sandbox(text, length, &sandbox, &error), FILE_CUT);
}

static void reads_a_container(void **state)
{
    static const char text[] =
        "{\"Mounts\":[{\"Source\":\"/dev/loop3\",\"Destination\":\"/"
        "data\",\"BlockDeviceID\":\"dev1\"},"
        "{\"Source\":\"/etc/hosts\",\"BlockDeviceID\":\"\"},{\"BlockDeviceID\":\"x\"},7]}";
    static const char ended[] = "{\"State\":\"stopped\",\"Mounts\":[]}";
    struct persist_container container;
    struct error error;

    assert_int_equal(persist_parse_container(text, strlen(text), &container, &error), FILE_READ);
    assert_int_equal(container.mounts, 2);
    assert_false(container.ended);
    assert_string_equal(container.mount[0].source, "/dev/loop3");
    assert_string_equal(container.mount[0].destination, "/data");
    assert_string_equal(container.mount[0].device_id, "dev1");
    assert_string_equal(container.mount[1].source, "/etc/hosts");
    assert_null(container.mount[1].destination);
    assert_null(container.mount[1].device_id);
    persist_container_done(&container);
    assert_int_equal(persist_parse_container(ended, strlen(ended), &container, &error), FILE_READ);
    assert_true(container.ended);
    persist_container_done(&container);
    assert_int_equal(persist_parse_container("", 0, &container, &error), FILE_CUT);
}

static void bounds_the_devices(void **state)
{
    static char text[64 * 1024] = "{\"Devices\":[0";

    for (unsigned i = 0; i < PERSIST_DEVICES; i++)
        memcpy(text + strlen(text), ",0", 3);
    memcpy(text + strlen(text), "]}", 3);
    assert_int_equal(parse(text), FILE_WRONG);
}

static void bounds_the_values(void **state)
{
    enum { VALUES = 65536 };
    static char text[2 * VALUES + 64];
    size_t length = (size_t)snprintf(text, sizeof(text), "{\"HypervisorState\":{\"Bridges\":[0");

    for (unsigned i = 0; i < VALUES - 4; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, ",0");
    memcpy(text + length, "]}}", 4);
    assert_int_equal(parse(text), FILE_READ);
    persist_sandbox_done(&sandbox);
    memcpy(text + length, ",0]}}", 6);
    assert_int_equal(parse(text), FILE_WRONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_sandbox),
        cmocka_unit_test(derives_guest_paths),
        cmocka_unit_test(knows_a_regular_file),
        cmocka_unit_test(takes_other_types_for_unknown),
        cmocka_unit_test(every_prefix_is_cut),
        cmocka_unit_test(reads_a_container),
        cmocka_unit_test(bounds_the_devices),
        cmocka_unit_test(bounds_the_values),
        cmocka_unit_test(only_so_many_slots_of_a_bridge_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
