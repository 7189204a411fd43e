/* SPDX-License-Identifier: Apache-2.0 */
/* process_trust.c - see process_trust.h.
 *
 * Root in a container without a user namespace has uid 0 on the node as well, so the pid namespace
 * counts too: NSpid in /proc/PID/status lists the pid in the namespace of /proc and in each one
 * below it. After a set-user-id program has called setuid(2), all its ids are 0 although its caller
 * chose the arguments; only the mode of its file reveals that.
 */
#include "lib/process_trust.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/process.h"

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
static int judge_root(pid_t pid)
{
    struct stat own, first;
    int r = process_stat(pid, "root", &own);

    if (r < 0)
        return r == PROCESS_DENIED ? PROCESS_ROOTS : r;
    if (process_stat(FIRST_PROCESS, "root", &first) < 0)
        return PROCESS_ROOTS;
    return own.st_dev == first.st_dev && own.st_ino == first.st_ino ? PROCESS_ROOTS
                                                                    : PROCESS_ROOTED_APART;
}

int process_judge_unjailed(pid_t pid, uid_t *ret_user)
{
    int r = process_judge(pid, ret_user);

    return r == PROCESS_ROOTS ? judge_root(pid) : r;
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
