/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - what a helper's report says of one volume. Pure. */
#pragma once

#include "model/reason.h"
#include "reconciler/helper/report.h"

struct helper_verdict {
    enum volume_reason reason; /* NONE: its file system fills the device, or was counted */
    char text[HELPER_TEXT_BYTES];
    uint64_t device_bytes; /* as the guest has it; 0 unknown */
    struct agent_stats stats;
};

/* volume: the entries of all places at which the volume may be mounted. Of several it is the one
 * on a device of this size; growing the others did no harm, for a file system is only ever grown to
 * its own device. grew: the helper was to grow, else only to report. */
void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict);
