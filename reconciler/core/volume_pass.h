/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass.h - one volume: loaded, its device refreshed, bound, decided, recorded.
 *
 * Everything is compared with the record, and an equal fact writes nothing. So it does not matter
 * why a volume is decided again, or how often.
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
