/* vmm_version.c - Cloud Hypervisor's vm.resize-disk and the versions that matter to users of Kata.
 *
 * vm.resize-disk came with v50 and truncates, which fails on a block device; since v52 it compares
 * the device's size and tells the guest (Cloud Hypervisor: release-notes.md). Kata 4.1.0 comes with
 * v51.1 (Kata: versions.yaml).
 */
#include "lib/vmm_version.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *number = skip_v(version);

    (void)snprintf(ret_text, VMM_VERSION_TEXT_BYTES,
                   "needs Cloud Hypervisor %d or later (this is %.40s%s)",
                   CLOUD_HYPERVISOR_BLOCK_DEVICES, *number ? number : "of no known version",
                   strcmp(number, "51.1") == 0 ? ", the one that Kata 4.1.0 ships" : "");
}
