/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - tries what the unit's restrictions forbid, and says what came of it.
 *
 *   probe [NAME...]      all without a name; prints "NAME: done", "NAME: EPERM", "NAME: signal 31"
 *
 * Each attempt is a process of its own, since a restriction may kill it. A name is a line of the
 * unit, up to its "=" or further; one that begins with "may " is what the unit has to leave.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Each returns 0, or what errno says. */

static int result_of(int r)
{
    return r < 0 ? errno : 0;
}

static int make_file(const char *directory)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/crust-probe-%d", directory, getpid());
    fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0666);
    if (fd < 0)
        return errno;
    unlink(path);
    return 0;
}

static int write_opt(void)
{
    return make_file("/opt");
}

static int write_home(void)
{
    return make_file("/root");
}

static int let_others_read(void)
{
    char path[64];
    struct stat status;
    int fd;

    snprintf(path, sizeof(path), "/run/crust-probe/file-%d", getpid());
    fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0666);
    if (fd < 0 || fstat(fd, &status) < 0)
        return errno;
    unlink(path);
    return status.st_mode & 0007 ? 0 : EACCES;
}

static int state_is_public(void)
{
    const char *directory = getenv("STATE_DIRECTORY");
    struct stat status;

    if (!directory || stat(directory, &status) < 0)
        return ENOENT;
    return status.st_mode & 0007 ? 0 : EACCES;
}

static int open_many_files(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return errno;
    for (int i = 0; i < 70000; i++)
        if (dup(STDIN_FILENO) < 0)
            return errno;
    return 0;
}

static int have_many_tasks(void)
{
    static pid_t children[300];
    int count = 0, result = 0;

    while (count < 300) {
        children[count] = fork();
        if (children[count] == 0) {
            pause();
            _exit(0);
        }
        if (children[count] < 0) {
            result = errno;
            break;
        }
        count++;
    }
    while (count > 0) {
        kill(children[--count], SIGKILL);
        waitpid(children[count], NULL, 0);
    }
    return result;
}

static int change_root(void)
{
    return result_of(chroot("/"));
}

static int gain_privileges(void)
{
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : EPERM;
}

static int share_mounts(void)
{
    char mine[64] = {0}, theirs[64] = {0};

    if (readlink("/proc/self/ns/mnt", mine, sizeof(mine) - 1) < 0 ||
        readlink("/proc/1/ns/mnt", theirs, sizeof(theirs) - 1) < 0)
        return errno;
    return strcmp(mine, theirs) == 0 ? 0 : EXDEV;
}

static int see_tmp(void)
{
    return result_of(access("/tmp/crust-probe-outside", F_OK));
}

static int open_path(const char *path, int flags)
{
    return result_of(open(path, flags | O_CLOEXEC));
}

static int open_disk(void)
{
    return open_path("/dev/vda", O_RDONLY);
}

static int open_tunable(void)
{
    return open_path("/proc/sys/vm/swappiness", O_WRONLY);
}

static int open_modules(void)
{
    struct utsname names;
    char path[512];

    uname(&names);
    snprintf(path, sizeof(path), "/usr/lib/modules/%s/modules.dep", names.release);
    return open_path(path, O_RDONLY);
}

static int open_kernel_log(void)
{
    return open_path("/dev/kmsg", O_RDONLY);
}

static int make_cgroup(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/sys/fs/cgroup/crust-probe-%d", getpid());
    if (mkdir(path, 0755) < 0)
        return errno;
    rmdir(path);
    return 0;
}

static int set_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return result_of(clock_settime(CLOCK_REALTIME, &now));
}

static int set_host_name(void)
{
    char name[65] = {0};

    gethostname(name, sizeof(name) - 1);
    return result_of(sethostname(name, strlen(name)));
}

static int make_namespace(void)
{
    return result_of(unshare(CLONE_NEWUTS));
}

static int be_realtime(void)
{
    return result_of(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}));
}

static int change_personality(void)
{
    return result_of(personality(ADDR_NO_RANDOMIZE));
}

static int map_writable_code(void)
{
    void *map =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return map == MAP_FAILED ? errno : 0;
}

static int open_packet_socket(void)
{
    return result_of(socket(AF_PACKET, SOCK_RAW, 0));
}

/* getpid(2) as i386 numbers it. */
static int call_as_i386(void)
{
    long r = 20;

    __asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
    return r < 0 ? (int)-r : 0;
}

static int use_ports(void)
{
    return result_of(iopl(0));
}

static int set_priority(void)
{
    return result_of(setpriority(PRIO_PROCESS, 0, 0));
}

static int open_socket(int family)
{
    return result_of(socket(family, family == AF_NETLINK ? SOCK_RAW : SOCK_STREAM, 0));
}

static int open_unix(void)
{
    return open_socket(AF_UNIX);
}

static int open_vsock(void)
{
    return open_socket(AF_VSOCK);
}

static int open_netlink(void)
{
    return open_socket(AF_NETLINK);
}

static int open_inet(void)
{
    return open_socket(AF_INET);
}

static int open_inet6(void)
{
    return open_socket(AF_INET6);
}

static int change_owner(void)
{
    return result_of(chown("/run/crust-probe", (uid_t)-1, (gid_t)-1));
}

static int write_run(void)
{
    return make_file("/run");
}

static const struct probe {
    const char *name;
    int (*attempt)(void);
} probes[] = {
    {"LimitNOFILE", open_many_files},
    {"TasksMax", have_many_tasks},
    {"StateDirectoryMode", state_is_public},
    {"UMask", let_others_read},
    {"CapabilityBoundingSet", change_root},
    {"NoNewPrivileges", gain_privileges},
    {"ProtectSystem", write_opt},
    {"PrivateMounts", share_mounts},
    {"ProtectHome", write_home},
    {"PrivateTmp", see_tmp},
    {"DevicePolicy", open_disk},
    {"ProtectKernelTunables", open_tunable},
    {"ProtectKernelModules", open_modules},
    {"ProtectKernelLogs", open_kernel_log},
    {"ProtectControlGroups", make_cgroup},
    {"ProtectClock", set_clock},
    {"ProtectHostname", set_host_name},
    {"RestrictNamespaces", make_namespace},
    {"RestrictRealtime", be_realtime},
    {"LockPersonality", change_personality},
    {"MemoryDenyWriteExecute", map_writable_code},
    {"RestrictAddressFamilies", open_packet_socket},
    {"SystemCallArchitectures", call_as_i386},
    {"SystemCallFilter=@system-service", use_ports},
    {"SystemCallFilter=~@privileged @resources", set_priority},
    {"may AF_UNIX", open_unix},
    {"may AF_VSOCK", open_vsock},
    {"may AF_NETLINK", open_netlink},
    {"may AF_INET", open_inet},
    {"may AF_INET6", open_inet6},
    {"may @chown", change_owner},
    {"may ReadWritePaths", write_run},
};

static void run(const struct probe *probe)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        _exit(probe->attempt());
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", probe->name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 0)
        printf("%s: done\n", probe->name);
    else
        printf("%s: %s\n", probe->name, strerrorname_np(WEXITSTATUS(status)));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        int wanted = argc == 1;

        for (int j = 1; j < argc; j++)
            wanted |= strcmp(argv[j], probes[i].name) == 0;
        if (wanted)
            run(&probes[i]);
    }
    return 0;
}
