/* SPDX-License-Identifier: Apache-2.0 */
/* host_mounts.h - volumes of Kata's pods that a driver has mounted on the node. Private to doctor/.
 */
#pragma once

#include <cjson/cJSON.h>

#include "config/config.h"
#include "doctor/finding.h"

/* A note for each CSI driver that has mounted some. table: the node's mount table, open. sandboxes:
 * what store_read_abilities() reads; other pods are passed over. */
void host_mounts_examine(int root, const struct config *config, int table, const cJSON *sandboxes,
                         const char *boot_id, struct findings *findings);
