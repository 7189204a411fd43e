/* SPDX-License-Identifier: Apache-2.0 */
/* promise.h - where nothing would be remembered, nothing is promised. */
#pragma once

#include "lib/result.h"
#include "lib/status.h"

struct store;

/* STATUS_OK, or STATUS_UNAVAILABLE with a text while the database is not on disk. */
enum status_code promise_check(const struct store *store, struct error *error);
