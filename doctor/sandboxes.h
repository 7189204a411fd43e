/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.h - which of the volumes in running sandboxes could be resized. Private to doctor/. */
#pragma once

#include <cjson/cJSON.h>

#include "config/config.h"
#include "doctor/finding.h"

/* sandboxes: what store_read_abilities() reads. Those of another boot are passed over. */
void sandboxes_judge(const cJSON *sandboxes, const char *boot_id, const struct config *config,
                     struct findings *findings);

/* {sandbox id: which of its processes or records is not trusted, and why}. */
void sandboxes_judge_doubts(const cJSON *doubts, struct findings *findings);
