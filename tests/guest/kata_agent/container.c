/* SPDX-License-Identifier: Apache-2.0 */
/* container.c - namespaces, mounts, capabilities, and a process that waits to be started.
 *
 * The child tells through a pipe that everything is in place, or the text of what is not, in the
 * words of Kata's agent (release 4.1.0). Its end is awaited by a thread, which stands in for the
 * agent's own reaper.
 */
#include "container.h"
#include "device_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "storage.h"

#define BUNDLES "/run/kata-containers"
#define CGROUPS "/sys/fs/cgroup"

static int device_cgroups = -1; /* the hierarchy */

static const struct {
    const char *name;
    unsigned long flag;
} mount_flags[] = {
    {"ro", MS_RDONLY},
    {"nosuid", MS_NOSUID},
    {"noexec", MS_NOEXEC},
    {"nodev", MS_NODEV},
    {"noatime", MS_NOATIME},
    {"relatime", MS_RELATIME},
    {"bind", MS_BIND},
    {"rbind", MS_BIND | MS_REC},
    {"rw", 0},
    {"private", 0},
    {"rprivate", 0},
    {"strictatime", MS_STRICTATIME},
};

enum { COUNT_FLAGS = sizeof(mount_flags) / sizeof(mount_flags[0]), LAST_CAPABILITY = 40 };

/* Paths below are joined of texts from the request; one that does not fit is refused. */
static bool join(char ret_path[2 * PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(ret_path, 2 * PATH_BYTES, format, arguments);
    va_end(arguments);
    return length < 2 * PATH_BYTES;
}

static bool say(char *ret_text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool say(char *ret_text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(ret_text, TEXT_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

/* As Rust's standard library shows an error of the system. */
static bool say_errno(char *ret_text, int number)
{
    return say(ret_text, "%s (os error %d)", strerror(number), number);
}

/* ---- in the child */

void container_split_options(const struct container_mount *mount, unsigned long *ret_flags,
                             char *ret_data, size_t size)
{
    *ret_flags = 0;
    ret_data[0] = '\0';
    for (unsigned i = 0; i < mount->option_count; i++) {
        unsigned known = 0;

        while (known < COUNT_FLAGS && strcmp(mount_flags[known].name, mount->options[i]) != 0)
            known++;
        if (known < COUNT_FLAGS) {
            *ret_flags |= mount_flags[known].flag;
        } else {
            size_t length = strlen(ret_data);

            (void)snprintf(ret_data + length, size - length, "%s%s", length ? "," : "",
                           mount->options[i]);
        }
    }
}

/* What a bind is of is a directory or not, and so is what it is bound to. 0, or -1 with errno. */
static int make_target(const struct container_mount *one, bool binds, char *destination)
{
    struct stat status = {.st_mode = S_IFDIR};
    char *slash = strrchr(destination, '/');
    int fd;

    if (binds && stat(one->source, &status) < 0)
        return -1;
    if (S_ISDIR(status.st_mode))
        return make_directories(destination);
    *slash = '\0';
    if (make_directories(destination) < 0)
        return -1;
    *slash = '/';
    fd = open(destination, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

static bool mount_one(const char *root, const struct container_mount *one, char *ret_text)
{
    char destination[2 * PATH_BYTES], data[PATH_BYTES];
    unsigned long flags;

    if (one->destination[0] != '/' || strstr(one->destination, "..") ||
        !join(destination, "%s%s", root, one->destination))
        return say(ret_text, "EINVAL: Invalid argument");
    container_split_options(one, &flags, data, sizeof(data));
    if (make_target(one, flags & MS_BIND, destination) < 0)
        return say_errno(ret_text, errno);
    if (mount(one->source, destination, one->type, flags, flags & MS_BIND ? NULL : data) < 0)
        return say(ret_text, "failed to mount %s to %s, with error: %s", one->source,
                   one->destination, strerror(errno));
    if ((flags & MS_BIND) && (flags & ~(unsigned long)(MS_BIND | MS_REC)) &&
        mount(NULL, destination, NULL, flags | MS_REMOUNT, NULL) < 0)
        return say_errno(ret_text, errno);
    return true;
}

static bool mount_all(const struct container_spec *spec, const char *root, char *ret_text)
{
    for (unsigned i = 0; i < spec->mount_count; i++) {
        const struct container_mount *one = &spec->mounts[i];

        if (!mount_one(root, one, ret_text))
            return false;
    }
    return true;
}

/* The agent itself makes nodes in the container's /dev; here that is left at having to be able to,
 * so that a program which needs a node is found out. */
static bool check_devices(const char *root, char *ret_text)
{
    char path[2 * PATH_BYTES];

    (void)join(path, "%s/dev", root);
    if (access(path, W_OK) < 0)
        return say_errno(ret_text, errno);
    return true;
}

/* Disks of the guest are let go of, so that the container keeps only what it was given of them. By
 * system calls, as in give_capabilities(): the lock of glibc's memory may be another thread's. */
static void leave_disks(const char *root)
{
    static char table[64 * 1024];
    int fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t part;

    while (fd >= 0 && (part = read(fd, table + length, sizeof(table) - 1 - length)) > 0)
        length += (size_t)part;
    if (fd >= 0)
        close(fd);
    for (char *line = table, *next; *line; line = next) {
        char *path = strchr(line, ' ');

        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        if (!path || strncmp(line, "/dev/", 5) != 0)
            continue;
        path++;
        path[strcspn(path, " ")] = '\0';
        if (strncmp(path, root, strlen(root)) != 0)
            (void)umount2(path, MNT_DETACH);
    }
}

static bool enter_root(const char *root, bool read_only, char *ret_text)
{
    leave_disks(root);
    if (chdir(root) < 0 || mount(root, "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        return say_errno(ret_text, errno);
    if (read_only && mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
        return say_errno(ret_text, errno);
    return true;
}

static bool set_up(const struct container_spec *spec, const char *root, char *ret_text)
{
    if (!(spec->namespaces & CLONE_NEWNS))
        return access(spec->arguments[0], F_OK) == 0 ||
               say(ret_text, "the file %s was not found", spec->arguments[0]);
    if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0 ||
        mount(root, root, NULL, MS_BIND | MS_REC, NULL) < 0)
        return say_errno(ret_text, errno);
    if (!mount_all(spec, root, ret_text) || !check_devices(root, ret_text) ||
        !enter_root(root, spec->root_read_only, ret_text))
        return false;
    if (access(spec->arguments[0], F_OK) < 0)
        return say(ret_text, "the file %s was not found", spec->arguments[0]);
    return true;
}

/* By system calls: glibc's setgroups(), setresgid() and setresuid() have all threads of the process
 * take part, and wait for ever for one of the agent's that was just being created when the child
 * was cloned. */
static void give_capabilities(const struct container_spec *spec)
{
    const struct container_capabilities *all = &spec->capabilities;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)all->effective, (uint32_t)all->permitted, (uint32_t)all->inheritable},
        {(uint32_t)(all->effective >> 32), (uint32_t)(all->permitted >> 32),
         (uint32_t)(all->inheritable >> 32)},
    };

    for (int number = 0; number <= LAST_CAPABILITY; number++) {
        if (!(all->bounding & UINT64_C(1) << number) && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            _exit(1);
    }
    if (syscall(SYS_setgroups, 0, NULL) < 0 ||
        syscall(SYS_setresgid, spec->group, spec->group, spec->group) < 0 ||
        syscall(SYS_setresuid, spec->user, spec->user, spec->user) < 0 ||
        syscall(SYS_capset, &header, data) < 0)
        _exit(1);
    if (spec->no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(1);
}

/* What the child has of the agent's. */
struct ends {
    int ready, start, input, outputs[2];
};

static _Noreturn void child_main(const struct container_spec *spec, const char *root,
                                 const struct ends *ends)
{
    char text[TEXT_BYTES] = "", byte;
    sigset_t none;

    if (!set_up(spec, root, text)) {
        (void)!write(ends->ready, text, strlen(text));
        _exit(1);
    }
    close(ends->ready); /* nothing came: all is well */
    if (read(ends->start, &byte, 1) != 1)
        _exit(1);
    dup2(ends->input, STDIN_FILENO);
    dup2(ends->outputs[0], STDOUT_FILENO);
    dup2(ends->outputs[1], STDERR_FILENO);
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    give_capabilities(spec);
    if (chdir(spec->directory[0] ? spec->directory : "/") < 0)
        _exit(errno);
    execve(spec->arguments[0], spec->arguments, spec->environment);
    _exit(errno); /* as the agent built with musl: 8 for another architecture's program */
}

/* ---- in the agent */

static void *reap(void *argument)
{
    struct container *container = argument;
    uint64_t one = 1;
    int status;

    while (waitpid(container->process, &status, 0) < 0 && errno == EINTR)
        ;
    container->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("kata-agent: %s ended with %d\n", container->id, container->status);
    (void)!write(container->ended, &one, sizeof(one));
    return NULL;
}

static void close_all(struct container *container)
{
    const int all[] = {container->start, container->input, container->outputs[0],
                       container->outputs[1]};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i] >= 0)
            close(all[i]);
    }
}

static bool open_pipes(struct container *container, struct ends *ret_ends, int *ret_ready)
{
    int pipes[5][2];

    for (int i = 0; i < 5; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            abort();
    }
    *ret_ready = pipes[0][0];
    container->start = pipes[1][1];
    container->input = pipes[2][1];
    container->outputs[0] = pipes[3][0];
    container->outputs[1] = pipes[4][0];
    *ret_ends = (struct ends){pipes[0][1], pipes[1][0], pipes[2][0], {pipes[3][1], pipes[4][1]}};
    return true;
}

/* Its end has come: what the child holds, here. */
static void close_ends(const struct ends *ends)
{
    close(ends->ready);
    close(ends->start);
    close(ends->input);
    close(ends->outputs[0]);
    close(ends->outputs[1]);
}

static bool start_child(const struct container_spec *spec, const char *root,
                        struct container *container, char *ret_text)
{
    struct ends ends;
    pthread_t reaper;
    ssize_t length;
    int ready;

    (void)open_pipes(container, &ends, &ready);
    container->ended = eventfd(0, EFD_CLOEXEC);
    container->process = (pid_t)syscall(SYS_clone, spec->namespaces | SIGCHLD, NULL, NULL, NULL, 0);
    if (container->process == 0)
        child_main(spec, root, &ends);
    close_ends(&ends);
    if (container->process < 0)
        return say_errno(ret_text, errno);
    length = read(ready, ret_text, TEXT_BYTES - 1);
    close(ready);
    if (length <= 0 && device_cgroups >= 0 &&
        device_cgroup_move(device_cgroups, spec->id, container->process) < 0)
        abort(); /* it would test nothing */
    if (length <= 0)
        return pthread_create(&reaper, NULL, reap, container) == 0 && pthread_detach(reaper) == 0;
    ret_text[length] = '\0';
    (void)waitpid(container->process, NULL, 0);
    close(container->ended);
    close_all(container);
    return false;
}

static void bundle_path(const char *id, const char *name, char ret_path[2 * PATH_BYTES])
{
    (void)join(ret_path, BUNDLES "/%s%s", id, name);
}

static void remove_bundle(const char *id)
{
    char path[2 * PATH_BYTES];

    bundle_path(id, "/rootfs", path);
    (void)umount2(path, MNT_DETACH);
    (void)rmdir(path);
    bundle_path(id, "", path);
    (void)rmdir(path);
}

static bool make_bundle(const struct container_spec *spec, char root[2 * PATH_BYTES],
                        char *ret_text)
{
    bundle_path(spec->id, "/rootfs", root);
    if (make_directories(root) < 0)
        return say_errno(ret_text, errno);
    if (mount(spec->root, root, NULL, MS_BIND | MS_REC, NULL) == 0)
        return true;
    (void)say(ret_text, "failed to mount %s to %s, with error: %s", spec->root, root,
              errno == ENOENT ? "ENOENT: No such file or directory" : strerror(errno));
    remove_bundle(spec->id);
    return false;
}

bool container_has_cgroups(void)
{
    return access(CGROUPS "/cgroup.procs", F_OK) == 0;
}

/* Of cgroup v2, in which the agent leaves the process where it is. */
static bool make_cgroup(const struct container_spec *spec, const struct container_options *options,
                        struct container *container, char *ret_text)
{
    char path[2 * PATH_BYTES];

    if (options->without_cgroups)
        return say(ret_text, "Create cgroupfs manager\n\nCaused by:\n    0: Get paths and mounts\n"
                             "    1: No such file or directory (os error 2)");
    if (!container_has_cgroups())
        return true;
    if (!join(path, CGROUPS "/%s", spec->cgroup[0] ? spec->cgroup : spec->id) ||
        strlen(path) >= sizeof(container->cgroup))
        return say(ret_text, "EINVAL: Invalid argument");
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return say_errno(ret_text, errno);
    strcpy(container->cgroup, path);
    return true;
}

static bool check(const struct container_spec *spec, char *ret_text)
{
    if (strlen(spec->id) < 2 || strchr(spec->id, '/') || spec->id[0] == '.')
        return say(ret_text, "invalid container ID %s", spec->id);
    if (!spec->has_process || !spec->argument_count)
        return say(ret_text, "EINVAL: Invalid argument");
    if (!spec->joins_pids && !(spec->namespaces & CLONE_NEWPID))
        return say(ret_text, "cannot find the pid ns");
    if (!spec->capabilities.present)
        return say(ret_text, "missing process capabilities");
    return true;
}

bool container_create(const struct container_spec *spec, const struct container_options *options,
                      struct container *ret_container, char *ret_text)
{
    struct container *container = ret_container;
    char root[2 * PATH_BYTES];

    *container = (struct container){.start = -1, .input = -1, .outputs = {-1, -1}, .ended = -1};
    (void)snprintf(container->id, sizeof(container->id), "%s", spec->id);
    if (!check(spec, ret_text) || (spec->has_storage && !storage_mount(&spec->storage, ret_text)))
        return false;
    if (spec->has_storage)
        strcpy(container->storage, spec->storage.mount.destination);
    if (!make_bundle(spec, root, ret_text)) {
        storage_unmount(container->storage);
        return false;
    }
    if (device_cgroups < 0)
        device_cgroups = device_cgroup_open();
    if (device_cgroups >= 0 && device_cgroup_make(device_cgroups, spec->id) < 0)
        abort();
    if (make_cgroup(spec, options, container, ret_text) &&
        start_child(spec, root, container, ret_text))
        return true;
    if (container->cgroup[0])
        (void)rmdir(container->cgroup);
    device_cgroup_remove(device_cgroups, spec->id);
    remove_bundle(spec->id);
    storage_unmount(container->storage);
    return false;
}

void container_start(struct container *container)
{
    (void)!write(container->start, "", 1);
}

void container_remove(struct container *container)
{
    (void)kill(container->process, SIGKILL);
    (void)rmdir(container->cgroup);
    device_cgroup_remove(device_cgroups, container->id);
    remove_bundle(container->id);
    storage_unmount(container->storage);
    close_all(container);
}
