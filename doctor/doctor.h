/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - is this node able to grow volumes, and which of those in use now are not?
 *
 * An examination reads and tries, and changes nothing: what it needs is a root and a configuration,
 * no daemon and no database, so that it can be made before anything is installed. It speaks for the
 * process that makes it: the daemon's rights and namespaces are the daemon's to examine. Nothing is
 * executed, no device opened, no VMM or guest asked.
 */
#pragma once

#include <cjson/cJSON.h>

#include "config/config.h"
#include "lib/buffer.h"

struct doctor_request {
    int root; /* O_PATH of --root */
    const struct config *config;
    const cJSON *sandboxes; /* what store_read_abilities() reads; NULL: nobody knows of any */
    const cJSON *doubts;    /* {sandbox id: what is not believed of it}; NULL: none */
};

enum { DOCTOR_BYTES = 4 * 1024 * 1024 };

/* What works for volumes here, as far as Kata's configurations and the sandboxes show. */
struct doctor_abilities {
    bool has_guests;       /* some run, or Kata is configured to run them */
    bool tells_hypervisor; /* some VMM, running or configured, can be told a new size */
    bool resizes_guests;   /* not every guest that runs has turned out to be unable */
};
int doctor_find_abilities(const struct doctor_request *request,
                          struct doctor_abilities *ret_abilities);

/* Appends `[{"id","level","what","where","remedy"}, …]`; level is ok, note, warning or error, where
 * and remedy may be null. An error keeps some volume from growing, or crustd from starting. 0,
 * -EMSGSIZE, -ENOMEM. */
int doctor_examine(const struct doctor_request *request, struct buffer *ret_json);

/* Which files of Kata's configurations name crust-qemu: once it is gone, no pod of theirs starts.
 * Findings as above; those of level error say that it must stay, or that it cannot be told. */
int doctor_find_crust_users(int root, struct buffer *ret_json);
