/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_report.h - QEMU's report of its block nodes. Private to hypervisor/.
 *
 * QEMU keeps a graph of nodes; a frontend (the guest's disk) holds the root of one chain:
 *
 *     virtio-blk ── raw "drive-1" ── host_device "#block046" ── /dev/fdset/2
 *                   root node        protocol node              file
 *
 * query-named-block-nodes does not show the edges. A root is matched with its
 * protocol node because QEMU reports the same file for both, or names the whole chain in the root's
 * file as "json:{…}".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hypervisor/qemu_protocols.h"
#include "lib/json.h"
#include "lib/result.h"

enum {
    QEMU_NAME_BYTES = 64,       /* node names have at most 31 characters */
    QEMU_FILE_BYTES = 8192,     /* QEMU's own bound on a file name is 4096 */
    QEMU_REPORT_ENTRIES = 1024, /* nodes, frontends and descriptors each */
};

struct qemu_node {
    char name[QEMU_NAME_BYTES];
    char driver[QEMU_NAME_BYTES];
    char *file; /* as given to QEMU: a path, "/dev/fdset/N" or "json:{…}"; owned */
    bool read_only;
    uint64_t bytes; /* virtual size */
};

/* A descriptor that was passed to QEMU as part of set N and is open in its process. */
struct qemu_descriptor {
    uint64_t set;
    int fd;
};

struct qemu_nodes {
    struct qemu_node *entries; /* owned */
    size_t count;
    struct qemu_protocols protocols; /* of these nodes */
};

struct qemu_report {
    struct qemu_nodes roots;             /* the root node of each frontend that holds one */
    struct qemu_nodes nodes;             /* all named nodes */
    struct qemu_descriptor *descriptors; /* owned */
    size_t descriptor_count;
};

void qemu_report_done(struct qemu_report *report);
void qemu_nodes_done(struct qemu_nodes *nodes);

/* Appends a copy of the node with this file (node->file is ignored). -EBADMSG for a name or file
 * that exceeds its bounds, or a name that exists already, because a report that contradicts itself
 * must not be acted upon. -EMSGSIZE if there are too many nodes, -ENOMEM. */
int qemu_nodes_add(struct qemu_nodes *nodes, const struct qemu_node *node, const char *file,
                   struct error *error);

/* -EMSGSIZE, with the reason in `error`. */
int qemu_report_refuse_size(struct error *error);

const struct qemu_node *qemu_nodes_find(const struct qemu_nodes *nodes, const char *name);

/* Parse the "return" of query-block, query-named-block-nodes and query-fdsets. 0, -EBADMSG,
 * -EMSGSIZE, -ENOMEM. */
int qemu_report_read_frontends(struct qemu_nodes *roots, const cJSON *value, struct error *error);
int qemu_report_read_nodes(struct qemu_nodes *nodes, const cJSON *value, struct error *error);
int qemu_report_read_sets(struct qemu_report *report, const cJSON *value, struct error *error);

/* Whether a name may be put into a command: letters, digits, '-', '.', '_', and one leading '#' as
 * in the names that QEMU generates. */
bool qemu_name_is_plain(const char *name);
