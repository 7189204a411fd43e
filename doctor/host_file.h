/* SPDX-License-Identifier: Apache-2.0 */
/* host_file.h - configuration files of others, read below --root. Private to doctor/. */
#pragma once

#include <limits.h>

#include "lib/buffer.h"
#include "lib/directory.h"
#include "lib/result.h"

enum { HOST_FILE_BYTES = 256 * 1024, HOST_NAMES = 64 };

/* Outcomes. */
enum { HOST_READ, HOST_ABSENT };

/* The whole text. HOST_READ, HOST_ABSENT or a negative with the error's text. */
int host_file_read(int root, const char *path, struct buffer *ret_text, struct error *error);

/* Those that do not begin with a dot. HOST_READ, HOST_ABSENT (ret_names is untouched then), -E2BIG
 * if there are more than HOST_NAMES, -errno. */
int host_names_read(int root, const char *directory, struct directory_names *ret_names);

/* Where the path really leads, links followed, as a path below root. As given where that can't be
 * told. HOST_READ, HOST_ABSENT, -errno. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX]);
