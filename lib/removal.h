/* SPDX-License-Identifier: Apache-2.0 */
/* removal.h - the one way in which crustd removes files that others may have touched.
 *
 * What goes is regular files and the directories that hold nothing else, on the mount of the
 * directory that they are looked for in. Anything else stays: something that is mounted in the
 * place of a file or a directory, a link, a socket, a device, what lies deeper than the caller
 * expects. The name that the caller gives may itself be a link: then the link goes.
 *
 * A name goes as a whole or not at all. It is looked through first, and if something in it has to
 * stay, nothing is removed; the error says which path, why, and what to do.
 */
#pragma once

#include "lib/result.h"

enum { REMOVAL_NAMES = 4096 }; /* more in one tree are refused */

/* Whether removal_run() would remove it. levels: of directories, 0 where it must be a file. 0, also
 * if there is nothing of that name; -errno. */
int removal_check(int directory, const char *name, unsigned levels, struct error *error);

/* Removes it. 0, also if there is nothing of that name; -errno. */
int removal_run(int directory, const char *name, unsigned levels, struct error *error);

/* The same for each name in a directory; one that has to stay keeps no other from going. 0 or the
 * first failure. */
int removal_empty(int directory, unsigned levels, struct error *error);
