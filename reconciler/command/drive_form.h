/* SPDX-License-Identifier: Apache-2.0 */
/* drive_form.h - whether the fields of a request about a drive are there and well-formed: for the
 * APIs, which refuse a request with it, and for the core, which has requests of its own.
 *
 * What needs the node, the configuration or the guest to tell is checked where that is known. The
 * error names a field and never shows an option. STATUS_OK or STATUS_INVALID_ARGUMENT. */
#pragma once

#include "lib/result.h"
#include "reconciler/command/drives.h"

enum { DRIVE_FORM_SANDBOX_CHARS = 128 };

enum status_code drive_form_check_id(const char *drive_id, struct error *error);
enum status_code drive_form_check_limits(const struct drive_limits *limits, struct error *error);
/* All fields. A text that is NULL is missing. */
enum status_code drive_form_check(const struct reconciler_drive_attach *attach,
                                  struct error *error);
