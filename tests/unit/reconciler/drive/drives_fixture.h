/* SPDX-License-Identifier: Apache-2.0 */
/* drives_fixture.h - drives in a world whose VMM, guest and disk do as they are asked, one act at a
 * time; crustd's passes, and a client. In place of hypervisor/hypervisor.c, claim.c, in_use.c,
 * guest.c and helper_guest_start().
 *
 * Each act has an effect on the world and then an answer, so a test can let crustd end between. */
#pragma once

#include "tests/unit/reconciler/fake_call.h"
#include "tests/unit/reconciler/surroundings.h"

#include <poll.h>
#include <sys/sysmacros.h>

#include "hypervisor/hypervisor.h"
#include "lib/child.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"

#define VMM_SERIAL "617951234"

enum world_call { NO_CALL, VMM_CALL, GUEST_CALL, TRAITS_CALL, SEARCH_CALL };

struct hypervisor_call {
    struct hypervisor_call *next; /* only lists run beside others */
    hypervisor_done *done;
    void *userdata;
    enum hypervisor_act act;
    bool has_descriptor;
    struct hypervisor_limits limits;
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
    char asked_serial[DRIVE_SERIAL_CHARS + 1]; /* of the last call to the guest */
    bool has_container;                        /* the guest has no agent of ours */
    bool lacks_agent;                          /* nobody in the guest answers for drives */
    bool lacks_container;                      /* that is to have the drive, and does not run */
    const char *host_path;                     /* by which the disk is known */
    struct hypervisor_traits traits_of_vmm;
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
    enum hypervisor_outcome vmm_fails;
    enum status_code guest_fails;

    /* the calls in progress: at most one of each, because there is one drive */
    struct hypervisor_call *vmm_call;
    struct drive_guest_call *guest_call;
    struct drive_in_use_call *search;
    struct helper_guest *traits;
    struct drive_claim_call *claims[8]; /* they end by themselves */
    char claim_path[8][64];
    char walked[512]; /* the acts, in their order */

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

const struct hypervisor_traits *hypervisor_traits(enum hypervisor_kind kind)
{
    assert_int_equal(kind, world.kind);
    world.traits_of_vmm.opens_path = world.opens_path;
    world.traits_of_vmm.makes_serial = world.makes_serial;
    return &world.traits_of_vmm;
}

bool hypervisor_may_hold(pid_t vmm_pid, const struct hypervisor_disk *disk)
{
    assert_int_equal(disk->inode, world.disk.inode);
    return world.vmm_holds_disk;
}

int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call, struct error *error)
{
    struct hypervisor_call *call;

    for (call = world.vmm_call; call; call = call->next)
        assert_true(call->act == HYPERVISOR_LIST || request->act == HYPERVISOR_LIST);
    call = calloc(1, sizeof(*call));
    assert_non_null(call);
    assert_int_equal(kind, world.kind);
    assert_null(request->forbidden);
    if (request->act != HYPERVISOR_LIST) {
        assert_non_null(strstr("data-1 data-2", request->drive_id));
        assert_string_equal(request->path, world.host_path);
    }
    *call = (struct hypervisor_call){
        world.vmm_call, done, userdata, request->act, request->descriptor >= 0, request->limits,
    };
    *ret_call = world.vmm_call = call;
    return 0;
}

struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call)
{
    struct hypervisor_call **link = &world.vmm_call;

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
        [HYPERVISOR_ATTACH] = "attach", [HYPERVISOR_DETACH] = "remove",
        [HYPERVISOR_LIMIT] = "limit",   [HYPERVISOR_RESIZE] = "resize",
        [HYPERVISOR_QUERY] = "look",    [HYPERVISOR_LIST] = "list",
    };
    const struct hypervisor_call *call = world.vmm_call;

    walk(names[call->act]);
    if (world.vmm_fails)
        return;
    if (call->act == HYPERVISOR_ATTACH && (call->has_descriptor || world.vmm))
        world.vmm = HYPERVISOR_DRIVE_PRESENT;
    if (call->act == HYPERVISOR_RESIZE)
        world.vmm_bytes = world.disk_bytes;
    if (call->act == HYPERVISOR_LIMIT)
        world.limits = call->limits;
    if (call->act == HYPERVISOR_DETACH) {
        assert_false(world.mounted); /* nothing in the world protects it */
        world.vmm = HYPERVISOR_DRIVE_ABSENT;
    }
}

static void vmm_answers(void)
{
    struct hypervisor_call *call = world.vmm_call, *rest = call->next;
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
    struct hypervisor_reply reply = {
        .entries = &entry,
        .entry_count = world.vmm != HYPERVISOR_DRIVE_ABSENT,
        .outcome = world.vmm_fails,
        .state = world.vmm,
        .bytes = world.vmm_bytes,
    };

    strcpy(entry.serial, serial);
    strcpy(reply.serial, serial);
    if (!world.vmm_fails && world.vmm_call->act == HYPERVISOR_ATTACH &&
        world.vmm != HYPERVISOR_DRIVE_PRESENT)
        reply.outcome = HYPERVISOR_NEEDS_DESCRIPTOR;
    if (world.vmm_fails && world.vmm_fails <= HYPERVISOR_VERSION) /* nobody was asked */
        reply.state = HYPERVISOR_DRIVE_UNKNOWN;
    if (reply.outcome)
        (void)error_set(&reply.error, 0, "the VMM does not");
    world.vmm_fails = HYPERVISOR_DONE;
    call->done(call, &reply, call->userdata);
    assert_ptr_equal(world.vmm_call, rest);
}

/* ---- the guest ---- */

void drive_guest_start(struct drive_guest_call *call)
{
    assert_null(world.guest_call);
    if (call->act != DRIVE_CLIENT_LIST) {
        assert_int_equal(world.vmm, HYPERVISOR_DRIVE_PRESENT);
        assert_true(!world.makes_serial || strcmp(call->drive->serial, VMM_SERIAL) == 0);
    }
    strcpy(world.asked_serial, call->drive->serial);
    world.guest_call = call;
}

void drive_guest_stop(struct drive_guest_call *call)
{
    if (call == world.guest_call)
        world.guest_call = NULL;
}

bool drive_guest_must_end(const struct drive_guest_call *call)
{
    return call == world.guest_call && world.has_container;
}

static void guest_acts(void)
{
    static const char *const names[] = {[DRIVE_CLIENT_LIST] = "ask",
                                        [DRIVE_CLIENT_MOUNT] = "mount",
                                        [DRIVE_CLIENT_UNMOUNT] = "unmount",
                                        [DRIVE_CLIENT_GROW] = "grow"};
    enum drive_client_act act = world.guest_call->act;

    walk(names[act]);
    if (world.lacks_agent)
        world.guest_fails = STATUS_FAILED_PRECONDITION;
    if (world.guest_fails)
        return;
    if (act == DRIVE_CLIENT_MOUNT) {
        world.mounted = true;
        world.mount_bytes = world.guest_call->bytes;
    }
    if (act == DRIVE_CLIENT_GROW)
        world.guest_bytes = world.guest_call->bytes;
    if (act == DRIVE_CLIENT_UNMOUNT && !world.busy)
        world.mounted = false;
}

static void guest_answers(void)
{
    struct drive_guest_call *call = world.guest_call;
    struct drive_result *result = call->result;

    result->status = world.guest_fails;
    call->guest = world.mounted ? DRIVE_IN_GUEST_MOUNTED : DRIVE_IN_GUEST_ABSENT;
    strcpy(result->guest_device, "sda");
    if (!result->status && call->act == DRIVE_CLIENT_UNMOUNT && world.mounted)
        result->status = STATUS_FAILED_PRECONDITION;
    if (!result->status && call->act == DRIVE_CLIENT_MOUNT && world.lacks_container)
        result->status = (enum status_code)error_set(&result->error, STATUS_FAILED_PRECONDITION,
                                                     "container c1: it does not run");
    else if (result->status)
        (void)error_set(&result->error, 0, "the guest does not: 77 (cat) has it");
    if (result->status == STATUS_UNAVAILABLE || world.lacks_agent ||
        (result->status && call->act == DRIVE_CLIENT_UNMOUNT)) /* not known what is left */
        call->guest = DRIVE_IN_GUEST_UNKNOWN;
    world.guest_fails = STATUS_OK;
    world.guest_call = NULL;
    call->done(call);
}

/* ---- the host ---- */

int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device)
{
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
    return observe_device_number(sysfs, 0, 0, ret_device);
}

int observe_open_sysfs(int root_fd, const char *path, int *ret_fd)
{
    *ret_fd = openat(root_fd, path + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

void helper_guest_start(struct helper_guest *guest, const struct context *context,
                        const struct store_helper_run *sandbox,
                        void (*done)(struct helper_guest *guest))
{
    assert_non_null(strstr("sandbox-1 sandbox-2", sandbox->sandbox_id));
    *guest = (struct helper_guest){.is_known = true, .done = done};
    world.traits = guest;
}

void helper_guest_stop(struct helper_guest *guest)
{
    if (guest == world.traits)
        world.traits = NULL;
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

static void claim_by_name(struct drive_claim_reply *reply)
{
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

static void end_claim(struct drive_claim_call *call, const char *path)
{
    struct drive_claim_reply reply = {.fd = -1};

    world.hangs = world.storage_is_dead;
    if (world.storage_is_dead) {
        reply.outcome = error_set(&reply.error, DRIVE_CLAIM_HANGS, "its storage has not answered");
    } else if (strcmp(path, world.host_path) == 0) {
        claim_by_path(call, &reply);
    } else {
        assert_string_equal(path, world.numbered.name);
        claim_by_name(&reply);
    }
    call->done(call, &reply);
    fd_close(reply.fd);
}

/* All processes that open the disk come to an end, or to the end of crustd's patience: the first
 * that began comes first. */
static void open_disks(void)
{
    struct drive_claim_call *call;

    while ((call = world.claims[0])) {
        char path[sizeof(world.claim_path[0])];

        (void)strcpy(path, world.claim_path[0]);
        drive_claim_stop(call);
        end_claim(call, path);
    }
}

int drive_claim_start(struct drive_claim_call *call, const struct drive_claim_request *request,
                      const char *name, uint64_t patience_ns, drive_claim_done *done)
{
    unsigned i = 0;

    assert_true(patience_ns > 0);
    if (world.hangs && world.storage_is_dead)
        return CHILD_STILL_HANGS;
    while (world.claims[i])
        i++;
    assert_true(i + 1 < array_length(world.claims));
    world.claims[i] = call;
    call->keep = request->keep;
    call->done = done;
    (void)snprintf(world.claim_path[i], sizeof(world.claim_path[i]), "%s", request->host_path);
    world.opens++;
    return 0;
}

void drive_claim_stop(struct drive_claim_call *call)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < array_length(world.claims); i++) {
        struct drive_claim_call *one = world.claims[i];

        world.claims[i] = NULL;
        if (one == call)
            continue;
        memmove(world.claim_path[kept], world.claim_path[i], sizeof(world.claim_path[i]));
        world.claims[kept++] = one;
    }
}

void drive_in_use_start(struct drive_in_use_call *call, const struct context *context,
                        const struct drive_in_use_request *request, drive_in_use_done *done)
{
    assert_string_equal(request->drive_id, "data-1");
    assert_int_equal(request->disk->kind, world.disk.kind);
    assert_int_equal(request->disk->inode, world.disk.inode);
    world.searches_for_anybody = request->writable;
    call->done = done;
    world.search = call;
}

void drive_in_use_stop(struct drive_in_use_call *call)
{
    if (call == world.search)
        world.search = NULL;
}

static void traits_are_known(void)
{
    struct helper_guest *guest = world.traits;

    guest->traits.is_confidential = world.confidential;
    world.traits = NULL;
    guest->done(guest);
}

static void search_ends(void)
{
    struct drive_in_use_call *call = world.search;
    struct drive_in_use_reply reply = {.outcome = world.other_has_disk ? DRIVE_IN_USE_BY_OTHERS
                                                                       : DRIVE_IN_USE_NOT};

    if (world.other_has_disk)
        (void)error_set(&reply.error, 0, "sandbox-9 has the disk");
    world.searched = true;
    world.search = NULL;
    call->done(call, &reply);
}

/* ---- crustd ---- */

static struct store *the_store(void)
{
    return world.node.context.store;
}

static bool pass(void)
{
    struct store *store = the_store();
    int r = store_begin(store);

    if (r == 0)
        r = drives_record(world.drives);
    if (r == 0)
        r = store_commit(store);
    if (r == 0)
        r = drives_go_on(world.drives);
    if (r < 0) {
        store_rollback(store);
        drives_roll_back(world.drives, "it is full");
    }
    open_disks();
    return r == 0;
}

static void pass_while_due(void)
{
    open_disks();
    for (unsigned i = 0; drives_are_due(world.drives); i++) {
        assert_true(i < 100);
        (void)pass();
    }
}

static enum world_call running_call(void)
{
    return world.vmm_call     ? VMM_CALL
           : world.guest_call ? GUEST_CALL
           : world.traits     ? TRAITS_CALL
           : world.search     ? SEARCH_CALL
                              : NO_CALL;
}

static void act(enum world_call call)
{
    if (call == VMM_CALL)
        vmm_acts();
    else if (call == GUEST_CALL)
        guest_acts();
}

static void finish(enum world_call call)
{
    if (call == VMM_CALL)
        vmm_answers();
    else if (call == GUEST_CALL)
        guest_answers();
    else if (call == TRAITS_CALL)
        traits_are_known();
    else if (call == SEARCH_CALL)
        search_ends();
}

/* One act, and what follows it up to the next. false: nothing runs. */
static bool step(void)
{
    enum world_call call;

    pass_while_due();
    call = running_call();
    act(call);
    finish(call);
    pass_while_due();
    return call != NO_CALL;
}

static inline void go_on(void)
{
    for (unsigned i = 0; step(); i++)
        assert_true(i < 100);
}

/* What has failed is tried again. */
static inline void try_again(void)
{
    drives_retry(world.drives);
    go_on();
}

/* crustd is killed, and starts again. */
static inline void restart(void)
{
    world.drives = drives_free(world.drives);
    assert_int_equal(running_call(), NO_CALL);
    world.drives = drives_new(&world.node.context);
    assert_non_null(world.drives);
}

/* The block device that the volume has. */
#define BLOCK_DEVICE                                                                               \
    {                                                                                              \
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 3                            \
    }
static const struct store_drive_mount_disk block_device = BLOCK_DEVICE;

static inline bool volume_is_shared(void)
{
    return get_volume(the_store(), world.node.bound.volume_id).shared_drive;
}

/* The volume that is bound is to be decided again; it is not queued any more then. */
static inline bool take_queued_volume(void)
{
    int64_t volume_id;
    bool found = false;

    while (work_queue_take_volume(&world.node.queue, &volume_id))
        found |= volume_id == world.node.bound.volume_id;
    return found;
}

/* ---- a client ---- */

static void on_answer(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                      const struct error *error)
{
    world.answers++;
    world.code = code;
    world.state = drive ? drive->state : DRIVE_STATES;
    (void)snprintf(world.message, sizeof(world.message), "%s", drive ? drive->message : "");
    (void)snprintf(world.error, sizeof(world.error), "%s", error->text);
    assert_int_equal(code == STATUS_OK, drive != NULL);
}

static struct reconciler_drive_attach attach_of(const char *drive_id)
{
    static const char *const options[] = {"noatime"};

    return (struct reconciler_drive_attach){
        .drive_id = drive_id,
        .sandbox_id = "sandbox-1",
        .host_path = "/dev/disk-1",
        .vm_path = "/data",
        .fs_type = "ext4",
        .options = 1,
        .option = options,
        .writable = true,
    };
}

static enum status_code begin_attach(const struct reconciler_drive_attach *attach)
{
    struct drive_wait *wait;
    struct error error = {0};
    enum status_code code = reconciler_attach_drive(&(struct reconciler){.drives = world.drives},
                                                    attach, on_answer, NULL, &wait, &error);

    (void)snprintf(world.error, sizeof(world.error), "%s", error.text);
    return code;
}

static inline void attach(void)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    assert_int_equal(begin_attach(&asked), STATUS_OK);
}

static inline struct drive_wait *detach_drive(const char *drive_id)
{
    struct drive_wait *wait;
    struct error error = {0};

    assert_int_equal(reconciler_detach_drive(&(struct reconciler){.drives = world.drives}, drive_id,
                                             on_answer, NULL, &wait, &error),
                     STATUS_OK);
    return wait;
}

static inline void detach(void)
{
    (void)detach_drive("data-1");
}

static inline void expect_answer(unsigned answers, enum status_code code, const char *text)
{
    if (world.answers != answers || world.code != code || !strstr(world.error, text))
        fail_msg("answered %u times, last with %s \"%s\"; walked %s", world.answers,
                 status_name((int)world.code), world.error, world.walked);
}

static inline void expect_row(enum drive_state state, bool wanted, enum status_code status)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", 0, &row), STORE_FOUND);
    if (row.state != state || row.wanted != wanted || row.status != status)
        fail_msg("the row is %s, %s, %s: %s; walked %s", drive_state_name(row.state),
                 row.wanted ? "wanted" : "unwanted", status_name((int)row.status), row.message,
                 world.walked);
}

/* part: of the message on record; "": there is none. */
static inline void expect_message(const char *part)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", 0, &row), STORE_FOUND);
    if (part[0] ? !strstr(row.message, part) : row.message[0] != '\0')
        fail_msg("the message is %s, not %s", row.message, part);
}

/* The last client's attach, and nothing is left of it. */
static inline void expect_failed(enum status_code code, const char *text)
{
    expect_answer(world.answers, code, text);
    expect_row(DRIVE_FAILED, false, code);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    assert_false(world.mounted);
}

static inline void expect_walked(const char *walked)
{
    assert_string_equal(world.walked, walked);
    world.walked[0] = '\0';
}

static inline void end_vm(void)
{
    bool changed;

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_end_sandbox(the_store(), "sandbox-1", &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.mounted = false;
    drives_note_sandbox(world.drives, "sandbox-1");
}

static inline void start_vm(const char *sandbox_id, pid_t pid)
{
    struct store_sandbox sandbox = sandbox_of(sandbox_id, NULL);

    sandbox.vmm_pid = pid ? pid : sandbox.vmm_pid;
    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    assert_int_equal(store_commit(the_store()), 0);
}

static inline void bring_in(void)
{
    attach();
    go_on();
    expect_answer(world.answers, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_READY);
    assert_true(world.mounted);
    world.walked[0] = '\0';
}

/* The disk of a drive that is there was block device 7:1 all the time; the world claims none. */
static inline void make_block_device(void)
{
    execute_sql(the_store(), "UPDATE drive_mounts SET kind = 'block', major = 7, minor = 1,"
                             " diskseq = 3");
    world.disk = block_device;
}

/* Up to an act of this kind that has begun. */
static inline void step_until(enum world_call call, int kind)
{
    for (unsigned i = 0; i < 20; i++) {
        pass_while_due();
        if (call == GUEST_CALL && world.guest_call && (int)world.guest_call->act == kind)
            return;
        if (call == VMM_CALL && world.vmm_call && (int)world.vmm_call->act == kind)
            return;
        assert_true(step());
    }
    fail_msg("no such act; walked %s", world.walked);
}

/* The guest is asked again once the VM has the disk, because only then its serial is known: the
 * attach has begun. */
static inline void attach_without_serial(void)
{
    world.opens_path = world.makes_serial = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_ATTACH);
}

/* ---- life ---- */

static int set_up(void **state)
{
    memset(&world, 0, sizeof(world));
    world.claimed = -1;
    world.kind = HYPERVISOR_QEMU;
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_FILE, .file_device = 3, .inode = 9, .size_bytes = GIB};
    world.host_path = "/dev/disk-1";
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    surroundings_begin(&world.node, false);
    surroundings_bind(&world.node);
    world.node.config.drives.enabled = true;
    world.node.config.drives.host_prefixes =
        (struct config_list){.count = 2, .text = "/srv/disks\0/dev"};
    world.drives = drives_new(&world.node.context);
    assert_non_null(world.drives);
    return 0;
}

static int tear_down(void **state)
{
    assert_null(drives_free(world.drives));
    assert_int_equal(running_call(), NO_CALL);
    fd_close(world.claimed);
    surroundings_end(&world.node);
    return 0;
}

/* Before another case. */
static inline void begin_anew(void)
{
    (void)tear_down(NULL);
    (void)set_up(NULL);
}

#define DRIVES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
