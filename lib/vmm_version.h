/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_version.h - which versions of a VMM can resize a drive. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CLOUD_HYPERVISOR_BLOCK_DEVICES = 52 }; /* the first to resize block devices */

enum { VMM_VERSION_TEXT_BYTES = 128 };

/* Whether a Cloud Hypervisor of this version ("52.0.0", or "v52.0") resizes block devices. */
bool cloud_hypervisor_is_able(const char *version);

/* "needs Cloud Hypervisor 52 or later (this is 51.1, the one that Kata 4.1.0 ships)", of "51.1.0"
 * or "v51.1". */
void cloud_hypervisor_say_need(const char *version, char ret_text[static VMM_VERSION_TEXT_BYTES]);
