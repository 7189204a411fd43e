/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h - which of Kata's runtimes a sandbox has, as in audit_sandboxes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum kata_runtime { RUNTIME_UNKNOWN, RUNTIME_KATA_GO, RUNTIME_KATA_RS, RUNTIMES };

const char *runtime_name(enum kata_runtime runtime);

/* RUNTIME_UNKNOWN for a name that is not in the table. */
enum kata_runtime runtime_from_name(const char *name);

/* ---- hypervisor ----------------------------------------------------------------------------- */

/* As in audit_sandboxes. */
enum hypervisor_kind {
    HYPERVISOR_UNKNOWN,
    HYPERVISOR_QEMU,
    HYPERVISOR_CLOUD_HYPERVISOR,
    HYPERVISOR_FIRECRACKER,
    /* Recognised, but nothing can resize their drives: hypervisor/hypervisor.c says why not. */
    HYPERVISOR_DRAGONBALL,
    HYPERVISOR_STRATOVIRT,
    HYPERVISOR_OPENVMM,
    HYPERVISOR_REMOTE,
    HYPERVISOR_KINDS,
};

/* How to find out whether a guest is confidential, and whether it shares a directory with the node.
 */
enum hypervisor_guest_source {
    HYPERVISOR_GUEST_UNKNOWN, /* no way: it may be confidential, so nothing is brought into it */
    HYPERVISOR_GUEST_BY_ARGUMENTS, /* of the VMM's process */
    HYPERVISOR_GUEST_BY_KIND,      /* all its guests are alike: neither */
    HYPERVISOR_GUEST_BY_CALL,      /* the VMM is asked: HYPERVISOR_DESCRIBE */
};

const char *hypervisor_name(enum hypervisor_kind kind);

/* As people write it. */
const char *hypervisor_title(enum hypervisor_kind kind);

enum hypervisor_guest_source hypervisor_guest_source(enum hypervisor_kind kind);

/* name: crustd's or Kata's, in upper or lower case; NULL is unknown. program: a file name without
 * its directory. HYPERVISOR_UNKNOWN if the table has no such one. */
enum hypervisor_kind hypervisor_kind_from_name(const char *name);
enum hypervisor_kind hypervisor_kind_from_program(const char *program);

/* ---- route ---------------------------------------------------------------------------------- */

/* As agent.routes names them. */
enum guest_route {
    ROUTE_NONE,
    ROUTE_COMPANION,
    ROUTE_AGENT,
    ROUTE_SHIM,
    ROUTE_HELPER,
    GUEST_ROUTES,
};

/* The ability of a route in a sandbox: this word, or the name of the reason why it does not work;
 * "" is not known yet. */
#define ROUTE_ABLE "able"

/* ---- vmm version ---------------------------------------------------------------------------- */

enum {
    CLOUD_HYPERVISOR_BLOCK_DEVICES = 52, /* the first version to resize block devices */
    VMM_VERSION_TEXT_BYTES = 128,
};

/* Whether a Cloud Hypervisor of this version ("52.0.0", or "v52.0") resizes block devices. */
bool cloud_hypervisor_is_able(const char *version);

/* "needs Cloud Hypervisor 52 or later (this is 51.1, the one that Kata 4.1.0 ships)", of "51.1.0"
 * or "v51.1". */
void cloud_hypervisor_say_need(const char *version, char ret_text[static VMM_VERSION_TEXT_BYTES]);
