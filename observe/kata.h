/* SPDX-License-Identifier: Apache-2.0 */
/* kata.h - functions that the readers of both Kata runtimes use. Private to observe/. */
#pragma once

#include "observe/observe.h"

/* Whether r means that there is nothing at the path, which is not an error. */
bool kata_is_absent(int r);

/* NULL stays NULL. 0 or -ENOMEM. */
int kata_copy(const char *text, char **ret_copy);

/* Only the first problem is kept. 0 or -ENOMEM. */
int kata_set_problem(struct observed_sandbox *sandbox, bool try_again, const char *directory,
                     const char *text);

/* In place of any other problem: one that keeps volumes of the sandbox from being seen. */
int kata_hide_volumes(struct observed_sandbox *sandbox, bool try_again, const char *text);

/* Reads a file of root's in a directory that others may be able to write to. Links may lead to the
 * directory, but the file must not be one. Returns as path_read_below(), and PATH_ABSENT also if
 * there is no such directory. */
int kata_read_file(int root, const char *directory, const char *name, struct buffer *ret_text,
                   struct error *error);

/* Sets ret_path to DIRECTORY/name if that is a socket; otherwise leaves it NULL. */
int kata_try_socket(int root, const char *directory, const char *name, char **ret_path);

/* Finds QEMU's monitor, the first existing and permitted one of: the one that crust-qemu gave the
 * QEMU named sandbox-NAME, DIRECTORY/EXTRA (NULL: none), and the shim's own, DIRECTORY/qmp.sock.
 * DIRECTORY is "" if it is not known. Sets control_socket. If QEMU has yet to make crust-qemu's
 * socket, sets try_again. */
int kata_find_monitor(const struct observe_sandbox_paths *paths, const char *name,
                      const char *directory, const char *extra, struct observed_sandbox *sandbox);
