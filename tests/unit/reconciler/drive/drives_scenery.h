/* SPDX-License-Identifier: Apache-2.0 */
/* drives_scenery.h - a VMM, a guest and a disk that do as they are asked, one act at a time. In
 * place of hypervisor/drive.c, claim_call.c, in_use.c and helper/guest.c.
 *
 * Each act has an effect on the world and then an answer, so a test can let crustd end between. */
#pragma once

#include "tests/unit/reconciler/surroundings.h"

#include <poll.h>
#include <sys/sysmacros.h>

#include "hypervisor/drive.h"
#include "lib/child.h"
#include "reconciler/drive/claim_call.h"
#include "reconciler/drive/drives.h"
#include "reconciler/drive/in_use.h"
#include "reconciler/helper/targets.h"

#define VMM_SERIAL "617951234"

enum world_call { NO_CALL, VMM_CALL, GUEST_CALL, TRAITS_CALL, SEARCH_CALL };

struct hypervisor_drive_call {
    struct hypervisor_drive_call *next; /* only lists run beside others */
    hypervisor_drive_done *done;
    void *userdata;
    enum hypervisor_drive_act act;
    bool has_descriptor;
    struct hypervisor_limits limits;
};

struct drive_guest_call {
    drive_guest_done *done;
    void *userdata;
    enum drive_guest_act act;
    uint64_t bytes;
};

struct drive_in_use_call {
    drive_in_use_done *done;
    void *userdata;
};

struct helper_guest {
    helper_guest_done *done;
    void *userdata;
};

struct drive_claim_call {
    struct drive_claim_call *next;
    drive_claim_done *done;
    void *userdata;
    char path[64];
    bool keep;
};

static struct {
    struct surroundings node;
    struct drives *drives;

    /* the world */
    enum hypervisor_kind kind;
    enum hypervisor_drive_state vmm;
    bool mounted, busy, confidential, searched;
    enum drive_claim_outcome claim; /* what an open of the disk comes to, if nobody has it */
    bool searches_for_anybody;      /* who only reads, too */
    bool other_has_disk;            /* found at the search */
    bool vmm_holds_disk;            /* whatever it says */
    bool opens_path;                /* the VMM makes no claim */
    bool makes_serial;              /* the VMM gives the drive VMM_SERIAL */
    bool hides_serial;              /* and which one is not known */
    bool hides_address;             /* nor where the guest has it */
    char asked_serial[DRIVE_SERIAL_CHARS + 1]; /* of the last call to the guest */
    char asked_address[HYPERVISOR_DRIVE_ADDRESS_BYTES];
    bool has_container;    /* the guest has no agent of ours */
    bool lacks_agent;      /* nobody in the guest answers for drives */
    bool lacks_container;  /* that is to have the drive, and does not run */
    const char *host_path; /* by which the disk is known */
    struct hypervisor_drive_traits traits_of_vmm;
    uint64_t disk_bytes, vmm_bytes, guest_bytes, mount_bytes;
    struct store_drive_mount_disk disk; /* that the path of the drive leads to */
    struct observed_device numbered;    /* what the node has by the disk's number; name "" */
    enum drive_claim_outcome by_name;   /* what an open of that comes to */
    bool storage_is_dead;               /* whoever opens the disk waits */
    bool hangs;                         /* somebody does */
    unsigned opens;                     /* how many have begun to open it */
    int claimed;                        /* the other end of crustd's claim, if so; -1 */
    struct hypervisor_limits limits;

    /* what the next act fails with, once; 0: it works */
    enum hypervisor_drive_outcome vmm_fails;
    enum status_code guest_fails;

    /* the calls in progress: at most one of each, because there is one drive */
    struct hypervisor_drive_call *vmm_call;
    struct drive_guest_call *guest_call;
    struct drive_in_use_call *search;
    struct helper_guest *traits;
    struct drive_claim_call *claims; /* any number, and they end by themselves */
    char walked[512];                /* the acts, in their order */

    unsigned answers;
    enum status_code code;
    enum drive_state state;
    char error[ERROR_TEXT_BYTES];
    char message[ERROR_TEXT_BYTES]; /* of the last answer */
} world;

static void walk(const char *name)
{
    size_t length = strlen(world.walked);

    (void)snprintf(world.walked + length, sizeof(world.walked) - length, "%s ", name);
}

/* ---- the VMM ---- */

const struct hypervisor_drive_traits *hypervisor_drive_traits(enum hypervisor_kind kind)
{
    assert_int_equal(kind, world.kind);
    world.traits_of_vmm.opens_path = world.opens_path;
    world.traits_of_vmm.makes_serial = world.makes_serial;
    return &world.traits_of_vmm;
}

bool hypervisor_drive_may_be_held(pid_t vmm_pid, const struct hypervisor_disk *disk)
{
    (void)vmm_pid;
    assert_int_equal(disk->inode, world.disk.inode);
    return world.vmm_holds_disk;
}

int hypervisor_drive_call_new(struct loop *loop, enum hypervisor_kind kind,
                              const struct hypervisor_drive_request *request,
                              hypervisor_drive_done *done, void *userdata,
                              struct hypervisor_drive_call **ret_call, struct error *error)
{
    struct hypervisor_drive_call *call;

    (void)loop;
    (void)error;
    for (call = world.vmm_call; call; call = call->next)
        assert_true(call->act == HYPERVISOR_DRIVE_LIST || request->act == HYPERVISOR_DRIVE_LIST);
    call = calloc(1, sizeof(*call));
    assert_non_null(call);
    assert_int_equal(kind, world.kind);
    assert_null(request->forbidden);
    if (request->act != HYPERVISOR_DRIVE_LIST) {
        assert_non_null(strstr("data-1 data-2", request->drive_id));
        assert_string_equal(request->path, world.host_path);
    }
    *call = (struct hypervisor_drive_call){
        world.vmm_call, done, userdata, request->act, request->descriptor >= 0, request->limits,
    };
    *ret_call = world.vmm_call = call;
    return 0;
}

struct hypervisor_drive_call *hypervisor_drive_call_free(struct hypervisor_drive_call *call)
{
    struct hypervisor_drive_call **link = &world.vmm_call;

    while (*link && *link != call)
        link = &(*link)->next;
    if (call && *link)
        *link = call->next;
    free(call);
    return NULL;
}

static void vmm_acts(void)
{
    static const char *const names[] = {
        [HYPERVISOR_DRIVE_ATTACH] = "attach", [HYPERVISOR_DRIVE_DETACH] = "remove",
        [HYPERVISOR_DRIVE_LIMIT] = "limit",   [HYPERVISOR_DRIVE_RESIZE] = "resize",
        [HYPERVISOR_DRIVE_LOOK] = "look",     [HYPERVISOR_DRIVE_LIST] = "list",
    };
    const struct hypervisor_drive_call *call = world.vmm_call;

    walk(names[call->act]);
    if (world.vmm_fails)
        return;
    if (call->act == HYPERVISOR_DRIVE_ATTACH && (call->has_descriptor || world.vmm))
        world.vmm = HYPERVISOR_DRIVE_PRESENT;
    if (call->act == HYPERVISOR_DRIVE_RESIZE)
        world.vmm_bytes = world.disk_bytes;
    if (call->act == HYPERVISOR_DRIVE_LIMIT)
        world.limits = call->limits;
    if (call->act == HYPERVISOR_DRIVE_DETACH) {
        assert_false(world.mounted); /* nothing in the world protects it */
        world.vmm = HYPERVISOR_DRIVE_ABSENT;
    }
}

static const char *address_of_drive(void)
{
    return world.hides_address ? "" : "scsi:255:0";
}

static void vmm_answers(void)
{
    struct hypervisor_drive_call *call = world.vmm_call, *rest = call->next;
    const char *serial =
        world.makes_serial && !world.hides_serial && world.vmm == HYPERVISOR_DRIVE_PRESENT
            ? VMM_SERIAL
            : "";
    struct hypervisor_drive_entry entry = {
        .drive_id = "data-1",
        .state = world.vmm,
        .identified = true,
        .disk = {.device = makedev(7, 1)},
    };
    struct hypervisor_drive_reply reply = {
        .entries = &entry,
        .entry_count = world.vmm != HYPERVISOR_DRIVE_ABSENT,
        .outcome = world.vmm_fails,
        .state = world.vmm,
        .bytes = world.vmm_bytes,
    };

    strcpy(entry.serial, serial);
    strcpy(reply.serial, serial);
    if (world.vmm == HYPERVISOR_DRIVE_PRESENT)
        strcpy(reply.address, address_of_drive());
    if (!world.vmm_fails && world.vmm_call->act == HYPERVISOR_DRIVE_ATTACH &&
        world.vmm != HYPERVISOR_DRIVE_PRESENT)
        reply.outcome = HYPERVISOR_DRIVE_NEEDS_DESCRIPTOR;
    if (world.vmm_fails && world.vmm_fails <= HYPERVISOR_DRIVE_VERSION) /* nobody was asked */
        reply.state = HYPERVISOR_DRIVE_UNKNOWN;
    if (reply.outcome)
        (void)error_set(&reply.error, 0, "the VMM does not");
    world.vmm_fails = HYPERVISOR_DRIVE_DONE;
    call->done(call, &reply, call->userdata);
    assert_ptr_equal(world.vmm_call, rest);
}

/* ---- the guest ---- */

static int scene_call_new(const struct context *context, const struct drive_guest_request *request,
                          drive_guest_done *done, void *userdata,
                          struct drive_guest_call **ret_call)
{
    struct drive_guest_call *call = calloc(1, sizeof(*call));

    (void)context;
    assert_non_null(call);
    assert_null(world.guest_call);
    if (request->act != DRIVE_GUEST_LOOK || request->address[0]) {
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_PRESENT);
        assert_string_equal(request->address, address_of_drive());
        assert_true(!world.makes_serial || strcmp(request->drive->serial, VMM_SERIAL) == 0);
    }
    strcpy(world.asked_serial, request->drive->serial);
    strcpy(world.asked_address, request->address);
    *call = (struct drive_guest_call){done, userdata, request->act, request->bytes};
    *ret_call = world.guest_call = call;
    return 0;
}

static struct drive_guest_call *scene_call_free(struct drive_guest_call *call)
{
    if (call)
        world.guest_call = NULL;
    free(call);
    return NULL;
}

static bool guest_call_must_end(const struct drive_guest_call *call)
{
    assert_ptr_equal(call, world.guest_call);
    return world.has_container;
}

static const struct drive_guest_ops guest_ops = {scene_call_new, scene_call_free,
                                                 guest_call_must_end};

static void guest_acts(void)
{
    static const char *const names[] = {[DRIVE_GUEST_LOOK] = "ask",
                                        [DRIVE_GUEST_MOUNT] = "mount",
                                        [DRIVE_GUEST_UNMOUNT] = "unmount",
                                        [DRIVE_GUEST_GROW] = "grow"};
    enum drive_guest_act act = world.guest_call->act;

    walk(names[act]);
    if (world.lacks_agent)
        world.guest_fails = STATUS_FAILED_PRECONDITION;
    if (world.guest_fails)
        return;
    if (act == DRIVE_GUEST_MOUNT) {
        world.mounted = true;
        world.mount_bytes = world.guest_call->bytes;
    }
    if (act == DRIVE_GUEST_GROW)
        world.guest_bytes = world.guest_call->bytes;
    if (act == DRIVE_GUEST_UNMOUNT && !world.busy)
        world.mounted = false;
}

static void guest_answers(void)
{
    struct drive_guest_reply reply = {
        .status = world.guest_fails,
        .guest = world.mounted ? DRIVE_IN_GUEST_MOUNTED : DRIVE_IN_GUEST_ABSENT,
        .device = "sda",
    };

    if (!reply.status && world.guest_call->act == DRIVE_GUEST_UNMOUNT && world.mounted)
        reply.status = STATUS_FAILED_PRECONDITION;
    if (!reply.status && world.guest_call->act == DRIVE_GUEST_MOUNT && world.lacks_container)
        reply.status = (enum status_code)error_set(&reply.error, STATUS_FAILED_PRECONDITION,
                                                   "container c1: it does not run");
    else if (reply.status)
        (void)error_set(&reply.error, 0, "the guest does not: 77 (cat) has it");
    if (reply.status == STATUS_UNAVAILABLE || world.lacks_agent ||
        (reply.status && world.guest_call->act == DRIVE_GUEST_UNMOUNT)) /* not known what is left */
        reply.guest = DRIVE_IN_GUEST_UNKNOWN;
    world.guest_fails = STATUS_OK;
    world.guest_call->done(world.guest_call, &reply, world.guest_call->userdata);
    assert_null(world.guest_call);
}

/* ---- the host ---- */

int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device)
{
    (void)sysfs;
    if (world.numbered.name[0] && major == world.numbered.major && minor == world.numbered.minor) {
        *ret_device = world.numbered;
        return OBSERVED;
    }
    *ret_device =
        (struct observed_device){.size_bytes = world.disk_bytes, .diskseq = world.disk.diskseq};
    return world.disk_bytes ? OBSERVED : OBSERVED_ABSENT;
}

int observe_device_path(int root_fd, int sysfs, const char *path,
                        struct observed_device *ret_device)
{
    (void)root_fd;
    (void)path;
    return observe_device_number(sysfs, 0, 0, ret_device);
}

int observe_open_sysfs(int root_fd, const char *path, int *ret_fd)
{
    *ret_fd = openat(root_fd, path + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

int helper_guest_new(const struct context *context, const struct store_helper_run *sandbox,
                     helper_guest_done *done, void *userdata, struct helper_guest **ret_guest)
{
    (void)context;
    assert_non_null(strstr("sandbox-1 sandbox-2", sandbox->sandbox_id));
    *ret_guest = world.traits = calloc(1, sizeof(**ret_guest));
    assert_non_null(world.traits);
    *world.traits = (struct helper_guest){done, userdata};
    return 0;
}

struct helper_guest *helper_guest_free(struct helper_guest *guest)
{
    if (guest)
        world.traits = NULL;
    free(guest);
    return NULL;
}

/* crustd itself has the disk open. */
static inline bool is_claimed(void)
{
    struct pollfd end = {.fd = world.claimed};

    return world.opens_path && world.claimed >= 0 && poll(&end, 1, 0) == 0;
}

/* A descriptor of which it can be told whether it is still open. */
static int claim_by_pipe(void)
{
    int ends[2];

    fd_close(world.claimed);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    world.claimed = ends[0];
    return ends[1];
}

static void claim_by_name(const struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    assert_string_equal(call->path, world.numbered.name);
    reply->disk = (struct store_drive_mount_disk){.kind = world.numbered.kind,
                                                  .major = world.numbered.major,
                                                  .minor = world.numbered.minor,
                                                  .diskseq = world.numbered.diskseq};
    reply->outcome = (int)world.by_name;
    if (world.by_name)
        (void)error_set(&reply->error, reply->outcome, "the numbered disk cannot be had");
}

static void claim_by_path(const struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    reply->disk = world.disk;
    reply->outcome = (int)world.claim;
    if (world.opens_path ? is_claimed() : world.vmm != HYPERVISOR_DRIVE_ABSENT) {
        reply->outcome = world.claim == DRIVE_CLAIM_TAKEN ? DRIVE_CLAIM_TAKEN : DRIVE_CLAIM_IN_USE;
        (void)error_set(&reply->error, reply->outcome, "a VM has it");
    } else if (world.claim) {
        (void)error_set(&reply->error, reply->outcome, "the disk cannot be had");
    } else if (call->keep) {
        reply->fd = claim_by_pipe();
    }
}

static void end_claim(struct drive_claim_call *call)
{
    struct drive_claim_reply reply = {.fd = -1};

    world.hangs = world.storage_is_dead;
    if (world.storage_is_dead) {
        reply.outcome = error_set(&reply.error, DRIVE_CLAIM_HANGS, "its storage has not answered");
    } else if (strcmp(call->path, world.host_path) == 0) {
        claim_by_path(call, &reply);
    } else {
        claim_by_name(call, &reply);
    }
    call->done(call, &reply, call->userdata);
    fd_close(reply.fd);
}

/* The first that began. */
static struct drive_claim_call *find_claim(void)
{
    struct drive_claim_call *first = NULL;

    for (struct drive_claim_call *call = world.claims; call; call = call->next)
        first = call;
    return first;
}

/* All processes that open the disk come to an end, or to the end of crustd's patience. */
static void open_disks(void)
{
    struct drive_claim_call *call;

    while ((call = find_claim()))
        end_claim(call);
}

int drive_claim_call_new(struct loop *loop, const struct drive_claim_request *request, bool keep,
                         uint64_t patience_ns, drive_claim_done *done, void *userdata,
                         struct drive_claim_call **ret_call)
{
    struct drive_claim_call *call;

    (void)loop;
    assert_true(patience_ns > 0);
    if (world.hangs && world.storage_is_dead)
        return CHILD_STILL_HANGS;
    call = calloc(1, sizeof(*call));
    assert_non_null(call);
    *call = (struct drive_claim_call){
        .next = world.claims, .done = done, .userdata = userdata, .keep = keep};
    (void)snprintf(call->path, sizeof(call->path), "%s", request->host_path);
    world.opens++;
    *ret_call = world.claims = call;
    return 0;
}

struct drive_claim_call *drive_claim_call_free(struct drive_claim_call *call)
{
    struct drive_claim_call **link = &world.claims;

    while (call && *link != call)
        link = &(*link)->next;
    if (call)
        *link = call->next;
    free(call);
    return NULL;
}

int drive_in_use_call_new(const struct context *context, const struct drive_in_use_request *request,
                          drive_in_use_done *done, void *userdata,
                          struct drive_in_use_call **ret_call)
{
    (void)context;
    assert_string_equal(request->drive_id, "data-1");
    assert_int_equal(request->disk->kind, world.disk.kind);
    assert_int_equal(request->disk->inode, world.disk.inode);
    world.searches_for_anybody = request->writable;
    *ret_call = world.search = calloc(1, sizeof(**ret_call));
    assert_non_null(world.search);
    *world.search = (struct drive_in_use_call){done, userdata};
    return 0;
}

struct drive_in_use_call *drive_in_use_call_free(struct drive_in_use_call *call)
{
    if (call)
        world.search = NULL;
    free(call);
    return NULL;
}

static void traits_are_known(void)
{
    const struct guest_traits traits = {.is_confidential = world.confidential};

    world.traits->done(&traits, NULL, world.traits->userdata);
    assert_null(world.traits);
}

static void search_ends(void)
{
    struct drive_in_use_reply reply = {.outcome = world.other_has_disk ? DRIVE_IN_USE_BY_OTHERS
                                                                       : DRIVE_IN_USE_NOT};

    if (world.other_has_disk)
        (void)error_set(&reply.error, 0, "sandbox-9 has the disk");
    world.searched = true;
    world.search->done(world.search, &reply, world.search->userdata);
}
