/* SPDX-License-Identifier: Apache-2.0 */
/* downgrade.h - the way back to release 0.1.0.
 *
 * That release does not know minor versions: it sets a database with anything added aside, and
 * begins a new one without history. Downgraded before the rollback, the database is one of its own.
 */
#pragma once

#include "lib/result.h"

/* Takes out of the database at `path` what minor versions added, tables, columns and what stands in
 * them, all in one transaction. Nobody else may write it. 0, also if there is nothing to take out;
 * STORE_FOREIGN, STORE_NEWER (of a release newer than this one), or another failure. */
int store_downgrade(const char *path, struct error *error);
