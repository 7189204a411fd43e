/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - what /proc says about one process. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/result.h"

struct process {
    bool alive;        /* exists and is not a zombie */
    bool waits;        /* in the kernel, where at most SIGKILL can end it */
    bool stopped;      /* by a signal or a debugger */
    pid_t parent;      /* the current one: it changes when the parent ends */
    unsigned threads;  /* of a zombie: 1, unless other threads have not ended */
    uint64_t start_ns; /* CLOCK_BOOTTIME */
};

/* The failures that callers distinguish. */
enum process_failure {
    PROCESS_GONE = -ENOENT,     /* no such process, or it ended meanwhile */
    PROCESS_DENIED = -EACCES,   /* the process may not be examined */
    PROCESS_HANGS = -ETIMEDOUT, /* its memory stays locked (see process reader): ask again later */
};

/* Appends the whole of /proc/PID/NAME. 0, PROCESS_GONE, BUFFER_FULL, another -errno. */
int process_read_file(pid_t pid, const char *name, struct buffer *ret_text);

/* Examines what the link /proc/PID/NAME leads to: type, mode, device and inode as cached by the
 * kernel, without asking the file system, which may hang (FUSE, NFS). 0, an enum process_failure,
 * another -errno. */
int process_stat(pid_t pid, const char *name, struct stat *ret_stat);

/* 0, PROCESS_GONE, another -errno. */
int process_read(pid_t pid, struct process *ret_process);

/* Whether the process answers nobody because it is stopped or waits for a disk; ret_error says
 * which, and what to do. */
bool process_stands_still(pid_t pid, struct error *ret_error);

/* Whether this process has ended: no thread is left, so its descriptors are closed. A killed
 * process lives on while a thread waits for a disk. 1, 0, or -errno: unknown. */
int process_has_ended(pid_t pid, uint64_t start_ns);

/* Reads the arguments, each followed by a NUL. Returns as process_read_file(), or PROCESS_HANGS.
 * Other files that take the lock of the process's memory (environ, maps, mem) should not be read.
 */
int process_read_arguments(pid_t pid, struct buffer *ret_arguments);

/* Reads the first `bytes` bytes of the arguments. */
int process_read_first_arguments(pid_t pid, size_t bytes, struct buffer *ret_arguments);

/* Whether the process still has these arguments, or ones that begin with them. Between reading them
 * and judging the process (trust, below) it may have executed another program, or its pid may
 * have been reused: then the judgement does not apply to the arguments. 1, 0, or PROCESS_HANGS or
 * another -errno: unknown. */
int process_still_has_arguments(pid_t pid, const struct buffer *arguments);

/* Whether one of the arguments contains `token` as a whole token: bounded on either side by the
 * argument's end or one of / , = :, and on the left also by "sandbox-". Firecracker gets only the
 * first 32 characters, as the whole argument of --id. */
bool process_arguments_name(const struct buffer *arguments, const char *token);

/* Whether argv[0] is Firecracker's jailer, which executes or starts the VMM. */
bool process_arguments_are_jailers(const struct buffer *arguments);

/* The last component of argv[0]; "" if there is none. */
const char *process_arguments_program(const struct buffer *arguments);

/* ---- process list --------------------------------------------------------------------------- */

/* Iterates over all processes and reads their arguments.
 *
 * If process_reader_is_used(), it is asked for the arguments of several processes at once,
 * because each request costs two context switches.
 */

struct process_list;

int process_list_new(struct process_list **ret_list); /* 0 or -errno */
struct process_list *process_list_free(struct process_list *list);

/* The next process listed in /proc; 0: none is left. 0 or -errno. */
int process_list_next(struct process_list *list, pid_t *ret_pid);

/* Appends at most `bytes` bytes of the arguments of the process that `next` returned last. Returns
 * as process_read_first_arguments(). */
int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments);

/* ---- process trust -------------------------------------------------------------------------- */

/* Whether the arguments of a process can be trusted.
 *
 * Any user may start a program with any arguments, in any directory. So they are trusted only if
 * root of the node started the process.
 */

enum process_trust {
    PROCESS_ROOTS,        /* root's, on the node itself */
    PROCESS_USERS,        /* not root's, or with different user ids */
    PROCESS_CONTAINED,    /* in a container: a pid namespace of its own */
    PROCESS_PRIVILEGED,   /* a set-user-id program, whose caller chose arguments and directory */
    PROCESS_ROOTED_APART, /* with another root directory than the node's first process */
};

/* An enum process_trust, PROCESS_GONE or another -errno. The daemon's own user counts as root: it
 * runs as root, tests need not. ret_user: the real user; may be NULL. */
int process_judge(pid_t pid, uid_t *ret_user);

/* The same for a process that never leaves the node's root directory, such as a shim. */
int process_judge_unjailed(pid_t pid, uid_t *ret_user);

/* Reads the part of the arguments of `pid`, the list's process, that can prevent a removal: root's
 * up to the buffer's limit, other users' only the beginning, so that no user can make them too long
 * to read. 0, BUFFER_FULL, PROCESS_GONE, PROCESS_HANGS or another -errno. */
int process_read_counted_arguments(const struct process_list *list, pid_t pid,
                                   struct buffer *ret_arguments);

/* Why it is not trusted, such as "it belongs to another user than root". */
const char *process_trust_text(enum process_trust trust);

/* ---- namespaces ----------------------------------------------------------------------------- */

/* Whether this process sees the node, or only a part of it.
 *
 * The kernel's first namespaces have fixed inodes (include/linux/proc_ns.h).
 */

/* /proc shows all processes of the node: this is its pid namespace, and /proc belongs to it. */
bool namespaces_show_all_processes(void);

/* Whether this is the first user namespace: it receives the kernel's events, and its root may
 * inspect every process. */
bool namespaces_user_is_first(void);

/* Whether process 1 has this very file at the path, whatever mounts this process has. False also if
 * the root of process 1 cannot be reached (CAP_SYS_PTRACE). */
bool namespaces_first_has(const char *path, const struct stat *file);

/* ---- helper processes ----------------------------------------------------------------------- */

enum { PROCESS_HELPER_SOCKET = 3 };

/* Forks a process that runs this function. It has one descriptor besides the standard ones, a
 * SOCK_SEQPACKET whose other end is *ret_socket. It is killed when its parent ends, but not by a
 * signal that is sent to both. Signals stay blocked in it, but for SIGXCPU, so that no handler of
 * the program runs there. 0 or -errno. */
int process_fork_helper(const char *name, void (*run)(void), pid_t *ret_pid, int *ret_socket);

/* ---- process reader ------------------------------------------------------------------------- */

/* Reads the arguments of processes without waiting for what one of them does.
 *
 * Reading /proc/PID/cmdline waits for the lock of that process's memory, and the user who
 * runs the process can hold it: by a large munmap(2), many in a row, or a fork(2). So a child
 * process, the reader, does the waiting. It is killed if it waits too long; SIGKILL ends that wait.
 * The other files that crustd reads need no such lock: stat, status, cgroup, comm, the links.
 */

/* Starts the reader. From then on only the reader reads that file, and it is restarted if it
 * ends; before, and in programs that never call this, it is read directly. To be called early,
 * because the reader keeps a copy of the program's memory. 0 or -errno. */
int process_reader_start(void);

/* Ends the reader for good. */
void process_reader_stop(void);

bool process_reader_is_used(void);

struct process_reading {
    pid_t pid;
    int result;    /* 0, an enum process_failure, BUFFER_FULL (of the text), another -errno */
    size_t length; /* appended for this process */
};

/* Reads the first `bytes` bytes of each process's arguments and concatenates them. 0, or the
 * reason why none of the results is valid: PROCESS_HANGS if one of the processes hung, or
 * another -errno. */
int process_reader_read(struct process_reading *readings, unsigned count, size_t bytes,
                        struct buffer *ret_text);
