/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.c - the table of hypervisors. */
#include "model/hypervisor.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    const char *title;
    bool has_program; /* of a name that begins with its own */
    enum hypervisor_guest_source guest_source;
} kinds[HYPERVISOR_KINDS] = {
    [HYPERVISOR_UNKNOWN] = {"unknown", "its VMM", false, HYPERVISOR_GUEST_UNKNOWN},
    [HYPERVISOR_QEMU] = {"qemu", "QEMU", true, HYPERVISOR_GUEST_BY_ARGUMENTS},
    [HYPERVISOR_CLOUD_HYPERVISOR] = {"cloud-hypervisor", "Cloud Hypervisor", true,
                                     HYPERVISOR_GUEST_BY_CALL},
    [HYPERVISOR_FIRECRACKER] = {"firecracker", "Firecracker", true, HYPERVISOR_GUEST_BY_KIND},
    [HYPERVISOR_DRAGONBALL] = {"dragonball", "Dragonball", false, HYPERVISOR_GUEST_UNKNOWN},
    [HYPERVISOR_STRATOVIRT] = {"stratovirt", "StratoVirt", true, HYPERVISOR_GUEST_UNKNOWN},
    [HYPERVISOR_OPENVMM] = {"openvmm", "OpenVMM", false, HYPERVISOR_GUEST_UNKNOWN},
    [HYPERVISOR_REMOTE] = {"remote", "a remote hypervisor", false, HYPERVISOR_GUEST_UNKNOWN},
};

const char *hypervisor_name(enum hypervisor_kind kind)
{
    return kinds[kind].name;
}

const char *hypervisor_title(enum hypervisor_kind kind)
{
    return kinds[kind].title;
}

enum hypervisor_guest_source hypervisor_guest_source(enum hypervisor_kind kind)
{
    return kinds[kind].guest_source;
}

enum hypervisor_kind hypervisor_kind_from_name(const char *name)
{
    unsigned kind = HYPERVISOR_KINDS - 1;

    if (name && strcasecmp(name, "clh") == 0)
        return HYPERVISOR_CLOUD_HYPERVISOR;
    while (kind > HYPERVISOR_UNKNOWN && (!name || strcasecmp(kinds[kind].name, name) != 0))
        kind--;
    return kind;
}

enum hypervisor_kind hypervisor_kind_from_program(const char *program)
{
    unsigned kind = HYPERVISOR_KINDS - 1;

    while (kind > HYPERVISOR_UNKNOWN &&
           !(kinds[kind].has_program &&
             strncmp(program, kinds[kind].name, strlen(kinds[kind].name)) == 0))
        kind--;
    return kind;
}
