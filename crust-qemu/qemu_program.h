/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_program.h - which QEMU to run.
 *
 * Kata's `path` names crust-NAME; NAME is the QEMU that runs in its place. It is searched beside
 * this program, then where kata-deploy and Debian install it.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Without "crust-"; NULL: the name does not begin with it. */
const char *program_name(const char *argument0);

/* An executable regular file that is not this program. `self` is its own path as the kernel has it,
 * `own` what stat(2) says of the file that runs, also where that has been deleted; `directories`
 * ends with NULL and comes after self's own. */
bool program_find(const char *self, const struct stat *own, const char *name,
                  const char *const *directories, char ret_path[static PATH_MAX]);
