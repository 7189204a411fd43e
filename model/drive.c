/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - the words about drives. */
#include "model/drive.h"

#include "lib/text.h"

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

const char *drive_state_name(enum drive_state state)
{
    return states[state].name;
}

enum drive_state drive_state_from_name(const char *name)
{
    return name_table_find(&states[0].name, sizeof(states[0]), DRIVE_STATES, name, DRIVE_STATES);
}

bool drive_state_is_end(enum drive_state state)
{
    return states[state].is_end;
}

bool drive_state_is_flushed(enum drive_state state)
{
    return states[state].is_flushed;
}

static const char *const fscks[DRIVE_FSCKS] = {"none", "preen"};

const char *drive_fsck_name(enum drive_fsck fsck)
{
    return fscks[fsck];
}

enum drive_fsck drive_fsck_from_name(const char *name)
{
    return name_table_find(fscks, sizeof(fscks[0]), DRIVE_FSCKS, name, DRIVE_FSCKS);
}

/* As Kubernetes writes them (PodSecurityContext.fsGroupChangePolicy). */
static const char *const group_policies[DRIVE_GROUP_POLICIES] = {"Always", "OnRootMismatch"};

const char *drive_group_policy_name(enum drive_group_policy policy)
{
    return group_policies[policy];
}

enum drive_group_policy drive_group_policy_from_name(const char *name)
{
    return name_table_find(group_policies, sizeof(group_policies[0]), DRIVE_GROUP_POLICIES, name,
                           DRIVE_GROUP_POLICIES);
}
