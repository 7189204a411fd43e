/* SPDX-License-Identifier: Apache-2.0 */
/* attachment.c - the decision table for drives that a VM does not have, or has lost.
 *
 * A drive that is missing while the runtime plugs or unplugs it is not reported, so the list alone
 * decides only if no container could be waiting for the drive. A shared directory in the runtime's
 * record is decisive at once: the runtime wrote it when it had made the container.
 */
#include "reconciler/decide/attachment.h"

enum attachment attachment_decide(const struct attachment_facts *facts)
{
    bool lacks = facts->list == LIST_LACKS;

    if (facts->record == RECORD_DIRECTORY)
        return lacks || facts->list == LIST_REFUSED ? ATTACHMENT_BYPASSED : ATTACHMENT_OPEN;
    if (lacks && facts->record == RECORD_DEVICE && facts->is_lasting)
        return ATTACHMENT_UNPLUGGED;
    if (lacks && facts->record == RECORD_SILENT && !facts->has_container)
        return ATTACHMENT_DETACHED;
    return ATTACHMENT_OPEN;
}

const char *attachment_name(enum attachment attachment)
{
    static const char *const names[ATTACHMENTS] = {"open", "detached", "bypassed", "unplugged"};

    return names[attachment];
}
