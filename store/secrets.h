/* SPDX-License-Identifier: Apache-2.0 */
/* secrets.h - secrets that an earlier release stored, taken out of the file. */
#pragma once

#include "store/sql.h"

/* In a transaction: redacts mount options and metadata in every row that has them.
 * ret_redacted: how many rows held a secret. */
int secrets_redact(struct sql_connection *connection, uint64_t *ret_redacted);
