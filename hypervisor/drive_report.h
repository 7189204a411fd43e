/* SPDX-License-Identifier: Apache-2.0 */
/* drive_report.h - the drives that a VMM reports, and which of them is the device. Private to
 * hypervisor/.
 *
 * For VMMs that report each drive with an id and the path that it was given: Cloud Hypervisor and
 * Firecracker. QEMU's graph of nodes has its own module (qemu_report.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "hypervisor/hypervisor.h"
#include "hypervisor/vmm_process.h"

enum {
    DRIVE_ID_BYTES = 128,
    DRIVE_PATH_BYTES = 4096,
    DRIVE_ADDRESS_BYTES = 16,
    DRIVE_SERIAL_BYTES = 64,
    DRIVE_REPORT_ENTRIES = 1024,
};

struct drive {
    char id[DRIVE_ID_BYTES];
    char *path; /* as given to the VMM; owned */
    bool read_only;
    char address[DRIVE_ADDRESS_BYTES]; /* in the guest, pci:03; "": not reported */
    char serial[DRIVE_SERIAL_BYTES];   /* as given to the VMM; "": not reported */
    const char *obstacle;              /* static: why its size cannot be re-read; NULL: it can */
};

struct drive_report {
    struct drive *entries; /* owned */
    size_t count;
};

void drive_report_done(struct drive_report *report);

/* The drive with this id; NULL: there is none. */
const struct drive *drive_report_get(const struct drive_report *report, const char *id);

/* Appends a copy with this path (drive->path is ignored). -EBADMSG for an id or path that exceeds
 * its bounds, or an id that exists already, because a report that contradicts itself must not be
 * acted upon. -EMSGSIZE if there are too many drives, -ENOMEM. */
int drive_report_add(struct drive_report *report, const struct drive *drive, const char *path,
                     struct error *error);

/* Whether `act` may be done to this drive, which is the device. DONE, READ_ONLY or UNSUPPORTED. */
enum hypervisor_outcome drive_report_judge(const struct drive *drive,
                                           const struct hypervisor_request *wanted,
                                           enum hypervisor_act act, struct error *error);

/* Finds the drive whose path leads to the device, which the process must also have open.
 * HYPERVISOR_DONE: *ret_drive is set, borrowed from the report, and `act` may be done to it.
 * READ_ONLY and UNSUPPORTED set it too, to name the drive; DRIVE_NOT_FOUND and MISMATCH leave it
 * unchanged. `error` has the reason. */
enum hypervisor_outcome drive_report_find(const struct drive_report *report,
                                          const struct hypervisor_request *wanted,
                                          struct vmm_process *process,
                                          const struct drive **ret_drive, struct error *error);

/* ---- vmm http report ------------------------------------------------------------------------ */

/* The bodies of Cloud Hypervisor's answers. No I/O.
 *
 *     vmm.ping          {"build_version": "v52.0", "version": "52.0.0", "pid": 7, …}
 *     vm.info           {"config": {"disks": [{"id": "_disk0", "path": "/dev/sdb",
 *                        "readonly": false, "image_type": "Raw", …}], …}, "state": "Running", …}
 *     a refusal         ["Error from API", …, "the innermost cause"]; before v47 plain text
 *
 * (Cloud Hypervisor: vmm/src/api/openapi/cloud-hypervisor.yaml; release notes of v47 and v52.)
 */

enum { CLOUD_HYPERVISOR_WORD_BYTES = 64 };

/* "51.1.0", "v52.0", "v52.0-dirty", "v52.0-12-gabcdef": HYPERVISOR_DONE, or HYPERVISOR_VERSION with
 * the version and the required one in `error`; UNREACHABLE: there is no version. */
enum hypervisor_outcome
cloud_hypervisor_read_ping(const char *body, size_t length,
                           char ret_version[static CLOUD_HYPERVISOR_WORD_BYTES],
                           struct error *error);

/* `state` is cut if it is too long. `leaving` gets the devices of the tree whose id has the prefix,
 * with their id in place of a path: {"device_tree": {"crust_data": {…}, …}, …}. 0, -EBADMSG,
 * -EMSGSIZE, -ENOMEM; in each case the caller frees both reports. */
int cloud_hypervisor_read_info(const char *body, size_t length,
                               char ret_state[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct drive_report *report, const char *prefix,
                               struct drive_report *leaving, struct error *error);

/* Also from vm.info: {"config": {"platform": {"tdx": true, "sev_snp": true}, "fs": [{…}], …}, …}. A
 * build without support for a kind of confidential guest does not name that kind
 * (vmm/src/vm_config.rs). 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int cloud_hypervisor_read_guest(const char *body, size_t length, struct hypervisor_guest *ret_guest,
                                struct error *error);

/* The outcome for a refusal, regardless of its HTTP status: up to v52 all are 500, later some are
 * 404. */
enum hypervisor_outcome cloud_hypervisor_refusal(const char *body, size_t length,
                                                 struct error *error);

/* ---- firecracker report --------------------------------------------------------------------- */

/* The bodies of Firecracker's answers. No I/O.
 *
 *     GET /vm/config    {"drives": [{"drive_id": "drive_0", "path_on_host": "/drive_0",
 *                        "is_read_only": false, "io_engine": "Sync", …}], …}
 *     a refusal         {"fault_message": "…"}; its wording differs between versions
 *
 * (firecracker/docs/api_requests/patch-block.md, src/firecracker/swagger/firecracker.yaml there)
 */

/* 0, -EBADMSG, -EMSGSIZE, -ENOMEM; in each case the caller frees the report. */
int firecracker_read_config(const char *body, size_t length, struct drive_report *report,
                            struct error *error);

/* HYPERVISOR_REFUSED, or HYPERVISOR_UNSUPPORTED if it lacks PCI, with Firecracker's message in
 * `error`. */
enum hypervisor_outcome firecracker_refusal(const char *body, size_t length, struct error *error);
