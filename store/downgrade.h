/* SPDX-License-Identifier: Apache-2.0 */
/* downgrade.h - the way back to release 0.1.0.
 *
 * That release does not know minor versions: it sets a database with anything added aside, and
 * begins a new one without history. Downgraded before the rollback, the database is one of its own.
 */
#pragma once

#include "lib/result.h"

/* Removes everything that minor versions added, tables and columns with their contents, from the
 * database at `path`, in one transaction. Nobody else may write to it. 0, also if there is nothing
 * to remove; STORE_FOREIGN, STORE_NEWER (of a release newer than this one), or another failure. */
int store_downgrade(const char *path, struct error *error);
