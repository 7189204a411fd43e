/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass.h - the pass over one volume: load, refresh its device, bind, decide, record.
 *
 * Everything is compared with the record, and an equal fact writes nothing. So it does not matter
 * why or how often a volume is decided again.
 */
#pragma once

#include <stdint.h>

struct actor;
struct context;
struct devices;
struct observer;

struct volume_pass {
    const struct context *context;
    struct devices *devices;
    const struct observer *observer;
    struct actor *actor;
};

/* 0 or -errno of the store, which ends the pass. */
int volume_pass_run(const struct volume_pass *pass, int64_t volume_id);
