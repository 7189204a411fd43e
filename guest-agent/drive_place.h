/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.h - where kata-agent is about to mount a drive, as far as a container of the guest
 * can see it.
 *
 * A container cannot enter the agent's mount namespace. But what the agent binds into it, it binds
 * from its own view, after it has followed every link. So crustd has it bind the place, or the
 * nearest directory above it that is there, and for comparison what is above that, /dev and the
 * agent's own directory. The check is about what a bind leads to, not about its name; mountinfo
 * says which directory of which file system that is (proc(5)). A change between this check and the
 * agent's mount goes unnoticed.
 */
#pragma once

#include "lib/result.h"

struct drive_place {
    const char *place;   /* the vm_path, or the nearest directory above it */
    const char *parent;  /* the directory that the place is in */
    const char *devices; /* the guest's /dev */
    const char *agents;  /* the guest's /run/kata-containers */
    const char *name;    /* the vm_path is there: its last component; NULL: it is not */
};

enum drive_place_outcome {
    DRIVE_PLACE_FINE,
    DRIVE_PLACE_PROTECTED,   /* a kernel file system, /dev, or the agent's directory */
    DRIVE_PLACE_TAKEN,       /* it is a mount point already */
    DRIVE_PLACE_UNREACHABLE, /* a link, or no directory */
};

/* All four are mount points of this process's namespace. An outcome, or -errno; the error is filled
 * unless FINE. */
int drive_place_check(const struct drive_place *place, struct error *error);
