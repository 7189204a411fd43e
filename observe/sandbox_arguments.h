/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_arguments.h - the sandbox that the arguments of a VMM or a shim name; no I/O.
 *
 *   QEMU               -name sandbox-ID[,debug-threads=on], -device vhost-vsock-…,guest-cid=N
 *   Cloud Hypervisor   --api-socket …/ID/ch-api.sock
 *   Firecracker        --id ID, or --api-sock …/ID/run/fc.sock
 *   a shim             -id ID (containerd's shim API, which CRI-O speaks as well)
 *
 * The arguments do not prove which program a process runs: any process may have any arguments.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "model/hypervisor.h"

enum { SANDBOX_ARGUMENTS_ID_BYTES = 129 };

enum process_role { PROCESS_VMM, PROCESS_SHIM };

struct sandbox_arguments {
    char id[SANDBOX_ARGUMENTS_ID_BYTES];
    enum process_role role;
    enum hypervisor_kind hypervisor; /* according to argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0: none */
};

/* arguments: as /proc/PID/cmdline, each followed by a NUL. False if they name no sandbox, or are
 * those of Firecracker's jailer or of a command of the shim's program ("start", "delete"). */
bool sandbox_arguments_read(const struct buffer *arguments, struct sandbox_arguments *ret_named);
