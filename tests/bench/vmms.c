/* SPDX-License-Identifier: Apache-2.0 */
/* vmms.c - processes that stand in for VMMs: vmms -name sandbox-ID, one sandbox id per line of
 * standard input.
 *
 * crustd knows a VMM by its arguments. One program is started, with room for an id among its
 * arguments; each copy that it forks writes its own id there, which /proc/PID/cmdline then shows.
 * So a thousand VMMs cost a thousand forks and hardly any memory. Prints each copy's pid; all end
 * with standard input, if nobody has ended them before.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PREFIX "sandbox-"

enum { ID_CHARS = 64, PREFIX_CHARS = sizeof(PREFIX) - 1 };

/* Returns when the copy has its id. */
static pid_t start_copy(char *argument, const char *id)
{
    int ends[2];
    char byte;
    pid_t parent = getpid(), pid;

    if (pipe(ends) < 0)
        return -1;
    pid = fork();
    (void)close(ends[pid == 0 ? 0 : 1]);
    if (pid != 0) {
        (void)!read(ends[0], &byte, 1);
        (void)close(ends[0]);
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(STDIN_FILENO);
    memcpy(argument + PREFIX_CHARS, id, ID_CHARS);
    (void)close(ends[1]);
    while (getppid() == parent)
        (void)pause();
    _exit(0);
}

int main(int argc, char **argv)
{
    char id[ID_CHARS + 2];

    if (argc != 3 || strlen(argv[2]) != PREFIX_CHARS + ID_CHARS)
        return 2;
    (void)signal(SIGCHLD, SIG_IGN); /* none is waited for */
    while (fgets(id, sizeof(id), stdin)) {
        pid_t pid;

        if (strcspn(id, "\n") != ID_CHARS)
            return 2;
        pid = start_copy(argv[2], id);
        if (pid < 0)
            return 1;
        (void)printf("%d\n", (int)pid);
        (void)fflush(stdout);
    }
    return 0;
}
