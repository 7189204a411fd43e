/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - which layer of a stack has not followed its lower device, and its remedy. Pure.
 *
 * Sizes are compared by how much they grew since both layers were last seen in step, not as they
 * are: a LUKS header is not missing space.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "observe/observe.h"

/* In their order: the worst of a stack is the stack's. */
enum layer_state {
    LAYER_IN_STEP,
    LAYER_PENDING, /* its lower device has grown and it has not, or a path differs from others */
    LAYER_STALE,   /* the disk has announced that it grew, and keeps its old size */
};

enum { LAYER_REMEDY_BYTES = 256 };

struct layer {
    enum observed_layer_kind kind;
    unsigned above;       /* index of the layer above it, smaller than its own; 0 for the first */
    const char *name;     /* /dev/sda */
    const char *label;    /* dm name; "" */
    uint64_t bytes;       /* now */
    bool announced;       /* it said that it grew */
    uint64_t base_bytes;  /* its size, and that of the layer above, when these two were in step; */
    uint64_t above_bytes; /* 0 and 0: first seen. Both are brought up to date. */

    enum layer_state state; /* of layer_judge() */
    char remedy[LAYER_REMEDY_BYTES];
};

void layers_judge(struct layer *layers, unsigned count);

const char *layer_kind_name(enum observed_layer_kind kind);
