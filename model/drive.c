/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - the words about drives. */
#include "model/drive.h"

#include "model/name_table.h"

static const struct {
    const char *name;
    bool is_end;
    bool is_flushed;
    struct explanation explanation;
} states[DRIVE_STATES + 1] = {
    [DRIVE_REQUESTED] = {.name = "requested",
                         .is_flushed = true,
                         .explanation = {"A client asked for the drive. The host's disk is not "
                                         "open yet.",
                                         "The VM and the guest.",
                                         {0}}},
    [DRIVE_CLAIMED] = {.name = "claimed",
                       .is_flushed = true,
                       .explanation = {"The host's disk is open, a block device exclusively. It is "
                                       "being handed to the hypervisor.",
                                       "The guest.",
                                       {0}}},
    [DRIVE_ATTACHED] = {.name = "attached",
                        .is_flushed = true,
                        .explanation = {"The VM has the disk. The guest is being asked what it has "
                                        "of it.",
                                        "An agent in the guest that answers, and the mount.",
                                        {0}}},
    [DRIVE_SEEN] = {.name = "seen",
                    .explanation = {"The guest answers. It is being asked to find the disk by its "
                                    "serial, with the right size and access, and to mount it.",
                                    "The mount.",
                                    {0}}},
    [DRIVE_MOUNTED] = {.name = "mounted",
                       .explanation = {"The guest has mounted the disk and is writing what it "
                                       "changed on the way.",
                                       "The answer to the client.",
                                       {0}}},
    [DRIVE_READY] = {.name = "ready",
                     .explanation = {.meaning = "The disk is mounted in the guest, and the client "
                                                "was told so."}},
    [DRIVE_UNMOUNTING] =
        {.name = "unmounting",
         .explanation = {"The guest is being asked to unmount the disk. If its device "
                         "is gone already, the hypervisor is asked for the rest.",
                         "The unmount: a process in the guest may hold the file "
                         "system.",
                         {"End the processes that the message names, or wait for "
                          "them, and detach again."}}},
    [DRIVE_UNMOUNTED] = {.name = "unmounted",
                         .is_flushed = true,
                         .explanation = {"The guest has unmounted the disk, and no namespace there "
                                         "holds it.",
                                         "The removal from the VM.",
                                         {0}}},
    [DRIVE_REMOVING] = {.name = "removing",
                        .is_flushed = true,
                        .explanation = {"The hypervisor is being asked to give the disk back.",
                                        "The guest's consent: a paused guest, or one that ignores "
                                        "the request, keeps the disk.",
                                        {"crustd asks again until the disk is free on the host."}}},
    [DRIVE_REMOVED] = {.name = "removed",
                       .is_end = true,
                       .is_flushed = true,
                       .explanation = {.meaning = "The disk is free on the host."}},
    [DRIVE_FAILED] =
        {.name = "failed",
         .is_end = true,
         .is_flushed = true,
         .explanation = {"The drive could not be attached, and what was done for it is "
                         "undone. The message says why.",
                         NULL,
                         {"Mend what the message names, and attach again."}}},
    [DRIVE_LOST] = {.name = "lost",
                    .is_end = true,
                    .explanation = {"The VM ended while it had the drive. The message says whether "
                                    "the guest had unmounted it; if not, data that was not synced "
                                    "is missing on the disk.",
                                    NULL,
                                    {"Check the file system before it is used again."}}},
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

const struct explanation *drive_state_explain(enum drive_state state)
{
    return state < DRIVE_STATES ? &states[state].explanation : NULL;
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
