/* SPDX-License-Identifier: Apache-2.0 */
/* container_fixture.h - a container: a process with a mount namespace of its own, which a made-up
 * /proc shows with the cgroup and the parent that kata-agent's containers have. */
#pragma once

#include "tests/unit/tree.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What the made-up /proc says of the process: its cgroup, and what its parent's and its own
 * numbers are. Everything else is the real one's. */
static inline void show_process(pid_t pid, const char *cgroup, const char *ids)
{
    static const char *const real[] = {"ns", "mountinfo", "fd", "cwd", "root", "exe", "comm"};
    char path[64], target[64], text[512];

    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    tree_make(path);
    for (size_t i = 0; i < array_length(real); i++) {
        (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, real[i]);
        (void)snprintf(target, sizeof(target), "/proc/%d/%s", pid, real[i]);
        assert_int_equal(symlink(target, tree_path(path)), 0);
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    (void)snprintf(text, sizeof(text), "0::%s\n", cgroup);
    tree_write(path, text);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    (void)snprintf(text, sizeof(text), "Name:\tsh\nPPid:\t%s\n", ids);
    tree_write(path, text);
}

static inline void hide_process(pid_t pid)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    assert_true(run_command("rm -r '%s%s'", scratch, path));
}

/* This process is the agent, in the first pid namespace, and process 1 is of it as well. */
static inline void show_agent(void)
{
    tree_make("/proc/self");
    assert_int_equal(symlink("/proc/self/ns", tree_path("/proc/self/ns")), 0);
    assert_int_equal(symlink("/proc/self/mountinfo", tree_path("/proc/self/mountinfo")), 0);
    tree_write("/proc/self/status", "Name:\tagent\nPPid:\t0\nNSpid:\t1\n");
    assert_int_equal(symlink("self", tree_path("/proc/1")), 0);
}

/* The words of `status` of a container's first process. */
#define FIRST "1\nNSpid:\t100\t1"

/* A root of its own, which has the scratch directory with all that is mounted there, and /proc. */
static inline int take_root(void)
{
    static const char *const shared[] = {"/proc", scratch};
    char path[SCRATCH_BYTES * 2 + 8];

    if ((mkdir(tree_path("/root"), 0700) < 0 && errno != EEXIST) ||
        mount("none", tree_path("/root"), "tmpfs", 0, NULL) < 0)
        return -1;
    for (size_t i = 0; i < array_length(shared); i++) {
        (void)snprintf(path, sizeof(path), "%s/root%s", scratch, shared[i]);
        if (!run_command("mkdir -p '%s'", path) ||
            mount(shared[i], path, NULL, MS_BIND | MS_REC, NULL) < 0)
            return -1;
    }
    return chdir(tree_path("/root")) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 &&
                   umount2(".", MNT_DETACH) == 0
               ? chdir("/")
               : -1;
}

/* A process of its own, which prepares itself and then waits; the caller goes on from there. It
 * ends when the test does. */
static inline pid_t start_process(bool (*prepare)(const void *userdata), const void *userdata)
{
    int ends[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close_range((unsigned)ends[1] + 1, ~0U, 0);
        if (!prepare(userdata))
            _exit(1);
        (void)!write(ends[1], "", 1);
        for (;;)
            (void)pause();
    }
    fd_close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    fd_close(ends[0]);
    return pid;
}

static inline void stop_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* is_made: it has left the guest's root. */
struct container_start {
    bool is_made;
    void (*begin)(void);
};

static inline bool prepare_container(const void *userdata)
{
    const struct container_start *start = userdata;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    if (start->begin)
        start->begin();
    return !start->is_made || take_root() == 0;
}

/* A process with its own mounts, which does what `begin` does there. */
static inline pid_t start_container_as(bool is_made, void (*begin)(void))
{
    const struct container_start start = {is_made, begin};

    return start_process(prepare_container, &start);
}

static inline pid_t start_container(void (*begin)(void))
{
    return start_container_as(true, begin);
}

/* The same path as the container sees it. */
static inline const char *in_container(pid_t pid, const char *path)
{
    static char full[1200];

    (void)snprintf(full, sizeof(full), "/proc/%d/root%s", pid, path);
    return full;
}
