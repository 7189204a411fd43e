/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - CopyFile: how a file comes into a guest that shares no directory with its host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "wire.h"

/* mkdir -p. 0, or -1 with errno. */
int make_directories(const char *path);

/* False with the text of the answer. */
bool copy_file(struct bytes request, char *ret_text, size_t size);
