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

#include "hypervisor/hypervisor.h"
#include "hypervisor/vmm_process.h"
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

const struct qemu_node *qemu_nodes_find(const struct qemu_nodes *nodes, const char *name);

/* Parse the "return" of query-block (the frontends' roots) or query-named-block-nodes, and of
 * query-fdsets. 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int qemu_report_read_nodes(struct qemu_nodes *nodes, const cJSON *value, bool are_frontends,
                           struct error *error);
int qemu_report_read_sets(struct qemu_report *report, const cJSON *value, struct error *error);

/* Whether a name may be put into a command: letters, digits, '-', '.', '_', and one leading '#' as
 * in the names that QEMU generates. */
bool qemu_name_is_plain(const char *name);

/* ---- qemu drive ----------------------------------------------------------------------------- */

/* Finds the root node whose file is the wanted device. HYPERVISOR_DONE: *ret_drive is set, borrowed
 * from the report, and `wanted->act` may be done to it. READ_ONLY and UNSUPPORTED set it too, to
 * name the drive; DRIVE_NOT_FOUND and MISMATCH leave it unchanged. `error` has the reason. */
enum hypervisor_outcome qemu_drive_find(const struct qemu_report *report,
                                        const struct hypervisor_request *wanted,
                                        struct vmm_process *process,
                                        const struct qemu_node **ret_drive, struct error *error);

/* The outcome for QEMU's refusal. */
enum hypervisor_outcome qemu_refusal(const char *error_class, const char *text);

/* ---- qemu source ---------------------------------------------------------------------------- */

/* The source of a drive's bytes, from its file name. */
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

/* ---- qemu tree ------------------------------------------------------------------------------ */

/* The guest's address of a drive, from QEMU's tree of devices. No I/O.
 *
 * The input is `info qtree`, by QMP's human-monitor-command, as QEMU 7.2 prints it
 * (recorded): two spaces for each level, a device's own lines before its buses.
 *
 *     bus: pcie.0
 *       type PCIE
 *       dev: pci-bridge, id "pci-bridge-0"
 *         addr = 02.0
 *         bus: pci-bridge-0
 *           dev: virtio-blk-pci, id "drive-1"
 *             addr = 01.0
 *             bus: virtio-bus
 *               dev: virtio-blk-device, id ""
 *                 drive = "drive-1"
 */

enum { QEMU_ADDRESS_BYTES = 64 };

/* The drive's address in crust-guest-agent's format: pci:02/01, the slots of all devices from the
 * root bus on, or scsi:0:1, target and LUN. false if the tree does not contain it, or contains it
 * twice. */
bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES]);
