/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - what a helper's report says about one volume. Pure. */
#pragma once

#include "model/reason.h"
#include "reconciler/helper/report.h"

struct helper_verdict {
    enum volume_reason reason; /* NONE: its file system fills the device, or its usage was read */
    char text[HELPER_TEXT_BYTES];
    uint64_t device_bytes; /* according to the guest; 0 unknown */
    struct agent_stats stats;
};

/* volume: the entries for all places at which the volume may be mounted. If there are several, the
 * one on a device of this size is taken; growing the others did no harm, because a file system only
 * ever grows to the size of its own device. grew: the helper was to grow, otherwise only to
 * report. */
void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict);
