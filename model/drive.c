/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - the words about drives. */
#include "model/drive.h"

#include "lib/text.h"
#include "model/volume.h"

static const struct {
    const char *name;
    bool is_end;
    bool is_flushed;
} states[DRIVE_STATES + 1] = {
    [DRIVE_REQUESTED] = {.name = "requested", .is_flushed = true},
    [DRIVE_CLAIMED] = {.name = "claimed", .is_flushed = true},
    [DRIVE_ATTACHED] = {.name = "attached", .is_flushed = true},
    [DRIVE_SEEN] = {.name = "seen"},
    [DRIVE_MOUNTED] = {.name = "mounted"},
    [DRIVE_READY] = {.name = "ready"},
    [DRIVE_UNMOUNTING] = {.name = "unmounting"},
    [DRIVE_UNMOUNTED] = {.name = "unmounted", .is_flushed = true},
    [DRIVE_REMOVING] = {.name = "removing", .is_flushed = true},
    [DRIVE_REMOVED] = {.name = "removed", .is_end = true, .is_flushed = true},
    [DRIVE_FAILED] = {.name = "failed", .is_end = true, .is_flushed = true},
    [DRIVE_LOST] = {.name = "lost", .is_end = true},
    [DRIVE_STATES] = {.name = "other"},
};

WORDS(drive_state, enum drive_state, states, DRIVE_STATES, DRIVE_STATES)

bool drive_state_is_end(enum drive_state state)
{
    return states[state].is_end;
}

bool drive_state_is_flushed(enum drive_state state)
{
    return states[state].is_flushed;
}

static const char *const fscks[DRIVE_FSCKS] = {"none", "preen"};

WORDS(drive_fsck, enum drive_fsck, fscks, DRIVE_FSCKS, DRIVE_FSCKS)

/* As Kubernetes writes them (PodSecurityContext.fsGroupChangePolicy). */
static const char *const group_policies[DRIVE_GROUP_POLICIES] = {"Always", "OnRootMismatch"};

WORDS(drive_group_policy, enum drive_group_policy, group_policies, DRIVE_GROUP_POLICIES,
      DRIVE_GROUP_POLICIES)
