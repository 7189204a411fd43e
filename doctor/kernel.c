/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - what the kernel lets this process do, and as whom it runs. Versions, by what came with
 * them:
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
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"
#include "lib/process.h"

enum { KERNEL_GROUP = 1, LARGE_BUFFER_BYTES = 16 * 1024 * 1024, YEAR_2020 = 1577836800 };

/* crustd watches so many directories beside those of volumes and sandboxes, and counting ends at
 * the second number. */
enum { WAYS = 64, MOST = 65536 };

/* ---- reading ------------------------------------------------------------------------------- */

/* Whether a call opened a descriptor, which is closed. 0 or -errno. */
static int try(int fd)
{
    const int r = fd < 0 ? -errno : 0;

    fd_close(fd);
    return r;
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

static bool may_trace(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    return syscall(SYS_capget, &header, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE));
}

static uint64_t read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    uint64_t limit = 0;

    if (file && fscanf(file, "%" SCNu64, &limit) != 1)
        limit = 0;
    if (file)
        (void)fclose(file);
    return limit;
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

void kernel_read(int root, const struct config *config, struct kernel_facts *ret_facts)
{
    const char *const watched[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                                   config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                                   config->paths.kata_rs_sandboxes};
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    struct kernel_facts facts = {.uid = geteuid(), .now_seconds = time(NULL), .directories = WAYS};
    cleanup(fd_closep) int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    struct utsname name;

    facts.inotify = inotify < 0 ? -errno : 0;
    if (inotify >= 0 && inotify_add_watch(inotify, "/", IN_DELETE_SELF | IN_ONLYDIR) < 0)
        facts.watch = -errno;
    facts.max_instances = read_limit("/proc/sys/fs/inotify/max_user_instances");
    facts.max_watches = read_limit("/proc/sys/fs/inotify/max_user_watches");
    for (size_t i = 0; i < array_length(watched); i++)
        facts.directories += count_directories(root, watched[i]);

    if (uname(&name) == 0)
        (void)snprintf(facts.release, sizeof(facts.release), "%.64s", name.release);
    facts.openat2 = try((int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how)));
    facts.pidfd_open = try((int)syscall(SYS_pidfd_open, getpid(), 0));
    facts.uevents = try_uevents(&facts.large_buffer);
    facts.vsock = -try(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));

    facts.may_trace = may_trace();
    facts.user_is_first = namespaces_user_is_first();
    facts.shows_all_processes = namespaces_show_all_processes();
    facts.first_process = try(open("/proc/1/mountinfo", O_RDONLY | O_CLOEXEC));
    if (facts.first_process == 0)
        facts.first_process = try(open("/proc/1/root", O_PATH | O_CLOEXEC));
    *ret_facts = facts;
}

/* ---- judging ------------------------------------------------------------------------------- */

static void judge_calls(const struct kernel_facts *facts, struct findings *findings)
{
    const int refused = facts->openat2 < 0 ? facts->openat2 : facts->pidfd_open;
    unsigned major = 0, minor = 0;

    (void)sscanf(facts->release, "%u.%u", &major, &minor);
    if (refused < 0)
        findings_add(findings, FINDING_ERROR, "kernel", NULL,
                     "Use Linux 5.15 or later, and let a system-call filter allow these calls",
                     "Linux %s: %s: %s; crustd cannot work without it", facts->release,
                     facts->openat2 < 0 ? "openat2" : "pidfd_open", strerror(-refused));
    else if (major < 5 || (major == 5 && minor < 15))
        findings_add(findings, FINDING_WARNING, "kernel", NULL, "Use Linux 5.15 or later",
                     "Linux %s: without diskseq (5.15) a device number that goes to another disk "
                     "is not always noticed%s",
                     facts->release,
                     major < 5 || minor < 11 ? "; before 5.11 not every driver reports a new size"
                                             : "");
    else
        findings_add(findings, FINDING_OK, "kernel", NULL, NULL,
                     "Linux %s: openat2, pidfd_open, diskseq", facts->release);

    if (facts->uevents < 0)
        findings_add(findings, FINDING_ERROR, "uevents", NULL,
                     "Allow AF_NETLINK sockets (systemd: RestrictAddressFamilies; pod: seccomp)",
                     "the kernel's block events can't be listened to: %s",
                     strerror(-facts->uevents));
    else
        findings_check(findings, facts->large_buffer, "the kernel's block events are heard",
                       FINDING_WARNING, "uevents", "CAP_NET_ADMIN",
                       "Give crustd CAP_NET_ADMIN, or raise net.core.rmem_max to 16 MiB",
                       "a storm of them overflows the buffer for the kernel's events: every volume "
                       "is then observed again");

    if (facts->vsock == EAFNOSUPPORT)
        findings_add(findings, FINDING_WARNING, "vsock", NULL, "modprobe vhost_vsock",
                     "this kernel has no vsock now, by which QEMU's guests are reached; Kata "
                     "usually loads its module");
    else
        findings_check(findings, facts->vsock == 0, "guests can be reached by vsock", FINDING_ERROR,
                       "vsock", NULL,
                       "Allow AF_VSOCK sockets (systemd: RestrictAddressFamilies; pod: "
                       "seccompProfile Unconfined)",
                       "no agent of a QEMU guest is reached, because AF_VSOCK is forbidden: %s",
                       strerror(facts->vsock));
    if (facts->now_seconds < YEAR_2020)
        findings_add(findings, FINDING_WARNING, "clock", NULL, "Set the clock",
                     "the clock is years behind: times on the record will be wrong");
}

/* The limits are a user's: kubelet, container engine and crustd are all root and share them. So one
 * watch is tried, and the limit is compared with twice the number needed. */
static void judge_watches(const struct kernel_facts *facts, struct findings *findings)
{
    static const char limit[] = "fs.inotify.max_user_watches",
                      remedy[] = "sysctl fs.inotify.max_user_watches=524288";

    if (facts->inotify < 0)
        findings_add(findings, FINDING_ERROR, "inotify", "fs.inotify.max_user_instances",
                     "sysctl fs.inotify.max_user_instances=1024",
                     "no inotify instance of %" PRIu64 " is free, and crustd does not start "
                     "without one: %s",
                     facts->max_instances, strerror(-facts->inotify));
    else if (facts->watch < 0)
        findings_add(findings, FINDING_WARNING, "inotify", limit, remedy,
                     "no watch of %" PRIu64 " is free, so new volumes are noticed by the sweep "
                     "only: %s",
                     facts->max_watches, strerror(-facts->watch));
    else if (facts->max_watches < 2 * (uint64_t)facts->directories)
        findings_add(findings, FINDING_WARNING, "inotify", limit, remedy,
                     "%u directories are to be watched, and all of root's programs together have "
                     "%" PRIu64 " watches: what is too many is noticed by the sweep only",
                     facts->directories, facts->max_watches);
    else
        findings_add(findings, FINDING_OK, "inotify", NULL, NULL,
                     "%u directories to watch, of %" PRIu64 " that root may", facts->directories,
                     facts->max_watches);
}

static void judge_process(const struct kernel_facts *facts, struct findings *findings)
{
    if (facts->uid != 0)
        findings_add(findings, FINDING_ERROR, "root", NULL, "Run it as root",
                     "this was asked by uid %u, who may not read what crustd needs",
                     (unsigned)facts->uid);
    else if (!facts->may_trace)
        findings_add(findings, FINDING_ERROR, "processes", "CAP_SYS_PTRACE",
                     "Give crustd CAP_SYS_PTRACE",
                     "a VMM's root and open files cannot be read, so nothing is grown");
    else
        findings_check(findings, facts->first_process == 0, "the node's processes can be observed",
                       FINDING_WARNING, "processes", "/proc/1",
                       "Let no security module hide the node's processes (pod: appArmorProfile "
                       "Unconfined, SELinux spc_t)",
                       "process 1 cannot be observed (%s): mounts of the node may be unknown, and "
                       "VMMs out of reach too",
                       strerror(-facts->first_process));
    findings_check(findings, facts->user_is_first, "the node's user namespace", FINDING_ERROR,
                   "user_namespace", "/proc/self/ns/user",
                   "Run it in the node's user namespace (pod: hostUsers must not be false)",
                   "this is not the node's user namespace: no event of the kernel comes here, and "
                   "no VMM can be observed");
    findings_check(findings, facts->shows_all_processes, "the node's pid namespace", FINDING_ERROR,
                   "pid_namespace", "/proc/self/ns/pid",
                   "Run it in the node's pid namespace (pod: hostPID: true)",
                   "this is not the node's pid namespace, or not its /proc: no sandbox is known to "
                   "be alive");
}

void kernel_judge(const struct kernel_facts *facts, struct findings *findings)
{
    judge_calls(facts, findings);
    judge_watches(facts, findings);
    judge_process(facts, findings);
}
