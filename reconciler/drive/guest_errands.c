/* SPDX-License-Identifier: Apache-2.0 */
/* guest_errands.c - what kata-agent does not do about a drive: the checks before it is mounted,
 * the query whether it is mounted, the proof that nobody has the disk, and its growth. Each is one
 * run of a helper (reconciler/helper/run.h) in a container of its own. A confidential guest gets no
 * helper, and the agent's policy may forbid it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/drive_options.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/drive/guest_line.h"
#include "reconciler/drive/guest_state.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/run.h"

#define DEVICES "/dev"
#define AGENTS  "/run/kata-containers"

enum {
    NUMBER_BYTES = 24,
    ARGUMENTS = 16,
    CLIMB = 32,       /* directories above vm_path that are tried */
    SHARE_OF_TIME = 4 /* a disk has this part of the call's time to appear or to become free */
};

/* The arguments of one helper, and the paths bound into its container. */
struct errand {
    const char *argument[ARGUMENTS + 1];
    unsigned arguments;
    const char *path[HELPER_VOLUMES + 1];
    unsigned paths;
    char timeout[NUMBER_BYTES], bytes[NUMBER_BYTES], name[DRIVE_PATH_CHARS + 1];
    char parent[DRIVE_PATH_CHARS + 1], node[sizeof(DEVICES) + DRIVE_DEVICE_BYTES];
};

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata);

static void add_argument(struct errand *errand, const char *argument)
{
    errand->argument[errand->arguments++] = argument;
}

/* Adds a part of the call's time as an argument, in whole seconds. */
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
        .in_mounts_of_agent = call->is_releasing,
    };
    int r;

    memcpy(task.path, errand->path, sizeof(task.path));
    r = helper_run_new(call->context, &task, on_helper, call, &call->helper);
    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot bring a helper into the guest");
}

/* ---- checks before the mount ---- */

/* Cuts the path to its parent directory: "/" for "/" and for "/name". */
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

/* Binds vm_path, or the next directory above it. */
void drive_guest_check(struct drive_guest_call *call)
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
    drive_guest_check(call);
}

/* See guest_state.h. */
const char *drive_guest_find_obstacle(struct drive_guest_call *call, enum status_code *ret_status)
{
    const struct store_drive_mount_request *request = &call->drive.request;
    cleanup(freep) struct drive_mount_request *mount = calloc(1, sizeof(*mount));
    cleanup(freep) struct drive_options *options = calloc(1, sizeof(*options));

    (void)snprintf(call->place, sizeof(call->place), "%s", call->drive.request.vm_path);
    trim(call->place);
    *ret_status = STATUS_UNAVAILABLE;
    if (call->share_comes)
        return "the guest has no crust-guest-agent, and the runtime has not yet made the directory "
               "in "
               "which crustd places its helper";
    *ret_status = STATUS_FAILED_PRECONDITION;
    if (call->share < 0)
        return "the guest has no crust-guest-agent, and shares no directory in which crustd could "
               "place its helper";
    if (request->fsck != DRIVE_FSCK_NONE && strcmp(request->fs_type, "ext4") == 0)
        return "fsck needs crust-guest-agent in the guest: attach the drive without `fsck`";
    *ret_status = STATUS_INVALID_ARGUMENT;
    if (!mount || !options || drive_guest_fill_mount(call, mount) < 0)
        return "the options cannot be read";
    if (drive_options_take(mount, false, options, &call->reply.error) != DRIVE_OPTIONS_FINE)
        return call->reply.error.text;
    if (!call->place[0] || !call->place[1])
        return "vm_path is or lies in a protected place";
    return NULL;
}

/* ---- look, prove, grow ---- */

void drive_guest_look(struct drive_guest_call *call)
{
    struct errand errand;

    begin_errand(call, &errand, "look");
    errand.path[errand.paths++] = call->drive.request.vm_path;
    add_argument(&errand, "/vol/0");
    run_errand(call, &errand);
}

void drive_guest_prove(struct drive_guest_call *call)
{
    struct errand errand;

    begin_errand(call, &errand, "prove");
    run_errand(call, &errand);
}

void drive_guest_grow(struct drive_guest_call *call)
{
    struct helper_task task = {
        .sandbox = call->sandbox,
        .grow = true,
        .paths = 1,
        .path = {call->drive.request.vm_path},
    };
    int r = helper_run_new(call->context, &task, on_helper, call, &call->helper);

    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot bring a helper into the guest");
}

/* ---- the helpers' results ---- */

static void take_look(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    call->reply.guest = line->is_mounted ? DRIVE_IN_GUEST_MOUNTED : DRIVE_IN_GUEST_ABSENT;
    (void)snprintf(call->reply.device, sizeof(call->reply.device), "%s", line->device);
    drive_guest_finish(call);
}

/* kata-agent mounts within CreateContainer, and forgets the mount if that call is interrupted, for
 * example because crustd ends. */
static void explain_held(struct drive_guest_line *line)
{
    struct error error = line->error;

    (void)error_set(
        &line->error, error.code,
        "%.120s: end what uses it there, and detach again; that also frees a mount that "
        "kata-agent has forgotten because crustd was killed meanwhile",
        error.text);
}

/* Somebody has a disk that running containers were given. crust-guest-agent, which does not answer
 * now, can take it from them; a container made by kata-agent would keep the disk for good. */
static void await_companion(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    struct error error;

    (void)error_set(&error, 0,
                    "%.120s; containers may have it, and only crust-guest-agent, which does not "
                    "answer in the guest, can take it from them",
                    line->error.text);
    drive_guest_fail(call, STATUS_UNAVAILABLE, error.text);
}

/* kata-agent may have the disk mounted without knowing it: it forgets the mount of a container that
 * crustd's end has cut off, and does not unmount it again. A helper in the agent's own mount
 * namespace can. */
static void release(struct drive_guest_call *call, const struct drive_guest_line *line)
{
    struct errand errand;

    drive_guest_note_refusal(call, line->status, line->error.text);
    call->is_releasing = true;
    (void)snprintf(call->place, sizeof(call->place), "%s", call->drive.request.vm_path);
    trim(call->place);
    begin_errand(call, &errand, "release");
    add_argument(&errand, call->place);
    run_errand(call, &errand);
}

/* Without its device node nothing can be proved about a disk that exists. */
static void take_proof(struct drive_guest_call *call, struct drive_guest_line *line)
{
    struct errand errand;

    if (line->status == STATUS_FAILED_PRECONDITION &&
        store_drive_mount_has_containers(&call->drive)) {
        await_companion(call, line);
        return;
    }
    if (line->status == STATUS_FAILED_PRECONDITION)
        explain_held(line);
    if (line->status == STATUS_OK) {
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_finish(call);
    } else if (line->status == STATUS_UNAVAILABLE && line->device[0] && !call->climbed++) {
        begin_errand(call, &errand, "prove");
        (void)snprintf(errand.node, sizeof(errand.node), DEVICES "/%s", line->device);
        errand.path[errand.paths++] = errand.node;
        add_argument(&errand, "/vol/0");
        run_errand(call, &errand);
    } else if (line->status == STATUS_FAILED_PRECONDITION && line->device[0] && call->address[0] &&
               call->share >= 0) {
        release(call, line);
    } else {
        drive_guest_fail(call, line->status, line->error.text);
    }
}

/* Only what the release itself has proved counts; everything else leaves the drive as it was. */
static void take_release(struct drive_guest_call *call, const struct helper_outcome *outcome)
{
    struct drive_guest_line line;
    struct error ignored;

    if (outcome->reason != REASON_NONE ||
        drive_guest_line_parse(outcome->line, strlen(outcome->line), &line, &ignored) < 0 ||
        line.status != STATUS_OK) {
        drive_guest_hold_again(call);
        return;
    }
    call->reply = (struct drive_guest_reply){.guest = DRIVE_IN_GUEST_ABSENT};
    drive_guest_finish(call);
}

static void take_growth(struct drive_guest_call *call, const struct helper_report *report)
{
    struct helper_verdict verdict;

    helper_judge(&report->volume[0], 1, call->bytes, true, &verdict);
    if (verdict.reason != REASON_NONE) {
        drive_guest_fail(call, reason_code(verdict.reason, STATE_BLOCK_GROWN), verdict.text);
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
        call->is_there = line.is_mounted;
        drive_guest_hold(call);
    } else {
        take_look(call, &line);
    }
}

static enum status_code status_of_reason(enum volume_reason reason)
{
    return reason == REASON_AGENT_POLICY_DENIED ? STATUS_PERMISSION_DENIED
                                                : reason_code(reason, STATE_BLOCK_GROWN);
}

/* A directory that does not exist cannot be bound, but kata-agent does not report that as the
 * cause. While the drive's container exists, so does the directory. */
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
    if (outcome->left)
        helpers_note_leftover(call->context->helpers, call->drive.sandbox_ref, helper_run_name(run),
                              &outcome->removal_error);
    call->helper = helper_run_free(run);
    if (!copy)
        drive_guest_fail(call, STATUS_UNAVAILABLE, "out of memory");
    else if (call->is_releasing)
        take_release(call, copy);
    else if (copy->reason != REASON_NONE)
        take_failure(call, copy);
    else if (call->act == DRIVE_GUEST_GROW)
        take_growth(call, &copy->report);
    else
        take_line(call, copy);
}
