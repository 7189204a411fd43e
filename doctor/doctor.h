/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - can volumes be resized on this node, and which of those in use now cannot?
 *
 * An examination reads and tries, and changes nothing. It needs a root and a configuration, but no
 * daemon and no database, so that it can be made before anything is installed. Its findings are
 * about the process that makes it: only the daemon can examine the daemon's rights and namespaces.
 * Nothing is executed, no device opened, no VMM or guest asked.
 */
#pragma once

#include <cjson/cJSON.h>

#include "config/config.h"
#include "lib/buffer.h"

struct doctor_request {
    int root; /* O_PATH of --root */
    const struct config *config;
    const cJSON *sandboxes;  /* what store_read_abilities() reads; NULL: none are known */
    const cJSON *distrusted; /* {sandbox id: why its record is not trusted}; NULL: none */
};

enum { DOCTOR_BYTES = 4 * 1024 * 1024 };

/* What works for volumes on this node, as far as Kata's configurations and the sandboxes show. */
struct doctor_abilities {
    bool has_guests;       /* some run, or Kata is configured to run them */
    bool tells_hypervisor; /* some VMM, running or configured, can be told a new size */
    bool resizes_guests;   /* false: every running guest has turned out to be unable */
    bool applies_group;    /* every guest, running or configured, is of Kata's Go runtime */
    bool ignores_labels;   /* no configuration has its guests enforce SELinux */
    bool enforces_labels;  /* every configuration does */
};
int doctor_find_abilities(const struct doctor_request *request,
                          struct doctor_abilities *ret_abilities);

/* Appends `[{"id","level","what","where","remedy"}, …]`; level is ok, note, warning or error, where
 * and remedy may be null. An error means that some volume cannot be resized, that no drive can be
 * attached although drives.enabled is on, or that crustd cannot start. 0, -EMSGSIZE, -ENOMEM. */
int doctor_examine(const struct doctor_request *request, struct buffer *ret_json);

/* Which files of Kata's configurations name crust-qemu: without it, no pod of theirs starts.
 * Findings as above; those of level error say that it must stay, or that this cannot be determined.
 */
int doctor_find_crust_users(int root, struct buffer *ret_json);
