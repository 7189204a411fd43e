/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - processes identified by their arguments, within this boot.
 *
 * A pid from a file proves nothing: it may be stale and reused by another process. A process is
 * tied to a sandbox if it was started with the sandbox's id, by a user whose arguments are believed
 * (process.h). The name of its program is no evidence (a container's own mount namespace,
 * renamed binaries).
 *
 * /proc is always the kernel's own, whatever --root is.
 */
#include "lib/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

/* The error of read(2) on a file in /proc whose process has ended. */
enum { ENDED_MEANWHILE = -ESRCH };

enum {
    STAT_BYTES = 2048,
    STAT_FIELD_STATE = 3,
    STAT_FIELD_PARENT = 4,
    STAT_FIELD_THREADS = 20,
    STAT_FIELD_START = 22,
    FIRECRACKER_ID_CHARS = 32,
};

static int open_file(pid_t pid, const char *name, int *ret_fd)
{
    char path[64];

    if (pid <= 0)
        return PROCESS_GONE;
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

int process_read_file(pid_t pid, const char *name, struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = -1;
    int r = open_file(pid, name, &fd);

    if (r == 0)
        r = buffer_read_all(ret_text, fd);
    return r == ENDED_MEANWHILE ? PROCESS_GONE : r;
}

int process_stat(pid_t pid, const char *name, struct stat *ret_stat)
{
    char path[64];
    struct statx x;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE | STATX_INO, &x) < 0)
        return errno == ESRCH ? PROCESS_GONE : errno == EPERM ? PROCESS_DENIED : -errno;
    *ret_stat = (struct stat){
        .st_mode = x.stx_mode,
        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .st_ino = x.stx_ino,
    };
    return 0;
}

/* Field `number` (from 1) of /proc/PID/stat, counted after the name, which may contain anything. */
static const char *stat_field(const char *text, int number)
{
    const char *field = strrchr(text, ')');

    for (int i = 2; field && i < number; i++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    return field;
}

int process_read(pid_t pid, struct process *ret_process)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(STAT_BYTES);
    const char *state, *parent, *threads, *start;
    uint64_t ticks_per_second = (uint64_t)sysconf(_SC_CLK_TCK), ticks;
    int r = process_read_file(pid, "stat", &text);

    if (r < 0)
        return r;
    state = stat_field(buffer_text(&text), STAT_FIELD_STATE);
    parent = stat_field(buffer_text(&text), STAT_FIELD_PARENT);
    threads = stat_field(buffer_text(&text), STAT_FIELD_THREADS);
    start = stat_field(buffer_text(&text), STAT_FIELD_START);
    if (!state || !parent || !threads || !start)
        return -EBADMSG;
    ret_process->parent = (pid_t)strtol(parent, NULL, 10);
    ret_process->threads = (unsigned)strtoul(threads, NULL, 10);
    ticks = strtoull(start, NULL, 10);
    ret_process->waits = *state == 'D';
    ret_process->stopped = *state == 'T' || *state == 't';
    ret_process->alive = *state != 'Z' && *state != 'X' && *state != 'x';
    ret_process->start_ns = ticks * (NSEC_PER_SEC / ticks_per_second);
    return 0;
}

bool process_stands_still(pid_t pid, struct error *ret_error)
{
    struct process process;

    if (process_read(pid, &process) < 0 || !(process.stopped || process.waits))
        return false;
    if (process.stopped)
        (void)error_set(ret_error, 0,
                        "process %d is stopped (SIGSTOP, a debugger): kill -CONT %d has it go on",
                        (int)pid, (int)pid);
    else
        (void)error_set(
            ret_error, 0,
            "process %d waits for a disk (state D): look at the storage and at dmesg; it "
            "goes on when the disk answers",
            (int)pid);
    return true;
}

int process_has_ended(pid_t pid, uint64_t start_ns)
{
    struct process process;
    int r = process_read(pid, &process);

    if (r < 0)
        return r == PROCESS_GONE ? 1 : r;
    return process.start_ns != start_ns || (!process.alive && process.threads <= 1);
}

static int read_directly(pid_t pid, size_t bytes, struct buffer *ret_text)
{
    cleanup(fd_closep) int fd = -1;
    char part[4096];
    ssize_t count = 1;
    int r = open_file(pid, "cmdline", &fd);

    while (r == 0 && count > 0 && bytes > 0) {
        count = read(fd, part, bytes < sizeof(part) ? bytes : sizeof(part));
        if (count < 0)
            r = -errno;
        else
            r = buffer_append(ret_text, part, (size_t)count);
        bytes -= r == 0 ? (size_t)count : 0;
    }
    return r == ENDED_MEANWHILE ? PROCESS_GONE : r;
}

int process_read_first_arguments(pid_t pid, size_t bytes, struct buffer *ret_arguments)
{
    struct process_reading reading = {.pid = pid};
    int r;

    if (pid <= 0)
        return PROCESS_GONE;
    if (!process_reader_is_used())
        return read_directly(pid, bytes, ret_arguments);
    r = process_reader_read(&reading, 1, bytes, ret_arguments);
    return r < 0 ? r : reading.result;
}

int process_read_arguments(pid_t pid, struct buffer *ret_arguments)
{
    enum { MOST_BYTES = 16 * 1024 * 1024 };
    const size_t limit = ret_arguments->limit ? ret_arguments->limit : MOST_BYTES;
    const struct buffer_mark before = buffer_mark(ret_arguments);
    int r = process_read_first_arguments(pid, limit + 1, ret_arguments);

    if (r < 0)
        buffer_rewind(ret_arguments, before);
    return r;
}

int process_still_has_arguments(pid_t pid, const struct buffer *arguments)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(arguments->length);
    int r = process_read_first_arguments(pid, arguments->length, &now);

    if (r < 0)
        return r == PROCESS_GONE ? 0 : r;
    return now.length == arguments->length &&
           memcmp(buffer_text(&now), buffer_text(arguments), now.length) == 0;
}

static bool may_precede(const char *argument, const char *token)
{
    static const char prefix[] = "sandbox-";
    size_t before = (size_t)(token - argument), length = strlen(prefix);

    if (before == 0 || strchr("/,=:", token[-1]))
        return true;
    return before >= length && strncmp(token - length, prefix, length) == 0 &&
           may_precede(argument, token - length);
}

static bool argument_names(const char *argument, const char *token)
{
    size_t length = strlen(token);

    for (const char *at = strstr(argument, token); at; at = strstr(at + 1, token))
        if (may_precede(argument, at) && strchr("/,=:", at[length]))
            return true; /* strchr also finds the NUL */
    return false;
}

static bool is_firecracker_id(const char *previous, const char *argument, const char *token)
{
    return previous && strcmp(previous, "--id") == 0 && strlen(token) > FIRECRACKER_ID_CHARS &&
           strlen(argument) == FIRECRACKER_ID_CHARS &&
           strncmp(argument, token, FIRECRACKER_ID_CHARS) == 0;
}

bool process_arguments_name(const struct buffer *arguments, const char *token)
{
    const char *argument = buffer_text(arguments), *previous = NULL;
    const char *end = argument + arguments->length;

    for (; argument < end; previous = argument, argument += strlen(argument) + 1)
        if (argument_names(argument, token) || is_firecracker_id(previous, argument, token))
            return true;
    return false;
}

const char *process_arguments_program(const struct buffer *arguments)
{
    return basename(buffer_text(arguments));
}

bool process_arguments_are_jailers(const struct buffer *arguments)
{
    return strcmp(process_arguments_program(arguments), "jailer") == 0;
}

/* ---- helper processes ----------------------------------------------------------------------- */

static _Noreturn void become_helper(const char *name, void (*run)(void), int socket, pid_t parent)
{
    if (dup2(socket, PROCESS_HELPER_SOCKET) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        getppid() != parent)
        _exit(1);
    (void)prctl(PR_SET_NAME, name);
    (void)close_range(PROCESS_HELPER_SOCKET + 1, ~0U, 0);
    run();
    _exit(0);
}

int process_fork_helper(const char *name, void (*run)(void), pid_t *ret_pid, int *ret_socket)
{
    sigset_t blocked, before;
    pid_t parent = getpid(), pid;
    int ends[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    (void)sigfillset(&blocked);
    (void)sigdelset(&blocked, SIGXCPU);
    (void)sigprocmask(SIG_SETMASK, &blocked, &before);
    pid = fork();
    if (pid == 0)
        become_helper(name, run, ends[1], parent);
    r = pid < 0 ? -errno : 0;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    fd_close(ends[1]);
    if (r < 0) {
        fd_close(ends[0]);
        return r;
    }
    *ret_pid = pid;
    *ret_socket = ends[0];
    return 0;
}

/* ---- namespaces ----------------------------------------------------------------------------- */

#define FIRST_USER_NAMESPACE 0xEFFFFFFDU
#define FIRST_PID_NAMESPACE  0xEFFFFFFCU

static bool has_inode(const char *path, ino_t inode)
{
    struct stat status;

    return stat(path, &status) == 0 && status.st_ino == inode;
}

/* The /proc of another namespace has no entry for this process, or one with another number. A /proc
 * that hides processes of others hides process 1. */
static bool proc_is_ours(void)
{
    char self[32];
    ssize_t length = readlink("/proc/self", self, sizeof(self) - 1);

    if (length <= 0)
        return false;
    self[length] = '\0';
    return strtol(self, NULL, 10) == getpid() && access("/proc/1/stat", R_OK) == 0;
}

bool namespaces_show_all_processes(void)
{
    return proc_is_ours() && has_inode("/proc/self/ns/pid", FIRST_PID_NAMESPACE);
}

bool namespaces_user_is_first(void)
{
    return has_inode("/proc/self/ns/user", FIRST_USER_NAMESPACE);
}

bool namespaces_first_has(const char *path, const struct stat *file)
{
    cleanup(fd_closep) int root = -1;
    struct stat there;

    return proc_is_ours() && path_open_root("/proc/1/root", &root) == 0 &&
           path_stat_in_root(root, path, &there) == 0 && there.st_dev == file->st_dev &&
           there.st_ino == file->st_ino;
}

/* ---- process list --------------------------------------------------------------------------- */

/* PART_BYTES: the bytes requested ahead for each process. Kata's shims have 200, its QEMUs some
 * thousands. */
enum { AHEAD = 32, PART_BYTES = 8 * 1024 };

struct process_list {
    DIR *proc;
    unsigned count, next;
    struct process_reading process[AHEAD];
    struct buffer text; /* of all of them, concatenated */
    size_t at;          /* where the text of the current process begins */
};

int process_list_new(struct process_list **ret_list)
{
    struct process_list *list = calloc(1, sizeof(*list));

    if (!list)
        return -ENOMEM;
    buffer_init(&list->text, (size_t)AHEAD * PART_BYTES);
    list->proc = opendir("/proc");
    if (!list->proc) {
        int r = -errno;

        process_list_free(list);
        return r;
    }
    *ret_list = list;
    return 0;
}

struct process_list *process_list_free(struct process_list *list)
{
    if (!list)
        return NULL;
    dir_closep(&list->proc);
    buffer_done(&list->text);
    free(list);
    return NULL;
}

/* Lists some more processes. 0 or -errno. */
static int list_some(struct process_list *list)
{
    const struct dirent *name;

    list->count = list->next = 0;
    do {
        char *end;
        long pid;

        errno = 0;
        name = readdir(list->proc);
        pid = name ? strtol(name->d_name, &end, 10) : 0;
        if (pid > 0 && pid <= INT_MAX && !*end)
            list->process[list->count++] = (struct process_reading){.pid = (pid_t)pid};
    } while (name && list->count < AHEAD);
    return name || list->count ? 0 : -errno;
}

int process_list_next(struct process_list *list, pid_t *ret_pid)
{
    int r = 0;

    *ret_pid = 0;
    if (list->next)
        list->at += list->process[list->next - 1].length;
    if (list->next == list->count) {
        r = list_some(list);
        buffer_clear(&list->text);
        list->at = 0;
        /* If this fails, each process is read separately, which finds the one that hangs. */
        if (r == 0 && process_reader_is_used() && list->count &&
            process_reader_read(list->process, list->count, PART_BYTES, &list->text) < 0)
            for (unsigned i = 0; i < list->count; i++)
                list->process[i].length = PART_BYTES;
    }
    if (list->next < list->count)
        *ret_pid = list->process[list->next++].pid;
    return r;
}

int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments)
{
    const struct process_reading *process = &list->process[list->next - 1];

    if (!process_reader_is_used() || process->length >= PART_BYTES)
        return process_read_first_arguments(process->pid, bytes, ret_arguments);
    if (process->result < 0)
        return process->result;
    return buffer_append(ret_arguments, buffer_text(&list->text) + list->at,
                         process->length < bytes ? process->length : bytes);
}

/* ---- process trust -------------------------------------------------------------------------- */

/* Root in a container without a user namespace has uid 0 on the node as well, so the pid namespace
 * counts too: NSpid in /proc/PID/status lists the pid in the namespace of /proc and in each one
 * below it. After a set-user-id program has called setuid(2), all its ids are 0 although its caller
 * chose the arguments; only the mode of its file reveals that.
 */

/* STATUS_BYTES: the status lists up to 65,536 groups of eleven bytes, before NSpid. Root of a
 * container, or of a user namespace of any user, may have so many; otherwise a kibibyte suffices.
 * USER_IDS: real, effective, saved, and file system uid. */
enum {
    STATUS_BYTES = 1024 * 1024,
    USER_IDS = 4,
    NUMBERS = 8,
    COUNTED_BYTES = 128 * 1024,
    FIRST_PROCESS = 1
};

struct numbers {
    unsigned count;
    unsigned long number[NUMBERS];
};

/* Reads the numbers after "\nNAME:" in the status, at most NUMBERS of them. */
static void read_numbers(const char *status, const char *name, struct numbers *ret_numbers)
{
    const char *at = strstr(status, name);
    char *end;

    *ret_numbers = (struct numbers){0};
    if (!at)
        return;
    at += strlen(name);
    while (ret_numbers->count < NUMBERS) {
        while (*at == '\t' || *at == ' ')
            at++;
        if (!isdigit((unsigned char)*at))
            return;
        ret_numbers->number[ret_numbers->count++] = strtoul(at, &end, 10);
        at = end;
    }
}

static bool is_roots(const struct numbers *users)
{
    for (unsigned i = 0; i < users->count; i++)
        if (users->number[i] != users->number[0])
            return false;
    return users->count == USER_IDS && (users->number[0] == 0 || users->number[0] == geteuid());
}

/* PROCESS_DENIED means that CAP_SYS_PTRACE is missing. Without it nothing else of the process can
 * be read either, which the volume reports as hypervisor_unreachable; the administrator has to
 * grant it. */
static int judge_program(pid_t pid)
{
    struct stat program;
    int r = process_stat(pid, "exe", &program);

    if (r < 0)
        return r == PROCESS_DENIED ? PROCESS_ROOTS : r;
    return program.st_mode & (S_ISUID | S_ISGID) ? PROCESS_PRIVILEGED : PROCESS_ROOTS;
}

int process_judge(pid_t pid, uid_t *ret_user)
{
    cleanup(buffer_done) struct buffer status = BUFFER_INIT(STATUS_BYTES);
    struct numbers users, pids;
    int r = process_read_file(pid, "status", &status);

    if (r < 0)
        return r;
    read_numbers(buffer_text(&status), "\nUid:", &users);
    read_numbers(buffer_text(&status), "\nNSpid:", &pids);
    if (ret_user)
        *ret_user = users.count ? (uid_t)users.number[0] : (uid_t)-1;
    if (!is_roots(&users))
        return PROCESS_USERS;
    return pids.count > 1 ? PROCESS_CONTAINED : judge_program(pid);
}

/* If the first process's root directory cannot be examined, the process counts as root's. */
int process_judge_unjailed(pid_t pid, uid_t *ret_user)
{
    struct stat own, first;
    int r = process_judge(pid, ret_user);

    if (r != PROCESS_ROOTS)
        return r;
    r = process_stat(pid, "root", &own);
    if (r < 0)
        return r == PROCESS_DENIED ? PROCESS_ROOTS : r;
    if (process_stat(FIRST_PROCESS, "root", &first) < 0)
        return PROCESS_ROOTS;
    return own.st_dev == first.st_dev && own.st_ino == first.st_ino ? PROCESS_ROOTS
                                                                    : PROCESS_ROOTED_APART;
}

int process_read_counted_arguments(const struct process_list *list, pid_t pid,
                                   struct buffer *ret_arguments)
{
    int r = process_list_read_arguments(list, COUNTED_BYTES, ret_arguments);

    if (r < 0 || ret_arguments->length < COUNTED_BYTES)
        return r;
    r = process_judge(pid, NULL);
    if (r != PROCESS_ROOTS)
        return r < 0 ? r : 0;
    buffer_clear(ret_arguments);
    return process_read_arguments(pid, ret_arguments);
}

const char *process_trust_text(enum process_trust trust)
{
    static const char *const texts[] = {
        [PROCESS_ROOTS] = "it is root's",
        [PROCESS_USERS] = "it belongs to another user than root",
        [PROCESS_CONTAINED] = "it runs in a container",
        [PROCESS_PRIVILEGED] = "it runs a set-user-id program, whose arguments any user may choose",
        [PROCESS_ROOTED_APART] = "it has another root directory than the node",
    };

    return texts[trust];
}
