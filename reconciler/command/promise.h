/* SPDX-License-Identifier: Apache-2.0 */
/* promise.h - refuses calls whose effect would not be on record after a restart. */
#pragma once

#include "lib/result.h"
#include "lib/status.h"

struct store;

/* STATUS_OK, or STATUS_UNAVAILABLE with a text while the database is not on disk. */
enum status_code promise_check(const struct store *store, struct error *error);
