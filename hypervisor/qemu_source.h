/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_source.h - parses the source of a drive's bytes from its file name. Private to
 * hypervisor/. */
#pragma once

#include "hypervisor/qemu_report.h"

struct qemu_source {
    bool is_set; /* /dev/fdset/N */
    uint64_t set;
    bool layered;               /* a layer is neither raw nor a filter */
    bool fixed;                 /* a layer has an offset or a size of its own */
    bool host_device;           /* the protocol node's driver */
    char file[QEMU_FILE_BYTES]; /* the innermost file name; large, and not cleared */
};

/* Reads the layers of a root node; `nodes` are all of QEMU's, none of which has been changed since
 * it was added. false if its file is invalid. */
bool qemu_source_read(struct qemu_source *source, const struct qemu_node *root,
                      const struct qemu_nodes *nodes);
