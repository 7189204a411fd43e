/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container.c - a drive in a guest that has only kata-agent.
 *
 *     MOUNT    [remove what an earlier one left] check… hold
 *     LOOK     look
 *     UNMOUNT  remove, find, prove [hold, if somebody has the disk]
 *     GROW     as a volume's helper does
 *
 * `hold` is a container that has the disk among its storages: kata-agent mounts it at vm_path and
 * applies the group before it answers CreateContainer. The container's program is the helper. It
 * makes sure that what was mounted is the drive's disk, has it synced before the call is over, and
 * goes on doing so, because QEMU is killed at the end of a sandbox. Removing the container unmounts
 * the disk, unless somebody uses it: then kata-agent forgets a mount that stays, and only another
 * container with the same storage makes it the agent's again. Its name is the drive's serial, and
 * so is that of its directory in the sandbox's share, which is there for as long as the container
 * may be: that is how a later crustd knows the route.
 *
 * Everything else is a helper of its own (reconciler/helper/run.h). A guest that is confidential
 * gets none, and its policy may forbid it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_run.h"
#include "agent-client/drive_options.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/drive/guest_line.h"
#include "reconciler/drive/guest_state.h"
#include "reconciler/helper/judge.h"
#include "reconciler/helper/program.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/share.h"

#define DEVICES "/dev"
#define AGENTS  "/run/kata-containers"

enum {
    NUMBER_BYTES = 24,
    ARGUMENTS = 16,
    CLIMB = 32,       /* directories above vm_path that are looked for */
    SHARE_OF_TIME = 4 /* of the call's, for a disk to appear or to become free */
};

/* The arguments of one helper, and what is bound into its container. */
struct errand {
    const char *argument[ARGUMENTS + 1];
    unsigned arguments;
    const char *path[HELPER_VOLUMES + 1];
    unsigned paths;
    char timeout[NUMBER_BYTES], bytes[NUMBER_BYTES], name[DRIVE_PATH_CHARS + 1];
    char parent[DRIVE_PATH_CHARS + 1], node[sizeof(DEVICES) + DRIVE_DEVICE_BYTES];
};

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata);
static void check(struct drive_guest_call *call);

static void fail_errno(struct drive_guest_call *call, int r, const char *what)
{
    struct error error;

    (void)error_set_errno(&error, r, "%s", what);
    drive_guest_fail(call, STATUS_UNAVAILABLE, error.text);
}

/* ---- errands ---- */

static void add_argument(struct errand *errand, const char *argument)
{
    errand->argument[errand->arguments++] = argument;
}

/* A part of the time, in whole seconds. */
static void begin_errand(const struct drive_guest_call *call, struct errand *errand,
                         const char *act)
{
    uint64_t seconds = drive_guest_time(call) / SHARE_OF_TIME / NSEC_PER_SEC;

    *errand = (struct errand){0};
    (void)snprintf(errand->timeout, sizeof(errand->timeout), "%" PRIu64,
                   seconds < 1    ? 1
                   : seconds > 60 ? 60
                                  : seconds);
    add_argument(errand, "--drive");
    add_argument(errand, act);
    add_argument(errand, "--timeout");
    add_argument(errand, errand->timeout);
    add_argument(errand, call->drive.serial);
}

static void run_errand(struct drive_guest_call *call, const struct errand *errand)
{
    struct helper_task task = {
        .sandbox = call->sandbox,
        .arguments = errand->argument,
        .paths = errand->paths,
    };
    int r;

    memcpy(task.path, errand->path, sizeof(task.path));
    r = helper_run_new(call->context, &task, on_helper, call, &call->helper);
    if (r < 0)
        fail_errno(call, r, "cannot bring a helper into the guest");
}

/* ---- the container that holds the drive ---- */

static void open_share(struct drive_guest_call *call)
{
    struct error ignored;

    if (call->share < 0 &&
        helper_share_open(call->context->root, call->sandbox.runtime, call->sandbox.sandbox_id,
                          &call->share, &ignored) != HELPER_SHARE_OK)
        call->share = -1;
}

bool drive_guest_is_held(struct drive_guest_call *call)
{
    open_share(call);
    return call->share >= 0 &&
           helper_share_has(call->share, call->drive.serial) == HELPER_SHARE_HAS;
}

static int fill_storage(const struct drive_guest_call *call, struct container_storage *storage,
                        const char *texts[static CONTAINER_STORAGE_OPTIONS + 1],
                        const struct drive_mount_request *mount)
{
    size_t count = 0;

    texts[count++] = "nodev";
    texts[count++] = "nosuid";
    if (mount->read_only)
        texts[count++] = "ro";
    for (size_t i = 0; i < mount->option_count; i++) {
        const char *option = mount->options[i];

        if (strcmp(option, "ro") == 0 || strcmp(option, "rw") == 0 ||
            strcmp(option, "nodev") == 0 || strcmp(option, "nosuid") == 0)
            continue;
        if (count == CONTAINER_STORAGE_OPTIONS)
            return -E2BIG;
        texts[count++] = option;
    }
    texts[count] = NULL;
    *storage = (struct container_storage){
        .scsi_id = call->scsi_id,
        .lun = call->lun,
        .filesystem_type = mount->filesystem_type,
        .options = texts,
        .mount_point = mount->vm_path,
        .has_fs_group = mount->has_fs_group && !mount->read_only && call->act == DRIVE_GUEST_MOUNT,
        .fs_group = mount->fs_group,
        .on_root_mismatch = mount->fs_group_policy == DRIVE_GROUP_ON_ROOT_MISMATCH,
    };
    return 0;
}

static struct container_request describe(const struct drive_guest_call *call,
                                         enum container_act act, const char *directory)
{
    uint64_t time = drive_guest_time(call);

    return (struct container_request){
        .act = act,
        .root = call->context->root,
        .address = call->sandbox.agent_address,
        .listener = {.vmm = call->sandbox.vmm_pid, .sandbox_id = call->sandbox.sandbox_id},
        .container_id = call->drive.serial,
        .directory = directory,
        .program = HELPER_PROGRAM_NAME,
        .program_file = -1,
        .step_ns = time,
        .program_ns = time,
        .total_ns = time,
    };
}

static enum status_code status_of(enum container_kind kind)
{
    switch (kind) {
    case CONTAINER_DONE:
        return STATUS_OK;
    case CONTAINER_DENIED:
        return STATUS_PERMISSION_DENIED;
    case CONTAINER_UNREACHABLE:
    case CONTAINER_TIMED_OUT:
        return STATUS_UNAVAILABLE;
    case CONTAINER_UNSUPPORTED:
    case CONTAINER_NO_CGROUPS:
    case CONTAINER_FAILED:
    case CONTAINER_KINDS:
    default:
        return STATUS_FAILED_PRECONDITION;
    }
}

/* Nothing of the container is left: so nothing of its directory need be. */
static void remove_directory(struct drive_guest_call *call)
{
    if (call->share >= 0)
        (void)helper_share_remove(call->share, call->drive.serial);
}

static void on_removed(struct container_run *run, const struct container_reply *reply,
                       void *userdata)
{
    struct drive_guest_call *call = userdata;
    enum status_code status = status_of(reply->kind);
    struct error error = reply->error;
    bool left = reply->left;

    call->container = container_run_free(run);
    if (left) {
        if (status == STATUS_OK)
            status = STATUS_UNAVAILABLE;
        drive_guest_fail(call, status, error.text);
        return;
    }
    remove_directory(call);
    if (call->is_undone) { /* status and error say what was wrong */
        if (call->act == DRIVE_GUEST_MOUNT)
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_finish(call);
    } else if (call->act == DRIVE_GUEST_MOUNT) {
        check(call);
    } else {
        struct errand errand;

        begin_errand(call, &errand, "prove");
        run_errand(call, &errand);
    }
}

/* Removes the container, if there may be one, and goes on from there. */
static void remove_holder(struct drive_guest_call *call)
{
    char directory[HELPER_GUEST_PATH_BYTES];
    struct container_request request;
    int r;

    helper_share_guest_path(call->sandbox.runtime, call->drive.serial, directory);
    request = describe(call, CONTAINER_CLEAN_UP, directory);
    r = container_run_new(call->context->loop, &request, on_removed, call, &call->container);
    if (r < 0)
        fail_errno(call, r, "cannot have the drive's container removed");
}

static void note_refusal(struct drive_guest_call *call, enum status_code status, const char *text)
{
    call->reply.status = status;
    (void)error_set(&call->reply.error, (int)status, "%s", text);
}

static void undo(struct drive_guest_call *call, enum status_code status, const char *text)
{
    note_refusal(call, status, text);
    call->is_undone = true;
    remove_holder(call);
}

/* UNMOUNT: the reply already says that somebody has the disk. */
static void held_again(struct drive_guest_call *call, bool held, bool left, bool is_fine)
{
    if (held && !is_fine) {
        call->is_undone = true;
        remove_holder(call);
        return;
    }
    if (held)
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    else if (!left)
        remove_directory(call);
    drive_guest_finish(call);
}

static void on_held(struct container_run *run, const struct container_reply *reply, void *userdata)
{
    struct drive_guest_call *call = userdata;
    enum status_code status = status_of(reply->kind);
    struct error error = reply->error;
    struct drive_guest_line line = {0};
    bool held = reply->held, left = reply->left;

    if (status == STATUS_OK &&
        drive_guest_line_parse(reply->output, reply->output_length, &line, &error) < 0)
        status = STATUS_FAILED_PRECONDITION;
    else if (status == STATUS_OK && line.status != STATUS_OK) {
        status = line.status;
        error = line.error;
    }
    call->container = container_run_free(run);
    if (call->act == DRIVE_GUEST_UNMOUNT) {
        held_again(call, held, left, status == STATUS_OK);
    } else if (status == STATUS_OK && held) {
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
        (void)snprintf(call->reply.device, sizeof(call->reply.device), "%s", line.device);
        drive_guest_finish(call);
    } else if (held) {
        undo(call, status, error.text);
    } else {
        if (!left) {
            remove_directory(call);
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        }
        drive_guest_fail(call, status == STATUS_OK ? STATUS_FAILED_PRECONDITION : status,
                         error.text[0] ? error.text : "the drive's container has ended");
    }
}

static int start_holding(struct drive_guest_call *call, struct error *error)
{
    cleanup(fd_closep) int program = -1;
    cleanup(freep) struct drive_mount_request *mount = calloc(1, sizeof(*mount));
    const char *options[CONTAINER_STORAGE_OPTIONS + 1];
    const char *const volume_paths[] = {call->drive.request.vm_path, NULL};
    char directory[HELPER_GUEST_PATH_BYTES], flush[NUMBER_BYTES];
    const char *const arguments[] = {"--drive",          "hold",   "--flush", flush,
                                     call->drive.serial, "/vol/0", NULL};
    struct container_storage storage;
    struct container_request request;
    int r = mount ? drive_guest_fill_mount(call, mount) : -ENOMEM;

    if (r == 0)
        r = fill_storage(call, &storage, options, mount);
    if (r < 0)
        return error_set_errno(error, r, "the mount cannot be described");
    r = helper_program_open(call->context->config, &program, error);
    if (r == 0)
        r = helper_share_place(call->share, call->drive.serial, program, error);
    if (r != 0)
        return -EIO;
    (void)snprintf(flush, sizeof(flush), "%u", call->context->config->drives.flush_seconds);
    helper_share_guest_path(call->sandbox.runtime, call->drive.serial, directory);
    request = describe(call, CONTAINER_HOLD, directory);
    request.arguments = arguments;
    request.volume_paths = volume_paths;
    request.storage = &storage;
    r = container_run_new(call->context->loop, &request, on_held, call, &call->container);
    return r < 0 ? error_set_errno(error, r, "cannot have a container created") : 0;
}

static void hold(struct drive_guest_call *call)
{
    struct error error;

    if (start_holding(call, &error) < 0)
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION, error.text);
}

/* ---- before it is mounted ---- */

/* The directory that a path is in; "/" of "/" and of "/name". */
static void cut_to_parent(char *path)
{
    char *slash = strrchr(path, '/');

    slash[slash == path] = '\0';
}

static void trim(char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
}

/* Binds the place, or the directory above it that was not tried yet. */
static void check(struct drive_guest_call *call)
{
    struct errand errand;
    uint64_t bytes = call->bytes ? call->bytes : call->drive.disk.size_bytes;
    bool is_itself = call->climbed == 0;

    begin_errand(call, &errand, "check");
    (void)snprintf(errand.bytes, sizeof(errand.bytes), "%" PRIu64, bytes);
    (void)strcpy(errand.parent, call->place);
    (void)strcpy(errand.name, strrchr(call->place, '/') + 1);
    cut_to_parent(errand.parent);
    errand.path[errand.paths++] = call->place;
    errand.path[errand.paths++] = errand.parent;
    errand.path[errand.paths++] = DEVICES;
    errand.path[errand.paths++] = AGENTS;
    add_argument(&errand, errand.bytes);
    add_argument(&errand, call->drive.request.writable ? "rw" : "ro");
    add_argument(&errand, "/vol/0");
    add_argument(&errand, "/vol/1");
    add_argument(&errand, "/vol/2");
    add_argument(&errand, "/vol/3");
    if (is_itself)
        add_argument(&errand, errand.name);
    run_errand(call, &errand);
}

static void climb(struct drive_guest_call *call, const struct helper_outcome *outcome)
{
    if (!call->place[1] || ++call->climbed > CLIMB) {
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION, outcome->error.text);
        return;
    }
    if (clock_boottime() >= call->ends_at) {
        drive_guest_fail(call, STATUS_UNAVAILABLE, outcome->error.text);
        return;
    }
    cut_to_parent(call->place);
    trim(call->place);
    check(call);
}

/* What this route cannot do, and what no route does. */
static const char *find_obstacle(struct drive_guest_call *call, enum status_code *ret_status)
{
    const struct store_drive_mount_request *request = &call->drive.request;
    cleanup(freep) struct drive_mount_request *mount = calloc(1, sizeof(*mount));
    cleanup(freep) struct drive_options *options = calloc(1, sizeof(*options));

    *ret_status = STATUS_FAILED_PRECONDITION;
    if (call->share < 0)
        return "the guest has no crust-guest-agent, and shares no directory in which crustd could "
               "place its helper";
    if (request->fsck != DRIVE_FSCK_NONE && strcmp(request->fs_type, "ext4") == 0)
        return "fsck needs crust-guest-agent in the guest";
    *ret_status = STATUS_INVALID_ARGUMENT;
    if (!mount || !options || drive_guest_fill_mount(call, mount) < 0)
        return "the options cannot be read";
    if (drive_options_take(mount, false, options, &call->reply.error) != DRIVE_OPTIONS_FINE)
        return call->reply.error.text;
    if (!call->place[0] || !call->place[1])
        return "vm_path is or lies in a protected place";
    return NULL;
}

static void begin_mount(struct drive_guest_call *call)
{
    enum status_code status;
    const char *obstacle;
    struct error error;

    (void)snprintf(call->place, sizeof(call->place), "%s", call->drive.request.vm_path);
    trim(call->place);
    obstacle = find_obstacle(call, &status);
    if (obstacle) {
        (void)error_set(&error, 0, "%s", obstacle);
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_fail(call, status, error.text);
    } else if (drive_guest_is_held(call)) {
        remove_holder(call);
    } else {
        check(call);
    }
}

/* ---- what helpers say ---- */

static void take_look(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    call->reply.guest = line->is_mounted ? DRIVE_IN_GUEST_MOUNTED : DRIVE_IN_GUEST_ABSENT;
    (void)snprintf(call->reply.device, sizeof(call->reply.device), "%s", line->device);
    drive_guest_finish(call);
}

/* The drive is as it was before the detach, and the next one begins with its container. */
static void hold_again(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    struct error error;

    note_refusal(call, line->status, line->error.text);
    if (start_holding(call, &error) < 0)
        drive_guest_finish(call);
}

/* Without its node nothing can be proved of a disk that is there. */
static void take_proof(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    struct errand errand;

    if (line->status == STATUS_OK) {
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_finish(call);
    } else if (line->status == STATUS_UNAVAILABLE && line->device[0] && !call->climbed++) {
        begin_errand(call, &errand, "prove");
        (void)snprintf(errand.node, sizeof(errand.node), DEVICES "/%s", line->device);
        errand.path[errand.paths++] = errand.node;
        add_argument(&errand, "/vol/0");
        run_errand(call, &errand);
    } else if (line->status == STATUS_FAILED_PRECONDITION && line->device[0] && call->has_scsi &&
               call->share >= 0) {
        hold_again(call, line);
    } else {
        drive_guest_fail(call, line->status, line->error.text);
    }
}

static void take_growth(struct drive_guest_call *call, const struct helper_report *report)
{
    struct helper_verdict verdict;

    helper_judge(&report->volume[0], 1, call->bytes, true, &verdict);
    if (verdict.reason != REASON_NONE) {
        drive_guest_fail(call, reason_code(verdict.reason), verdict.text);
        return;
    }
    call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    drive_guest_finish(call);
}

static void take_line(struct drive_guest_call *call, const struct helper_outcome *outcome)
{
    struct drive_guest_line line;
    struct error error;

    if (drive_guest_line_parse(outcome->line, strlen(outcome->line), &line, &error) < 0) {
        drive_guest_fail(call, STATUS_INTERNAL, error.text);
    } else if (call->act == DRIVE_GUEST_UNMOUNT) {
        take_proof(call, &line);
    } else if (line.status != STATUS_OK) {
        if (call->act == DRIVE_GUEST_MOUNT)
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_fail(call, line.status, line.error.text);
    } else if (call->act == DRIVE_GUEST_MOUNT) {
        hold(call);
    } else {
        take_look(call, &line);
    }
}

static enum status_code status_of_reason(enum volume_reason reason)
{
    return reason == REASON_AGENT_POLICY_DENIED ? STATUS_PERMISSION_DENIED : reason_code(reason);
}

/* A place that is not there cannot be bound. But nothing says that this was why, and while the
 * drive's container is there, its place is. */
static void take_failure(struct drive_guest_call *call, const struct helper_outcome *outcome)
{
    struct errand errand;

    if (outcome->not_created && call->act == DRIVE_GUEST_MOUNT) {
        climb(call, outcome);
    } else if (outcome->not_created && call->act == DRIVE_GUEST_LOOK && drive_guest_is_held(call)) {
        drive_guest_fail(call, STATUS_UNAVAILABLE, outcome->error.text);
    } else if (outcome->not_created && call->act == DRIVE_GUEST_LOOK && !call->climbed++) {
        begin_errand(call, &errand, "look");
        run_errand(call, &errand);
    } else {
        drive_guest_fail(call, status_of_reason(outcome->reason), outcome->error.text);
    }
}

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    struct drive_guest_call *call = userdata;
    cleanup(freep) struct helper_outcome *copy = malloc(sizeof(*copy));

    if (copy)
        *copy = *outcome;
    call->helper = helper_run_free(run);
    if (!copy)
        drive_guest_fail(call, STATUS_UNAVAILABLE, "out of memory");
    else if (copy->reason != REASON_NONE)
        take_failure(call, copy);
    else if (call->act == DRIVE_GUEST_GROW)
        take_growth(call, &copy->report);
    else
        take_line(call, copy);
}

/* ---- all of it ---- */

static void begin_look(struct drive_guest_call *call)
{
    struct errand errand;

    begin_errand(call, &errand, "look");
    errand.path[errand.paths++] = call->drive.request.vm_path;
    add_argument(&errand, "/vol/0");
    run_errand(call, &errand);
}

static void begin_unmount(struct drive_guest_call *call)
{
    struct errand errand;

    if (drive_guest_is_held(call)) {
        remove_holder(call);
        return;
    }
    begin_errand(call, &errand, "prove");
    run_errand(call, &errand);
}

static void begin_grow(struct drive_guest_call *call)
{
    struct helper_task task = {
        .sandbox = call->sandbox,
        .grow = true,
        .paths = 1,
        .path = {call->drive.request.vm_path},
    };
    int r = helper_run_new(call->context, &task, on_helper, call, &call->helper);

    if (r < 0)
        fail_errno(call, r, "cannot bring a helper into the guest");
}

/* A mount that no answer was given for is not believed: it is made anew. */
static bool is_believed(const struct drive_guest_call *call)
{
    return call->drive.state == DRIVE_MOUNTED || drive_phase(call->drive.state) == DRIVE_IN_USE;
}

void drive_guest_use_container(struct drive_guest_call *call)
{
    open_share(call);
    if (!config_brings_helpers(call->context->config)) {
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, and guest.helper is off");
    } else if (!call->has_scsi && call->act != DRIVE_GUEST_UNMOUNT) {
        drive_guest_fail(
            call, STATUS_FAILED_PRECONDITION,
            "the guest has no crust-guest-agent, and kata-agent finds only disks with a "
            "SCSI address, which this VMM does not give");
    } else if (call->act == DRIVE_GUEST_MOUNT) {
        begin_mount(call);
    } else if (call->act == DRIVE_GUEST_UNMOUNT) {
        begin_unmount(call);
    } else if (call->act == DRIVE_GUEST_GROW) {
        begin_grow(call);
    } else if (is_believed(call)) {
        begin_look(call);
    } else {
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_finish(call);
    }
}

void drive_guest_drop_container(struct drive_guest_call *call)
{
    call->helper = helper_run_free(call->helper);
    call->container = container_run_free(call->container);
    fd_close(call->share);
    call->share = -1;
}
