/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_tree.h - the guest's address of a drive, from QEMU's tree of devices. No I/O. Private to
 * hypervisor/.
 *
 * The input is `info qtree`, by QMP's human-monitor-command, as QEMU 7.2 prints it
 * (recorded): two spaces for each level, a device's own lines before its buses.
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

/* The drive's address in crust-guest-agent's format: pci:02/01, the slots of all devices from the
 * root bus on, or scsi:0:1, target and LUN. false if the tree does not contain it, or contains it
 * twice. */
bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES]);
