/* SPDX-License-Identifier: Apache-2.0 */
/* guest_traits.c - see guest_traits.h.
 *
 * QEMU has a confidential guest only with an object of one of the types below, which its machine
 * names as confidential-guest-support (Kata: src/runtime/virtcontainers/qemu_*.go,
 * src/runtime-rs/crates/hypervisor/src/qemu/cmdline_generator.rs). A shared directory is a
 * vhost-user-fs device (virtiofs), in old versions virtio-9p. Firecracker supports neither
 * confidential guests nor shared directories. Cloud Hypervisor gets both over its API socket and
 * not by arguments.
 */
#include "observe/guest_traits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/kata.h"

enum { ARGUMENTS_BYTES = 256 * 1024 };

static const char *const confidential[] = {
    "confidential-guest-support=",
    "sev-guest",
    "sev-snp-guest",
    "tdx-guest",
    "s390-pv-guest",
    "pef-guest",
    "rme-guest",
    "memory-encryption=",
};

static bool names_any(const char *argument, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(argument, words[i]))
            return true;
    return false;
}

void guest_traits_from_arguments(const char *arguments, size_t length, struct guest_traits *traits)
{
    static const char *const shares[] = {"vhost-user-fs", "virtio-9p"};
    const char *argument = arguments, *end = arguments + length;
    bool has_devices = false, has_share = false;

    for (; argument < end; argument += strlen(argument) + 1) {
        has_devices |= strcmp(argument, "-device") == 0;
        has_share |= names_any(argument, shares, array_length(shares));
        traits->is_confidential |= names_any(argument, confidential, array_length(confidential));
    }
    if (has_share)
        traits->share = GUEST_SHARE_DIRECTORY;
    else if (has_devices)
        traits->share = GUEST_SHARE_NONE;
}

static int read_persist(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                        struct buffer *text)
{
    char directory[PATH_MAX];

    if (snprintf(directory, sizeof(directory), "%s/%s", paths->kata_go_sandboxes, sandbox_id) >=
        PATH_MAX)
        return -ENAMETOOLONG;
    return kata_read_file(paths->root, directory, "persist.json", text, NULL) == PATH_OK ? 0
                                                                                         : -ENOENT;
}

/* Asks persist.json where the arguments do not tell. */
static void ask_persist(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                        struct guest_traits *traits)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_PERSIST.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    const char *share;

    if (read_persist(paths, sandbox_id, &text) < 0 ||
        json_parse(buffer_text(&text), text.length, JSON_LIMITS_PERSIST, &object, NULL) < 0)
        return;
    share = json_string(json_member(json_member(object, "Config"), "HypervisorConfig"), "SharedFS");
    if (share && *share)
        traits->share = strcmp(share, "none") == 0 ? GUEST_SHARE_NONE : GUEST_SHARE_DIRECTORY;
}

int guest_traits_observe(const struct observe_sandbox_paths *paths, enum hypervisor_kind kind,
                         const char *sandbox_id, pid_t vmm_pid, struct guest_traits *ret_traits)
{
    const enum hypervisor_guest_source source = hypervisor_guest_source(kind);
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    struct guest_traits traits = {0};
    int r = process_read_arguments(vmm_pid, &arguments);

    if (r < 0)
        return r;
    if (source == HYPERVISOR_GUEST_BY_ARGUMENTS)
        guest_traits_from_arguments(buffer_text(&arguments), arguments.length, &traits);
    else if (source == HYPERVISOR_GUEST_BY_KIND)
        traits.share = GUEST_SHARE_NONE;
    else
        return GUEST_TRAITS_NO_SOURCE;
    if (traits.share == GUEST_SHARE_UNKNOWN)
        ask_persist(paths, sandbox_id, &traits);
    *ret_traits = traits;
    return 0;
}
