/* SPDX-License-Identifier: Apache-2.0 */
/* device_record.h - an observed device onto the record. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/devices.h"

struct observed_device;
struct store;

/* As store/ wants it; the name is the observed device's. */
struct store_device device_to_record(const struct observed_device *observed);

/* As store_put_device(). */
int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed);
