/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the test guest: a Kata-like sandbox without Kata.
 *
 * It loads the modules that QEMU's virtio devices need, mounts what the kernel command line names,
 * starts crust-guest-agent as often as it is told to, says "guest-ready" on the first serial port
 * (ttyS0) and from then on answers commands on the second (ttyS1). The commands read the truth from
 * the kernel, so that a test need not believe the agent that it is testing.
 *
 *   crust.mount=DEVICE,TYPE,PATH[,OPTIONS]   may be given several times
 *   crust.agent=[PROGRAM,]ARGUMENT,...       one agent each; /sbin/crust-guest-agent if not told
 *
 * DEVICE is a kernel name (vda) or, as Kata writes it, a PCI path (pci:02/01: slot 1 behind the
 * bridge in slot 2) or a SCSI address (scsi:0:1: target 0, logical unit 1). OPTIONS is the file
 * system's own string, "ro" or "bind" (then DEVICE is a directory). What has no device (virtiofs,
 * cgroup2) has its tag or anything in its place.
 *
 * One line, one reply: "ok[ NUMBERS]" or "error ERRNO TEXT".
 *
 *   blocksize DEVICE       bytes of the disk
 *   device DEVICE          its kernel name
 *   statfs PATH            block size, blocks, free blocks
 *   write PATH BYTES       a pattern into a new file, on disk when answered
 *   verify PATH BYTES      EIO where the file is not that pattern
 *   mount DEVICE TYPE PATH [OPTIONS], umount PATH
 *   remount PATH ro|rw
 *   shutdown PATH          xfs: as after an error
 *   error DEVICE           ext4: the kernel finds an error, and has recorded it when answered
 *   freeze PATH, thaw PATH  writes to that file system wait in between
 *   count PATH PREFIX      how many entries of a directory begin so
 *   agent ARGUMENT,...     starts one more; its pid
 *   signal NUMBER          to all agents; how many there are
 *   container ID           a process in a cgroup of that name, with mount and pid namespaces of its
 *                          own, as kata-agent's containers have; its pid
 *   end PID                of a container
 *   ping, poweroff
 *
 * What goes wrong before guest-ready ends the guest with "guest-failed TEXT" on ttyS0. An agent's
 * end is reported there too; when the last one has exited by itself the guest powers off. One that
 * a signal killed, be it a test's or a crash, leaves the guest as it is, to be looked at.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <mntent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "devices.h"

#define XFS_IOC_GOINGDOWN _IOR('X', 125, uint32_t) /* fs/xfs/libxfs/xfs_fs.h */

#define AGENTS_MAX  8
#define MOUNTS_MAX  64
#define LINE_BYTES  4096
#define REPLY_BYTES 300 /* a file name and some */

static pid_t agents[AGENTS_MAX];          /* 0: free */
static char mounts[MOUNTS_MAX][PATH_MAX]; /* mount points, oldest first */
static size_t mount_count;

/* Ends the guest. Whoever has a file open is killed first, so that file systems are left clean. */
static _Noreturn void power_off(void)
{
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    while (mount_count > 0)
        umount2(mounts[--mount_count], 0);
    sync();
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list arguments;

    printf("guest-failed ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    power_off();
}

/* mkdir -p. The directory may be there. */
static int make_directories(const char *path)
{
    char prefix[PATH_MAX];

    if (snprintf(prefix, sizeof(prefix), "%s", path) >= (int)sizeof(prefix))
        return -ENAMETOOLONG;
    for (char *slash = prefix; slash; *slash = '/') {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        if (mkdir(prefix, 0755) < 0 && errno != EEXIST)
            return -errno;
        if (!slash)
            break;
    }
    return 0;
}

static bool has_no_device(const char *type)
{
    return strcmp(type, "virtiofs") == 0 || strcmp(type, "cgroup2") == 0;
}

static int mount_disk(const char *device, const char *type, const char *path, const char *options)
{
    char node[PATH_MAX];
    unsigned long flags = 0;

    if (options && strcmp(options, "bind") == 0)
        flags = MS_BIND;
    if (options && strcmp(options, "ro") == 0)
        flags = MS_RDONLY;
    if (mount_count == MOUNTS_MAX)
        return -ENOSPC;
    if (flags == MS_BIND || has_no_device(type))
        snprintf(node, sizeof(node), "%s", device);
    else if (wait_device(device, node) < 0)
        return -ENODEV;
    int result = load_module(type);
    if (result == 0)
        result = make_directories(path);
    if (result < 0)
        return result;
    if (mount(node, path, type, flags, flags ? NULL : options) < 0)
        return -errno;
    snprintf(mounts[mount_count++], PATH_MAX, "%s", path);
    return 0;
}

static int unmount_disk(const char *path)
{
    if (umount2(path, 0) < 0)
        return -errno;
    for (size_t i = mount_count; i-- > 0;) {
        if (strcmp(mounts[i], path) != 0)
            continue;
        memmove(mounts[i], mounts[i + 1], (mount_count - i - 1) * sizeof(mounts[0]));
        mount_count--;
        break;
    }
    return 0;
}

/* Starts one agent with comma-separated arguments; the first may be its program. */
static int start_agent(char *arguments)
{
    static char program[] = "/sbin/crust-guest-agent";
    char *all[WORDS_MAX + 2] = {program};
    size_t count = split(arguments, ",", all + 1);
    char **words = count && all[1][0] == '/' ? all + 1 : all;
    size_t slot = 0;

    count -= words == all + 1;

    while (slot < AGENTS_MAX && agents[slot] != 0)
        slot++;
    if (slot == AGENTS_MAX || count == WORDS_MAX)
        return -E2BIG;
    for (size_t i = 1; i <= count; i++) {
        if (strncmp(words[i], "serial://", strlen("serial://")) == 0)
            wait_port(words[i]);
    }
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        words[count + 1] = NULL;
        execv(words[0], words);
        _exit(127);
    }
    if (pid < 0)
        return -errno;
    agents[slot] = pid;
    return pid;
}

static int signal_agents(int number)
{
    int count = 0;

    for (size_t i = 0; i < AGENTS_MAX; i++) {
        if (agents[i] != 0 && kill(agents[i], number) == 0)
            count++;
    }
    return count;
}

/* Reaps whoever ended. Powers off when that was the last agent, and it ended by itself. */
static void reap(void)
{
    int status;

    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        bool was_agent = false;
        for (size_t i = 0; i < AGENTS_MAX; i++) {
            if (agents[i] == pid) {
                agents[i] = 0;
                was_agent = true;
            }
        }
        if (!was_agent)
            continue;
        bool by_itself = WIFEXITED(status);
        printf("agent-ended %d %s %d\n", (int)pid, by_itself ? "exit" : "signal",
               by_itself ? WEXITSTATUS(status) : WTERMSIG(status));
        if (by_itself && signal_agents(0) == 0)
            power_off();
    }
}

static char pattern_byte(uint64_t offset)
{
    return (char)(offset * 2654435761u >> 13);
}

/* Writes the pattern to a new file, or compares a file with it. */
static int pattern_file(const char *path, uint64_t bytes, bool verify)
{
    static char expected[1 << 16], found[1 << 16];
    int result = 0;
    int fd = open(path, (verify ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC) | O_CLOEXEC, 0644);

    if (fd < 0)
        return -errno;
    for (uint64_t offset = 0; offset < bytes && result == 0;) {
        size_t length = bytes - offset < sizeof(expected) ? bytes - offset : sizeof(expected);
        for (size_t i = 0; i < length; i++)
            expected[i] = pattern_byte(offset + i);
        ssize_t done = verify ? read(fd, found, length) : write(fd, expected, length);
        if (done < 0)
            result = -errno;
        else if (done == 0 || (verify && memcmp(found, expected, done) != 0))
            result = -EIO;
        else
            offset += done;
    }
    if (!verify && result == 0 && fsync(fd) < 0)
        result = -errno;
    close(fd);
    return result;
}

/* Commands. words[0] is the command; what they print into reply goes behind "ok". */

static int command_ping(char *words[], char *reply)
{
    (void)words, (void)reply;
    return 0;
}

static int command_blocksize(char *words[], char *reply)
{
    char name[NAME_MAX + 1], path[PATH_MAX], line[32];

    if (!find_device(words[1], name))
        return -ENODEV;
    snprintf(path, sizeof(path), "/sys/class/block/%s/size", name);
    if (!read_line(path, line, sizeof(line)))
        return -EIO;
    /* The kernel counts in 512 bytes here, whatever the disk's own unit is. */
    snprintf(reply, REPLY_BYTES, " %llu", strtoull(line, NULL, 10) * 512);
    return 0;
}

static int command_device(char *words[], char *reply)
{
    char name[NAME_MAX + 1];

    if (!find_device(words[1], name))
        return -ENODEV;
    snprintf(reply, REPLY_BYTES, " %s", name);
    return 0;
}

static int command_statfs(char *words[], char *reply)
{
    struct statfs info;

    if (statfs(words[1], &info) < 0)
        return -errno;
    snprintf(reply, REPLY_BYTES, " %llu %llu %llu", (unsigned long long)info.f_bsize,
             (unsigned long long)info.f_blocks, (unsigned long long)info.f_bfree);
    return 0;
}

static int command_write(char *words[], char *reply)
{
    (void)reply;
    return pattern_file(words[1], strtoull(words[2], NULL, 10), false);
}

static int command_verify(char *words[], char *reply)
{
    (void)reply;
    return pattern_file(words[1], strtoull(words[2], NULL, 10), true);
}

static int command_mount(char *words[], char *reply)
{
    (void)reply;
    return mount_disk(words[1], words[2], words[3], words[4]);
}

static int command_umount(char *words[], char *reply)
{
    (void)reply;
    return unmount_disk(words[1]);
}

static int freeze(const char *path, unsigned long request)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int result = fd < 0 || ioctl(fd, request, 0) < 0 ? -errno : 0;

    if (fd >= 0)
        close(fd);
    return result;
}

static int command_freeze(char *words[], char *reply)
{
    (void)reply;
    return freeze(words[1], FIFREEZE);
}

static int command_thaw(char *words[], char *reply)
{
    (void)reply;
    return freeze(words[1], FITHAW);
}

static int command_remount(char *words[], char *reply)
{
    unsigned long flags = MS_REMOUNT | (strcmp(words[2], "ro") == 0 ? MS_RDONLY : 0);

    (void)reply;
    return mount(NULL, words[1], NULL, flags, NULL) < 0 ? -errno : 0;
}

static int command_shutdown(char *words[], char *reply)
{
    int fd = open(words[1], O_RDONLY | O_CLOEXEC);
    uint32_t without_log = 2;
    int result = fd < 0 || ioctl(fd, XFS_IOC_GOINGDOWN, &without_log) < 0 ? -errno : 0;

    (void)reply;
    if (fd >= 0)
        close(fd);
    return result;
}

static int command_error(char *words[], char *reply)
{
    char name[NAME_MAX], path[PATH_MAX], line[64];
    int fd, result;

    (void)reply;
    result = find_device(words[1], name);
    if (result < 0)
        return result;
    snprintf(path, sizeof(path), "/sys/fs/ext4/%s/trigger_fs_error", name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1", 1) != 1)
        return -errno;
    close(fd);
    snprintf(path, sizeof(path), "/sys/fs/ext4/%s/errors_count", name);
    for (int i = 0; i < 1000; i++) {
        if (read_line(path, line, sizeof(line)) && line[0] != '0')
            return 0;
        usleep(10000);
    }
    return -ETIMEDOUT;
}

static int command_count(char *words[], char *reply)
{
    DIR *directory = opendir(words[1]);
    struct dirent *entry;
    unsigned count = 0;

    if (!directory)
        return -errno;
    while ((entry = readdir(directory)))
        count += strncmp(entry->d_name, words[2], strlen(words[2])) == 0;
    closedir(directory);
    snprintf(reply, REPLY_BYTES, " %u", count);
    return 0;
}

static int command_agent(char *words[], char *reply)
{
    int pid = start_agent(words[1]);

    snprintf(reply, REPLY_BYTES, " %d", pid);
    return pid < 0 ? pid : 0;
}

static int command_signal(char *words[], char *reply)
{
    snprintf(reply, REPLY_BYTES, " %d", signal_agents(atoi(words[1])));
    return 0;
}

/* As kata-agent does in an initrd: a root of its own in the place of the guest's, whose mounts are
 * not in the container. */
static int take_root(void)
{
    static const char root[] = "/run/container";
    char points[MOUNTS_MAX][PATH_MAX];
    FILE *table = setmntent("/proc/self/mounts", "r");
    struct mntent *one;
    size_t count = 0;

    while (table && count < MOUNTS_MAX && (one = getmntent(table)))
        snprintf(points[count++], PATH_MAX, "%s", one->mnt_dir);
    if (!table || make_directories(root) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", root, "tmpfs", 0, NULL) < 0)
        return -1;
    while (count > 0) {
        if (strcmp(points[--count], "/") != 0)
            umount2(points[count], MNT_DETACH);
    }
    return chdir(root) < 0 || mount(root, "/", NULL, MS_MOVE, NULL) < 0 ? -1 : chroot(".");
}

static _Noreturn void be_container(const char *id, int ready)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cgroup.procs", id);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1 || take_root() < 0)
        _exit(1);
    (void)!write(ready, "", 1);
    for (;;)
        pause();
}

static int command_container(char *words[], char *reply)
{
    char path[PATH_MAX], byte;
    int ends[2], result;
    pid_t pid;

    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", words[1]);
    if ((mkdir(path, 0755) < 0 && errno != EEXIST) || pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWNS | CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        be_container(words[1], ends[1]);
    result = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (result == 0 && read(ends[0], &byte, 1) != 1)
        result = -EIO;
    close(ends[0]);
    snprintf(reply, REPLY_BYTES, " %d", pid);
    return result;
}

static int command_end(char *words[], char *reply)
{
    pid_t pid = atoi(words[1]);

    (void)reply;
    return pid > 1 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid ? 0 : -ESRCH;
}

static const struct command {
    const char *name;
    size_t words_min, words_max;
    int (*run)(char *words[], char *reply);
} COMMANDS[] = {
    {"ping", 1, 1, command_ping},           {"blocksize", 2, 2, command_blocksize},
    {"device", 2, 2, command_device},       {"statfs", 2, 2, command_statfs},
    {"write", 3, 3, command_write},         {"verify", 3, 3, command_verify},
    {"mount", 4, 5, command_mount},         {"umount", 2, 2, command_umount},
    {"agent", 2, 2, command_agent},         {"signal", 2, 2, command_signal},
    {"remount", 3, 3, command_remount},     {"shutdown", 2, 2, command_shutdown},
    {"error", 2, 2, command_error},         {"freeze", 2, 2, command_freeze},
    {"thaw", 2, 2, command_thaw},           {"count", 3, 3, command_count},
    {"container", 2, 2, command_container}, {"end", 2, 2, command_end},
};

/* Runs one line and answers it. poweroff is answered before there is nobody left to answer. */
static void answer(int port, char *line)
{
    char *words[WORDS_MAX] = {NULL};
    char reply[REPLY_BYTES] = "";
    size_t count = split(line, " \r\n", words);
    int result = -EINVAL;

    if (count == 1 && strcmp(words[0], "poweroff") == 0) {
        dprintf(port, "ok\n");
        tcdrain(port);
        power_off();
    }
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]) && count > 0; i++) {
        const struct command *command = &COMMANDS[i];
        if (strcmp(words[0], command->name) == 0 && count >= command->words_min &&
            count <= command->words_max)
            result = command->run(words, reply);
    }
    if (result < 0)
        dprintf(port, "error %d %s\n", -result, strerror(-result));
    else
        dprintf(port, "ok%s\n", reply);
}

/* Opens the port that commands come through, as a plain byte stream. */
static int open_command_port(void)
{
    struct termios mode;
    int port = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (port < 0 || tcgetattr(port, &mode) < 0)
        fail("ttyS1: %s", strerror(errno));
    cfmakeraw(&mode);
    tcsetattr(port, TCSANOW, &mode);
    return port;
}

/* Serves commands and reaps children until the power goes. */
static _Noreturn void serve(int port, int child_signals)
{
    static char line[LINE_BYTES];
    size_t used = 0;
    struct pollfd polled[] = {{port, POLLIN, 0}, {child_signals, POLLIN, 0}};

    for (;;) {
        struct signalfd_siginfo ignored;
        if (poll(polled, 2, -1) < 0)
            continue;
        if (polled[1].revents && read(child_signals, &ignored, sizeof(ignored)) > 0)
            reap();
        if (!polled[0].revents || read(port, line + used, 1) != 1)
            continue;
        if (line[used] == '\n') {
            line[used] = '\0';
            answer(port, line);
            used = 0;
        } else if (used + 1 < sizeof(line)) {
            used++;
        }
    }
}

static void must_load(const char *module)
{
    int result = load_module(module);

    if (result < 0)
        fail("%s: %s", module, strerror(-result));
}

static void mount_kernel_file_systems(void)
{
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/ttyS0", O_RDWR | O_NOCTTY);
    for (int fd = 0; fd < 3; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);
    setlinebuf(stdout);
}

/* Does what the words of the kernel command line with this prefix ask for. */
static void obey(const char *command_line, const char *prefix, int (*obey_one)(char *value))
{
    char copy[LINE_BYTES], value[LINE_BYTES]; /* both are cut up */
    char *rest = copy;

    snprintf(copy, sizeof(copy), "%s", command_line);
    for (char *word; (word = strsep(&rest, " "));) {
        if (strncmp(word, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(value, sizeof(value), "%s", word + strlen(prefix));
        int result = obey_one(value);
        if (result < 0)
            fail("%s: %s", word, strerror(-result));
    }
}

static int obey_mount(char *value)
{
    char *words[WORDS_MAX] = {NULL};

    return split(value, ",", words) < 3 ? -EINVAL
                                        : mount_disk(words[0], words[1], words[2], words[3]);
}

int main(void)
{
    /* Those that the image does not have are not needed by what it holds. */
    static const char *const MODULES[] = {"virtio_pci",     "virtio_blk",
                                          "virtio_scsi",    "sd_mod",
                                          "virtio_console", "vmw_vsock_virtio_transport",
                                          "virtio_net"};
    char command_line[LINE_BYTES];
    sigset_t child;

    mount_kernel_file_systems();
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    for (size_t i = 0; i < sizeof(MODULES) / sizeof(MODULES[0]); i++)
        must_load(MODULES[i]);
    if (!read_line("/proc/cmdline", command_line, sizeof(command_line)))
        fail("no /proc/cmdline");
    obey(command_line, "crust.mount=", obey_mount);
    obey(command_line, "crust.agent=", start_agent);
    int port = open_command_port();
    printf("guest-ready\n");
    serve(port, signalfd(-1, &child, SFD_CLOEXEC));
}
