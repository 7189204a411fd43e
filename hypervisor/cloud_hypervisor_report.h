/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_report.h - the bodies of Cloud Hypervisor's answers. No I/O. Private to
 * hypervisor/.
 *
 *     vmm.ping          {"build_version": "v52.0", "version": "52.0.0", "pid": 7, …}
 *     vm.info           {"config": {"disks": [{"id": "_disk0", "path": "/dev/sdb",
 *                        "readonly": false, "image_type": "Raw", …}], …}, "state": "Running", …}
 *     a refusal         ["Error from API", …, "the innermost cause"]; before v47 plain text
 *
 * (Cloud Hypervisor: vmm/src/api/openapi/cloud-hypervisor.yaml; release notes of v47 and v52.)
 */
#pragma once

#include "hypervisor/drive_report.h"

enum { CLOUD_HYPERVISOR_WORD_BYTES = 64 };

/* 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int cloud_hypervisor_read_ping(const char *body, size_t length,
                               char ret_version[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct error *error);

/* "51.1.0", "v52.0", "v52.0-dirty", "v52.0-12-gabcdef": HYPERVISOR_DONE, or HYPERVISOR_VERSION with
 * the version and the required one in `error`. */
enum hypervisor_outcome cloud_hypervisor_check_version(const char *version, struct error *error);

/* `state` is cut if it is too long. 0, -EBADMSG, -EMSGSIZE, -ENOMEM; in each case the caller frees
 * the report. */
int cloud_hypervisor_read_info(const char *body, size_t length,
                               char ret_state[static CLOUD_HYPERVISOR_WORD_BYTES],
                               struct drive_report *report, struct error *error);

/* Also from vm.info: {"device_tree": {"crust_data": {…}, …}, …}, the devices whose id has this
 * prefix, with their id in place of a path. A disk that was removed leaves the configuration at
 * once, and the tree when the guest has let go of it (vmm/src/device_manager.rs). 0, -EBADMSG,
 * -EMSGSIZE, -ENOMEM; in each case the caller frees the report. */
int cloud_hypervisor_read_devices(const char *body, size_t length, const char *prefix,
                                  struct drive_report *report, struct error *error);

/* Also from vm.info: {"config": {"platform": {"tdx": true, "sev_snp": true}, "fs": [{…}], …}, …}. A
 * build without support for a kind of confidential guest does not name that kind
 * (vmm/src/vm_config.rs). 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int cloud_hypervisor_read_guest(const char *body, size_t length, struct hypervisor_guest *ret_guest,
                                struct error *error);

/* The outcome for a refusal, regardless of its HTTP status: up to v52 all are 500, later some are
 * 404. */
enum hypervisor_outcome cloud_hypervisor_refusal(const char *body, size_t length,
                                                 struct error *error);
