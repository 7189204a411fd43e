/* SPDX-License-Identifier: Apache-2.0 */
/* kata_go.c - /run/vc as Kata's Go runtime keeps it.
 *
 *   SANDBOXES/ID/persist.json        devices, hypervisor, agent
 *   SANDBOXES/ID/CONTAINER/persist.json   which mount is which device
 *   VMS/ID/pid                       QEMU's pid file
 *   VMS/ID/extra-monitor.sock        with enable_debug and extra_monitor_socket
 *   /run/crustd/qemu/ID.sock         if crust-qemu is installed in place of QEMU
 *   VMS/ID/qmp.sock                  the shim's own monitor: used only when configured
 *   VMS/ID/clh-api.sock              Cloud Hypervisor's API, which serves several clients
 *   VMS/../firecracker/SHORT/root/   Firecracker's files, and its jail if it has one; SHORT is the
 *                                    first 32 characters of the id, which is all that it gets
 *     run/firecracker.socket         its API
 *     firecracker.pid                written by the jailer, which becomes the VMM or starts it
 *
 * The directories outlive a shim that was killed, so they do not prove that a sandbox is alive. It
 * is alive if a process that one of the files names is still running and was started for this
 * sandbox by root: the pid may have been reused, and any process may have any arguments. With the
 * VM factory, VMS/ID is a link to VMS/VM-ID, and the process knows only the VM's id.
 *
 * persist.json is rewritten in place, and first written after the sandbox-id file. So if a living
 * sandbox's file is missing or cut, the sandbox must be observed again, and what was learned
 * without it is used meanwhile.
 */
#include "observe/kata.h"
#include "observe/process_table.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/process.h"
#include "observe/observed_sandbox.h"

#define PERSIST "persist.json"
#define JAILS   "firecracker"

enum {
    ARGUMENTS_BYTES = 256 * 1024,
    CONTAINERS = 128,
    SANDBOX_NAMES = 512,
    ID_BYTES = 129,
    SHORT_ID_CHARS = 32,
};

/* Limits on what is taken from a sandbox's files, because each device is compared with each
 * mount. */
enum { CONTAINER_BYTES = 2 * 1024 * 1024, SOURCES_OF_DRIVE = 16, DRIVES = 1024 };

struct container {
    char id[ID_BYTES];
    struct persist_container persist;
};

struct traces {
    const struct observe_sandbox_paths *paths;
    const char *sandbox_id;
    char vm_id[ID_BYTES];        /* the id by which the VMM knows the sandbox */
    char vm_directory[PATH_MAX]; /* below root; "" none */
    char jail[PATH_MAX];         /* Firecracker's root directory, below root; "" none */
    int state_directory;         /* SANDBOXES/ID, -1 none */
    bool has_persist;
    struct persist_sandbox persist;
    unsigned containers;
    struct container container[CONTAINERS];
    size_t bytes;    /* of the containers' files so far */
    unsigned mounts; /* of all containers so far */
};

/* ---- directories ------------------------------------------------------------------------- */

/* Follows the VM factory's link; its target is resolved as a path of the host. */
static int follow_vm_link(struct traces *traces)
{
    cleanup(fd_closep) int vms = -1;
    char target[PATH_MAX];
    const char *name;
    ssize_t length;
    int r = path_open_directory_in_root(traces->paths->root, traces->paths->kata_go_vms, &vms);

    if (r < 0)
        return kata_is_absent(r) ? 0 : r;
    length = readlinkat(vms, traces->sandbox_id, target, sizeof(target) - 1);
    if (length <= 0)
        return 0;
    target[length] = '\0';
    name = strrchr(target, '/');
    name = name ? name + 1 : target;
    if (!observe_is_sandbox_id(name))
        return 0;
    memcpy(traces->vm_id, name, strlen(name) + 1); /* a valid id, so it fits */
    r = target[0] == '/'
            ? snprintf(traces->vm_directory, PATH_MAX, "%s", target)
            : snprintf(traces->vm_directory, PATH_MAX, "%s/%s", traces->paths->kata_go_vms, target);
    return r < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int find_vm_directory(struct traces *traces)
{
    bool has = true;
    int r;

    (void)snprintf(traces->vm_id, sizeof(traces->vm_id), "%s", traces->sandbox_id);
    if (snprintf(traces->vm_directory, PATH_MAX, "%s/%s", traces->paths->kata_go_vms,
                 traces->sandbox_id) >= PATH_MAX)
        return -ENAMETOOLONG;
    r = follow_vm_link(traces);
    if (r == 0)
        r = kata_has_directory(traces->paths->root, traces->vm_directory, &has);
    if (!has)
        traces->vm_directory[0] = '\0';
    return r;
}

/* The jail is beside VMS, not in it. The VMM then knows the sandbox only by the short id. */
static int find_jail(struct traces *traces)
{
    const char *vms = traces->paths->kata_go_vms, *end = strrchr(vms, '/');
    bool has;
    int r;

    if (!end)
        return 0;
    if (snprintf(traces->jail, PATH_MAX, "%.*s/" JAILS "/%.*s/root", (int)(end - vms), vms,
                 SHORT_ID_CHARS, traces->sandbox_id) >= PATH_MAX)
        return -ENAMETOOLONG;
    r = kata_has_directory(traces->paths->root, traces->jail, &has);
    if (has)
        (void)snprintf(traces->vm_id, sizeof(traces->vm_id), "%.*s", SHORT_ID_CHARS,
                       traces->sandbox_id);
    else
        traces->jail[0] = '\0';
    return r;
}

/* ---- persist.json ------------------------------------------------------------------------ */

/* PATH_OK with the text. For PATH_ABSENT no problem is set; other outcomes that say something about
 * the file set one. */
static int read_persist(int directory, const char *container, struct observed_sandbox *sandbox,
                        struct buffer *ret_text)
{
    struct error error;
    int r = path_read_below(directory, PERSIST, ret_text, NULL, &error), problem = 0;

    if (r == PATH_UNSAFE || r == PATH_TOO_BIG || r == PATH_CHANGING)
        problem = kata_set_problem(sandbox, r == PATH_CHANGING, container, error.text);
    return problem < 0 ? problem : r;
}

static int set_parse_problem(struct observed_sandbox *sandbox, int outcome, const char *container,
                             struct error *error)
{
    (void)error_prefix(error, PERSIST ": ");
    return kata_set_problem(sandbox, outcome == FILE_CUT, container, error->text);
}

static int read_sandbox_file(struct traces *traces, struct observed_sandbox *sandbox)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_PERSIST.bytes);
    struct error error = {0};
    int r = read_persist(traces->state_directory, "", sandbox, &text);

    traces->has_persist = r != PATH_ABSENT;
    if (r != PATH_OK)
        return r < 0 ? r : 0;
    r = persist_parse_sandbox(buffer_text(&text), text.length, &traces->persist, &error);
    return r > 0 ? set_parse_problem(sandbox, r, "", &error) : r;
}

static int read_container_file(struct traces *traces, const char *name,
                               struct observed_sandbox *sandbox)
{
    cleanup(fd_closep) int directory = -1;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_PERSIST.bytes);
    struct container *container = &traces->container[traces->containers];
    struct error error = {0};
    int r = path_open_directory_below(traces->state_directory, name, &directory);

    if (r < 0)
        return kata_is_absent(r) || r == PATH_LEADS_OUT ? 0 : r;
    r = read_persist(directory, name, sandbox, &text);
    sandbox->try_again |= r == PATH_ABSENT; /* the directory is made before the file */
    if (r != PATH_OK)
        return r < 0 ? r : 0;
    traces->bytes += text.length;
    if (traces->bytes > CONTAINER_BYTES)
        return kata_set_problem(sandbox, false, "", "more of containers than is read");
    r = persist_parse_container(buffer_text(&text), text.length, &container->persist, &error);
    if (r > 0)
        return set_parse_problem(sandbox, r, name, &error);
    if (r < 0)
        return r;
    traces->mounts += container->persist.mounts;
    if (traces->mounts > RECORDS) {
        persist_container_done(&container->persist);
        return kata_set_problem(sandbox, false, "", "more mounts of containers than are read");
    }
    memcpy(container->id, name, strlen(name) + 1); /* a valid id, so it fits */
    traces->containers++;
    return 0;
}

static int read_containers(struct traces *traces, struct observed_sandbox *sandbox)
{
    cleanup(dir_closep) DIR *names = NULL;
    int r = directory_list(traces->state_directory, &names);
    const struct dirent *name;

    if (r < 0)
        return kata_is_absent(r) ? 0 : r;
    for (unsigned seen = 0, containers = 0; r == 0 && (name = readdir(names));) {
        if (++seen > SANDBOX_NAMES || containers == CONTAINERS)
            return kata_set_problem(sandbox, false, "", "more containers than are read");
        if (traces->bytes > CONTAINER_BYTES || traces->mounts > RECORDS)
            return 0; /* the problem is set already */
        if ((name->d_type == DT_DIR || name->d_type == DT_UNKNOWN) &&
            observe_is_sandbox_id(name->d_name)) {
            containers++;
            r = read_container_file(traces, name->d_name, sandbox);
        }
    }
    return r;
}

/* ---- drives ------------------------------------------------------------------------------ */

static int add_drive(struct observed_sandbox *sandbox, const struct persist_device *device,
                     const char *source)
{
    struct observed_drive *drive =
        reallocarray(sandbox->drive, sandbox->drives + 1, sizeof(*drive));
    int r;

    if (!drive)
        return -ENOMEM;
    sandbox->drive = drive;
    drive += sandbox->drives++;
    *drive = (struct observed_drive){.major = device->major, .minor = device->minor};
    r = kata_copy(source, &drive->mount_source);
    if (r == 0)
        r = kata_copy(device->file, &drive->file);
    if (r == 0)
        r = kata_copy(device->drive_id, &drive->drive_id);
    if (r == 0)
        r = kata_copy(device->guest_path, &drive->guest_path);
    return r;
}

static bool has_drive(const struct observed_sandbox *sandbox, unsigned first, const char *source)
{
    for (unsigned i = first; i < sandbox->drives; i++)
        if (sandbox->drive[i].mount_source && strcmp(sandbox->drive[i].mount_source, source) == 0)
            return true;
    return false;
}

/* One drive per device and mount source, because the containers of a pod share volumes. */
static int add_drives_of(const struct traces *traces, const struct persist_device *device,
                         struct observed_sandbox *sandbox)
{
    unsigned first = sandbox->drives;
    int r = 0;

    for (unsigned i = 0; i < traces->containers; i++) {
        const struct persist_container *container = &traces->container[i].persist;

        for (unsigned j = 0; r == 0 && j < container->mounts; j++) {
            const struct persist_mount *mount = &container->mount[j];

            if (mount->device_id && strcmp(mount->device_id, device->id) == 0 &&
                sandbox->drives - first < SOURCES_OF_DRIVE && sandbox->drives < DRIVES &&
                !has_drive(sandbox, first, mount->source))
                r = add_drive(sandbox, device, mount->source);
        }
    }
    return r == 0 && sandbox->drives == first ? add_drive(sandbox, device, NULL) : r;
}

/* ---- mounts ------------------------------------------------------------------------------ */

/* If the sandbox no longer has the device, the container has ended: its own file is written after
 * the sandbox's. */
static int add_record(const struct traces *traces, const struct container *container,
                      const struct persist_mount *mount, const unsigned *first,
                      struct observed_sandbox *sandbox)
{
    struct observed_record *record = &sandbox->record[sandbox->records++];
    int r;

    *record = (struct observed_record){
        .carrier = mount->device_id ? CARRIER_ENDED : CARRIER_DIRECTORY, .drive = -1};
    for (unsigned i = 0; mount->device_id && i < traces->persist.devices; i++)
        if (strcmp(mount->device_id, traces->persist.device[i].id) == 0) {
            record->carrier = CARRIER_DEVICE;
            record->drive = first[i];
        }
    if (container->persist.ended)
        record->carrier = CARRIER_ENDED;
    r = kata_copy(container->id, &record->container);
    if (r == 0)
        r = kata_copy(mount->source, &record->source);
    return r == 0 ? kata_copy(mount->destination, &record->destination) : r;
}

/* The drives of one device are adjacent; first[i] is the index of the first drive of device i. */
static int add_drives_and_records(const struct traces *traces, struct observed_sandbox *sandbox)
{
    cleanup(freep) unsigned *first = calloc(traces->persist.devices + 1, sizeof(*first));
    int r;

    sandbox->record = calloc(traces->mounts + 1, sizeof(*sandbox->record));
    r = first && sandbox->record ? 0 : -ENOMEM;
    for (unsigned i = 0; r == 0 && i < traces->persist.devices; i++) {
        first[i] = sandbox->drives;
        r = add_drives_of(traces, &traces->persist.device[i], sandbox);
    }
    for (unsigned i = 0; r == 0 && i < traces->containers; i++) {
        const struct container *container = &traces->container[i];

        for (unsigned j = 0; r == 0 && j < container->persist.mounts; j++)
            r = add_record(traces, container, &container->persist.mount[j], first, sandbox);
    }
    if (r == 0)
        records_sort(sandbox);
    return r;
}

/* ---- the VMM ----------------------------------------------------------------------------- */

/* ret_pid is 0 if the file does not exist or cannot be parsed. */
static int read_pid_file(const struct traces *traces, const char *directory, const char *name,
                         struct observed_sandbox *sandbox, pid_t *ret_pid)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(32);
    struct error error;
    char *end;
    long pid;
    int r;

    *ret_pid = 0;
    if (!directory[0])
        return 0;
    r = kata_read_file(traces->paths->root, directory, name, &text, &error);
    if (r == PATH_UNSAFE)
        return kata_set_problem(sandbox, false, "", error.text);
    if (r != PATH_OK)
        return r < 0 ? r : 0;
    if (!text.length)
        return kata_set_problem(sandbox, true, "", "pid: empty");
    pid = strtol(buffer_text(&text), &end, 10);
    if (pid <= 0 || pid > INT_MAX || (*end && *end != '\n'))
        return kata_set_problem(sandbox, false, "", "pid: not a process id");
    *ret_pid = (pid_t)pid;
    return 0;
}

/* Whether the process is a child of the sandbox's shim. An enum process_index_outcome or -errno. */
static int find_child(const struct traces *traces, pid_t pid)
{
    struct process_search shim;
    struct process process;
    int r = process_index_find(traces->paths->cache, PROCESS_SHIM, traces->sandbox_id, &shim);

    if (r != PROCESS_INDEX_FOUND)
        return r;
    r = process_read(pid, &process);
    if (r < 0 && r != PROCESS_GONE)
        return r;
    return r == 0 && process.parent == shim.process.pid ? PROCESS_INDEX_FOUND : PROCESS_INDEX_NONE;
}

/* Accepts root's processes, and a rootless VMM that is a child of the shim. 0 and ret_believed;
 * OBSERVED_UNFINISHED or -errno: a process that could not be judged may be the VMM. */
static int judge_process(const struct traces *traces, pid_t pid, struct observed_sandbox *sandbox,
                         bool *ret_believed)
{
    int trust = process_judge(pid, NULL), r = PROCESS_INDEX_NONE;
    char text[160];

    if (trust < 0)
        return trust == PROCESS_GONE ? 0 : trust;
    if (trust == PROCESS_USERS)
        r = find_child(traces, pid);
    if (r < 0)
        return r;
    if (r == PROCESS_INDEX_UNFINISHED)
        return OBSERVED_UNFINISHED;
    *ret_believed = trust == PROCESS_ROOTS || r == PROCESS_INDEX_FOUND;
    if (*ret_believed)
        return 0;
    (void)snprintf(text, sizeof(text),
                   "process %d has the VMM's recorded pid but is not trusted: %s", (int)pid,
                   process_trust_text((enum process_trust)trust));
    return kata_set_problem(sandbox, false, "", text);
}

/* Takes the process as the sandbox's VMM if its arguments name the sandbox. The start time is read
 * before and after, to make sure that the arguments are those of the same process. The jailer has
 * the id in its arguments too, but no drive. 0, OBSERVED_UNFINISHED or -errno. */
static int try_process(const struct traces *traces, pid_t pid, struct observed_sandbox *sandbox)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    struct process before, after;
    enum hypervisor_kind guess;
    bool is_believed = false;
    int r = process_read(pid, &before);

    if (r == 0)
        r = process_read_arguments(pid, &arguments);
    if (r == 0)
        r = process_read(pid, &after);
    if (r < 0)
        return r == PROCESS_GONE || r == BUFFER_FULL ? 0 : r;
    if (!after.alive || before.start_ns != after.start_ns ||
        process_arguments_are_jailers(&arguments) ||
        (!process_arguments_name(&arguments, traces->sandbox_id) &&
         !process_arguments_name(&arguments, traces->vm_id)))
        return 0;
    r = judge_process(traces, pid, sandbox, &is_believed);
    if (r != 0 || !is_believed)
        return r;
    r = process_still_has_arguments(pid, &arguments);
    if (r < 0)
        return r;
    if (r == 0) {
        sandbox->try_again = true;
        return 0;
    }
    sandbox->alive = true;
    sandbox->vmm_pid = pid;
    sandbox->vmm_start_ns = after.start_ns;
    guess = hypervisor_kind_from_program(process_arguments_program(&arguments));
    if (guess != HYPERVISOR_UNKNOWN)
        sandbox->hypervisor = guess;
    return 0;
}

static int find_process(const struct traces *traces, struct observed_sandbox *sandbox)
{
    const enum hypervisor_kind written = hypervisor_kind_from_name(traces->persist.hypervisor);
    pid_t pid, jailed_pid;
    int r = read_pid_file(traces, traces->vm_directory, "pid", sandbox, &pid);

    if (r == 0 && pid)
        r = try_process(traces, pid, sandbox);
    if (r == 0 && !sandbox->alive && traces->persist.pid && traces->persist.pid != pid)
        r = try_process(traces, traces->persist.pid, sandbox);
    if (r == 0 && !sandbox->alive) {
        r = read_pid_file(traces, traces->jail, JAILS ".pid", sandbox, &jailed_pid);
        if (r == 0 && jailed_pid)
            r = try_process(traces, jailed_pid, sandbox);
    }
    if (written != HYPERVISOR_UNKNOWN)
        sandbox->hypervisor = written;
    return r;
}

static int find_control_socket(const struct traces *traces, struct observed_sandbox *sandbox)
{
    const enum hypervisor_kind hypervisor = sandbox->hypervisor;
    int root = traces->paths->root;

    if (!sandbox->alive)
        return 0;
    if (hypervisor == HYPERVISOR_FIRECRACKER && traces->jail[0])
        return kata_try_socket(root, traces->jail, "run/firecracker.socket",
                               &sandbox->control_socket);
    if (!traces->vm_directory[0])
        return 0;
    if (hypervisor == HYPERVISOR_CLOUD_HYPERVISOR)
        return kata_try_socket(root, traces->vm_directory, "clh-api.sock",
                               &sandbox->control_socket);
    if (hypervisor == HYPERVISOR_QEMU || hypervisor == HYPERVISOR_UNKNOWN)
        return kata_find_monitor(traces->paths, traces->vm_id, traces->vm_directory,
                                 "extra-monitor.sock", sandbox);
    return 0;
}

/* ---- all of it --------------------------------------------------------------------------- */

static int observe_traces(struct traces *traces, struct observed_sandbox *sandbox)
{
    char path[PATH_MAX];
    int r = find_vm_directory(traces);

    if (r == 0)
        r = find_jail(traces);
    if (r == 0 && snprintf(path, sizeof(path), "%s/%s", traces->paths->kata_go_sandboxes,
                           traces->sandbox_id) >= PATH_MAX)
        r = -ENAMETOOLONG;
    if (r == 0)
        r = path_open_directory_in_root(traces->paths->root, path, &traces->state_directory);
    if (kata_is_absent(r)) {
        if (!traces->vm_directory[0] && !traces->jail[0])
            return OBSERVED_ABSENT;
        r = 0;
    }
    sandbox->runtime = RUNTIME_KATA_GO;
    if (r == 0 && traces->state_directory >= 0)
        r = read_sandbox_file(traces, sandbox);
    if (r == 0 && traces->state_directory >= 0)
        r = read_containers(traces, sandbox);
    if (r == 0)
        r = find_process(traces, sandbox);
    if (r == 0)
        r = find_control_socket(traces, sandbox);
    if (r == 0)
        r = add_drives_and_records(traces, sandbox);
    if (sandbox->alive && !traces->has_persist)
        sandbox->try_again = true;
    sandbox->agent_address = take_pointer(&traces->persist.agent_url);
    return r;
}

int kata_go_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox)
{
    struct traces *traces = calloc(1, sizeof(*traces));
    int r;

    if (!traces)
        return -ENOMEM;
    traces->paths = paths;
    traces->sandbox_id = sandbox_id;
    traces->state_directory = -1;
    r = observe_traces(traces, sandbox);
    fd_close(traces->state_directory);
    persist_sandbox_done(&traces->persist);
    for (unsigned i = 0; i < traces->containers; i++)
        persist_container_done(&traces->container[i].persist);
    free(traces);
    return r;
}
