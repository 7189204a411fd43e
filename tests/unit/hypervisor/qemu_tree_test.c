/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_tree_test.c - addresses of drives, out of trees as QEMU 7.2 prints them. */
#include "tests/unit/test.h"

#include <string.h>

#include "hypervisor/qemu_report.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

#define HEAD                                                                                       \
    "bus: main-system-bus\n  type System\n  dev: hpet, id \"\"\n    gpio-in \"\" 2\n"              \
    "  dev: q35-pcihost, id \"\"\n    MCFG = 2952790016 (0xb0000000)\n    bus: pcie.0\n"           \
    "      type PCIE\n"

static const char recorded[] =
    HEAD "      dev: pcie-root-port, id \"rp0\"\n        addr = 03.0\n        bus: rp0\n"
         "          type PCIE\n"
         "      dev: virtio-scsi-pci, id \"scsi0\"\n        addr = 01.0\n"
         "        class SCSI controller, addr 00:01.0, pci id 1af4:1048 (sub 1af4:1100)\n"
         "        bus: virtio-bus\n          type virtio-pci-bus\n"
         "          dev: virtio-scsi-device, id \"\"\n            bus: scsi0.0\n"
         "              type SCSI\n              dev: scsi-hd, id \"drive-2\"\n"
         "                drive = \"drive-2\"\n                channel = 0 (0x0)\n"
         "                scsi-id = 0 (0x0)\n                lun = 1 (0x1)\n"
         "      dev: pci-bridge, id \"pci-bridge-0\"\n        addr = 02.0\n"
         "        bus: pci-bridge-0\n          type PCI\n"
         "          dev: virtio-blk-pci, id \"drive-1\"\n            addr = 1f.3\n"
         "            bus: virtio-bus\n              type virtio-pci-bus\n"
         "              dev: virtio-blk-device, id \"\"\n                drive = \"drive-1\"\n"
         "          dev: virtio-blk-pci, id \"drive-10\"\n            addr = 02.0\n"
         "            bus: virtio-bus\n              dev: virtio-blk-device, id \"\"\n"
         "                drive = \"drive-10\"\n"
         "      dev: mch, id \"\"\n        addr = 00.0\n";

static void assert_address(const char *text, const char *drive, const char *expected)
{
    char address[QEMU_ADDRESS_BYTES] = "untouched";

    assert_int_equal(qemu_tree_find(text, drive, address), expected != NULL);
    assert_string_equal(address, expected ? expected : "untouched");
}

static void finds_disks_on_either_bus(void **state)
{
    assert_address(recorded, "drive-1", "pci:02/1f.3");
    assert_address(recorded, "drive-10", "pci:02/02");
    assert_address(recorded, "drive-2", "scsi:0:1");
}

static void uncertain_tree_gives_no_address(void **state)
{
    assert_address(recorded, "drive-3", NULL);
    assert_address(recorded, "drive", NULL);
    assert_address("", "drive-1", NULL);
    assert_address("drive = \"drive-1\"\n", "drive-1", NULL);
    assert_address("unknown command: 'info qtree'\n", "drive-1", NULL);
    /* Without a slot anywhere above, and on two devices. */
    assert_address("dev: virtio-blk-ccw, id \"\"\n  drive = \"a\"\n", "a", NULL);
    assert_address("dev: b, id \"\"\n  addr = 01.0\n  drive = \"a\"\n"
                   "dev: c, id \"\"\n  addr = 02.0\n  drive = \"a\"\n",
                   "a", NULL);
    assert_address("dev: b, id \"\"\n  drive = \"a\"\n"
                   "dev: c, id \"\"\n  addr = 02.0\n  drive = \"a\"\n",
                   "a", NULL);
    assert_address("dev: b, id \"\"\n  addr = xx.0\n  drive = \"a\"\n", "a", NULL);
    assert_address("dev: b, id \"\"\n  addr = 02\n  drive = \"a\"\n", "a", NULL);
    assert_address("dev: scsi-hd, id \"\"\n  drive = \"a\"\n  lun = 1 (0x1)\n", "a", NULL);
}

static void has_bounds(void **state)
{
    cleanup(buffer_done) struct buffer deep = BUFFER_INIT(1 << 20);

    for (unsigned depth = 0; depth < 64; depth++) {
        assert_int_equal(buffer_append_format(&deep, "%*sdev: bridge, id \"\"\n%*s addr = 01.0\n",
                                              (int)depth * 2, "", (int)depth * 2, ""),
                         0);
        if (depth == 3) {
            cleanup(buffer_done) struct buffer four = BUFFER_INIT(1 << 20);

            assert_int_equal(buffer_append_text(&four, buffer_text(&deep)), 0);
            assert_int_equal(buffer_append_text(&four, "         drive = \"a\"\n"), 0);
            assert_address(buffer_text(&four), "a", "pci:01/01/01/01");
        }
        if (depth == 24) { /* an address that is longer than any */
            cleanup(buffer_done) struct buffer long_one = BUFFER_INIT(1 << 20);

            assert_int_equal(buffer_append_text(&long_one, buffer_text(&deep)), 0);
            assert_int_equal(buffer_append_text(&long_one, "  drive = \"a\"\n"), 0);
            assert_address(buffer_text(&long_one), "a", NULL);
        }
    }
    assert_int_equal(buffer_append_text(&deep, "  drive = \"a\"\n"), 0);
    assert_address(buffer_text(&deep), "a", NULL);
}

/* As many lines as a monitor may send: each costs what it is long, and not what follows it. */
static void many_lines_cost_no_more(void **state)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    uint64_t began;

    assert_int_equal(buffer_append_text(&text, "dev: a, id \"\"\n"), 0);
    for (unsigned i = 0; i < 100 * 1000; i++)
        assert_int_equal(buffer_append_text(&text, "  x = 1\n"), 0);
    began = clock_processor();
    assert_address(buffer_text(&text), "a", NULL);
    assert_true(clock_processor() - began < NSEC_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_disks_on_either_bus),
        cmocka_unit_test(uncertain_tree_gives_no_address),
        cmocka_unit_test(has_bounds),
        cmocka_unit_test(many_lines_cost_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
