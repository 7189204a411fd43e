/* SPDX-License-Identifier: Apache-2.0 */
/* device_record.h - an observed device onto the record. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct observed_device;
struct store;

/* As store_put_device(). */
int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed);
