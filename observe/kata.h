/* SPDX-License-Identifier: Apache-2.0 */
/* kata.h - what the readers of Kata's two runtimes have in common. Private to observe/.
 */
#pragma once

#include "observe/observe.h"

/* A path that leads nowhere is no error. */
bool kata_is_absent(int r);

/* NULL stays NULL. 0 or -ENOMEM. */
int kata_copy(const char *text, char **ret_copy);

/* The first problem stands. 0 or -ENOMEM. */
int kata_set_problem(struct observed_sandbox *sandbox, bool try_again, const char *directory,
                     const char *text);

/* ret_path: DIRECTORY/name, if that is a socket; NULL stays otherwise. */
int kata_try_socket(int root, const char *directory, const char *name, char **ret_path);

/* QEMU's monitor, the first of those that there are and that may be used: the one that crust-qemu
 * gave the QEMU named sandbox-NAME, DIRECTORY/EXTRA, and the shim's own, DIRECTORY/qmp.sock.
 * DIRECTORY is "" where it is not known. Sets control_socket; where QEMU has yet to make
 * crust-qemu's, the sandbox is to be observed again. */
int kata_find_monitor(const struct observe_sandbox_paths *paths, const char *name,
                      const char *directory, const char *extra, struct observed_sandbox *sandbox);
