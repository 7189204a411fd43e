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

/* The monitor that crust-qemu gave the QEMU named sandbox-NAME, if the VMM's arguments say so:
 * control_socket is set, or the sandbox is to be observed again where QEMU has yet to make it. */
int kata_find_added_monitor(int root, const char *name, struct observed_sandbox *sandbox);
