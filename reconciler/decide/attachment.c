/* SPDX-License-Identifier: Apache-2.0 */
/* attachment.c - the decision table for drives that a VM has not, or not any more.
 *
 * A drive that is missing while the runtime is plugging or unplugging it is nothing to report, so
 * the list alone decides only where no container is there that could be waiting for the drive. A
 * shared directory on the runtime's record needs no second look: the runtime wrote it when it had
 * made the container.
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
