/* SPDX-License-Identifier: Apache-2.0 */
/* loss.h - what a power cut leaves of one file. */
#pragma once

#include "tests/power-loss/content.h"
#include "tests/power-loss/disk.h"

/* Operations that no flush has followed, by their index. */
struct pending {
    size_t *index;
    size_t count, room;
};

/* A file at the moment of the power cut. */
struct cut_file {
    unsigned number;               /* of the recording */
    size_t position;               /* how many operations there were */
    const struct content *base;    /* flushed */
    const struct pending *pending; /* of this file */
};

void loss_leave(struct content *content, const struct cut_file *file, enum disk_loss loss,
                uint64_t *seed);
void loss_fill_noise(uint8_t *bytes, size_t length, uint64_t *seed);
