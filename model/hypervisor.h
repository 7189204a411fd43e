/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.h - the kinds of VMM that Kata starts, as in audit_sandboxes. */
#pragma once

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
