/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.h - checks, from a container, the path where kata-agent is about to mount a drive.
 *
 * A container cannot enter the agent's mount namespace. But the agent resolves every path that it
 * binds into a container in its own namespace, following links. So crustd has it bind vm_path, or
 * the nearest existing directory above it, and for comparison the parent of that, /dev and the
 * agent's own directory. mountinfo tells which directory of which file system each bind leads to
 * (proc(5)), and only that counts, not its name. A change between this check and the agent's mount
 * is not noticed.
 */
#pragma once

#include "lib/result.h"

struct drive_place {
    const char *place;   /* the vm_path, or the nearest directory above it */
    const char *parent;  /* the directory that the place is in */
    const char *devices; /* the guest's /dev */
    const char *agents;  /* the guest's /run/kata-containers */
    const char *name;    /* the last component of vm_path if that exists; NULL: it does not */
};

enum drive_place_outcome {
    DRIVE_PLACE_FINE,
    DRIVE_PLACE_PROTECTED,   /* a kernel file system, /dev, or the agent's directory */
    DRIVE_PLACE_TAKEN,       /* already a mount point */
    DRIVE_PLACE_UNREACHABLE, /* a link, or no directory */
};

/* The four paths are mount points in this process's namespace. An outcome, or -errno; the error is
 * filled unless FINE. */
int drive_place_check(const struct drive_place *place, struct error *error);
