/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_act_fuzz.c - the whole of each act upon a QEMU that says the input and then hangs up. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/peer.h"

enum { SAID_BYTES = 60000 /* fits a socket's buffer */, DEVICE = 1, BYTES = 2048 };

static const uint8_t *said;
static size_t said_bytes;
static int other_end = -1;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- in the place of the product's own ---- */

int peer_connect(struct peer *peer, int root, const char *path, const struct listener *listener,
                 uint64_t deadline_ns, size_t most, struct error *error)
{
    int ends[2];

    (void)root, (void)path, (void)listener, (void)error;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0 ||
        write(ends[1], said, said_bytes) != (ssize_t)said_bytes || shutdown(ends[1], SHUT_WR) < 0)
        abort();
    other_end = ends[1];
    *peer = (struct peer){
        .fd = ends[0], .deadline_ns = deadline_ns, .most = most, .input = BUFFER_INIT(most)};
    return 0;
}

/* Every path and descriptor but "/other" is the device that is looked for. */
int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk)
{
    (void)process;
    *ret_disk =
        (struct hypervisor_disk){.device = strcmp(path, "/other") == 0 ? DEVICE + 1 : DEVICE};
    return 0;
}

int vmm_process_descriptor(struct vmm_process *process, int fd, struct hypervisor_disk *ret_disk)
{
    if (fd < 0)
        abort();
    return vmm_process_path(process, "", ret_disk);
}

enum vmm_holding vmm_process_holds(struct vmm_process *process, const struct hypervisor_disk *disk)
{
    (void)process, (void)disk;
    return VMM_HOLDS_NOT;
}

int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error)
{
    (void)error;
    *process = (struct vmm_process){.pid = pid, .root = -1, .descriptors = -1};
    return 0;
}

/* ---- the acts ---- */

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void act(enum hypervisor_act act, const char *drive_id)
{
    const bool is_own = drive_id || act == HYPERVISOR_LIST;
    const struct hypervisor_request request = {.act = act,
                                               .control_socket = "/monitor",
                                               .disk = {.device = DEVICE},
                                               .recorded_drive = "drive-1",
                                               .wants_address = true,
                                               .drive_id = drive_id,
                                               .bytes = BYTES,
                                               .descriptor = STDERR_FILENO,
                                               .serial = "serial-1",
                                               .removal_ns = NSEC_PER_SEC / 2};
    struct hypervisor_reply reply = {.bytes = 0};
    bool is_done;

    qemu_act(&request, clock_boottime() + NSEC_PER_SEC, &reply);
    fd_close(take_fd(&other_end));
    is_done = reply.outcome == HYPERVISOR_DONE || reply.outcome == HYPERVISOR_PAUSED;
    expect(reply.outcome < HYPERVISOR_OUTCOMES);
    expect((reply.outcome == HYPERVISOR_DONE) == !reply.error.text[0]);
    expect(is_own || !is_done || reply.list == HYPERVISOR_LIST_HAS);
    expect(is_own || !is_done || qemu_name_is_plain(reply.drive_id));
    expect(!is_done || act != HYPERVISOR_RESIZE || reply.bytes >= BYTES);
    expect(!is_own || reply.bytes == (is_done && act == HYPERVISOR_RESIZE ? BYTES : 0));
    expect(!is_done || act != HYPERVISOR_ATTACH || reply.state == HYPERVISOR_DRIVE_PRESENT);
    expect(!is_done || act != HYPERVISOR_DETACH || reply.state == HYPERVISOR_DRIVE_ABSENT);
    for (size_t i = 0; i < reply.entry_count; i++)
        expect(reply.entries[i].drive_id[0] && reply.entries[i].identified);
    free((void *)(uintptr_t)reply.entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum hypervisor_act own[] = {HYPERVISOR_ATTACH, HYPERVISOR_DETACH,
                                              HYPERVISOR_LIMIT, HYPERVISOR_RESIZE,
                                              HYPERVISOR_QUERY};

    said = data;
    said_bytes = size < SAID_BYTES ? size : SAID_BYTES;
    act(HYPERVISOR_QUERY, NULL);
    act(HYPERVISOR_RESIZE, NULL);
    act(HYPERVISOR_LIST, NULL);
    for (size_t i = 0; i < array_length(own); i++)
        act(own[i], "data-1");
    return 0;
}
