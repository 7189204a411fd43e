/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c - the names of runtimes. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/text.h"
#include "model/sandbox.h"
#include "model/volume.h"

static const char *const names[RUNTIMES] = {
    [RUNTIME_UNKNOWN] = "unknown",
    [RUNTIME_KATA_GO] = "kata-go",
    [RUNTIME_KATA_RS] = "kata-rs",
};

WORDS(runtime, enum kata_runtime, names, RUNTIMES, RUNTIME_UNKNOWN)

/* ---- hypervisor ----------------------------------------------------------------------------- */

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

/* ---- vmm version ---------------------------------------------------------------------------- */

/* Cloud Hypervisor's vm.resize-disk and the versions that matter to users of Kata.
 *
 * vm.resize-disk came with v50 and truncates, which fails on a block device; since v52 it compares
 * the device's size and tells the guest (cloud-hypervisor/release-notes.md). Kata 4.1.0 comes with
 * v51.1 (Kata: versions.yaml).
 */

enum { RELEASE_BYTES = 41 };

static const char *skip_v(const char *version)
{
    return version + (version[0] == 'v');
}

bool cloud_hypervisor_is_able(const char *version)
{
    const char *digits = skip_v(version);

    return isdigit((unsigned char)digits[0]) &&
           strtoul(digits, NULL, 10) >= CLOUD_HYPERVISOR_BLOCK_DEVICES;
}

void cloud_hypervisor_say_need(const char *version, char ret_text[static VMM_VERSION_TEXT_BYTES])
{
    static const char shipped[] = "51.1";
    const char *number = *skip_v(version) ? skip_v(version) : "of no known version";
    size_t length = strlen(number), second = strcspn(number, ".");
    size_t third = second < length ? second + 1 + strcspn(number + second + 1, ".") : length;
    char release[RELEASE_BYTES];

    /* Releases are known by two numbers, but vmm.ping reports the crate's version, 51.1.0. */
    if (strcmp(number + third, ".0") == 0)
        length = third;
    text_clean(number, length, release, sizeof(release)); /* cuts between characters */
    (void)snprintf(ret_text, VMM_VERSION_TEXT_BYTES,
                   "needs Cloud Hypervisor %d or later (this is %s%s)",
                   CLOUD_HYPERVISOR_BLOCK_DEVICES, release,
                   strcmp(release, shipped) == 0 ? ", the one that Kata 4.1.0 ships" : "");
}
