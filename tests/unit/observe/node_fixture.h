/* SPDX-License-Identifier: Apache-2.0 */
/* node_fixture.h - Kata's directories below a root, with real processes for VMM and shim.
 *
 * Paths are those that crustd sees; in_scratch() leads to them. A process is a stopped child with
 * the arguments, and the working directory, that the real one would have.
 */
#pragma once

#include "tests/unit/one_at_a_time.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/observe.h"
#include "tests/unit/scratch.h"

enum { PROCESSES = 80, NOBODY = 65534 };

static char scratch[SCRATCH_BYTES];
static struct observe_sandbox_paths paths;
static struct observed_sandbox sandbox;
static pid_t process[PROCESSES];
static unsigned processes;

static const char *in_scratch(const char *path)
{
    static char full[1024];

    (void)snprintf(full, sizeof(full), "%s%s", scratch, path);
    return full;
}

/* All processes: other tests' may be more than one call reads. */
static inline int observe_whole(const char *sandbox_id)
{
    int r;

    do {
        observed_sandbox_done(&sandbox);
        r = observe_sandbox(&paths, sandbox_id, &sandbox);
    } while (r == OBSERVED_UNFINISHED);
    return r;
}

static inline void make_directory(const char *path)
{
    assert_int_equal(path_make_directories(paths.root, path, 0700), 0);
}

static inline void write_file(const char *path, const char *text)
{
    cleanup(fd_closep) int fd =
        open(in_scratch(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static inline void write_pid(const char *path, pid_t pid)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d\n", (int)pid);
    write_file(path, text);
}

/* Through its directory: the whole path is longer than an address can be. */
static inline void make_socket(const char *directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cleanup(fd_closep) int directory_fd = open(in_scratch(directory), O_PATH | O_CLOEXEC);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory_fd,
                   name);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
}

/* Who runs a process, and which file. */
struct started_as {
    uid_t user;
    const char *file;
};

/* A shell that stops itself; what follows its script means nothing to it. Waits until it has done
 * so, because only then its arguments are in place for certain. */
static pid_t start_process_as(struct started_as as, const char *directory, const char *program,
                              const char *option, const char *value, const char *more)
{
    siginfo_t info;
    pid_t pid;

    assert_true(processes < PROCESSES);
    pid = fork();
    if (pid == 0) {
        if (chdir(in_scratch(directory)) == 0 && setresuid(as.user, as.user, as.user) == 0)
            execl(as.file, program, "-c", "kill -STOP $$", option, value, more, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_code, CLD_STOPPED);
    return pid;
}

static inline pid_t start_process(const char *directory, const char *program, const char *option,
                                  const char *value, const char *more)
{
    return start_process_as((struct started_as){geteuid(), "/bin/sh"}, directory, program, option,
                            value, more);
}

static void stop_processes(void)
{
    while (processes) {
        (void)kill(process[--processes], SIGKILL);
        (void)waitpid(process[processes], NULL, 0);
    }
}

static int start(void **state)
{
    paths = (struct observe_sandbox_paths){.kata_go_sandboxes = "/run/vc/sbs",
                                           .kata_go_vms = "/run/vc/vm",
                                           .kata_rs_sandboxes = "/run/kata",
                                           .extra_monitor = true,
                                           .agent_port = 1024};
    return scratch_directory_make(scratch) < 0 || path_open_root(scratch, &paths.root) < 0 ||
                   observe_cache_new("", &paths.cache) < 0
               ? -1
               : 0;
}

static int stop(void **state)
{
    stop_processes();
    observed_sandbox_done(&sandbox);
    paths.cache = observe_cache_free(paths.cache);
    fd_close(paths.root);
    return scratch_directory_remove(scratch);
}
