/* SPDX-License-Identifier: Apache-2.0 */
/* sql_path.h - paths as SQLite is to take them. Private to store/. */
#pragma once

/* The VFS for sqlite3_open_v2(): SQLite's own, except for paths below /proc. */
const char *sql_path_vfs(void);
