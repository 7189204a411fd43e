/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_tree.h - where the guest sees a drive, out of QEMU's tree of devices. No I/O. Private to
 * hypervisor/.
 *
 * `info qtree`, over HMP or by QMP's human-monitor-command, as QEMU 7.2 prints it (recorded): two
 * spaces for each level, a device's own lines before its buses.
 *
 *     bus: pcie.0
 *       type PCIE
 *       dev: pci-bridge, id "pci-bridge-0"
 *         addr = 02.0
 *         bus: pci-bridge-0
 *           dev: virtio-blk-pci, id "drive-1"
 *             addr = 01.0
 *             bus: virtio-bus
 *               dev: virtio-blk-device, id ""
 *                 drive = "drive-1"
 */
#pragma once

#include <stdbool.h>

enum { QEMU_ADDRESS_BYTES = 64 };

/* The drive's address in crust-guest-agent's words: pci:02/01, each device from the root bus on by
 * its slot, or scsi:0:1, by target and LUN. False if the tree does not have it, or has it twice. */
bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES]);
