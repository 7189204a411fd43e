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
    const char *obstacle;
} kinds[HYPERVISOR_KINDS] = {
    [HYPERVISOR_UNKNOWN] = {"unknown", "its VMM", false, "it is not known which VMM this is"},
    [HYPERVISOR_QEMU] = {"qemu", "QEMU", true, NULL},
    [HYPERVISOR_CLOUD_HYPERVISOR] = {"cloud-hypervisor", "Cloud Hypervisor", true, NULL},
    [HYPERVISOR_FIRECRACKER] = {"firecracker", "Firecracker", true, NULL},
    [HYPERVISOR_DRAGONBALL] = {"dragonball", "dragonball", false,
                               "Dragonball runs inside the shim and has no control socket: its "
                               "drives keep their size until the pod is started anew"},
    [HYPERVISOR_STRATOVIRT] = {"stratovirt", "stratovirt", true,
                               "StratoVirt has one monitor, which the shim holds: its drives keep "
                               "their size until the pod is started anew"},
    [HYPERVISOR_OPENVMM] = {"openvmm", "openvmm", false,
                            "OpenVMM has no known call that resizes a drive: its drives keep their "
                            "size until the pod is started anew"},
    [HYPERVISOR_REMOTE] = {"remote", "remote", false,
                           "the VM runs on another machine, where no device of this one is "
                           "attached to it"},
};

const char *hypervisor_name(enum hypervisor_kind kind)
{
    return kinds[kind].name;
}

const char *hypervisor_title(enum hypervisor_kind kind)
{
    return kinds[kind].title;
}

const char *hypervisor_obstacle(enum hypervisor_kind kind)
{
    return kinds[kind].obstacle;
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
