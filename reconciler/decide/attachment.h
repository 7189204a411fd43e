/* SPDX-License-Identifier: Apache-2.0 */
/* attachment.h - whether a VM has a bound volume's drive, and the meaning if it does not.
 *
 * Pure, as decide.h is. docs/states.md ("Attachment") is its table, and every cell is tested.
 */
#pragma once

#include <stdbool.h>

/* The VMM's own list of drives, as it was read under the runtime's present records. */
enum attachment_list {
    LIST_UNREAD,  /* not asked yet */
    LIST_REFUSED, /* asked, and not read: no monitor, no answer, or it does not tell which is which
                   */
    LIST_HAS,
    LIST_LACKS,
};

/* What the runtime's record says of the containers' mounts of this volume. */
enum attachment_record {
    RECORD_SILENT,
    RECORD_DEVICE,
    RECORD_DIRECTORY, /* a shared directory of the node in the place of the device */
};

struct attachment_facts {
    enum attachment_list list;
    enum attachment_record record;
    bool has_container; /* a container that has not ended mounts the volume */
    bool is_lasting;    /* the list lacked the drive three times in a row */
};

enum attachment {
    ATTACHMENT_OPEN, /* it has the drive, or nothing says that it has not */
    ATTACHMENT_DETACHED,
    ATTACHMENT_BYPASSED,
    ATTACHMENT_UNPLUGGED,
    ATTACHMENTS,
};

enum { ATTACHMENT_LASTING = 3 };

enum attachment attachment_decide(const struct attachment_facts *facts);

const char *attachment_name(enum attachment attachment);
