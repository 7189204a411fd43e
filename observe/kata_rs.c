/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs.c - /run/kata as Kata's Rust runtime keeps it.
 *
 *   SANDBOXES/ID/state.json, shim-monitor.sock, and by VMM:
 *     ch-api.sock, ch-vm.sock                 Cloud Hypervisor
 *     run/fc.sock, kata.hvsock                Firecracker
 *     root/kata.hvsock                        Dragonball, within the shim
 *   SANDBOXES/firecracker/ID/root/            Firecracker with a jailer: its state and sockets
 *   /run/crustd/qemu/ID.sock                  if crust-qemu is installed in place of QEMU
 *   CWD/qmp.sock                              the shim's own monitor: used only when configured.
 * CWD is the shim's working directory: the sandbox's bundle, or what stands for it (bundles.c)
 *
 * None of these files names a process, a device or a guest path. state.json names the kind of VMM,
 * and the VMM is found by its arguments. QEMU's guest is reached at the cid in those arguments. The
 * drives are left to the VMM's own report.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/bundles.h"
#include "observe/kata.h"
#include "observe/observed_sandbox.h"
#include "observe/process_table.h"

#define STATE "state.json"
#define JAILS "firecracker"

struct traces {
    const struct observe_sandbox_paths *paths;
    const char *sandbox_id;
    char directory[PATH_MAX]; /* below root: of the state and of the VMM's sockets */
    struct bundles_place place;
    struct indexed_process vmm;
};

/* ---- the state directory ----------------------------------------------------------------- */

/* The jail is tried first, because the sandbox's own directory exists beside it. */
static int find_directory(struct traces *traces, bool *ret_found)
{
    *ret_found = false;
    for (int jailed = 1; jailed >= 0 && !*ret_found; jailed--) {
        int r = snprintf(traces->directory, PATH_MAX, "%s%s/%s%s", traces->paths->kata_rs_sandboxes,
                         jailed ? "/" JAILS : "", traces->sandbox_id, jailed ? "/root" : "");

        if (r >= PATH_MAX)
            return -ENAMETOOLONG;
        r = kata_has_directory(traces->paths->root, traces->directory, ret_found);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- state.json -------------------------------------------------------------------------- */

/* The file is written once, after the VMM has started; until then the VMM's arguments tell its
 * kind. A jailed VMM may write to the directory, and could put a link in the file's place. */
static int read_state(const struct traces *traces, struct observed_sandbox *sandbox)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_PERSIST.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    enum hypervisor_kind type;
    struct error error;
    int r = kata_read_file(traces->paths->root, traces->directory, STATE, &text, &error);

    if (r == PATH_ABSENT || r < 0)
        return r < 0 ? r : 0;
    if (r != PATH_OK)
        return kata_set_problem(sandbox, r == PATH_CHANGING, "", error.text);
    r = json_read(buffer_text(&text), text.length, JSON_LIMITS_PERSIST,
                  "hypervisor{hypervisor_type}", &object, &error);
    if (r < 0)
        return r;
    if (r != FILE_READ)
        return kata_set_problem(sandbox, r == FILE_CUT, STATE, error.text);
    type = hypervisor_kind_from_name(
        json_string(json_member(object, "hypervisor"), "hypervisor_type"));
    if (type != HYPERVISOR_UNKNOWN)
        sandbox->hypervisor = type;
    return 0;
}

/* ---- the VMM ----------------------------------------------------------------------------- */

static int find_vmm(struct traces *traces, struct observed_sandbox *sandbox)
{
    struct observe_cache *cache = traces->paths->cache;
    /* Dragonball is part of the shim; a remote VM has no other process on this machine. */
    enum process_role role =
        sandbox->hypervisor == HYPERVISOR_DRAGONBALL || sandbox->hypervisor == HYPERVISOR_REMOTE
            ? PROCESS_SHIM
            : PROCESS_VMM;
    char text[PROCESS_DOUBT_BYTES + 64];
    struct process_search search;
    int r = process_index_find(cache, role, traces->sandbox_id, &search);

    if (r == PROCESS_INDEX_UNFINISHED)
        return OBSERVED_UNFINISHED;
    if (r < 0)
        return r;
    if (r == PROCESS_INDEX_NONE) {
        /* The process may have been observed just as it started, so a doubt is reported only if it
         * lasts. */
        (void)snprintf(text, sizeof(text), "which process is the VMM is not known: %s",
                       search.doubt);
        if (search.doubt[0] && kata_set_problem(sandbox, true, "", text) < 0)
            return -ENOMEM;
        sandbox->try_again |= search.stale;
        /* A shim without a VMM is about to start one, or about to end. */
        r = process_index_find(cache, PROCESS_SHIM, traces->sandbox_id, &search);
        if (r == PROCESS_INDEX_UNFINISHED)
            return OBSERVED_UNFINISHED;
        sandbox->try_again |= r == PROCESS_INDEX_FOUND;
        return r < 0 ? r : 0;
    }
    traces->vmm = search.process;
    sandbox->alive = true;
    sandbox->vmm_pid = traces->vmm.pid;
    sandbox->vmm_start_ns = traces->vmm.start_ns;
    if (sandbox->hypervisor == HYPERVISOR_UNKNOWN)
        sandbox->hypervisor = traces->vmm.hypervisor;
    return 0;
}

static int find_control_socket(const struct traces *traces, struct observed_sandbox *sandbox)
{
    int root = traces->paths->root;

    if (sandbox->hypervisor == HYPERVISOR_CLOUD_HYPERVISOR)
        return kata_try_socket(root, traces->directory, "ch-api.sock", &sandbox->control_socket);
    if (sandbox->hypervisor == HYPERVISOR_FIRECRACKER)
        return kata_try_socket(root, traces->directory, "run/fc.sock", &sandbox->control_socket);
    if (sandbox->hypervisor == HYPERVISOR_QEMU)
        return kata_find_monitor(traces->paths, traces->sandbox_id, traces->place.own, NULL,
                                 sandbox);
    return 0;
}

/* ---- the agent --------------------------------------------------------------------------- */

static int find_agent(const struct traces *traces, struct observed_sandbox *sandbox)
{
    static const char *const sockets[HYPERVISOR_KINDS] = {
        [HYPERVISOR_CLOUD_HYPERVISOR] = "ch-vm.sock",
        [HYPERVISOR_FIRECRACKER] = "kata.hvsock",
        [HYPERVISOR_DRAGONBALL] = "root/kata.hvsock",
        [HYPERVISOR_OPENVMM] = "vsock.sock",
    };
    const char *socket = sockets[sandbox->hypervisor];
    int length = 0;

    if (sandbox->hypervisor == HYPERVISOR_QEMU && traces->vmm.guest_cid)
        length = asprintf(&sandbox->agent_address, "vsock://%" PRIu32 ":%u", traces->vmm.guest_cid,
                          traces->paths->agent_port);
    else if (socket)
        length = asprintf(&sandbox->agent_address, "hvsock://%s/%s:%u", traces->directory, socket,
                          traces->paths->agent_port);
    if (length >= 0)
        return 0;
    sandbox->agent_address = NULL;
    return -ENOMEM;
}

int kata_rs_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox)
{
    struct traces traces = {.paths = paths, .sandbox_id = sandbox_id};
    bool found;
    int r;

    if (strcmp(sandbox_id, JAILS) == 0)
        return OBSERVED_ABSENT;
    r = find_directory(&traces, &found);
    if (r == 0 && !found)
        return OBSERVED_ABSENT;
    sandbox->runtime = RUNTIME_KATA_RS;
    if (r == 0)
        r = read_state(&traces, sandbox);
    if (r == 0)
        r = find_vmm(&traces, sandbox);
    if (r != 0 || !sandbox->alive)
        return r;
    r = bundle_find(paths, sandbox_id, sandbox->vmm_pid, sandbox, &traces.place);
    if (r == 0)
        r = find_control_socket(&traces, sandbox);
    if (r == 0)
        r = find_agent(&traces, sandbox);
    if (r == 0 && traces.place.own[0])
        r = claims_read(paths, sandbox_id, &traces.place, true, sandbox);
    return r;
}
