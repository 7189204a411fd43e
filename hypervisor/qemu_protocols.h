/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_protocols.h - by which drivers QEMU opens a file. Private to hypervisor/.
 *
 * A file may be reported for a thousand nodes, and asked about as often. So there is one entry per
 * file name, found by bisection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct qemu_protocol {
    const char *file; /* borrowed */
    bool host_device; /* by a node of this driver */
    bool other;       /* by a node of another one, except raw layers and filters */
};

struct qemu_protocols {
    struct qemu_protocol *entries; /* in the order of their files; owned */
    size_t count;
};

/* Whether a layer of this driver has the size of the layer below it. */
bool qemu_driver_passes_size(const char *driver);

/* A node with this driver and file; the file is kept until qemu_protocols_done(). 0 or -ENOMEM. */
int qemu_protocols_add(struct qemu_protocols *protocols, const char *driver, const char *file);

/* NULL: no such node. */
const struct qemu_protocol *qemu_protocols_find(const struct qemu_protocols *protocols,
                                                const char *file);
void qemu_protocols_done(struct qemu_protocols *protocols);
