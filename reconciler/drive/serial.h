/* SPDX-License-Identifier: Apache-2.0 */
/* serial.h - the serial by which a guest finds the disk of a drive mount. Pure.
 *
 * "crust-" and 14 characters of base32: 70 bits of a SHA-256 over boot, sandbox and drive. So a
 * drive has the same serial after a restart of crustd, and two drives of a node share one only by
 * an unlikely collision. virtio-blk has room for 20 characters.
 */
#pragma once

#include "model/drive.h"

void drive_serial_make(const char *boot_id, const char *sandbox_id, const char *drive_id,
                       char ret_serial[static DRIVE_SERIAL_CHARS + 1]);
