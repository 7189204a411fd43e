/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_report.h - the bodies of Firecracker's answers. No I/O. Private to hypervisor/.
 *
 *     GET /vm/config    {"drives": [{"drive_id": "drive_0", "path_on_host": "/drive_0",
 *                        "is_read_only": false, "io_engine": "Sync", …}], …}
 *     a refusal         {"fault_message": "…"}; its wording differs between versions
 *
 * (firecracker/docs/api_requests/patch-block.md, src/firecracker/swagger/firecracker.yaml there)
 */
#pragma once

#include "hypervisor/drive_report.h"

/* 0, -EBADMSG, -EMSGSIZE, -ENOMEM; in each case the caller frees the report. */
int firecracker_read_config(const char *body, size_t length, struct drive_report *report,
                            struct error *error);

/* HYPERVISOR_REFUSED, with Firecracker's message in `error`. */
enum hypervisor_outcome firecracker_refusal(const char *body, size_t length, struct error *error);
