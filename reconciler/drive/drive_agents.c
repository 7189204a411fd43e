/* SPDX-License-Identifier: Apache-2.0 */
/* drive_agents.c - the guests whose crust-guest-agent has said that it mounts drives.
 *
 * Before a new drive's disk goes to the VM, its guest is asked whether it can mount it. An agent
 * that is known to do so is only connected to, which shows that it listens, and not that it
 * answers: one that hangs is noticed by MountDrive. After a call that failed, or that found no such
 * agent, its guest is asked again: the agent may be another one by then.
 */
#include <string.h>

#include "reconciler/drive/drive_work.h"

static unsigned find(const struct drives *drives, int64_t sandbox_ref)
{
    unsigned i = 0;

    while (i < DRIVE_AGENTS && drives->mounting_agents[i] != sandbox_ref)
        i++;
    return i;
}

bool drive_agents_know(const struct drives *drives, int64_t sandbox_ref)
{
    return sandbox_ref && find(drives, sandbox_ref) < DRIVE_AGENTS;
}

void drive_agents_note(struct drive_work *work, const struct drive_guest_reply *reply)
{
    struct drives *drives = work->drives;
    unsigned i = find(drives, work->row.sandbox_ref);

    if (reply->status != STATUS_OK || reply->lacks_agent) {
        if (i < DRIVE_AGENTS)
            drives->mounting_agents[i] = 0;
    } else if (reply->agent_mounts && i == DRIVE_AGENTS) {
        drives->mounting_agents[drives->next_agent++ % DRIVE_AGENTS] = work->row.sandbox_ref;
    }
}

void drive_agents_forget(struct drives *drives)
{
    memset(drives->mounting_agents, 0, sizeof(drives->mounting_agents));
}
