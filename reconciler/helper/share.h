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
 * A helper is one directory there, with a name of its own that nobody else gives:
 *
 *     crust-0123456789abcdef/agent, proc/, sys/, dev/, vol/
 *
 * Everything is opened below the sandbox's directory, without links and without another mount;
 * anything with another name is never touched.
 */
#pragma once

#include <stdbool.h>

#include "lib/result.h"
#include "model/runtime.h"

enum { HELPER_NAME_BYTES = 32, HELPER_GUEST_PATH_BYTES = 128 };

#define HELPER_PROGRAM_NAME "agent"

/* Outcomes of helper_share_open(). */
enum {
    HELPER_SHARE_OK,
    HELPER_SHARE_ABSENT, /* the sandbox has none, or it is no plain directory of its own */
};

/* The directory, for reading names and making others in it. The error says what is missing. -errno:
 * crustd itself could not open it (EMFILE, ENOMEM, EIO …), which says nothing of the share. */
int helper_share_open(int root, enum kata_runtime runtime, const char *sandbox_id, int *ret_fd,
                      struct error *error);

/* Where the guest of such a runtime sees the directory of that name. */
void helper_share_guest_path(enum kata_runtime runtime, const char *name,
                             char ret_path[static HELPER_GUEST_PATH_BYTES]);

/* "crust-" and 16 random hexadecimal digits. 0 or -errno. */
int helper_name_make(char ret_name[static HELPER_NAME_BYTES]);
bool helper_name_is_ours(const char *name);

/* Makes the directory with a copy of the program and the places that its container mounts at. On an
 * error nothing is left of it. 0; -EEXIST, -ENOSPC, … */
int helper_share_place(int share, const char *name, int program, struct error *error);

/* Removes it, and nothing that helper_share_place() does not make: 0 also where there is none;
 * -ENOTEMPTY where something else is in it; -ELOOP, -ENOTDIR, … where it is no directory. */
int helper_share_remove(int share, const char *name);

enum helper_share_presence { HELPER_SHARE_HAS_NOT, HELPER_SHARE_HAS };

/* Whether there is a directory of that name: an enum helper_share_presence, or -errno: it cannot be
 * told now. */
int helper_share_has(int share, const char *name);

/* Names of ours in the share; a bounded number. callback: 0 goes on. 0, -errno or what it said. */
int helper_share_each(int share, int (*callback)(void *userdata, const char *name), void *userdata);
