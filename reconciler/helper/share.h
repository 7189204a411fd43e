/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - the node's directory that a sandbox shares with its guest, and the helper in it.
 *
 * Both runtimes share one directory per sandbox with the guest, read-only for the guest:
 *
 *     Go      /run/kata-containers/shared/sandboxes/ID/mounts/          seen in the guest as
 *             /run/kata-containers/shared/containers/
 *     Rust    /run/kata-containers/shared/sandboxes/ID/rw/passthrough/  seen in the guest as
 *             /run/kata-containers/shared/containers/passthrough/
 *
 * A helper is one directory there, with a name that no other program uses:
 *
 *     crust-0123456789abcdef/agent
 *
 * Everything is opened below the sandbox's directory, without links and without another mount;
 * anything with another name is never touched.
 */
#pragma once

#include <stdbool.h>

#include "lib/result.h"
#include "model/sandbox.h"

enum { HELPER_NAME_BYTES = 32, HELPER_GUEST_PATH_BYTES = 128 };

#define HELPER_PROGRAM_NAME "agent"

/* Outcomes of helper_share_open(). */
enum {
    HELPER_SHARE_OK,
    HELPER_SHARE_ABSENT, /* the sandbox has none, or it is not a plain directory of its own */
    HELPER_SHARE_LATER,  /* the Rust runtime makes it with the sandbox's first container */
};

/* Opens the directory, for reading names and making directories in it. The error says what is
 * missing. -errno: a local failure (EMFILE, ENOMEM, EIO …), which says nothing about the share. */
int helper_share_open(int root, enum kata_runtime runtime, const char *sandbox_id, int *ret_fd,
                      struct error *error);

/* The path under which a guest of this runtime sees the directory of that name. */
void helper_share_guest_path(enum kata_runtime runtime, const char *name,
                             char ret_path[static HELPER_GUEST_PATH_BYTES]);

/* "crust-" and 16 random hexadecimal digits. 0 or -errno. */
int helper_name_make(char ret_name[static HELPER_NAME_BYTES]);
bool helper_name_is_ours(const char *name);

/* Makes the directory with a copy of the program. On failure nothing of it is left. 0; -EEXIST,
 * -ENOSPC, … */
int helper_share_place(int share, const char *name, int program, struct error *error);

/* Removes the directory, but nothing that helper_share_place() does not make, now or up to version
 * 0.2. 0 also if it does not
 * exist; -ENOTEMPTY if it contains something else; -ELOOP, -ENOTDIR, … if it is not a directory. */
int helper_share_remove(int share, const char *name);

enum helper_share_presence { HELPER_SHARE_HAS_NOT, HELPER_SHARE_HAS };

/* Whether a directory of that name exists: an enum helper_share_presence, or -errno: unknown at
 * present. */
int helper_share_has(int share, const char *name);

/* The directory of a drive's container: the serial and random digits, because a guest takes a
 * directory for the one that had its name until a second ago. Up to version 0.2 it is the serial
 * alone. The second returns as helper_share_has(). */
int helper_share_name_drive(const char *serial, char ret_name[static HELPER_NAME_BYTES]);
int helper_share_find_drive(int share, const char *serial, char ret_name[static HELPER_NAME_BYTES]);

/* Calls back with the names of helpers in the share; a bounded number. callback: 0 continues. 0,
 * -errno or the callback's result. */
int helper_share_each(int share, int (*callback)(void *userdata, const char *name), void *userdata);
