/* SPDX-License-Identifier: Apache-2.0 */
/* device_record.h - records an observed device in the store. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/devices.h"

struct observed_device;
struct store;

/* Converts to the store's type; the name stays borrowed from `observed`. */
struct store_device device_to_record(const struct observed_device *observed);

/* Returns as store_put_device(). */
int record_device(struct store *store, const struct observed_device *observed,
                  int64_t *ret_device_id, bool *ret_changed);
