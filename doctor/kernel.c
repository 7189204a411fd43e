/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - versions, by what came with them:
 *
 *     5.3   pidfd_open(2), which tells of the end of a VMM
 *     5.6   openat2(2), by which every foreign file is opened
 *     5.11  RESIZE=1 from every block driver
 *     5.15  diskseq, which tells a device number's next disk from its last
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/process_trust.h"

enum { KERNEL_GROUP = 1, LARGE_BUFFER_BYTES = 16 * 1024 * 1024, YEAR_2020 = 1577836800 };

/* ---- reading ------------------------------------------------------------------------------- */

static int try_openat2(void)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    cleanup(fd_closep) int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

    return fd < 0 ? -errno : 0;
}

static int try_pidfd_open(void)
{
    cleanup(fd_closep) int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return fd < 0 ? -errno : 0;
}

static int try_uevents(bool *ret_large_buffer)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
    cleanup(fd_closep) int fd =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    int bytes = LARGE_BUFFER_BYTES;

    if (fd < 0)
        return -errno;
    *ret_large_buffer = setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) == 0;
    return bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

static int try_vsock(void)
{
    cleanup(fd_closep) int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd < 0 ? errno : 0;
}

static bool has_capability(unsigned number)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[CAP_TO_INDEX(number)].effective & CAP_TO_MASK(number));
}

static int try_first_process(void)
{
    cleanup(fd_closep) int mounts = open("/proc/1/mountinfo", O_RDONLY | O_CLOEXEC);
    cleanup(fd_closep) int root = -1;

    if (mounts < 0)
        return -errno;
    root = open("/proc/1/root", O_PATH | O_CLOEXEC);
    return root < 0 ? -errno : 0;
}

void kernel_read(struct kernel_facts *ret_facts)
{
    struct kernel_facts facts = {.uid = geteuid(), .now_seconds = time(NULL)};
    struct utsname name;

    if (uname(&name) == 0)
        (void)snprintf(facts.release, sizeof(facts.release), "%.64s", name.release);
    facts.openat2 = try_openat2();
    facts.pidfd_open = try_pidfd_open();
    facts.uevents = try_uevents(&facts.large_buffer);
    facts.vsock = try_vsock();
    facts.may_trace = has_capability(CAP_SYS_PTRACE);
    facts.user_is_first = namespaces_user_is_first();
    facts.shows_all_processes = namespaces_show_all_processes();
    facts.first_process = try_first_process();
    *ret_facts = facts;
}

/* ---- judging ------------------------------------------------------------------------------- */

static void judge_version(const struct kernel_facts *facts, struct findings *findings)
{
    unsigned major = 0, minor = 0;

    (void)sscanf(facts->release, "%u.%u", &major, &minor);
    if (facts->openat2 < 0 || facts->pidfd_open < 0)
        findings_add(findings, FINDING_ERROR, "kernel", NULL,
                     "Use Linux 5.15 or later, and let a system-call filter allow these calls",
                     "Linux %s: %s: %s; crustd cannot work without it", facts->release,
                     facts->openat2 < 0 ? "openat2" : "pidfd_open",
                     strerror(facts->openat2 < 0 ? -facts->openat2 : -facts->pidfd_open));
    else if (major < 5 || (major == 5 && minor < 15))
        findings_add(findings, FINDING_WARNING, "kernel", NULL, "Use Linux 5.15 or later",
                     "Linux %s: without diskseq (5.15) a device number that goes to another disk "
                     "is not always noticed%s",
                     facts->release,
                     major < 5 || minor < 11 ? "; before 5.11 not every driver reports a new size, "
                                               "which then waits for the sweep"
                                             : "");
    else
        findings_add(findings, FINDING_OK, "kernel", NULL, NULL,
                     "Linux %s: openat2, pidfd_open, diskseq", facts->release);
}

static void judge_uevents(const struct kernel_facts *facts, struct findings *findings)
{
    if (facts->uevents < 0)
        findings_add(findings, FINDING_ERROR, "uevents", NULL,
                     "Allow AF_NETLINK sockets (systemd: RestrictAddressFamilies; pod: seccomp)",
                     "the kernel's block events can't be listened to: %s",
                     strerror(-facts->uevents));
    else if (!facts->large_buffer)
        findings_add(findings, FINDING_WARNING, "uevents", "CAP_NET_ADMIN",
                     "Give crustd CAP_NET_ADMIN, or raise net.core.rmem_max to 16 MiB",
                     "the kernel's events are heard, but a storm of them overflows the buffer: "
                     "every volume is then observed again");
    else
        findings_add(findings, FINDING_OK, "uevents", NULL, NULL,
                     "the kernel's block events are heard, with a large buffer");
}

static void judge_vsock(const struct kernel_facts *facts, struct findings *findings)
{
    if (facts->vsock == 0)
        findings_add(findings, FINDING_OK, "vsock", NULL, NULL, "guests can be reached by vsock");
    else if (facts->vsock == EAFNOSUPPORT)
        findings_add(findings, FINDING_WARNING, "vsock", NULL, "modprobe vhost_vsock",
                     "this kernel has no vsock now, by which QEMU's guests are reached; Kata "
                     "usually loads its module");
    else
        findings_add(findings, FINDING_ERROR, "vsock", NULL,
                     "Allow AF_VSOCK sockets (systemd: RestrictAddressFamilies; pod: seccompProfile"
                     " Unconfined)",
                     "no socket of AF_VSOCK may be made, so no agent of a QEMU guest is reached: "
                     "%s",
                     strerror(facts->vsock));
}

static void judge_clock(const struct kernel_facts *facts, struct findings *findings)
{
    if (facts->now_seconds < YEAR_2020)
        findings_add(findings, FINDING_WARNING, "clock", NULL, "Set the clock",
                     "the clock is years behind: times on the record will be wrong");
}

void kernel_judge(const struct kernel_facts *facts, struct findings *findings)
{
    judge_version(facts, findings);
    judge_uevents(facts, findings);
    judge_vsock(facts, findings);
    judge_clock(facts, findings);
}

static void judge_namespaces(const struct kernel_facts *facts, struct findings *findings)
{
    if (!facts->user_is_first)
        findings_add(findings, FINDING_ERROR, "user_namespace", "/proc/self/ns/user",
                     "Run it in the node's user namespace (pod: hostUsers must not be false)",
                     "this is not the node's user namespace: no event of the kernel comes here, "
                     "and no VMM can be observed");
    else
        findings_add(findings, FINDING_OK, "user_namespace", NULL, NULL,
                     "the node's user namespace");
    if (!facts->shows_all_processes)
        findings_add(findings, FINDING_ERROR, "pid_namespace", "/proc/self/ns/pid",
                     "Run it in the node's pid namespace (pod: hostPID: true)",
                     "this is not the node's pid namespace, or not its /proc: VMMs and shims are "
                     "not seen, so no sandbox is known to be alive");
    else
        findings_add(findings, FINDING_OK, "pid_namespace", NULL, NULL, "the node's pid namespace");
}

static void judge_tracing(const struct kernel_facts *facts, struct findings *findings)
{
    if (!facts->may_trace)
        findings_add(findings, FINDING_ERROR, "processes", "CAP_SYS_PTRACE",
                     "Give crustd CAP_SYS_PTRACE",
                     "a VMM's root and open files cannot be read: whose disk it has stays "
                     "unknown, and nothing is grown");
    else if (facts->first_process < 0)
        findings_add(findings, FINDING_WARNING, "processes", "/proc/1",
                     "Let no security module hide the node's processes (pod: appArmorProfile "
                     "Unconfined, SELinux spc_t)",
                     "process 1 cannot be observed (%s): what the node has mounted is then known "
                     "as far as this process sees it, and VMMs may be out of reach too",
                     strerror(-facts->first_process));
    else
        findings_add(findings, FINDING_OK, "processes", NULL, NULL,
                     "the node's processes can be observed");
}

void kernel_judge_process(const struct kernel_facts *facts, struct findings *findings)
{
    if (facts->uid != 0)
        findings_add(findings, FINDING_ERROR, "root", NULL, "Run it as root",
                     "this was asked by uid %u, who may not read what crustd needs",
                     (unsigned)facts->uid);
    else
        judge_tracing(facts, findings);
    judge_namespaces(facts, findings);
}

/* ---- watches -------------------------------------------------------------------------------- */

/* Crustd has one inotify instance, with a watch for each directory of metadata and of
 * sandboxes, and for those that lead to them. The limits are a user's: kubelet, container engine
 * and crustd are all root and share them. So one watch is tried now, and the limit is compared with
 * twice the number needed.
 */

enum { WAYS = 64, MOST = 65536 };

static uint64_t read_limit(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");

    if (!file)
        return 0;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void)fclose(file);
    return strtoull(text, NULL, 10);
}

static unsigned count_directories(int root, const char *path)
{
    cleanup(dir_closep) DIR *stream = NULL;
    const struct dirent *entry;
    unsigned count = 0;

    if (directory_list_in_root(root, path, &stream) < 0)
        return 0;
    while (count < MOST && (entry = readdir(stream)))
        count += entry->d_type == DT_DIR && entry->d_name[0] != '.';
    return count;
}

static void try_watch(struct watch_facts *facts)
{
    cleanup(fd_closep) int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    facts->instance = fd < 0 ? -errno : 0;
    if (fd >= 0 && inotify_add_watch(fd, "/", IN_DELETE_SELF | IN_ONLYDIR) < 0)
        facts->watch = -errno;
}

void watches_read(int root, const struct config *config, struct watch_facts *ret_facts)
{
    const char *const paths[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                                 config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                                 config->paths.kata_rs_sandboxes};
    struct watch_facts facts = {
        .max_instances = read_limit("/proc/sys/fs/inotify/max_user_instances"),
        .max_watches = read_limit("/proc/sys/fs/inotify/max_user_watches"),
        .needed = WAYS,
    };

    for (size_t i = 0; i < array_length(paths); i++)
        facts.needed += count_directories(root, paths[i]);
    try_watch(&facts);
    *ret_facts = facts;
}

void watches_judge(const struct watch_facts *facts, struct findings *findings)
{
    if (facts->instance < 0)
        findings_add(findings, FINDING_ERROR, "inotify", "fs.inotify.max_user_instances",
                     "sysctl fs.inotify.max_user_instances=1024",
                     "no inotify instance can be had (%s), and crustd does not start without one; "
                     "the limit is %" PRIu64,
                     strerror(-facts->instance), facts->max_instances);
    else if (facts->watch < 0)
        findings_add(findings, FINDING_WARNING, "inotify", "fs.inotify.max_user_watches",
                     "sysctl fs.inotify.max_user_watches=524288",
                     "no directory can be watched now (%s): new volumes are noticed by the sweep "
                     "only; the limit is %" PRIu64,
                     strerror(-facts->watch), facts->max_watches);
    else if (facts->max_watches < 2 * (uint64_t)facts->needed)
        findings_add(findings, FINDING_WARNING, "inotify", "fs.inotify.max_user_watches",
                     "sysctl fs.inotify.max_user_watches=524288",
                     "%u directories are to be watched, and all of root's programs together have "
                     "%" PRIu64 " watches: what is too many is noticed by the sweep only",
                     facts->needed, facts->max_watches);
    else
        findings_add(findings, FINDING_OK, "inotify", NULL, NULL,
                     "%u directories to watch, of %" PRIu64 " that root may", facts->needed,
                     facts->max_watches);
}
