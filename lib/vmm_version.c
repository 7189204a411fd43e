/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_version.c - Cloud Hypervisor's vm.resize-disk and the versions that matter to users of Kata.
 *
 * vm.resize-disk came with v50 and truncates, which fails on a block device; since v52 it compares
 * the device's size and tells the guest (cloud-hypervisor/release-notes.md). Kata 4.1.0 comes with
 * v51.1 (Kata: versions.yaml).
 */
#include "lib/vmm_version.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"

enum { RELEASE_BYTES = 41 };

static const char *skip_v(const char *version)
{
    return version + (version[0] == 'v');
}

/* Releases are known by two numbers, but vmm.ping reports the crate's version, 51.1.0: the last
 * number is left out if it is 0. */
static int release_length(const char *number)
{
    size_t length = strlen(number), second = strcspn(number, ".");
    size_t third = second < length ? second + 1 + strcspn(number + second + 1, ".") : length;

    return (int)(strcmp(number + third, ".0") == 0 ? third : length);
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
    int length = release_length(number);
    bool is_shipped =
        strlen(shipped) == (size_t)length && strncmp(number, shipped, strlen(shipped)) == 0;
    char release[RELEASE_BYTES];

    text_clean(number, (size_t)length, release, sizeof(release)); /* cuts between characters */
    (void)snprintf(ret_text, VMM_VERSION_TEXT_BYTES,
                   "needs Cloud Hypervisor %d or later (this is %s%s)",
                   CLOUD_HYPERVISOR_BLOCK_DEVICES, release,
                   is_shipped ? ", the one that Kata 4.1.0 ships" : "");
}
